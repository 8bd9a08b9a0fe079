// The list of jobs: which rows are selected, and what is done with them; filters that a person has saved; the figures above.

const MAX_JOBS = 100, MAX_COMPARED = 8, MAX_FILTERS = 30, SHOWN_NAMES = 5;
const PICKED = "picked-jobs", FILTERS = "job-filters", REFRESH_MS = 10000;

// A browser may refuse storage; the page then forgets when it is left.
const read = (storage, key) => { try { return JSON.parse(storage().getItem(key)) ?? []; } catch { return []; } };
const write = (storage, key, value) => { try { storage().setItem(key, JSON.stringify(value)); } catch { /* as above */ } };
const session = () => window.sessionStorage, local = () => window.localStorage;

// Lines such as namespace/kind/name/uid, as the server reads them; kept while pages and filters change.
let picked = new Set();
let last = null;

const boxes = () => [...document.querySelectorAll("input[data-job]")];
const nameOf = (job) => job.split("/")[2];
const uidOf = (job) => job.split("/")[3];

function keep() {
  write(session, PICKED, [...picked]);
  show();
}

function show() {
  const bar = document.getElementById("picked");
  if (!bar) return;
  const shown = boxes();
  for (const box of shown) box.checked = picked.has(box.dataset.job);
  const here = shown.filter((box) => box.checked).length, away = picked.size - here;
  const all = document.getElementById("pick-all");
  if (all) { all.checked = here > 0 && here === shown.length; all.indeterminate = here > 0 && here < shown.length; }
  const many = picked.size > MAX_JOBS ? `; at most ${MAX_JOBS} can be changed at a time` : "";
  const text = `${picked.size} selected${away ? `, ${away} of them not shown` : ""}${many}`;
  const count = document.getElementById("picked-count");
  if (count.textContent !== text) count.textContent = text;
  bar.hidden = picked.size === 0;
  for (const button of bar.querySelectorAll("button")) button.disabled = many !== "" && button.dataset.action !== "clear";
  const compare = bar.querySelector("[data-action=compare]");
  compare.disabled = picked.size < 2 || picked.size > MAX_COMPARED;
  compare.title = compare.disabled ? `Select two to ${MAX_COMPARED} jobs` : "";
}

function pick(box, range) {
  const shown = boxes(), from = shown.findIndex((each) => each.dataset.job === last), to = shown.indexOf(box);
  const touched = range && from >= 0 ? shown.slice(Math.min(from, to), Math.max(from, to) + 1) : [box];
  for (const each of touched) picked[box.checked ? "add" : "delete"](each.dataset.job);
  last = box.dataset.job;
  keep();
}

function change(action) {
  const jobs = [...picked], names = jobs.slice(0, SHOWN_NAMES).map(nameOf).join(", ");
  const more = jobs.length > SHOWN_NAMES ? ` and ${jobs.length - SHOWN_NAMES} more` : "";
  const question = `Delete ${jobs.length} job${jobs.length === 1 ? "" : "s"} and their pods? ${names}${more}`;
  if (action === "delete" && !window.confirm(question)) return;
  htmx.ajax("POST", `/jobs/${action}`, { source: "#picked", target: "#answer", swap: "innerHTML", values: { jobs: jobs.join("\n") } });
}

function compare() {
  const jobs = [...picked].map((job) => job.split("/")).map(([namespace, kind, name]) => ["job", `${kind}/${namespace}/${name}`]);
  location.assign(`/compare?${new URLSearchParams([...jobs, ["namespace", document.getElementById("namespace").value]])}`);
}

function showFilters() {
  const list = document.getElementById("saved-own");
  if (!list) return;
  list.replaceChildren(...read(local, FILTERS).map(({ name, query }, index) => {
    const item = document.createElement("li"), link = document.createElement("a"), remove = document.createElement("button");
    link.href = `/jobs?${new URLSearchParams(query)}`;
    link.textContent = name;
    remove.type = "button";
    remove.className = "quiet";
    remove.textContent = "Remove";
    remove.setAttribute("aria-label", `Remove ${name}`);
    remove.addEventListener("click", () => {
      write(local, FILTERS, read(local, FILTERS).filter((_, each) => each !== index));
      showFilters();
      document.getElementById("saved-name").focus();
    });
    item.append(link, " ", remove);
    return item;
  }));
}

function saveFilter(name) {
  const query = new URLSearchParams(location.search);
  query.delete("page");
  if (!query.has("namespace")) query.set("namespace", document.getElementById("namespace").value);
  const others = read(local, FILTERS).filter((each) => each.name !== name);
  write(local, FILTERS, [...others, { name, query: query.toString() }].slice(-MAX_FILTERS));
  showFilters();
}

export function startJobs() {
  picked = new Set(read(session, PICKED));
  document.addEventListener("click", (event) => {
    const at = event.target, menu = document.getElementById("saved");
    if (at.matches("input[data-job]")) pick(at, event.shiftKey);
    if (at.id === "pick-all") {
      for (const box of boxes()) picked[at.checked ? "add" : "delete"](box.dataset.job);
      keep();
    }
    const action = at.closest("#picked button")?.dataset.action;
    if (action === "clear") { picked.clear(); keep(); } else if (action === "compare") compare();
    else if (action) change(action);
    if (menu?.open && !menu.contains(at) && at.isConnected) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const menu = document.getElementById("saved");
    if (event.key !== "Escape" || !menu?.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "saved-new") return;
    event.preventDefault();
    const field = document.getElementById("saved-name");
    if (field.value.trim()) saveFilter(field.value.trim());
    field.value = "";
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const answer = event.detail.target?.id === "answer" && document.querySelector("#answer [data-changed]");
    if (answer) {
      const settled = new Set(`${answer.dataset.changed} ${answer.dataset.gone}`.split(" "));
      picked = new Set([...picked].filter((job) => !settled.has(uidOf(job))));
      keep();
    } else show();
  });
  // A new table from the server has no row checked.
  document.addEventListener("htmx:sseMessage", show);
  document.addEventListener("htmx:historyRestore", () => { show(); showFilters(); });
  setInterval(() => {
    const summary = document.getElementById("summary");
    if (summary && !document.hidden) htmx.trigger(summary, "refresh");
  }, REFRESH_MS);
  show();
  showFilters();
}
