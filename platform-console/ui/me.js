// Who the caller is, and what the caller may do where.

import { call, hooks, target } from "./api.js";
import { shortUid } from "./format.js";
import { accessAddress, actionNamed, kindNamed, rolesOf, table } from "./kinds.js";

/** The caller. Where the server does not describe callers, nothing is known, and the page offers everything. */
export const me = { uid: "", name: "", isKnown: false, isOperator: false, held: [] };

/** Reads who the caller is: after a sign-in, and when the caller's own access has changed. */
export async function loadMe() {
  const token = await call("GET", "/auth/v1/ok").catch(() => null);
  if (token?.subject !== me.uid) Object.assign(me, { uid: token?.subject ?? "", name: "", isKnown: false, isOperator: false, held: [] });
  if (!me.uid) return;
  const entries = token.capabilities ?? [];
  const [held, { isOperator, name }] = await Promise.all([heldAt(entries), explained(entries)]);
  Object.assign(me, { held, isOperator, isKnown: held != null });
  me.name = token.profile?.name || token.email || name || (await nameOfIdentity(me.uid)) || shortUid(me.uid);
}

/** Returns the groups at which the caller has capabilities, with these; `null` if they are not known. */
async function heldAt(entries) {
  const names = new Map(table.capabilities.map((one) => [one.id, one.name]));
  const roles = new Map();
  if (entries.some((one) => one.role)) {
    const kind = rolesOf();
    const page = kind && (await call("GET", target(kind.methods.list.path, {}, [["uidp.in_root", "true"], ["page_size", 200]])).catch(() => null));
    for (const one of page?.[kind.plural] ?? []) roles.set(one.name, (one.capabilities ?? []).map((id) => names.get(id) ?? id));
  }
  if (entries.some((one) => one.role && !roles.has(one.role))) return null;
  return entries.map((one) => ({ group: one.group, names: new Set(one.role ? roles.get(one.role) : (one.capabilities ?? [])) }));
}

/** Returns whether the caller is an operator, who may do everything, and the name that the caller's role bindings have. */
async function explained(entries) {
  const explain = actionNamed("ExplainAccess");
  const query = [["uid", entries[0]?.group || me.uid], ["identityUid", me.uid]];
  const reply = explain && (await call("GET", target(explain.path, {}, query)).catch(() => null));
  const identity = reply?.bindings?.map((one) => one.binding?.identity).find(Boolean);
  return { isOperator: reply?.operator === true, name: identity?.name || identity?.email || "" };
}

/** Returns the name of the caller's identity, if the caller may read it. */
async function nameOfIdentity(uid) {
  const kind = kindNamed("Identity");
  const identity = kind?.methods.get && (await call("GET", target(kind.methods.get.path, { uid })).catch(() => null));
  return identity?.name ?? "";
}

const isAtOrBelow = (uid, group) => group === "" || uid === group || uid.startsWith(`${group}/`);

/** Whether the caller has capabilities at a uid; without a uid, anywhere. */
export function may(capabilities, uid = "") {
  if (!me.isKnown || me.isOperator) return true;
  return capabilities.every((name) => me.held.some((one) => one.names.has(name) && (uid === "" || isAtOrBelow(uid, one.group))));
}

/** Whether a kind has a method that the caller may call at a uid; without a uid, anywhere. */
export const mayCall = (kind, verb, uid) => Boolean(kind.methods[verb]) && may(kind.methods[verb].capabilities, uid);

const HTTP = { get: "GET", create: "POST", update: "PATCH", delete: "DELETE" };

/** Returns the methods that are called at a uid, with their HTTP method. */
const methodsAtUids = () =>
  table.kinds.flatMap((kind) => [...Object.entries(HTTP).map(([verb, http]) => ({ http, ...kind.methods[verb] })), ...kind.actions]).filter((one) => one.path?.includes("{"));

/** The address of the screen that explains why the server denied a request at a uid. */
hooks.why = ({ status }, http, path) => {
  if (status !== 403 || !me.uid || !actionNamed("ExplainAccess")) return null;
  const [called] = path.split("?");
  for (const method of methodsAtUids()) {
    const [before, after = ""] = method.path.split(/\{[^}]*\}/);
    if (method.http !== http || !called.startsWith(before) || !called.endsWith(after)) continue;
    const uid = decodeURIComponent(called.slice(before.length, called.length - after.length));
    if (/^[0-9a-f]{40}(\/[0-9a-f]+)*$/.test(uid)) return accessAddress({ uid, identityUid: me.uid, capability: method.capabilities[0] });
  }
  return null;
};
