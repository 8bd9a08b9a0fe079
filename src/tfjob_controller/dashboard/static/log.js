// The log of a replica, live.
import { Stream, found, lost } from "./stream.js";

const MAX_LINES = 10000;
// How long lines of a log are gathered. After lines that took long to show it is longer, so that a log that is printed
// faster than it can be shown leaves the browser most of its time.
const GATHER_MS = 100;
const GATHER_PER_COST = 3;

export function showLog() {
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
