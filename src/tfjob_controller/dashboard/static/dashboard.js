"use strict";
// What htmx does not do: says when the connection is lost, and shows a log with search and following.
(() => {
  const MAX_LINES = 10000;
  const banner = () => document.getElementById("connection");
  const lost = () => { const each = banner(); if (each) each.hidden = false; };
  const found = () => { const each = banner(); if (each) each.hidden = true; };
  document.addEventListener("htmx:sseError", lost);
  document.addEventListener("htmx:sseOpen", found);
  document.addEventListener("htmx:sendError", lost);
  document.addEventListener("htmx:afterOnLoad", found);

  function showLog() {
    const log = document.getElementById("log");
    const choice = document.getElementById("log-replica");
    if (!log || !choice || !choice.options.length) return;
    const search = document.getElementById("log-search");
    const follow = document.getElementById("log-follow");
    const state = document.getElementById("log-state");
    let source = null;

    const mark = (line) => {
      const text = search.value.toLowerCase();
      const hit = text !== "" && line.textContent.toLowerCase().includes(text);
      line.classList.toggle("hit", hit);
      line.classList.toggle("away", text !== "" && !hit);
    };
    const add = (html) => {
      const lines = document.createDocumentFragment();
      for (const each of html.split("\n")) {
        const line = document.createElement("div");
        // The server has escaped the line; only its own spans with classes remain, and no script may run (CSP).
        line.innerHTML = each;
        mark(line);
        lines.append(line);
      }
      log.append(lines);
      while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
      if (follow.checked) log.scrollTop = log.scrollHeight;
    };
    const open = () => {
      if (source) source.close();
      log.replaceChildren();
      state.textContent = "";
      source = new EventSource(choice.dataset.source + "?replica=" + encodeURIComponent(choice.value));
      source.addEventListener("lines", (event) => { add(event.data); found(); });
      source.addEventListener("end", (event) => { state.textContent = event.data; source.close(); });
      // A new connection sends the last lines again.
      source.addEventListener("open", () => { log.replaceChildren(); found(); });
      source.addEventListener("error", lost);
    };
    choice.addEventListener("change", open);
    search.addEventListener("input", () => { for (const line of log.children) mark(line); });
    open();
  }
  document.addEventListener("DOMContentLoaded", showLog);
})();
