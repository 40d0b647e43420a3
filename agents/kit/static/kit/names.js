// Gives the boxes that select2 puts in the place of a <select> the name of that <select>, for people who hear the page.
(() => {
  "use strict";
  const PARTS = "[role=combobox], [role=textbox], [role=searchbox]";
  const name = (box) => {
    const select = box.previousElementSibling;
    const label = select?.getAttribute("aria-label") || select?.labels?.[0]?.textContent.trim();
    if (label) for (const part of box.querySelectorAll(PARTS)) part.setAttribute("aria-label", label);
  };
  const look = (changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes)
        if (node.nodeType === 1) for (const box of [node, ...node.querySelectorAll(".select2-container")]) if (box.matches(".select2-container")) name(box);
  };
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
