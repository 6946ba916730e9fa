// Forms for creates and updates, from the fields of a kind. An update sends the changed fields and a mask that names
// them. Errors appear next to the fields that they name.

import { h, card, copyButton, dataTable, errorBox, freshId, toast } from "./dom.js";
import { call, curl, exchange, target } from "./api.js";
import { enumLabels, label } from "./format.js";
import { itemAddress, listAddress, kindNamed, nameOf, noun, table, title, top } from "./kinds.js";
import { loadMe } from "./me.js";
import { findNames, uidIn, uidInput } from "./names.js";
import { release, watch } from "./leaving.js";

/** Returns the fields that a request can set. */
const settable = (kind, isUpdate) => kind.fields.filter((field) => field.access !== "output" && !(isUpdate && field.access === "immutable"));

/** Shows the form that creates a resource. */
export async function showCreate(main, kind, params) {
  const parent = params.get("parent") ?? "";
  const fields = settable(kind, false);
  const parents = kind.parent ? kindNamed(kind.parent) : null;
  const parentField = { name: "parent", type: "string", required: kind.relation !== "groupOrNone", uidOf: kind.parent, about: kind.relation === "groupOrNone" ? "The group above it; empty for the top of the hierarchy." : `The ${parents ? noun(parents) : "group"} that it belongs to.` };
  await formScreen(main, kind, {
    heading: `New ${noun(kind)}`,
    action: "Create",
    rows: kind.parent ? [parentField, ...fields] : fields,
    initial: { parent },
    request: (form) => {
      const at = kind.parent ? uidIn(form.elements.namedItem("parent")) : "";
      const path = at ? target(kind.methods.create.path, { uid: at }) : kind.methods.create.path.replace(/\/\{.*$/, "");
      return ["POST", path, readForm(form, fields, "")];
    },
    done: async (created) => {
      // Who makes an organization is its owner.
      if (kind === top()) await loadMe();
      const secrets = kind.fields.filter((field) => field.once && created[field.name]);
      if (secrets.length) return showOnce(main, kind, created, secrets);
      toast(`The ${noun(kind)} is created`);
      location.hash = created.uid && kind.methods.get ? itemAddress(kind, created.uid) : listAddress(kind);
    },
    back: listAddress(kind, parent ? { under: parent } : {}),
  });
}

/** Shows fields that only the reply of a create has. */
function showOnce(main, kind, created, secrets) {
  main.replaceChildren(
    h("div", { class: "head" }, h("h1", { tabindex: -1 }, `The ${noun(kind)} is created`)),
    card("Shown only now", null, h("div", { class: "body" }, secrets.map((field) => h("p", null, h("strong", null, label(field.name)), ": ", h("code", null, created[field.name]), " ", copyButton(created[field.name]))), h("a", { class: "button", href: itemAddress(kind, created.uid) }, "Continue"))),
  );
  main.querySelector("h1").focus();
}

/** Shows the form that changes a resource. */
export async function showEdit(main, kind, params) {
  const uid = params.get("uid");
  const read = () => exchange("GET", target(kind.methods.get.path, { uid }));
  let { answer: current, etag } = await read();
  const fields = settable(kind, true);
  const valuesOf = (resource) => readForm(h("form", null, formFields(fields, resource, "")), fields, "", true);
  const before = valuesOf(current);
  // What the person has seen of the resource.
  let seen = before;
  const differ = (one, other) => fields.map((field) => field.name).filter((name) => JSON.stringify(one[name]) !== JSON.stringify(other[name]));
  await formScreen(main, kind, {
    heading: `Edit ${nameOf(kind, current)}`,
    action: "Save changes",
    rows: fields,
    initial: current,
    request: (form) => {
      const sent = readForm(form, fields, "", true);
      const changed = differ(sent, before);
      if (changed.length === 0) return null;
      const body = Object.fromEntries(changed.map((name) => [name, sent[name]]).filter(([, value]) => value !== undefined));
      return ["PATCH", target(kind.methods.update.path, { uid }, [["updateMask", changed.join(",")]]), body, { ifMatch: etag }];
    },
    // Somebody else has changed the resource. Other fields do not matter, as each request sets only its own.
    conflict: async (form, problems, again) => {
      const yours = readForm(form, fields, "", true);
      ({ answer: current, etag } = await read());
      const now = valuesOf(current);
      const theirs = differ(now, seen);
      const both = differ(yours, before).filter((name) => theirs.includes(name) && JSON.stringify(now[name]) !== JSON.stringify(yours[name]));
      seen = now;
      if (both.length === 0) return again();
      const shown = (value) => h("td", null, h("code", null, value === undefined ? "none" : typeof value === "string" ? value : JSON.stringify(value)));
      const rows = both.map((name) => h("tr", null, h("th", { scope: "row" }, label(name)), shown(now[name]), shown(yours[name])));
      const reload = () => (release(), showEdit(main, kind, params));
      problems.replaceChildren(
        h(
          "div",
          { class: "alert conflict", tabindex: -1 },
          h("strong", null, `Somebody else has changed this ${noun(kind)} since you opened it. Nothing is saved until you choose.`),
          dataTable("Fields that both have changed", ["Field", "Now", "Yours"], rows),
          h("div", { class: "buttons" }, h("button", { type: "button", class: "danger", onclick: again }, "Overwrite with mine"), h("button", { type: "button", onclick: reload }, "Drop mine")),
        ),
      );
      problems.querySelector(".conflict").focus();
    },
    done: () => {
      toast("Saved");
      location.hash = backOf(kind, uid);
    },
    back: backOf(kind, uid),
  });
}

/** Returns where a resource is shown: a part of another one is shown with it. */
function backOf(kind, uid) {
  const isPart = kind.relation === "singleton" || kind.relation === "sole";
  return itemAddress(isPart ? kindNamed(kind.parent) : kind, uid);
}

async function formScreen(main, kind, { heading, action, rows, initial, request, conflict, done, back }) {
  const problems = h("div", { role: "alert" });
  const line = h("code", { tabindex: 0 });
  const confirm = h("button", { class: "primary" }, action);
  const form = h("form", { class: "body", novalidate: true, onsubmit: submit, oninput: preview }, formFields(rows, initial, ""), h("div", { class: "buttons" }, confirm, h("a", { class: "button", href: back, onclick: release }, "Cancel")));
  watch(form);
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, heading), h("p", null, title(kind)))),
    problems,
    h("section", { class: "card", "aria-label": heading }, form),
    h("div", { class: "curl" }, line, copyButton(() => line.textContent)),
  );
  preview();
  function preview() {
    try {
      const sent = request(form);
      line.textContent = sent ? curl(...sent) : "No changes yet.";
    } catch (error) {
      line.textContent = error.message;
    }
  }
  async function submit(event) {
    event?.preventDefault();
    problems.replaceChildren();
    confirm.disabled = true;
    try {
      await findNames(form);
      const sent = request(form);
      const reply = sent && (await call(...sent));
      release();
      if (sent) await done(reply);
      else location.hash = back;
    } catch (error) {
      if (!conflict || error.reason !== "ETAG_MISMATCH") return showProblems(form, problems, error);
      await conflict(form, problems, () => submit()).catch((failure) => showProblems(form, problems, failure));
    } finally {
      // A second submit would overwrite the change of somebody else without a choice.
      confirm.disabled = problems.querySelector(".conflict") !== null;
    }
  }
}

/** Removes the errors next to the fields of a form. */
export function clearProblems(form) {
  for (const old of form.querySelectorAll(".problem")) old.remove();
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

/** Shows an error: next to the fields that it names, and otherwise above the form. */
export function showProblems(form, problems, error) {
  clearProblems(form);
  const left = [];
  for (const one of error.violations ?? []) {
    const input = inputFor(form, one.field);
    if (!input) {
      left.push(one);
      continue;
    }
    const hint = h("p", { class: "problem", id: freshId() }, one.description);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", hint.id);
    input.closest(".field, fieldset").append(hint);
  }
  problems.replaceChildren(errorBox(error, left));
  (form.querySelector("[aria-invalid=true]") ?? problems).focus?.();
}

/** Returns the input of a field that an error names, or of the field that contains it. */
function inputFor(form, path) {
  const parts = path.replace(/\[.*$/, "").split(".");
  for (; parts.length; parts.pop()) {
    const input = form.querySelector(`[data-path="${CSS.escape(parts.join("."))}"]`);
    if (input) return input;
  }
  return null;
}

/** Returns inputs for fields, with their values. `prefix` is the path of the message that contains them. */
export function formFields(fields, values, prefix) {
  const groups = new Map();
  const rows = [];
  for (const field of fields) {
    // A choice of one is no choice.
    const others = fields.filter((one) => one.oneof === field.oneof && one.type.message);
    if (field.oneof && field.type.message && others.length > 1) {
      if (!groups.has(field.oneof)) {
        groups.set(field.oneof, []);
        rows.push({ choices: groups.get(field.oneof), name: field.oneof });
      }
      groups.get(field.oneof).push(field);
    } else rows.push(field);
  }
  return rows.map((row) => (row.choices ? choice(row, values, prefix) : fieldInput(row, values[row.name], prefix)));
}

/** Returns a choice between messages, of which a resource has at most one. */
function choice({ choices, name }, values, prefix) {
  const id = freshId();
  const body = h("div");
  const chosen = choices.find((field) => values[field.name] != null)?.name ?? "";
  const select = h("select", { id, name: `${prefix}?${name}`, onchange: show }, h("option", { value: "" }, "none"), choices.map((field) => h("option", { value: field.name, selected: field.name === chosen }, label(field.name))));
  function show() {
    const field = choices.find((one) => one.name === select.value);
    body.replaceChildren(...(field ? [fieldInput(field, values[field.name] ?? {}, prefix, true)] : []));
  }
  show();
  return h("div", null, h("div", { class: "field" }, h("label", { for: id }, label(name)), select, h("p", { class: "hint" }, "At most one of them.")), body);
}

function fieldInput(field, value, prefix, isOpen = false) {
  const path = prefix + field.name;
  const { type } = field;
  if (type.message) return messageInput(field, value, path, isOpen);
  const id = freshId();
  const hint = field.about ? h("p", { class: "hint", id: `${id}h` }, field.about.replaceAll("`", "")) : null;
  const props = { id, name: path, "data-path": path, "aria-describedby": hint && `${id}h`, required: field.required && type !== "bool", spellcheck: "false", autocomplete: "off" };
  const named = h("label", { for: id }, label(field.name), field.required ? h("span", { class: "required", title: "required" }, " *") : null);
  if (type === "bool") return h("div", { class: "field check" }, h("input", { ...props, type: "checkbox", checked: value === true }), named, hint);
  if (type.list === "capability") return capabilities(field, value ?? [], path, named, hint);
  return h("div", { class: "field" }, named, control(field, value, props), hint);
}

function control(field, value, props) {
  const { type } = field;
  if (type.enum) return h("select", props, h("option", { value: "" }, "not set"), [...enumLabels(type.enum)].map(([name, text]) => h("option", { value: name, selected: name === value }, text)));
  if (type.list === "string") return h("textarea", { ...props, placeholder: "one per line", value: (value ?? []).join("\n") });
  if (type.list || type.map) return h("textarea", { ...props, placeholder: type.list ? "[] as JSON" : "{} as JSON", value: value == null ? "" : JSON.stringify(value, null, 2) });
  if (type === "string" && field.multiline) return h("textarea", { ...props, class: "tall", value: value ?? "" });
  if (field.uidOf) return uidInput(field, value, { ...props, isExact: true });
  const isSecret = /secret|password/i.test(field.name);
  return h("input", { ...props, type: isSecret ? "password" : "text", inputmode: type === "int32" || type === "int64" ? "numeric" : null, placeholder: { timestamp: "2026-01-31T00:00:00Z", duration: "3600s" }[type] ?? null, value: value ?? "" });
}

/** Returns checkboxes for capabilities, with a search. */
function capabilities(field, value, path, named, hint) {
  const all = new Set([...table.capabilities.map((one) => one.id), ...value]);
  const names = new Map(table.capabilities.map((one) => [one.id, one.name]));
  const boxes = [...all].map((id) => h("label", null, h("input", { type: "checkbox", value: id, checked: value.includes(id) }), names.get(id) ?? id));
  const search = h("input", { id: named.getAttribute("for"), type: "search", placeholder: "search", "data-path": path, "aria-describedby": hint?.id, oninput: () => boxes.forEach((box) => (box.hidden = !box.textContent.includes(search.value.trim()))) });
  return h("div", { class: "field", "data-capabilities": path }, named, search, h("div", { class: "choices", tabindex: 0, role: "group", "aria-label": label(field.name) }, boxes), hint);
}

/** Returns the inputs of a message. One that may be missing has a checkbox that says whether it is set. */
function messageInput(field, value, path, isOpen) {
  const isAlways = isOpen || field.required;
  const inner = h("div");
  const set = h("input", { type: "checkbox", id: freshId(), name: `${path}?`, "data-path": path, checked: isAlways || value != null, onchange: show });
  function show() {
    inner.replaceChildren(...(set.checked ? formFields(field.type.message.filter((one) => one.access !== "output"), value ?? {}, `${path}.`) : []));
  }
  show();
  return h("fieldset", { "data-message": path }, h("legend", null, label(field.name), field.required ? h("span", { class: "required" }, " *") : null), h("div", { class: "field check", hidden: isAlways }, set, h("label", { for: set.id }, "Set")), field.about ? h("p", { class: "hint muted small" }, field.about.replaceAll("`", "")) : null, inner);
}

/** Returns the values of a form. With `all`, fields that are empty are included, as updates clear them. */
export function readForm(form, fields, prefix, all = false) {
  const body = {};
  for (const field of fields) {
    const path = prefix + field.name;
    const value = readField(form, field, path, all);
    if (value !== undefined) body[field.name] = value;
  }
  return body;
}

function readField(form, field, path, all) {
  const { type } = field;
  const find = (attribute) => form.querySelector(`[${attribute}="${CSS.escape(path)}"]`);
  if (type.message) {
    const set = find("data-message");
    if (!set || !set.querySelector(`[data-path="${CSS.escape(path)}"]`)?.checked) return undefined;
    return readForm(form, type.message.filter((one) => one.access !== "output"), `${path}.`, false);
  }
  if (type.list === "capability") {
    const boxes = [...(find("data-capabilities")?.querySelectorAll("input[type=checkbox]") ?? [])];
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    return chosen.length || all ? chosen : undefined;
  }
  const input = find("data-path");
  if (!input) return undefined;
  if (type === "bool") return input.checked || all ? input.checked : undefined;
  const text = input.dataset.names ? uidIn(input) : input.value;
  if (type.list === "string") {
    const lines = text.split("\n").map((one) => one.trim()).filter(Boolean);
    return lines.length || all ? lines : undefined;
  }
  if (text.trim() === "") return all && typeof type === "string" && !["timestamp", "int32", "int64", "duration"].includes(type) ? "" : undefined;
  if (type.list || type.map) {
    try {
      return JSON.parse(text);
    } catch {
      throw Object.assign(new Error("The form is not complete"), { violations: [{ field: path, description: "must be JSON" }] });
    }
  }
  if (type === "int32") return Number(text);
  return field.multiline ? text : text.trim();
}
