"use strict";
// What htmx does not do: reports a lost connection and the selection of a filter, pauses a page that is hidden, and shows logs and charts.
(() => {
  const MAX_LINES = 10000;
  // How long lines of a log are gathered. After lines that took long to show it is longer, so that a log that is printed
  // faster than it can be shown leaves the browser most of its time.
  const GATHER_MS = 100;
  const GATHER_PER_COST = 3;
  const banner = () => document.getElementById("connection");
  const LOST = "The connection to the dashboard is lost. It is opened again as soon as possible.";
  const OLD = "The cluster cannot be reached. What is shown may be out of date.";
  const say = (text) => { const each = banner(); if (each && each.textContent !== text) each.textContent = text; };
  const lost = () => say(LOST);
  const found = () => say("");
  document.addEventListener("htmx:sseError", lost);
  document.addEventListener("htmx:sseOpen", found);
  document.addEventListener("htmx:sendError", lost);
  document.addEventListener("htmx:responseError", (event) => { if (event.detail.xhr.status >= 500) say(OLD); });
  document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) found(); });

  // The selection of another filter, which a screen reader announces. Other changes are not announced.
  document.addEventListener("htmx:afterSwap", (event) => {
    const total = document.getElementById("total");
    if (!total || event.detail.target?.id !== "jobs") return;
    const counts = document.querySelector("#jobs .counts"), notice = document.querySelector("#jobs .notice");
    total.textContent = counts ? counts.dataset.total : notice ? notice.textContent : "";
  });

  // A browser opens six connections to one host for all of its tabs. A page that has been hidden for so long therefore
  // gives its own back, and gets the current state when it is shown again.
  const HIDDEN_MS = 30000;

  // The part of EventSource's interface that htmx and the log use.
  class Stream {
    constructor(url) {
      this.url = url;
      this.listeners = [];
      this.source = null;
      this.watch = () => {
        clearTimeout(this.timer);
        if (document.hidden) this.timer = setTimeout(() => this.pause(), HIDDEN_MS);
        else this.resume();
      };
      document.addEventListener("visibilitychange", this.watch);
      this.watch();
    }
    get readyState() { return this.source ? this.source.readyState : EventSource.CONNECTING; }
    addEventListener(type, listener) {
      this.listeners.push([type, listener]);
      if (this.source) this.source.addEventListener(type, listener);
    }
    removeEventListener(type, listener) {
      this.listeners = this.listeners.filter(([each, other]) => each !== type || other !== listener);
      if (this.source) this.source.removeEventListener(type, listener);
    }
    resume() {
      if (this.source) return;
      this.source = new EventSource(this.url);
      this.source.onopen = (event) => { if (this.onopen) this.onopen(event); };
      this.source.onerror = (event) => { if (this.onerror) this.onerror(event); };
      for (const [type, listener] of this.listeners) this.source.addEventListener(type, listener);
    }
    pause() {
      // One that has failed for good stays so: htmx has replaced it by another one.
      if (!this.source || this.source.readyState === EventSource.CLOSED) return;
      this.source.close();
      this.source = null;
    }
    close() {
      document.removeEventListener("visibilitychange", this.watch);
      clearTimeout(this.timer);
      if (this.source) this.source.close();
    }
  }
  htmx.createEventSource = (url) => new Stream(url);

  // What a person has opened stays open when the server sends a new state, which does not contain that.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, each) => !(name === "open" && each.tagName === "DETAILS");

  // Ages grow between the server's answers, in its units and by its clock.
  const AGE_UNITS = [[120, 1, "s"], [7200, 60, "m"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
  const ahead = Date.parse(document.documentElement.dataset.clock) - Date.now();
  setInterval(() => {
    for (const each of document.querySelectorAll("time.age")) {
      const seconds = Math.max(0, Math.floor((Date.now() + ahead - Date.parse(each.dateTime)) / 1000));
      const [, unit, letter] = AGE_UNITS.find(([below]) => seconds < below);
      const text = `${Math.floor(seconds / unit)}${letter}`;
      if (each.textContent !== text) each.textContent = text;
    }
  }, 1000);

  function showLog() {
    const log = document.getElementById("log");
    const choice = document.getElementById("log-replica");
    if (!log || !choice || !choice.options.length) return;
    const search = document.getElementById("log-search");
    const follow = document.getElementById("log-follow");
    const state = document.getElementById("log-state");
    const hits = document.getElementById("log-hits");
    let source = null;
    let waiting = [];
    let timer = null;
    let cost = 0;

    const mark = (line) => {
      const text = search.value.toLowerCase();
      const hit = text !== "" && line.textContent.toLowerCase().includes(text);
      line.classList.toggle("hit", hit);
      line.classList.toggle("away", text !== "" && !hit);
    };
    const show = () => {
      const begin = performance.now();
      const lines = document.createDocumentFragment();
      for (const each of waiting) {
        const line = document.createElement("div");
        // The server has escaped the line; only its own spans with classes remain, and no script may run (CSP).
        line.innerHTML = each;
        mark(line);
        lines.append(line);
      }
      if (waiting.length >= MAX_LINES) log.replaceChildren();
      while (log.childElementCount + waiting.length > MAX_LINES) log.firstElementChild.remove();
      log.append(lines);
      waiting = [];
      timer = null;
      if (follow.checked) log.scrollTop = log.scrollHeight;
      cost = performance.now() - begin;
    };
    // Lines that would be removed before anybody has seen them are not shown at all.
    const add = (html) => {
      waiting.push(...html.split("\n"));
      if (waiting.length > MAX_LINES) waiting = waiting.slice(-MAX_LINES);
      timer ??= setTimeout(show, Math.max(GATHER_MS, GATHER_PER_COST * cost));
    };
    const clear = () => {
      waiting = [];
      log.replaceChildren();
    };
    const open = () => {
      if (source) source.close();
      clear();
      state.textContent = "";
      source = new Stream(choice.dataset.source + "?replica=" + encodeURIComponent(choice.value));
      source.addEventListener("lines", (event) => { add(event.data); found(); });
      source.addEventListener("end", (event) => { state.textContent = event.data; source.close(); });
      // A new connection sends the last lines again.
      source.addEventListener("open", () => { clear(); found(); });
      source.addEventListener("error", lost);
    };
    choice.addEventListener("change", open);
    search.addEventListener("input", () => {
      for (const line of log.children) mark(line);
      const count = log.querySelectorAll(".hit").length;
      hits.textContent = search.value === "" ? "" : count === 1 ? "1 line contains it" : `${count} lines contain it`;
    });
    open();
  }
  // The form of a new job may be edited while an answer is on its way. That answer would undo the edit. If the side was
  // edited that it answers, it is dropped, and asked for again when the person leaves the field; fields of the other side
  // keep what was written into them.
  const FORM = "newjob";
  const sent = new WeakMap();
  const kept = new WeakMap();
  // A side is the fieldset of the form, the text area of the YAML, or for a button the whole form.
  const fieldsOf = (side) => JSON.stringify([...(side.elements || [side])].map((each) => [each.name, each.value]));
  const valuesOf = (form) => new Map([...form.elements].filter((each) => each.name).map((each) => [each.name, each.value]));
  // A request that has waited for others names the pressed button, even if that has lost the focus since.
  document.addEventListener("htmx:configRequest", (event) => {
    const button = event.detail.triggeringEvent?.submitter;
    if (button?.name) event.detail.parameters[button.name] = button.value;
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    const form = document.getElementById(FORM), side = event.detail.elt;
    if (form && form.contains(side)) sent.set(event.detail.xhr, { fields: fieldsOf(side), values: valuesOf(form) });
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const form = document.getElementById(FORM), before = sent.get(event.detail.xhr);
    const side = event.detail.requestConfig.elt;
    if (!form || before === undefined) return;
    if (before.fields === fieldsOf(side)) {
      const edited = [...valuesOf(form)].filter(([name, value]) => before.values.get(name) !== value);
      kept.set(event.detail.xhr, edited);
      return;
    }
    event.detail.shouldSwap = false;
    // A side that has lost the focus has already asked again.
    if (side === form || !side.contains(document.activeElement)) return;
    form.addEventListener("focusout", () => side.dispatchEvent(new Event("change")), { once: true });
  });
  // Before the request about these edits, which has waited for this answer.
  document.addEventListener("htmx:afterSwap", (event) => {
    const form = document.getElementById(FORM);
    for (const [name, value] of kept.get(event.detail.xhr) || []) {
      if (form?.elements[name]) form.elements[name].value = value;
    }
  });

  const CHART_SECONDS = 5;
  const CHART_HEIGHT = 180;

  // A chart for each metric that the job has printed or reported; they are read again while the page is open.
  function showCharts() {
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

  document.addEventListener("DOMContentLoaded", () => { showLog(); showCharts(); });
})();
