// Charts of the metrics that a job has printed or reported.
const CHART_SECONDS = 5;
const CHART_HEIGHT = 180;

// A chart for each metric that the job has printed or reported; they are read again while the page is open.
export function showCharts() {
  const section = document.getElementById("charts");
  if (!section) return;
  const plots = document.getElementById("plots");
  const charts = new Map();
  const width = () => Math.min(520, plots.clientWidth);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const chartOf = (name) => {
    const box = document.createElement("figure");
    const caption = document.createElement("figcaption");
    box.append(caption);
    plots.append(box);
    const axes = [0, 1].map(() => ({ stroke: color("--minor"), grid: { stroke: color("--line"), width: 1 } }));
    const options = {
      width: width(), height: CHART_HEIGHT, axes, legend: { show: false },
      scales: { x: { time: false } },
      series: [{}, { label: name, stroke: color("--running"), width: 2 }],
    };
    return { caption, plot: new uPlot(options, [[], []], box) };
  };
  const update = async () => {
    if (document.hidden) return;
    let found;
    try {
      const answer = await fetch(section.dataset.source);
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }
    section.hidden = found.length === 0;
    for (const { name, axis, positions, values } of found) {
      if (!charts.has(name)) charts.set(name, chartOf(name));
      const chart = charts.get(name);
      chart.caption.textContent = name + " by " + axis + ": " + values.at(-1).toPrecision(4);
      chart.plot.setData([positions, values]);
    }
  };
  window.addEventListener("resize", () => {
    for (const { plot } of charts.values()) plot.setSize({ width: width(), height: CHART_HEIGHT });
  });
  update();
  setInterval(update, CHART_SECONDS * 1000);
}
