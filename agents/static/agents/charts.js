// What JSON cannot say to the theme's charts (Chart.js): the console's colours in both themes, days on an axis, links, markers, bars of error.
(() => {
  "use strict";
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const linked = (chart, [hit]) => hit && chart.data.datasets[hit.datasetIndex].data[hit.index].url;

  function scales({ data, type }) {
    const ticks = { color: () => colour("--pl-subtle"), maxRotation: 0 };
    const y = { border: { display: false }, ticks: { ...ticks, precision: 0, maxTicksLimit: 5 } };
    if (type === "bar") return { x: { stacked: true, grid: { display: false }, ticks }, y: { ...y, stacked: true, beginAtZero: true } };
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

  Chart.register({
    id: "console",
    beforeInit(chart) {
      const { data, options } = chart.config;
      Object.assign(options, { animation: false, maintainAspectRatio: false, scales: scales({ data, type: chart.config.type }) });
      options.interaction = { mode: "nearest", intersect: chart.config.type === "bar" };
      const tooltip = { callbacks: { title: () => "", label: (item) => item.raw.text ?? "" } };
      options.plugins = { legend: { display: false }, tooltip };
      options.onClick = (event, hits) => linked(chart, hits) && location.assign(linked(chart, hits));
      options.onHover = (event, hits) => (chart.canvas.style.cursor = linked(chart, hits) ? "pointer" : "");
      for (const dataset of data.datasets) {
        const own = () => colour(dataset.colour);
        const inside = ({ raw }) => (raw?.hollow ? colour("--pl-page") : own());
        Object.assign(dataset, { borderColor: own, backgroundColor: chart.config.type === "bar" ? own : inside, borderWidth: chart.config.type === "bar" ? 0 : 2, clip: 8 });
      }
    },
    afterDatasetsDraw({ ctx, chartArea: area, data, scales: { x, y } }) {
      ctx.save();
      for (const { colour: name, data: points } of data.datasets)
        for (const { x: at, y: value, error } of points)
          if (error && value !== null) stroke(ctx, name, [], x.getPixelForValue(at), y.getPixelForValue(value + error), y.getPixelForValue(value - error));
      ctx.lineWidth = 2;
      const [low, high] = data.axis;
      for (const { at, colour: name } of data.markers)
        stroke(ctx, name, [5, 3], area.left + (area.width ?? area.right - area.left) * ((at - low) / (high - low)), area.top, area.bottom);
      ctx.restore();
    },
  });
})();
