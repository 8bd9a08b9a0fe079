// Charts of metrics.
//
// drawChart(figure, chart, settings) draws into a <figure>, and again whenever it is called for that figure:
//   chart    { name, axis, series: [{ label, positions, values, last, least, greatest }] }: positions ascend; with the axis "time"
//            they are seconds since 1970, with "elapsed" seconds, otherwise (step, line, report) plain numbers. Eight series have
//            colours. The last three are figures for the caption, of more values than the chart has; `last` is "nan", "inf" or
//            "-inf" if the newest value is not finite. A series without values has no `least`.
//   settings { log, smoothing }: whether the vertical axis is logarithmic, and the weight, from 0 to below 1, of what came
//            before in the exponential moving average that is drawn over the faint values.
// It sets data-scale (linear, log), data-smoothing and data-points on the figure. The caption has the last, least and
// greatest value of each series as text. All charts of a page share the cursor: a pointer over one, or the keys Left, Right,
// Home, End and Escape in it, show the values at that position in all, in their .readout.
// removeChart(figure) forgets it. chartControls(box, redraw) connects controls in `box` with data-setting="log" (a checkbox),
// "smoothing" (a range) and "clock" (a checkbox: positions by time); it returns the settings, which it keeps in localStorage,
// and calls redraw(settings) when they change, or when the colour scheme does.

const CHART_SECONDS = 5;
const CHART_HEIGHT = 220;
const SHOWN_AT_FIRST = 6;
const MAX_COLORS = 8;
const SYNC = "metrics";
const SETTINGS = "tfjob-charts";
const drawn = new WeakMap();
const scheme = matchMedia("(prefers-color-scheme: dark)");

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const figureText = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : Number(value.toPrecision(4)).toString());

// The text beside the vertical axis: short whatever the size of the value.
export function axisText(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  return size && (size < 1e-4 || size >= 1e6) ? Number(value.toPrecision(4)).toExponential().replace("e+", "e") : figureText(value);
}
const axisSize = (texts) => Math.max(48, 18 + 7 * Math.max(0, ...(texts || []).map(({ length }) => length)));

// The power of ten that values are divided by, since uPlot draws no axis for sizes far from 1.
export function unitOf(chart) {
  const greatest = chart.series.reduce((most, { values }) => values.reduce((size, value) => Math.max(size, Math.abs(value)), most), 0);
  const exponent = greatest ? Math.floor(Math.log10(greatest)) : 0;
  return Math.abs(exponent) > 12 ? Number(`1e${Math.max(-300, exponent)}`) : 1;
}

// In UTC, as in the log and the timeline.
const timeText = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ");
const timeTicks = (_, splits, __, ___, step) => splits.map((each) => timeText(each).slice(...(step < 60 ? [11, 19] : step < 86400 ? [11, 16] : [5, 10])));

function positionText(axis, value) {
  if (axis === "time") return timeText(value).slice(0, 19);
  if (axis === "elapsed") return durationText(value);
  return `${axis} ${figureText(value)}`;
}

export function durationText(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const from = parts.findIndex(([size]) => seconds >= size);
  if (from < 0) return "0s";
  let rest = Math.round(seconds);
  return parts.slice(from, from + 2).map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count ? count + unit : "";
  }).join(" ").trim();
}

// As TensorBoard smooths: the average begins at the first value instead of at 0.
export function smoothed(values, weight) {
  let last = 0, sum = 0;
  return values.map((value) => {
    last = last * weight + value * (1 - weight);
    sum = sum * weight + (1 - weight);
    return last / sum;
  });
}

const positive = (values) => values.map((value) => (value > 0 ? value : null));

// The columns of a plot, and the series that each one belongs to.
function columns(chart, settings, isLog, unit) {
  const weight = Number(settings.smoothing) || 0;
  const tables = [], owners = [];
  chart.series.forEach(({ positions, values }, index) => {
    const shown = unit === 1 ? values : values.map((value) => value / unit);
    const lines = weight ? [shown, smoothed(shown, weight)] : [shown];
    tables.push([positions, ...lines.map((line) => (isLog ? positive(line) : line))]);
    lines.forEach((_, number) => owners.push({ index, isFaint: weight > 0 && number === 0 }));
  });
  return { data: tables.length > 1 ? uPlot.join(tables) : tables[0] || [[]], owners };
}

const canBeLog = (chart) => chart.series.some(({ values }) => values.some((value) => value > 0));

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function summaryOf(prefix, { values, last, least, greatest }, weight) {
  if (!values.length) return `${prefix}${last ? `last ${last}, and no finite value to draw` : "no value"}`;
  const average = weight ? ` (smoothed ${figureText(smoothed(values, weight).at(-1))})` : "";
  return `${prefix}last ${figureText(last)}${average}, least ${figureText(least)}, greatest ${figureText(greatest)}`;
}

function writeCaption(caption, chart, settings, isLog) {
  const weight = Number(settings.smoothing) || 0;
  const title = element("strong", "", chart.name);
  const by = { time: "by time (UTC)", elapsed: "by time since the start" }[chart.axis] || `by ${chart.axis}`;
  const parts = [title, " ", element("span", "minor", by + (isLog ? ", log scale" : settings.log ? ", no positive values" : ""))];
  const list = element("ul", "series");
  chart.series.forEach((series, index) => {
    const text = summaryOf(chart.series.length > 1 ? `${series.label}: ` : "", series, weight);
    list.append(element("li", `series-${(index % MAX_COLORS) + 1}`, text));
  });
  caption.replaceChildren(...parts, list);
}

function readAt(state, index) {
  const { chart, plot, owners, readout } = state;
  if (index === null || index === undefined || plot.data[0][index] === undefined) {
    readout.replaceChildren();
    return;
  }
  const parts = [element("span", "minor", positionText(chart.axis, plot.data[0][index]))];
  owners.forEach(({ index: of, isFaint }, column) => {
    const value = plot.data[column + 1][index];
    if (value === null || value === undefined) return;
    const label = chart.series.length > 1 ? `${chart.series[of].label} ` : "";
    parts.push(element("span", isFaint ? "minor" : `series-${(of % MAX_COLORS) + 1}`, label + figureText(value * state.unit)));
  });
  readout.replaceChildren(...parts.flatMap((part) => [part, " "]));
}

function makePlot(state, data, isLog) {
  const { chart, box, owners, unit } = state;
  const axis = { stroke: color("--minor"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const ticks = { elapsed: { values: (_, splits) => splits.map(durationText) }, time: { values: timeTicks } }[chart.axis] || {};
  const lines = owners.map(({ index, isFaint }) => {
    const stroke = color(`--series-${(index % MAX_COLORS) + 1}`);
    return { stroke, width: isFaint ? 1 : 2, alpha: isFaint ? 0.35 : 1, spanGaps: true, points: { show: data[0].length === 1 } };
  });
  const options = {
    width: Math.max(1, box.clientWidth), height: CHART_HEIGHT, legend: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [{ ...axis, ...ticks, size: 32 }, { ...axis, size: (_, texts) => axisSize(texts), values: (_, splits) => splits.map((each) => axisText(each === null ? null : each * unit)) }],
    scales: { x: { time: chart.axis === "time" }, y: isLog ? { distr: 3 } : {} },
    series: [{}, ...lines],
    cursor: { y: false, drag: { x: true, y: false }, sync: { key: SYNC, scales: ["x", null] } },
    hooks: { setCursor: [(plot) => { if (state.plot === plot) readAt(state, plot.cursor.idx); }] },
  };
  return new uPlot(options, data, box);
}

function moveCursor(state, key) {
  const { plot } = state, last = plot.data[0].length - 1;
  const at = plot.cursor.idx ?? (key === "ArrowLeft" ? last + 1 : -1);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[key];
  const index = Math.min(last, Math.max(0, next));
  plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: 0 }, true, true);
}

function newState(figure) {
  const caption = element("figcaption"), readout = element("p", "readout"), box = element("div", "plot");
  const state = { figure, caption, readout, box, chart: null, plot: null, owners: [], unit: 1, key: "" };
  box.tabIndex = 0;
  box.setAttribute("role", "img");
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") state.plot?.setCursor({ left: -10, top: -10 }, true, true);
    else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) moveCursor(state, event.key);
    else return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
  });
  box.addEventListener("blur", () => readout.removeAttribute("aria-live"));
  figure.classList.add("chart");
  figure.replaceChildren(caption, readout, box);
  state.sizes = new ResizeObserver(() => {
    if (state.plot && box.clientWidth && box.clientWidth !== state.plot.width) state.plot.setSize({ width: box.clientWidth, height: CHART_HEIGHT });
  });
  state.sizes.observe(box);
  drawn.set(figure, state);
  return state;
}

export function drawChart(figure, chart, settings) {
  const state = drawn.get(figure) || newState(figure);
  const isLog = Boolean(settings.log) && canBeLog(chart);
  const unit = unitOf(chart);
  const { data, owners } = columns(chart, settings, isLog, unit);
  const key = JSON.stringify([isLog, chart.axis, scheme.matches, owners, unit]);
  Object.assign(state, { chart, owners, unit });
  state.box.hidden = !data[0].length;
  writeCaption(state.caption, chart, settings, isLog);
  state.box.setAttribute("aria-label", `Chart of ${chart.name}; the arrow keys show its values`);
  if (state.key === key && state.plot) {
    state.plot.setData(data);
  } else {
    state.plot?.destroy();
    state.plot = makePlot(state, data, isLog);
    state.key = key;
  }
  readAt(state, state.plot.cursor.idx);
  Object.assign(figure.dataset, { scale: isLog ? "log" : "linear", smoothing: String(settings.smoothing || 0), points: String(data[0].length) });
}

export function removeChart(figure) {
  const state = drawn.get(figure);
  if (!state) return;
  state.sizes.disconnect();
  state.plot?.destroy();
  drawn.delete(figure);
  figure.remove();
}

function stored() {
  try { return JSON.parse(localStorage.getItem(SETTINGS)) || {}; } catch { return {}; }
}
export function keepSettings(settings) {
  try { localStorage.setItem(SETTINGS, JSON.stringify(settings)); } catch { /* a browser that stores nothing */ }
}

export function chartControls(box, redraw) {
  const kept = stored();
  const settings = {
    log: kept.log === true, clock: kept.clock === true,
    smoothing: Math.min(0.99, Math.max(0, Number(kept.smoothing) || 0)), hidden: Array.isArray(kept.hidden) ? kept.hidden : [],
    shown: Array.isArray(kept.shown) ? kept.shown : [],
  };
  for (const control of box.querySelectorAll("[data-setting]")) {
    const name = control.dataset.setting, output = control.parentElement.querySelector("output");
    const isCheck = control.type === "checkbox";
    if (isCheck) control.checked = settings[name];
    else control.value = settings[name];
    const say = () => { if (output) output.textContent = Number(control.value).toFixed(2); };
    say();
    control.addEventListener("input", () => {
      settings[name] = isCheck ? control.checked : Number(control.value);
      say();
      keepSettings(settings);
      redraw(settings);
    });
  }
  scheme.addEventListener("change", () => redraw(settings));
  return settings;
}

// The charts of a job's page: one for each metric that the job has printed or reported, read again while the page is open.
export function showCharts() {
  const section = document.getElementById("charts");
  if (!section) return;
  const plots = document.getElementById("plots"), choice = document.getElementById("chart-choice");
  const empty = document.getElementById("charts-empty"), controls = document.getElementById("chart-controls");
  const clock = controls.querySelector('[data-setting="clock"]');
  const figures = new Map();
  let found = [];

  const isShown = (name, index) => settings.shown.includes(name) || (index < SHOWN_AT_FIRST && !settings.hidden.includes(name));
  const chartOf = ({ name, axis, positions, values, times, last, least, greatest }) => {
    const byTime = settings.clock && values.length && times.length === values.length;
    const order = byTime ? [...times.keys()].sort((one, other) => times[one] - times[other]) : null;
    const shown = order
      ? { positions: order.map((index) => times[index]), values: order.map((index) => values[index]), last: typeof last === "string" ? last : values[order.at(-1)] }
      : { positions, values, last };
    return { name, axis: byTime ? "time" : axis, series: [{ label: name, ...shown, least: least?.[0], greatest: greatest?.[0] }] };
  };
  const draw = () => {
    const shown = found.filter(({ name }, index) => found.length <= SHOWN_AT_FIRST || isShown(name, index));
    for (const [name, figure] of figures) {
      if (shown.some((each) => each.name === name)) continue;
      removeChart(figure);
      figures.delete(name);
    }
    for (const each of shown) {
      if (!figures.has(each.name)) {
        figures.set(each.name, element("figure", "card"));
        plots.append(figures.get(each.name));
      }
      drawChart(figures.get(each.name), chartOf(each), settings);
    }
  };
  const offer = () => {
    const names = found.map(({ name }) => name);
    choice.hidden = names.length <= SHOWN_AT_FIRST;
    if (choice.dataset.names === JSON.stringify(names)) return;
    choice.dataset.names = JSON.stringify(names);
    choice.replaceChildren(...names.map((name, index) => {
      const chip = element("button", "chip", name);
      chip.type = "button";
      chip.setAttribute("aria-pressed", String(isShown(name, index)));
      chip.addEventListener("click", () => {
        const wanted = chip.getAttribute("aria-pressed") !== "true";
        const other = (names) => names.filter((each) => each !== name);
        settings.shown = wanted ? [...other(settings.shown), name] : other(settings.shown);
        settings.hidden = wanted ? other(settings.hidden) : [...other(settings.hidden), name];
        keepSettings(settings);
        chip.setAttribute("aria-pressed", String(wanted));
        draw();
      });
      return chip;
    }));
  };
  const update = async () => {
    if (document.hidden || document.querySelector("#view [data-deleted]")) return;
    try {
      const answer = await fetch(section.dataset.source);
      if (!answer.ok) return;
      found = await answer.json();
    } catch { return; }
    section.dataset.state = found.length ? "drawn" : "empty";
    empty.hidden = found.length > 0;
    controls.hidden = found.length === 0;
    clock.closest("label").hidden = !found.some(({ times, values }) => values.length && times.length === values.length);
    offer();
    draw();
  };
  const settings = chartControls(controls, draw);
  update();
  setInterval(update, CHART_SECONDS * 1000);
}
