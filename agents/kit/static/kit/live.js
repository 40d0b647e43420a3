// Keeps the part of a page that carries data-live current: asks its address every two seconds while the page is visible, and fetches the
// page when the answer is another one. The server renders the part, so no text becomes markup here. `data-pace` is another pause in
// milliseconds. The event live:ask on the document asks at once; live:shown says that the part was renewed.
(() => {
  "use strict";
  const box = document.querySelector("[data-live]");
  if (!box) return;
  const pause = () => Number(box.dataset.pace) || 2000; // milliseconds
  let waiting = 0;
  let etag = "";
  let known = null;

  async function ask() {
    const headers = { Accept: "application/json" };
    if (etag) headers["If-None-Match"] = etag;
    const answer = await fetch(box.dataset.live, { headers, cache: "no-store" });
    if (!answer.ok) return ![400, 401, 403, 404].includes(answer.status); // 304: nothing new
    const text = await answer.text();
    const selection = getSelection();
    if (text === known || (!selection.isCollapsed && box.contains(selection.anchorNode))) return true;
    const goesOn = await render();
    etag = answer.headers.get("ETag") ?? "";
    known = text;
    return goesOn;
  }

  async function render() {
    const answer = await fetch(location.href);
    if (!answer.ok) return true;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (!fresh) {
      location.reload(); // it has ended
      return false;
    }
    const atEnd = Math.abs(box.getBoundingClientRect().bottom - innerHeight) < 80;
    const focused = box.contains(document.activeElement) && document.activeElement.closest("[id]")?.id;
    const open = [...box.querySelectorAll("details[id][open]")].map((details) => details.id);
    box.replaceChildren(...fresh.childNodes);
    Object.assign(box.dataset, fresh.dataset);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) (document.querySelector(`#${CSS.escape(focused)} > summary`) ?? document.getElementById(focused))?.focus();
    if (atEnd) box.scrollIntoView({ block: "end" });
    document.dispatchEvent(new Event("live:shown"));
    return true;
  }

  async function watch() {
    const goesOn = document.hidden || (await ask().catch(() => true)); // the server may be away for a moment
    clearTimeout(waiting);
    if (goesOn) waiting = setTimeout(watch, pause());
  }
  waiting = setTimeout(watch, pause());
  document.addEventListener("live:ask", () => {
    clearTimeout(waiting);
    watch();
  });
})();
