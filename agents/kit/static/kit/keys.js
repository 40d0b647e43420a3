// Presses the link or button whose data-key names the key that was pressed, such as data-key="j ArrowRight".
(() => {
  "use strict";
  const ELSEWHERE = "input, textarea, select, [contenteditable], [role=dialog], [tabindex]"; // there a key means something else
  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.(ELSEWHERE)) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const named = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key.split(" ").includes(pressed));
    if (!named) return;
    event.preventDefault();
    named.click();
  });
})();
