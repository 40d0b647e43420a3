// Counts at once what a typed threshold would have done, in the numbers that stand in the page; without scripts the button asks the server.
const Z2 = 1.959963984540054 ** 2; // two-sided 95 % of the normal distribution

const sum = (rows, below, column = 1) => rows.reduce((total, row) => total + (row[0] < below ? row[column] : 0), 0);
const grouped = (number) => number.toLocaleString("en");
// Where messages of sampled conversations stand for unequally many, the percentage counts these, as `share` in correction/admin/display.py.
function share(part, all, weight, allWeight) {
  if (!all) return `${grouped(part)} of ${grouped(all)}`;
  const weighted = Math.abs(weight / allWeight - part / all) > 1e-9;
  return `${grouped(part)} of ${grouped(all)} (${weighted ? "weighted " : ""}${Math.round((100 * weight) / allWeight)} %)`;
}

function precision(right, wrong) {
  const marked = right + wrong;
  if (!marked) return "no alarm below it was marked right or false alarm yet";
  const p = right / marked; // Wilson's interval, as in correction/gate/thresholds.py
  const centre = (p + Z2 / (2 * marked)) / (1 + Z2 / marked);
  const half = (Math.sqrt(Z2) / (1 + Z2 / marked)) * Math.sqrt((p * (1 - p)) / marked + Z2 / (4 * marked ** 2));
  const [low, high] = [Math.max(0, centre - half), Math.min(1, centre + half)].map((x) => Math.round(100 * x));
  const found = `${Math.round(100 * p)} % (95 % interval ${low} to ${high} %)`;
  return `${grouped(right)} of ${grouped(marked)} marked alarms below it were right, ${found}`;
}

// Which messages at least one of the ticked thresholds sends back: their rows, and how many.
function recount() {
  const total = document.querySelector("[data-total]");
  if (!total) return;
  const limits = [...document.querySelectorAll("[data-threshold]")]
    .filter((box) => box.querySelector("[type=checkbox]:checked"))
    .map((box) => [box.dataset.threshold, Math.round(10 * box.querySelector("[data-typed]").valueAsNumber)]);
  let back = 0;
  let weight = 0;
  for (const row of document.querySelectorAll("[data-messages] tr")) {
    row.hidden = !limits.some(([dimension, below]) => row.dataset[dimension] < below);
    if (row.hidden) continue;
    back += 1;
    weight += Number(row.dataset.weight);
  }
  total.textContent = share(back, Number(total.dataset.total), weight, Number(total.dataset.weight));
}

document.addEventListener("change", ({ target }) => target.matches("[data-threshold] [type=checkbox]") && recount());

// On the document: the form of one cell is put into the matrix later.
document.addEventListener("input", ({ target: typed }) => {
  const box = typed.matches("[data-typed]") && typed.closest("[data-threshold]");
  if (!box) return;
  const counts = JSON.parse(box.querySelector("[data-counts]").textContent);
  const put = (name, text) => {
    const place = box.querySelector(`[data-${name}]`);
    if (place) place.textContent = text;
  };
  const value = Math.round(typed.valueAsNumber * 10) / 10;
  const allowed = value >= 0 && value <= 9;
  put("error", allowed || !typed.value ? "" : "0 to 9, with one decimal place");
  if (!allowed) return;
  const below = Math.round(value * 10);
  const totals = [sum(counts.drafts, Infinity), sum(counts.weights, below), sum(counts.weights, Infinity)];
  put("failed", share(sum(counts.drafts, below), ...totals));
  put("precision", precision(sum(counts.marks, below), sum(counts.marks, below, 2)));
  box.querySelector("[data-now]")?.removeAttribute("hidden");
  recount();
});
