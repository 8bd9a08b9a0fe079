// The log of a container, live.
import { Stream, found, lost } from "./stream.js";

const MAX_LINES = 10000;
// How long lines of a log are gathered. After lines that took long to show it is longer, so that a log that is printed
// faster than it can be shown leaves the browser most of its time.
const GATHER_MS = 100;
const GATHER_PER_COST = 3;
// Between the time that the API server puts before a line, and the line.
const AFTER_TIME = "\x1f";
const SETTINGS = "tfjob-log";

function stored() {
  try { return JSON.parse(localStorage.getItem(SETTINGS)) || {}; } catch { return {}; }
}

export function showLog() {
  const get = (name) => document.getElementById("log-" + name);
  const log = document.getElementById("log"), choice = get("replica");
  if (!log || !choice || !choice.options.length) return;
  // Logs of an ended job have no container to choose, no previous run, and no end to follow.
  const [container, previous, search, follow, state, hits, only, file] =
    ["container", "previous", "search", "follow", "state", "hits", "only", "file"].map(get);
  let source = null;
  let waiting = [];
  let timer = null;
  let cost = 0;
  let current = null;

  const mark = (line) => {
    const text = search.value.toLowerCase();
    line.classList.toggle("hit", text !== "" && line.textContent.toLowerCase().includes(text));
  };
  const countHits = () => {
    const all = search.value === "" ? [] : [...log.querySelectorAll(".hit")];
    const at = all.indexOf(current) + 1;
    log.classList.toggle("only", only.checked && search.value !== "");
    const text = search.value === "" ? "" : all.length === 0 ? "no match" : at ? `${at} of ${all.length}` : all.length === 1 ? "1 line" : `${all.length} lines`;
    if (hits.textContent !== text) hits.textContent = text;
    for (const each of ["up", "down"]) get(each).disabled = all.length === 0;
  };
  const select = (line) => {
    current?.classList.remove("current");
    current = line;
    if (!line) return;
    if (follow) follow.checked = false;
    line.classList.add("current");
    line.scrollIntoView({ block: "nearest" });
  };
  // Begins at the end, where the newest lines are.
  const step = (by) => {
    const all = [...log.querySelectorAll(".hit")];
    if (!all.length) return;
    const at = all.indexOf(current);
    select(all[at < 0 ? (by < 0 ? all.length - 1 : 0) : (at + by + all.length) % all.length]);
    countHits();
  };

  const show = () => {
    const begin = performance.now();
    const lines = document.createDocumentFragment();
    for (const each of waiting) {
      const line = document.createElement("div"), at = each.indexOf(AFTER_TIME);
      // The server has escaped the line; only its own spans with classes remain, and no script may run (CSP).
      line.innerHTML = at < 0 ? each : each.slice(at + 1);
      if (at >= 0) line.dataset.time = each.slice(0, at).replace("T", " ");
      mark(line);
      lines.append(line);
    }
    if (waiting.length >= MAX_LINES) log.replaceChildren();
    while (log.childElementCount + waiting.length > MAX_LINES) log.firstElementChild.remove();
    log.append(lines);
    waiting = [];
    timer = null;
    if (search.value !== "") countHits();
    if (follow?.checked) log.scrollTop = log.scrollHeight;
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
    current = null;
    log.replaceChildren();
    countHits();
  };
  const query = () => {
    const chosen = { replica: choice.value, container: container?.value || "", previous: previous?.checked ? "true" : "" };
    return new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== ""));
  };
  const linkFile = () => {
    const chosen = query();
    if (get("times").checked) chosen.set("timestamps", "true");
    file.search = chosen;
  };
  const open = () => {
    if (source) source.close();
    clear();
    state.textContent = "";
    linkFile();
    for (const each of document.querySelectorAll("[data-replica]")) {
      each.setAttribute("aria-pressed", String(each.dataset.replica === choice.value));
    }
    const opened = source = new Stream(`${choice.dataset.source}?${query()}`);
    source.addEventListener("lines", (event) => { add(event.data); found(); });
    source.addEventListener("end", (event) => { state.textContent = event.data; opened.close(); });
    // A new connection sends the last lines again.
    source.addEventListener("open", () => { clear(); found(); });
    source.addEventListener("error", lost);
  };

  // The containers of the chosen replica, and new replicas: the table of replicas, which is kept up to date, has them.
  const offer = () => {
    if (!container) return;
    const table = document.getElementById("replicas");
    const known = new Set([...choice.options].map((each) => each.value));
    for (const { dataset } of table?.querySelectorAll("[data-replica]") || []) {
      if (!known.has(dataset.replica)) choice.add(new Option(dataset.replica));
    }
    const role = choice.value.replace(/-[^-]*$/, "");
    const { init = [], sidecars = [] } = JSON.parse(table?.dataset.containers || "{}")[role] || {};
    const key = JSON.stringify([init, sidecars]);
    if (container.dataset.known === key) return;
    container.dataset.known = key;
    const before = container.value;
    const group = (label, names) => {
      const made = document.createElement("optgroup");
      made.label = label;
      made.append(...names.map((name) => new Option(name)));
      return names.length ? [made] : [];
    };
    container.replaceChildren(new Option("training", ""), ...group("Init containers", init), ...group("Sidecars", sidecars));
    container.value = [...container.options].some((each) => each.value === before) ? before : "";
    container.parentElement.hidden = container.options.length < 2;
  };

  choice.addEventListener("change", () => { offer(); open(); });
  for (const each of [container, previous]) each?.addEventListener("change", open);
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-replica]");
    if (!button) return;
    choice.value = button.dataset.replica;
    offer();
    open();
    document.getElementById("log-title").dispatchEvent(new CustomEvent("tfjob:show", { bubbles: true }));
  });
  document.addEventListener("htmx:sseMessage", offer);

  search.addEventListener("input", () => {
    select(null);
    for (const line of log.children) mark(line);
    countHits();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? -1 : 1);
  });
  get("up").addEventListener("click", () => step(-1));
  get("down").addEventListener("click", () => step(1));
  only.addEventListener("change", countHits);
  // Whoever scrolls up wants to read on there.
  log.addEventListener("wheel", (event) => { if (follow && event.deltaY < 0) follow.checked = false; }, { passive: true });
  follow?.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });

  const kept = stored();
  for (const [name, className] of [["times", "times"], ["wrap", "wrap"]]) {
    const box = get(name);
    if (typeof kept[name] === "boolean") box.checked = kept[name];
    const apply = () => log.classList.toggle(className, box.checked);
    box.addEventListener("change", () => {
      apply();
      linkFile();
      kept[name] = box.checked;
      try { localStorage.setItem(SETTINGS, JSON.stringify(kept)); } catch { /* a browser that stores nothing */ }
    });
    apply();
  }
  offer();
  open();
}
