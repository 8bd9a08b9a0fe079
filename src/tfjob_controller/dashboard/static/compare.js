// The page that compares jobs: one metric of all of them in a chart, and its values in a table.
import { chartControls, drawChart, durationText } from "./charts.js";

const READ_SECONDS = 10;
const figureText = (value) => (typeof value === "string" ? value : Number(value.toPrecision(5)).toString());

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A job's series of a metric by its steps, or by the seconds since its start; null if it has none. `count` and the extremes, with
// their positions, are those of all values, of which a long series has only some.
function seriesOf(job, name, byTime) {
  const metric = job.metrics.find((each) => each.name === name);
  if (!metric) return null;
  const { count, last, values } = metric, times = metric.times || [];
  const series = (axis, positions, values, last, place) => ({
    label: job.label, axis, positions, values, count, last,
    least: metric.least?.[0], greatest: metric.greatest?.[0], leastAt: metric.least && place(metric.least), greatestAt: metric.greatest && place(metric.greatest),
  });
  if (!byTime || !values.length) return series(metric.axis, metric.positions, values, last, ([, position]) => position);
  if (times.length !== metric.values.length) return null;
  const order = [...times.keys()].sort((one, other) => times[one] - times[other]);
  const start = job.started && job.started <= times[order[0]] ? job.started : times[order[0]];
  return series(
    "elapsed", order.map((index) => times[index] - start), order.map((index) => values[index]),
    typeof last === "string" ? last : values[order.at(-1)], ([, , at]) => at - start,
  );
}

const hasTimes = (job, name) => job.metrics.some((each) => each.name === name && (each.times || []).length === each.values.length && each.values.length);

function extreme(value, position, axis) {
  if (value === undefined) return ["–"];
  return [figureText(value), axis === "elapsed" ? durationText(position) : `${axis} ${figureText(position)}`];
}

function valueRow(series, color) {
  const row = element("tr"), head = element("th");
  head.scope = "row";
  head.append(element("span", `key series-${color}`), ` ${series.label}`);
  row.append(head);
  const add = (label, value, where) => {
    const cell = element("td", "number", value);
    cell.dataset.label = label;
    if (where) cell.append(" ", element("span", "minor", `at ${where}`));
    row.append(cell);
  };
  add("Last", figureText(series.last));
  add("Least", ...extreme(series.least, series.leastAt, series.axis));
  add("Greatest", ...extreme(series.greatest, series.greatestAt, series.axis));
  add("Values", String(series.count));
  return row;
}

export function showComparison() {
  const section = document.getElementById("comparison");
  if (!section) return;
  const part = (name) => document.getElementById(`comparison-${name}`);
  const choice = part("metric"), controls = part("controls"), chart = part("chart"), table = part("values");
  const clock = controls.querySelector('[data-setting="clock"]');
  const jobs = [...document.querySelectorAll("[data-source][data-started]")].map(({ dataset }) => (
    { label: dataset.label, source: dataset.source, started: Number(dataset.started), hasEnded: "ended" in dataset, metrics: [], isRead: false }
  ));
  const names = jobs.map(({ label }) => label);
  // Jobs of two namespaces may have one name.
  for (const job of jobs) if (names.filter((name) => name === job.label).length > 1) job.label = job.source.split("/").slice(2).join("/");

  // Those that most jobs have come first.
  const offer = () => {
    const counts = new Map();
    for (const job of jobs) for (const { name } of job.metrics) counts.set(name, (counts.get(name) || 0) + 1);
    const offered = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one));
    const key = JSON.stringify(offered.map((name) => [name, counts.get(name)]));
    if (key === choice.dataset.names) return;
    const wanted = offered.includes(section.dataset.metric) ? section.dataset.metric : choice.value;
    choice.dataset.names = key;
    choice.replaceChildren(...offered.map((name) => new Option(counts.get(name) === jobs.length ? name : `${name} (${counts.get(name)} of ${jobs.length} jobs)`, name)));
    if (offered.includes(wanted)) choice.value = wanted;
  };

  const draw = () => {
    const name = choice.value, isKnown = jobs.every(({ isRead }) => isRead);
    controls.hidden = chart.hidden = !name;
    table.closest(".scroll").hidden = !name;
    part("empty").hidden = Boolean(name);
    if (!name) {
      if (isKnown) part("empty").textContent = "None of these jobs has printed or reported a metric.";
      return;
    }
    const timed = jobs.some((job) => hasTimes(job, name));
    clock.closest("label").hidden = !timed;
    const found = jobs.map((job) => seriesOf(job, name, timed && settings.clock));
    const shown = found.filter((each) => each?.values.length), axes = [...new Set(shown.map(({ axis }) => axis))];
    const axis = axes.length === 1 ? axes[0] : "position";
    // The place of a job decides its colour, so that one without this metric changes no other's.
    const series = found.map((each, index) => each || { label: jobs[index].label, positions: [], values: [] });
    drawChart(chart, { name, axis, series }, settings);
    table.replaceChildren(...found.flatMap((each, index) => (each ? [valueRow(each, index + 1)] : [])));
    const without = jobs.filter((_, index) => !found[index]).map(({ label }) => label);
    const notes = [];
    if (without.length && isKnown) notes.push(`No values of ${name}${timed && settings.clock ? " with times" : ""}: ${without.join(", ")}.`);
    if (axes.length > 1) notes.push(`Not all jobs print steps: ${shown.map(({ label, axis }) => `${label} by ${axis}`).join(", ")}.`);
    part("notes").textContent = notes.join(" ");
  };

  const read = async (job) => {
    try {
      const answer = await fetch(job.source);
      if (answer.ok) job.metrics = await answer.json();
      job.isRead ||= answer.ok || answer.status < 500;
    } catch { return; }
    offer();
    draw();
  };
  const update = () => { if (!document.hidden) for (const job of jobs) if (!job.hasEnded || !job.isRead) read(job); };
  choice.addEventListener("change", () => {
    section.dataset.metric = choice.value;
    const url = new URL(location.href);
    url.searchParams.set("metric", choice.value);
    history.replaceState(history.state, "", url);
    draw();
  });
  const settings = chartControls(controls, draw);
  update();
  setInterval(update, READ_SECONDS * 1000);
}
