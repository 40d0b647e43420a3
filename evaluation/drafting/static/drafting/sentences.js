// Chooses the sentence whose blank a person types into; without scripts its radio button does.
document.getElementById("pl-proposition")?.addEventListener("input", ({ target }) => {
  const radio = target.type !== "radio" && target.closest(".pl-sentence")?.querySelector("[type=radio]");
  if (radio) radio.checked = true;
});
