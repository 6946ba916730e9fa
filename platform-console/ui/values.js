// Shows the values of fields.

import { h, breakable, copyButton } from "./dom.js";
import { bytes, enumLabels, label, minute, number, relative, shortUid } from "./format.js";
import { itemAddress, kindNamed } from "./kinds.js";

const BAD = /FAIL|DEAD|REJECT|EXPIRED|REVOKED|SUSPENDED|BACKLOG|PAUSED|CRITICAL/;
const GOOD = /^(ACTIVE|DELIVERED)$|READY|APPROVED|LIVE|FIXED/;

export function time(value) {
  return h("time", { datetime: value, title: value }, relative(value));
}

function enumTag(type, value) {
  const tone = GOOD.test(value) ? " good" : BAD.test(value) ? " bad" : "";
  return h("span", { class: `tag${tone}`, title: value }, enumLabels(type.enum).get(value) ?? value);
}

/** Returns a reference to a resource of a kind, by uid. */
export function uidLink(kindName, uid, text) {
  const kind = kindNamed(kindName);
  const shown = text ?? h("span", { class: "uid" }, shortUid(uid));
  return kind?.methods.get ? h("a", { href: itemAddress(kind, uid), title: uid }, shown) : h("span", { title: uid }, shown);
}

/** Returns the fields of a message that names a resource, such as the role of a binding. */
const isName = (type) => type.message?.some((field) => field.name === "uid") && type.message.some((field) => field.name === "name");

const isEmpty = (value) => value == null || value === "" || (Array.isArray(value) && value.length === 0) || (typeof value === "object" && Object.keys(value).length === 0);

/** Whether a value is worth a column of a table. */
export const hasValue = (value) => !isEmpty(value) && value !== false;

/** Returns a value for a cell of a table: one line. */
export function brief(field, value) {
  const { type } = field;
  if (isEmpty(value)) return h("span", { class: "muted" }, "–");
  if (type === "timestamp") return time(value);
  if (type === "bool") return h("span", { class: "tag" }, value ? "Yes" : "No");
  if (type.enum) return enumTag(type, value);
  if (field.uidOf) return uidLink(field.uidOf, value);
  if (field.name === "uid") return h("span", { class: "uid", title: value }, shortUid(value));
  if (isName(type)) return uidLink(field.name.charAt(0).toUpperCase() + field.name.slice(1), value.uid, value.name || value.email || shortUid(value.uid));
  if (type.list) {
    if (type.list === "capability" || typeof value[0] === "object") return number(value.length);
    const rest = value.length > 3 ? ` +${value.length - 3}` : "";
    return h("span", { class: "tags" }, value.slice(0, 3).map((one) => h("span", { class: "tag" }, one)), rest);
  }
  if (type.map || type.message) return h("span", { class: "tag" }, "set");
  if (type === "int64" || type === "int32") return /bytes|size/i.test(field.name) ? bytes(value) : number(value);
  const text = String(value);
  if (text.startsWith("sha256:")) return h("code", { title: text }, `${text.slice(0, 19)}…`);
  return breakable(text.length > 90 ? `${text.slice(0, 88)}…` : text);
}

/** Whether a field fits into a cell of a table. */
export function isBrief(field) {
  return !field.multiline && !field.once && !field.unlisted && field.access !== "input" && field.type !== "bytes" && (typeof field.type === "string" || field.type.enum || field.type.list || isName(field.type));
}

/** Returns a value with all of its parts. */
export function whole(field, value) {
  const { type } = field;
  if (type.message && value && Object.keys(value).length === 0) return h("span", { class: "tag" }, "Yes");
  if (isEmpty(value)) return h("span", { class: "muted" }, "–");
  if (type === "timestamp") return [time(value), h("span", { class: "muted" }, ` · ${minute(value)}`)];
  if (field.uidOf) return [uidLink(field.uidOf, value, h("span", { class: "uid" }, value))];
  if (field.name === "uid") return [h("span", { class: "uid" }, value), " ", copyButton(value)];
  if (isName(type)) return brief(field, value);
  if (type === "string" && field.multiline) return h("pre", null, value);
  if (type === "string") return String(value).startsWith("sha256:") ? h("code", null, value) : String(value);
  if (type.list === "string" || type.list === "capability") return h("div", { class: "tags" }, value.map((one) => h("span", { class: "tag" }, one)));
  if (type.message) return fields(type.message, value);
  if (type.list?.message) return value.map((one) => fields(type.list.message, one));
  if (type.map === "string") return h("dl", { class: "fields" }, Object.entries(value).map(([name, one]) => [h("dt", null, h("code", null, name)), h("dd", null, one)]));
  if (type.list || type.map) return h("pre", null, JSON.stringify(value, null, 2));
  return brief(field, value);
}

/** Returns a list of all fields that a resource has. */
export function fields(rows, resource) {
  // A message without fields says something by being there.
  const isThere = (field, value) => !isEmpty(value) || (field.type.message && value != null && !isName(field.type));
  // A message with the name of what a uid refers to says the same and more.
  const isNamed = (field) => field.uidOf && resource[field.name.replace(/Uid$/, "")]?.uid === resource[field.name] && /Uid$/.test(field.name);
  const shown = rows.filter((field) => field.access !== "input" && isThere(field, resource[field.name]) && !isNamed(field));
  return h("dl", { class: "fields" }, shown.map((field) => [h("dt", { title: field.about }, label(field.name)), h("dd", null, whole(field, resource[field.name]))]));
}
