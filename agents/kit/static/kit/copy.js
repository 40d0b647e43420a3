// Copies the text of the element that a button names: <button data-copies="ID">. Browsers allow that on HTTPS and on this machine
// alone; elsewhere the text is selected, so that it can be copied by hand.
document.addEventListener("click", async (event) => {
  "use strict";
  const button = event.target.closest("[data-copies]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copies);
  let outcome = "Copied";
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    outcome = "Selected, not copied";
  }
  button.removeAttribute("aria-label");
  button.textContent = outcome;
});
