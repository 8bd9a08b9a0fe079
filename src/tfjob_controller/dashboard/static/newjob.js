// The form of a new job may be edited while an answer is on its way. That answer would undo the edit. If the side was
// edited that it answers, it is dropped, and asked for again when the person leaves the field; fields of the other side
// keep what was written into them.
const FORM = "newjob";
const sent = new WeakMap();
const kept = new WeakMap();
const PHONE = "(max-width: 45rem)";
// A side is the fieldset of the form, the text area of the YAML, or for a button the whole form.
const fieldsOf = (side) => JSON.stringify([...(side.elements || [side])].map((each) => [each.name, each.value]));
const valuesOf = (form) => new Map([...form.elements].filter((each) => each.name).map((each) => [each.name, each.value]));

// Groups with a wrong field are opened. A list of problems that a button has found gets the focus.
function showProblems(form, isButton) {
  for (const each of form.querySelectorAll("details:has([aria-invalid])")) each.open = true;
  const problems = document.getElementById("problems");
  if (problems && isButton) problems.focus();
}

// On a phone the YAML is below the form, and folded.
export function foldText() {
  const text = document.getElementById("new-text");
  if (text && matchMedia(PHONE).matches) text.open = Boolean(text.querySelector("[aria-invalid]"));
}

export function keepEdits() {
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
    if (form && event.detail.target?.id === "newjob-fields") showProblems(form, event.detail.requestConfig.elt === form);
  });
}
