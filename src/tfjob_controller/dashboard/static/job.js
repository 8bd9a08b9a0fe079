// The page of a job: its head, which stays and becomes small, tabs where the screen is narrow, and copying.

const WIDE = matchMedia("(min-width: 75rem)");

// The head scrolls as far as it is taller than its small form, and is small from there on. A margin makes up for the
// difference, so that nothing below moves.
function keepHead() {
  const head = document.getElementById("jobhead"), top = document.querySelector(".top");
  const root = document.documentElement.style;
  let gap = 0, start = 0;
  const follow = () => head.classList.toggle("small", window.scrollY >= start + gap && gap > 0);
  // The bar on top stays on a wide screen alone.
  const topHeight = () => (getComputedStyle(top).position === "sticky" ? top.offsetHeight : 0);
  const measure = () => {
    const was = head.classList.contains("small");
    head.classList.remove("small");
    const tall = head.offsetHeight;
    head.classList.add("small");
    const small = head.offsetHeight;
    head.classList.toggle("small", was);
    gap = Math.max(0, tall - small);
    start = Math.max(0, head.parentElement.getBoundingClientRect().top + window.scrollY - topHeight());
    root.setProperty("--head-gap", `${gap}px`);
    root.setProperty("--head-height", `${small}px`);
    root.setProperty("--top-height", `${topHeight()}px`);
    follow();
  };
  let width = 0;
  // Not at each change of its own height, which measuring makes.
  new ResizeObserver(() => {
    if (head.clientWidth === width) return;
    width = head.clientWidth;
    measure();
  }).observe(head);
  document.addEventListener("htmx:sseMessage", measure);
  window.addEventListener("scroll", follow, { passive: true });
}

// Tabs as WAI-ARIA describes them: arrow keys move between them, and the focus selects.
function keepTabs() {
  const list = document.querySelector(".jobtabs");
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const select = (tab, hasFocus) => {
    for (const each of tabs) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
      panelOf(each).hidden = !WIDE.matches && each !== tab;
    }
    if (hasFocus) tab.focus();
  };
  const layOut = () => {
    list.hidden = WIDE.matches;
    for (const tab of tabs) {
      const panel = panelOf(tab);
      if (WIDE.matches) ["role", "aria-labelledby"].forEach((name) => panel.removeAttribute(name));
      else {
        panel.setAttribute("role", "tabpanel");
        panel.setAttribute("aria-labelledby", tab.id);
      }
    }
    select(tabs.find((each) => each.getAttribute("aria-selected") === "true"));
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) select(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    select(tabs[to], true);
  });
  // A part of the page that somebody asks for by a button elsewhere.
  document.addEventListener("tfjob:show", (event) => {
    const tab = tabs.find((each) => panelOf(each).contains(event.target));
    if (tab) select(tab);
    event.target.scrollIntoView({ block: "nearest" });
  });
  WIDE.addEventListener("change", layOut);
  layOut();
}

async function copy(button) {
  const said = button.parentElement.querySelector('[role="status"]');
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    said.textContent = "Copied.";
  } catch {
    said.textContent = "The browser does not allow it: select the text and copy it.";
  }
}

export function showJob() {
  if (!document.getElementById("jobhead")) return;
  keepHead();
  keepTabs();
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button);
  });
}
