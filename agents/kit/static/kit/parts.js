// Follows a link to a part of a page that is on another of its tabs: <a data-part="ID" href="…" hidden> says where it is.
document.addEventListener("DOMContentLoaded", () => {
  "use strict";
  const id = location.hash.slice(1);
  if (!id || document.getElementById(id)) return;
  const elsewhere = [...document.querySelectorAll("[data-part]")].find((link) => link.dataset.part === id);
  if (elsewhere) location.replace(elsewhere.href);
});
