// Says that something is under way after a button was pressed whose page takes its time, and keeps it from being pressed twice.
for (const form of document.querySelectorAll("form[data-busy]")) {
  form.addEventListener("submit", (event) => {
    if (!event.submitter || !("busyButton" in event.submitter.dataset)) return;
    form.querySelector("[data-busy-says]").textContent = form.dataset.busy;
    setTimeout(() => event.submitter.setAttribute("disabled", ""), 0); // after the browser took its name
    addEventListener("pageshow", () => event.submitter.removeAttribute("disabled"));
  });
}
