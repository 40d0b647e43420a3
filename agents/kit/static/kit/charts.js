// What JSON cannot say to the theme's charts (Chart.js): the console's colours in both themes, days on an axis, links, markers, bars of error, zoom.
(() => {
  "use strict";
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const linked = (chart, [hit]) => hit && chart.data.datasets[hit.datasetIndex].data[hit.index].url;

  function scales(data) {
    const ticks = { color: () => colour("--pl-subtle"), maxRotation: 0 };
    const y = { border: { display: false }, ticks: { ...ticks, precision: 0, maxTicksLimit: 5 } };
    const x = { type: "linear", min: data.axis[0], max: data.axis[1], grid: { display: false }, ticks };
    x.afterBuildTicks = (scale) => (scale.ticks = data.days.map(([value]) => ({ value })));
    x.ticks = { ...ticks, align: "inner", callback: (value) => data.days.find(([at]) => at === value)?.[1] ?? "" };
    return { x, y: { ...y, min: data.y[0], max: data.y[1], ticks: { ...y.ticks, precision: data.step ? undefined : 0, stepSize: data.step ?? (data.y[1] - data.y[0]) / 3 } } };
  }

  function stroke(ctx, name, dash, x, top, bottom) {
    ctx.beginPath();
    ctx.strokeStyle = colour(name);
    ctx.setLineDash(dash);
    ctx.moveTo(x, top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }

  // Show a part of the axis: with buttons, from the keyboard too, and by dragging over the chart.
  function zoomed(chart, buttons) {
    const whole = [...chart.data.axis], days = chart.data.days;
    const day = new Intl.DateTimeFormat("en-GB", { timeZone: chart.data.zone, day: "numeric", month: "short", year: "numeric" });
    const show = (low, high, pressed) => {
      const all = low <= whole[0] && high >= whole[1];
      chart.data.axis = all ? whole : [low, high];
      chart.data.days = all ? days : chart.data.axis.map((at) => [at, day.format(at * 1000)]);
      const x = chart.options.scales.x;
      [x.min, x.max] = chart.data.axis;
      for (const button of buttons.querySelectorAll("button")) button.setAttribute("aria-pressed", button === pressed);
      chart.update();
    };
    buttons.hidden = false;
    buttons.addEventListener("click", ({ target }) => {
      if (target.dataset.days === undefined) return;
      show(target.dataset.days ? whole[1] - target.dataset.days * 86400 : whole[0], whole[1], target);
    });
    const at = (event) => chart.scales.x.getValueForPixel(Math.min(Math.max(event.offsetX, chart.chartArea.left), chart.chartArea.right));
    chart.canvas.addEventListener("pointerdown", (event) => event.pointerType === "mouse" && (chart.from = at(event)));
    chart.canvas.addEventListener("pointermove", (event) => {
      if (chart.from === undefined) return;
      chart.to = at(event);
      chart.draw();
    });
    window.addEventListener("pointerup", () => {
      const { from, to } = chart;
      chart.from = chart.to = undefined;
      if (to === undefined) return;
      const few = Math.abs(chart.scales.x.getPixelForValue(to) - chart.scales.x.getPixelForValue(from)) < 8;
      chart.dragged = !few;
      if (few) chart.draw();
      else show(Math.min(from, to), Math.max(from, to));
    });
  }

  Chart.register({
    id: "console",
    beforeInit(chart) {
      const { data, options } = chart.config;
      Object.assign(options, { animation: false, maintainAspectRatio: false, scales: scales(data) });
      options.interaction = { mode: "nearest", intersect: Boolean(data.exact) };
      if (data.markers.some(({ name }) => name)) options.layout = { padding: { top: 16 } };
      const tooltip = { callbacks: { title: () => "", label: (item) => item.raw.text ?? "" } };
      options.plugins = { legend: { display: false }, tooltip };
      options.onClick = (event, hits) => {
        if (!chart.dragged && linked(chart, hits)) location.assign(linked(chart, hits));
        chart.dragged = false;
      };
      options.onHover = (event, hits) => (chart.canvas.style.cursor = linked(chart, hits) ? "pointer" : "");
      for (const dataset of data.datasets) {
        const own = () => colour(dataset.colour);
        const inside = () => (dataset.fill || dataset.showLine === false ? `${own()}${dataset.fill ? "22" : "99"}` : own());
        Object.assign(dataset, { borderColor: own, backgroundColor: inside, borderWidth: dataset.edge ? 0 : dataset.showLine === false ? 1 : 2, clip: 8 });
      }
    },
    afterInit(chart) {
      const buttons = chart.canvas.closest("figure")?.querySelector(".pl-zoom");
      if (buttons) zoomed(chart, buttons);
    },
    afterDatasetsDraw({ ctx, chartArea: area, data, from, to, scales: { x, y } }) {
      ctx.save();
      for (const { colour: name, data: points } of data.datasets)
        for (const { x: at, y: value, error } of points)
          if (error && value !== null) stroke(ctx, name, [], x.getPixelForValue(at), y.getPixelForValue(value + error), y.getPixelForValue(value - error));
      ctx.lineWidth = 2;
      const [low, high] = data.axis;
      for (const { at, colour: name, name: short } of data.markers) {
        if (at < low || at > high) continue;
        const left = area.left + (area.width ?? area.right - area.left) * ((at - low) / (high - low));
        stroke(ctx, name, [5, 3], left, area.top, area.bottom);
        if (!short) continue;
        ctx.fillStyle = colour(name);
        ctx.font = "12px Inter, sans-serif";
        const after = left + ctx.measureText(short).width + 6 < area.right;
        ctx.textAlign = after ? "left" : "right";
        ctx.fillText(short, left, area.top - 5);
      }
      if (to !== undefined) {
        ctx.fillStyle = `${colour("--pl-chart-0")}33`;
        ctx.fillRect(x.getPixelForValue(from), area.top, x.getPixelForValue(to) - x.getPixelForValue(from), area.bottom - area.top);
      }
      ctx.restore();
    },
  });
})();
