// What htmx does not do: reports a lost connection and the selection of a filter, pauses a page that is hidden, and shows logs
// and charts.
import { showCharts } from "./charts.js";
import { showComparison } from "./compare.js";
import { showJob } from "./job.js";
import { startJobs } from "./jobs.js";
import { showLog } from "./log.js";
import { foldText, keepEdits } from "./newjob.js";
import { Stream, found, lost, say } from "./stream.js";

const OLD = "The cluster cannot be reached. What is shown may be out of date.";
document.addEventListener("htmx:sseError", lost);
document.addEventListener("htmx:sseOpen", found);
document.addEventListener("htmx:sendError", lost);
document.addEventListener("htmx:responseError", (event) => { if (event.detail.xhr.status >= 500) say(OLD); });
document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) found(); });

// The selection of another filter, which a screen reader announces. Other changes are not announced.
document.addEventListener("htmx:afterSwap", (event) => {
  const total = document.getElementById("total");
  if (!total || event.detail.target?.id !== "jobs") return;
  const counts = document.querySelector("#jobs [data-total]"), notice = document.querySelector("#jobs .notice");
  total.textContent = counts ? counts.dataset.total : notice ? notice.textContent : "";
});

htmx.createEventSource = (url) => new Stream(url);

// What a person has opened stays open when the server sends a new state, which does not contain that.
const isKept = (name, each) => (name === "open" && each.tagName === "DETAILS") || (name === "aria-pressed" && each.dataset.replica);
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, each) => !isKept(name, each);

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

keepEdits();
showJob();
startJobs();
foldText();
showLog();
showCharts();
showComparison();
