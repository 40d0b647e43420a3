// A chat: Enter sends without leaving the page, and what is new is read aloud and scrolled to. Without scripts the form is posted.
(() => {
  "use strict";
  const compose = document.getElementById("chat-compose");
  const box = document.getElementById("chat-box");
  const said = document.getElementById("chat-said");
  const wide = matchMedia("(min-width: 64rem)").matches;
  const nearEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 200;
  const toEnd = () => scrollTo(0, document.documentElement.scrollHeight);

  if (compose) {
    const text = compose.elements.text;
    const problem = document.getElementById("chat-problem");
    const button = compose.querySelector("[type=submit]");
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!button.disabled) compose.requestSubmit();
    });
    compose.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      problem.textContent = "";
      try {
        const headers = { Accept: "application/json" };
        const answer = await fetch(compose.action, { method: "POST", headers, body: new FormData(compose) });
        const given = answer.ok ? await answer.json() : { problem: `the server answered ${answer.status}` };
        if (given.problem) {
          problem.textContent = `Nothing was said: ${given.problem}`;
        } else if (!box?.dataset.live) {
          location.assign(given.url);
        } else {
          text.value = "";
          document.dispatchEvent(new Event("live:ask"));
        }
      } catch {
        problem.textContent = "Nothing was said: the server does not answer. Try again.";
      }
      button.disabled = false;
      text.focus();
    });
    if (wide) text.focus({ preventScroll: true });
  }
  if (!box) return;

  const known = new Set();
  function fresh(selector) {
    const parts = [...box.querySelectorAll(selector)].filter((part) => !known.has(part.id));
    for (const part of parts) known.add(part.id);
    return parts;
  }
  // live.js keeps open what is open, so what a person folded stays so
  const unfold = () => fresh(".pl-chat-known > details").forEach((details) => (details.open ||= wide));
  const answers = () => fresh(".pl-by-agent, .pl-turn-failed");
  unfold();
  answers();
  if (compose && !location.hash) toEnd();
  let follow = nearEnd();
  addEventListener("scroll", () => (follow = nearEnd()), { passive: true });
  document.addEventListener("live:shown", () => {
    const parts = answers();
    const text = (part, what) => part.querySelector(what)?.textContent ?? "";
    const words = (part) => [text(part, ".pl-head strong"), text(part, ".pl-text")].filter(Boolean).join(": ");
    unfold();
    if (parts.length) said.textContent = parts.map(words).join(" ");
    if (compose && follow) toEnd();
  });
})();
