// Sends files as soon as they are chosen. Says before that they are too large; the server says it again.
(() => {
  "use strict";
  const input = document.querySelector("input[data-most-bytes]");
  const problem = document.getElementById("files-problem");
  if (!input || !problem) return;
  function send() {
    const size = [...input.files].reduce((sum, file) => sum + file.size, 0);
    const wrong = size > Number(input.dataset.mostBytes) ? `These files are larger than ${input.dataset.most} together.` : "";
    problem.textContent = wrong;
    input.setCustomValidity(wrong);
    if (!wrong && input.files.length) input.form.requestSubmit();
  }
  input.addEventListener("change", send);
  // Files may be chosen before this script is loaded. Those that the browser restores after "Back" are not sent again.
  if (input.files.length && performance.getEntriesByType("navigation")[0]?.type === "navigate") send();
})();
