// Keeps the part of a page that carries data-live current. What is new is told by an event stream (docs/api.md, "Live progress"), or asked
// for every few seconds where there is none; the server renders the part anew, so that nothing is made out of texts here.
(() => {
  "use strict";
  const box = document.querySelector("[data-live]");
  if (!box) return;
  const PAUSE = 2000; // milliseconds between two renderings
  const ASK = 5000; // between two questions
  const WENT_WRONG = [400, 401, 403, 404];
  let last = box.dataset.liveFrom || "";
  let source = null;
  let asking = 0;
  let rendering = 0;
  let over = false;

  const address = (more) => {
    const url = new URL(box.dataset.live, location.href);
    for (const [name, value] of Object.entries({ ...more, last_event_id: last })) if (value) url.searchParams.set(name, value);
    return url;
  };
  const changed = () => {
    rendering ||= setTimeout(render, PAUSE);
  };
  const ended = () => {
    over = true;
    rest();
    location.reload();
  };

  async function render() {
    const selection = getSelection();
    if (!selection.isCollapsed && box.contains(selection.anchorNode)) {
      rendering = setTimeout(render, PAUSE); // somebody is about to copy
      return;
    }
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-live]");
      if (answer.ok && !fresh) return ended();
      if (fresh) {
        const atEnd = Math.abs(box.getBoundingClientRect().bottom - innerHeight) < 80;
        const open = [...box.querySelectorAll("details[id][open]")].map((details) => details.id);
        box.replaceChildren(...fresh.childNodes);
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        if (atEnd) box.scrollIntoView({ block: "end" });
      }
    } catch {
      // the server is away; whatever comes next renders it
    } finally {
      rendering = 0;
    }
  }

  async function ask() {
    asking = 0;
    try {
      const answer = await fetch(address({ wait: "0" }), { headers: { Accept: "application/json" } });
      if (WENT_WRONG.includes(answer.status)) return;
      if (answer.ok) {
        const found = await answer.json();
        last = found.last_event_id;
        if (found.done) return ended();
        if (found.events.length) changed();
      }
    } catch {
      // away for a moment
    }
    if (!over && !document.hidden) asking ||= setTimeout(ask, ASK);
  }

  function listen() {
    if (over || source || asking || document.hidden) return;
    if (!("liveStream" in box.dataset)) return ask();
    source = new EventSource(address({}));
    for (const kind of ["message", "step", "progress"]) {
      source.addEventListener(kind, (event) => {
        last = event.lastEventId;
        changed();
      });
    }
    source.addEventListener("end", ended);
    source.addEventListener("gone", ended);
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return; // it comes back by itself
      rest(); // no room for a stream
      asking = setTimeout(ask, ASK);
    });
  }

  function rest() {
    source?.close();
    clearTimeout(asking);
    source = null;
    asking = 0;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
  addEventListener("pagehide", rest);
  addEventListener("pageshow", listen); // also when the browser brings the page back from its memory
})();
