// The tables of all kinds, and addresses of the console's screens.

import { base } from "./api.js";
import { words, capitalized } from "./format.js";

/** The document of the server: its kinds, services, capabilities and settings. */
export const table = { kinds: [], services: [], capabilities: [] };

const byName = new Map();
const byPlural = new Map();

export async function load() {
  const reply = await fetch(`${base}/console/document.json`);
  Object.assign(table, await reply.json());
  for (const kind of table.kinds) {
    byName.set(kind.name, kind);
    byPlural.set(kind.plural, kind);
  }
}

export const kindNamed = (name) => byName.get(name);
export const kindOf = (plural) => byPlural.get(plural);

/** Returns a method of a kind other than the standard ones; `null` where the server does not have it. */
export const actionNamed = (name) => table.kinds.flatMap((kind) => kind.actions).find((one) => one.name === name) ?? null;

/** Returns the method of a service with this path; `null` where the server does not have it. */
export const serviceAt = (path) => table.services.find((one) => one.path === path) ?? null;

/** Returns the kind of roles: those that have a name and capabilities. */
export const rolesOf = () => table.kinds.find((kind) => kind.methods.list && kind.fields.some((field) => field.type.list === "capability") && nameField(kind));

/** Returns a kind's name in the singular, such as "role binding". */
export const noun = (kind) => words(kind.name);
/** Returns a kind's name in the plural, such as "Role bindings". */
export const title = (kind) => capitalized(words(kind.plural));

/** The kind at the top of the hierarchy, whose resources contain those of most others. */
export const top = () => table.kinds.find((kind) => kind.relation === "groupOrNone" && kind.methods.list);

/** Returns the kinds with a list of their own. */
export const listed = () => table.kinds.filter((kind) => kind.methods.list);

/** Returns the kinds whose resources are directly in those of a kind. */
export function childrenOf(kind) {
  const children = table.kinds.filter((child) => child.parent === kind.name && child.methods.list && !isPart(child));
  // Those that people make come first.
  return children.sort((one, other) => Boolean(other.methods.create) - Boolean(one.methods.create));
}

/** Returns the kinds of which each resource of a kind has at most one, with the same uid. */
export function partsOf(kind) {
  return table.kinds.filter((child) => child.parent === kind.name && isPart(child) && child.methods.get);
}

const isPart = (kind) => kind.relation === "singleton" || kind.relation === "sole";

/** Returns the lists that find the resources that refer to one of a kind, as pairs of a kind and a parameter. */
export function referrersOf(kind) {
  const found = [];
  for (const other of listed()) {
    for (const param of other.methods.list.params) {
      const field = other.fields.find((one) => one.name === (param.key ?? param.name));
      // Where the resource is the parent, its list of children has them.
      if (field?.uidOf === kind.name && other.parent !== kind.name) found.push([other, param]);
    }
  }
  return found;
}

/** Returns the field with a resource's name for people, if its kind has one. */
export function nameField(kind) {
  return ["name", "displayName", "userName", "title"].map((name) => kind.fields.find((field) => field.name === name)).find(Boolean) ?? null;
}

/** Returns the fields by which searches find resources of a kind: the name, and others that identify them. */
export function findFields(kind) {
  const name = nameField(kind);
  return [...(name ? [name] : []), ...kind.fields.filter((field) => field.findable && field !== name)];
}

/** Returns what to call a resource. */
export function nameOf(kind, resource) {
  const field = nameField(kind);
  return (field && resource[field.name]) || resource.sink || resource.identity?.name || resource.advisoryId || resource.eventType || resource.id || resource.uid || noun(kind);
}

function address(path, params) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value != null));
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export const listAddress = (kind, params = {}) => address(kind.plural, params);
export const itemAddress = (kind, uid) => address(`${kind.plural}/item`, { uid });
export const editAddress = (kind, uid) => address(`${kind.plural}/edit`, { uid });
export const newAddress = (kind, parent) => address(`${kind.plural}/new`, { parent });
export const treeAddress = (uid) => address("hierarchy", { uid });
export const accessAddress = (params) => address("access", params);
export const findAddress = (q) => address("find", { q });
export const vulnerabilitiesAddress = (params) => address("vulnerabilities", params);
export const cveAddress = (id) => address("cve", { id });
/** Returns the address of the image that a tag of a repo refers to, by the tag's name. */
export const imageAddress = (repo, tag) => address("image", { repo, tag });

/** Returns the uid of a resource's parent; empty at the top. */
export const parentOf = (uid) => (uid.includes("/") ? uid.slice(0, uid.lastIndexOf("/")) : "");

/** Returns a uid and those of all resources above it, from the top. */
export function pathOf(uid) {
  const parts = uid.split("/");
  return parts.map((_, at) => parts.slice(0, at + 1).join("/"));
}
