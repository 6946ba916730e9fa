// Builds elements. Texts become text nodes, never markup.

const SAFE = /^(#|\/|https:\/\/|mailto:)/;

/** Returns an element with properties, listeners (`onclick`) and children. Null children and properties are left out. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** As `h`, for SVG. */
export function svg(name, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else if (name === "href" && !SAFE.test(value)) continue;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Returns a text that may be broken after dots and slashes, as in types of events and uids. */
export function breakable(text) {
  return text.split(/(?<=[./])(?=\S)/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

let count = 0;

/** Returns an id that no other element of the page has. */
export function freshId() {
  count += 1;
  return `e${count}`;
}

/** Shows a short message, which screen readers announce. */
export function toast(text) {
  for (const earlier of document.querySelectorAll(".toast")) earlier.remove();
  const shown = h("div", { class: "toast", role: "status" }, text);
  document.body.append(shown);
  setTimeout(() => shown.remove(), 4000);
}

/** Announces a text to screen readers. */
export function announce(text) {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}

/** Returns a button that copies a text. */
export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet small", onclick: copy }, label);
  async function copy() {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  }
  return button;
}

/** Returns a card with a heading, tools next to it, and contents. */
export function card(title, tools, ...contents) {
  const id = freshId();
  return h(
    "section",
    { class: "card", "aria-labelledby": id },
    h("header", null, h("h2", { id }, title), tools ? h("div", { class: "buttons" }, tools) : null),
    contents,
  );
}

/** Returns a card with a form of filters, which narrow windows fold. `count` is the number of filters that are set. */
export function filterCard(form, count, name = "Filters") {
  const flip = () => fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") !== "true"));
  const fold = h("button", { type: "button", class: "quiet fold", "aria-expanded": "false", onclick: flip }, count ? `${name} (${count} set)` : name);
  return h("section", { class: "card filter" }, fold, form);
}

/** Returns a table that scrolls sideways where it does not fit. A heading is a text, or a pair of a text and a class. */
export function dataTable(name, headings, rows) {
  const head = headings.map((one) => (Array.isArray(one) ? h("th", { scope: "col", class: one[1] }, one[0]) : h("th", { scope: "col" }, one)));
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name }, h("table", null, h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}

const valuesOf = (form) => JSON.stringify([...form.querySelectorAll("input, select, textarea")].map((one) => (one.type === "checkbox" ? one.checked : one.value)));

/** Returns a function that tells whether the values of a form have changed since now. */
export function changes(form) {
  const before = valuesOf(form);
  return () => form.isConnected && valuesOf(form) !== before;
}

/** Opens a dialog with a form. `submit` gets the form; the dialog closes when it returns, and when a link in it is followed. An error that
 * `submit` has shown itself has `isShown`. */
export function openDialog(title, contents, { action, danger, cancel = "Cancel", submit }) {
  const heading = freshId();
  const problems = h("div", { role: "alert" });
  const confirm = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const form = h(
    "form",
    { method: "dialog", onsubmit: run },
    h("h2", { id: heading }, title),
    problems,
    contents,
    h("div", { class: "buttons" }, cancel ? h("button", { type: "button", onclick: () => dialog.close() }, cancel) : null, confirm),
  );
  const dialog = h("dialog", { "aria-labelledby": heading, onclose: () => dialog.remove(), oncancel: keep, onclick: follow }, form);
  const isTyped = changes(form);
  /** Keeps what was typed when Escape is pressed, once. */
  function keep(event) {
    if (!isTyped() || problems.querySelector(".kept")) return;
    event.preventDefault();
    problems.replaceChildren(h("p", { class: "note kept" }, "Press Escape again to drop what you have typed."));
  }
  function follow(event) {
    if (event.target.closest("a[href^='#']")) dialog.close();
  }
  async function run(event) {
    event.preventDefault();
    confirm.disabled = true;
    problems.replaceChildren();
    try {
      await submit(form, problems);
      dialog.close();
    } catch (error) {
      if (!error.isShown) problems.replaceChildren(errorBox(error));
    } finally {
      confirm.disabled = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Returns an error as people read it: the message, the rules that were broken, and the request's id. */
export function errorBox(error, left = error.violations) {
  const blocked = (error.blocked ?? []).filter((one) => !error.message.includes(one.description));
  return h(
    "div",
    { class: "alert" },
    h("strong", null, error.message || String(error)),
    left?.length || blocked.length || error.taught?.length
      ? h(
          "ul",
          null,
          (left ?? []).map((one) => h("li", null, h("code", null, one.field), ": ", one.description)),
          (error.taught ?? []).map((one) => h("li", null, one)),
          blocked.map((one) => h("li", null, one.description, one.subject ? [" (", h("code", null, one.subject), ")"] : null)),
        )
      : null,
    error.why ? h("p", null, h("a", { href: error.why }, "Why, and who can change it")) : null,
    error.status
      ? h("p", { class: "small" }, [error.reason, `status ${error.status}`, error.requestId && `request ${error.requestId}`].filter(Boolean).join(" · "))
      : null,
  );
}
