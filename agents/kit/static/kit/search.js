// Lets a person type at once after opening the search (Ctrl+K). The theme shows its box in the next frame and focuses it after 20 ms:
// where the frame comes later it focuses a box that is hidden, and what is typed is lost.
(() => {
  "use strict";
  const input = () => document.getElementById("search-input-command");
  const focusBox = () => {
    const box = input();
    if (!box) return;
    box.closest("[x-show]").style.removeProperty("display"); // what the theme does in the next frame
    box.focus();
  };
  // Once the theme listens, so that its own listeners come first.
  document.addEventListener("alpine:initialized", () => {
    window.addEventListener("opencommand", focusBox);
    window.addEventListener("keydown", (event) => {
      const isShortcut = event.key === "k" && (event.ctrlKey || event.metaKey);
      if (isShortcut && event.defaultPrevented) focusBox(); // the theme has opened it
    });
  });
  // The browser takes the focus off a hidden box in a later frame, until which the theme takes Ctrl+K for typing.
  window.addEventListener("keydown", (event) => {
    const closes = event.key === "Escape" && event.target === input() && event.target.value === "";
    if (closes) event.target.blur();
  }, true);
})();
