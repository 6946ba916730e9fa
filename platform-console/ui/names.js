// Inputs that take a uid, a name, a path of names such as `acme/payments`, or a part of a name.

import { h } from "./dom.js";
import { call, target } from "./api.js";
import { kindNamed, listed, nameField, nameOf, noun, pathOf, top } from "./kinds.js";

/** The resources whose names are offered and searched for a part: the first of their kind. */
const OFFERED = 200;

const isUid = (text) => /^[0-9a-f]{40}(\/|$)/.test(text);

/** Names of groups that were read, by uid. */
const names = new Map();

/** Returns the names of the groups with these uids, as far as the caller may see them. */
export async function groupNames(uids) {
  const group = top();
  const unknown = [...new Set(uids)].filter((uid) => !names.has(uid));
  for (let at = 0; group && at < unknown.length; at += 100) {
    const some = unknown.slice(at, at + 100);
    const query = [...some.map((uid) => ["uidp.ids", uid]), ["page_size", some.length]];
    const page = await call("GET", target(group.methods.list.path, {}, query)).catch(() => ({}));
    for (const one of page[group.plural] ?? []) names.set(one.uid, nameOf(group, one));
  }
  return names;
}

/** Returns the paths of names of resources, such as `acme/payments`, by uid. What cannot be read is left out. */
export async function pathsOf(kind, resources) {
  const known = await groupNames(resources.flatMap((one) => pathOf(one.uid).slice(0, -1)));
  return new Map(resources.map((one) => [one.uid, [...pathOf(one.uid).slice(0, -1).map((uid) => known.get(uid)), nameOf(kind, one)].filter(Boolean).join("/")]));
}

const has = (kind, name) => kind.methods.list.params.some((param) => param.name === name);

/** Returns resources of a kind in a parent (`/` for the top, empty for anywhere): those with a name, or the first. */
async function read(kind, parent, name = "") {
  const query = [["uidp.children_of", parent], [nameField(kind).name, name], ["page_size", OFFERED]];
  const page = await call("GET", target(kind.methods.list.path, {}, query));
  return page[kind.plural] ?? [];
}

const refused = (text) => Object.assign(new Error(text), { isName: true });

/**
 * Returns the uid of the resource that a text names: the uid itself, a path of names, a name, or a part of a name. With
 * `isExact`, a part of a name is refused, and the names with that part are in the error.
 */
async function resolve(kind, text, isExact = false) {
  if (text === "" || isUid(text) || !kind?.methods.list || !nameField(kind)) return text;
  const parts = text.split("/").map((part) => part.trim()).filter(Boolean);
  const last = parts.pop() ?? "";
  const above = parts.length ? await resolve(kindNamed(kind.parent) ?? kind, parts.join("/"), isExact) : "";
  const canFilter = has(kind, nameField(kind).name);
  // An organization is meant before a folder of the same name.
  let found = canFilter && !above && kind === top() ? await read(kind, "/", last) : [];
  if (!found.length && canFilter) found = await read(kind, above, last);
  let isPart = false;
  if (!found.length) {
    const some = await read(kind, above);
    const isLike = (one) => nameOf(kind, one).toLowerCase().includes(last.toLowerCase());
    const isSame = (one) => nameOf(kind, one) === last;
    isPart = !some.some(isSame);
    found = some.filter(isPart ? isLike : isSame);
  }
  if (found.length === 1 && !(isPart && isExact)) return found[0].uid;
  if (found.length === 0) throw refused(`no ${noun(kind)} that you can see has this name`);
  const paths = [...(await pathsOf(kind, found.slice(0, 8))).values()];
  const choices = new Set(paths).size === paths.length ? `one of ${paths.join(", ")}` : "the uid";
  throw refused(isPart && isExact ? `no ${noun(kind)} has exactly this name; write ${choices}` : `several match; write ${choices}`);
}

/** Returns the uid of a place: a group, or another resource by its path of names. */
async function resolvePlace(text) {
  try {
    return await resolve(top(), text);
  } catch (error) {
    if (!error.isName || !text.includes("/")) throw error;
    for (const kind of listed().filter((one) => one !== top() && one.parent === top()?.name && nameField(one))) {
      const uid = await resolve(kind, text).catch(() => null);
      if (uid) return uid;
    }
    throw error;
  }
}

/** Returns the path of names of a resource; empty if the caller may not see it. */
async function nameOfUid(kind, uid) {
  if (kind === top()) {
    const known = await groupNames(pathOf(uid));
    return known.has(uid) ? pathOf(uid).map((one) => known.get(one)).filter(Boolean).join("/") : "";
  }
  const one = await call("GET", target(kind.methods.get.path, { uid }));
  return (await pathsOf(kind, [one])).get(uid);
}

const resolvers = new WeakMap();

/** Returns the uid in an input: what was found for its text, or the text. */
export const uidIn = (input) => input.dataset.uid || input.value.trim();

/**
 * Finds the uids that the inputs of a form name. Throws an error with a violation for each input whose text names
 * nothing, or more than one resource.
 */
export async function findNames(form) {
  const violations = [];
  for (const input of form.querySelectorAll("input[data-names]")) {
    try {
      await resolvers.get(input)?.();
    } catch (error) {
      if (!error.isName) throw error;
      violations.push({ field: input.dataset.path ?? input.name, description: error.message });
    }
  }
  if (violations.length) throw Object.assign(new Error("This names nothing that can be used"), { violations });
}

/**
 * Returns an input for a uid, with the elements that belong to it. It shows the path of names of a known uid, and offers
 * the first resources of the kind. With `anywhere`, the uid may be that of any resource in a group; with `isExact`, as for
 * writes, a part of a name does not do.
 */
export function uidInput(field, value, { anywhere = false, isExact = false, ...props }) {
  const kind = kindNamed(field.uidOf);
  if (!kind?.methods.list || !nameField(kind)) return [h("input", { ...props, value: value ?? "" })];
  const options = h("datalist", { id: `${props.id}o` });
  const offers = new Map();
  const input = h("input", { ...props, list: options.id, "data-names": kind.name, value: value ?? "", placeholder: props.placeholder ?? `name, path or uid of a ${noun(kind)}`, oninput: pick, onfocus: offer });
  const show = (uid, path) => {
    input.dataset.uid = uid;
    input.title = uid;
    if (path) input.value = path;
  };
  function pick() {
    delete input.dataset.uid;
    input.title = "";
    const uid = offers.get(input.value.trim());
    if (uid) show(uid);
  }
  async function offer() {
    if (offers.size) return;
    const found = await read(kind, "").catch(() => []);
    for (const [uid, path] of await pathsOf(kind, found)) offers.set(offers.has(path) ? `${path} (${uid.slice(-6)})` : path, uid);
    options.replaceChildren(...[...offers.keys()].map((name) => h("option", { value: name })));
    if (!input.dataset.uid) pick();
  }
  async function find() {
    const text = input.value.trim();
    if (input.dataset.uid || !text) return;
    const uid = await (anywhere ? resolvePlace(text) : resolve(kind, text, isExact));
    show(uid);
    // What a part of a name has found is shown.
    if (!anywhere) nameOfUid(kind, uid).then((path) => input.dataset.uid === uid && show(uid, path), () => {});
  }
  resolvers.set(input, find);
  if (value && isUid(value)) {
    show(value);
    nameOfUid(kind, value).then((path) => input.dataset.uid === value && show(value, path), () => {});
  }
  return [input, options];
}

