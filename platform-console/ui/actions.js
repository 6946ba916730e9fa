// Methods of a kind other than the standard ones, and deletion.

import { h, errorBox, openDialog, toast } from "./dom.js";
import { call, target } from "./api.js";
import { capitalized, words } from "./format.js";
import { childrenOf, kindOf, listAddress, nameOf, noun, partsOf, referrersOf } from "./kinds.js";
import { readForm, formFields, showProblems } from "./form.js";
import { removeBinding } from "./access.js";
import { sendTestEvent } from "./deliveries.js";
import { may } from "./me.js";
import { findNames } from "./names.js";

/** Returns the variable of an action's path, if the action is about one resource of the kind. */
function variable(kind, action) {
  const [, rest] = action.path.split(`/${kind.plural}/{`);
  return action.http === "POST" && rest ? rest.slice(0, rest.search(/[=}]/)) : null;
}

/** Returns the actions about one resource of a kind. */
const own = (kind) => kind.actions.filter((action) => variable(kind, action));

const inputs = (kind, action) => action.request.filter((field) => field.name !== variable(kind, action));

/**
 * Returns the actions that lists show in each row: those that need nothing but the resource, of kinds that callers only
 * read, such as dead letters.
 */
export const rowActions = (kind) => (kind.methods.delete || kind.methods.update ? [] : own(kind).filter((action) => inputs(kind, action).length === 0));

/** Returns an action's name as a label: `RedeliverDeadLetter` of a dead letter is "Redeliver". */
function actionLabel(kind, action) {
  return capitalized(words(action.name).replace(` ${words(kind.name)}`, ""));
}

/** Returns buttons for the actions of a resource that the caller may call: all of them, or those of a row. */
export function actionsOf(kind, resource, actions, changed = () => {}) {
  return (actions ?? own(kind)).filter((action) => may(action.capabilities, resource.uid)).map((action) => h("button", { type: "button", class: actions ? "small" : null, onclick: () => open(kind, resource, action, changed) }, actionLabel(kind, action)));
}

/** Returns the buttons for the actions of a resource's screen: in a menu, if there are many. */
export function actionsOrMenu(kind, resource, changed) {
  const buttons = actionsOf(kind, resource, undefined, changed);
  if (buttons.length < 3) return buttons;
  const menu = h("details", { class: "menu", onkeydown: close, onfocusout: close, onclick: close }, h("summary", { class: "button" }, "More"), h("div", { class: "items" }, buttons));
  function close(event) {
    const isLeft = event.type === "focusout" && !menu.contains(event.relatedTarget);
    const isChosen = event.type === "click" && event.target.closest(".items");
    if (isLeft || isChosen || event.key === "Escape") menu.open = false;
  }
  return [menu];
}

function open(kind, resource, action, changed) {
  if (action.name === "SendTestEvent") return sendTestEvent(resource, action);
  const fields = inputs(kind, action);
  const path = target(action.path, { [variable(kind, action)]: resource.uid });
  const name = actionLabel(kind, action);
  const named = nameOf(kind, resource);
  openDialog(named === resource.uid ? name : `${name}: ${named}`, [fields.length ? null : h("p", null, `${name} for this ${noun(kind)}?`), formFields(fields, {}, "")], {
    action: name,
    submit: async (form, problems) => {
      try {
        await findNames(form);
        const reply = await call("POST", path, readForm(form, fields, ""));
        // The screen shows a changed resource.
        if (Object.keys(reply).length && reply.uid !== resource.uid) showReply(name, reply);
        else toast(`${name}: done`);
        changed();
      } catch (error) {
        showProblems(form, problems, error);
        throw error;
      }
    },
  });
}

/** Shows the reply of an action, which may contain a secret that is shown once. */
function showReply(name, reply) {
  openDialog(`${name}: done`, [h("pre", { tabindex: 0 }, JSON.stringify(reply, null, 2))], { action: "Close", cancel: "", submit: async () => {} });
}

/** Asks whether to delete a resource. The dialog lists what is in the way, and what is deleted with it. */
export function confirmDelete(kind, resource, deleted) {
  if (kind.name === "RoleBinding" && resource.role && resource.group) return removeBinding(resource, deleted);
  const inTheWay = h("div", { role: "status" });
  const dialog = openDialog(`Delete ${noun(kind)}`, [h("p", null, "Delete ", h("strong", null, nameOf(kind, resource)), "? This cannot be undone."), h("p", { class: "uid" }, resource.uid), inTheWay], {
    action: "Delete",
    danger: true,
    submit: async () => {
      await call("DELETE", target(kind.methods.delete.path, { uid: resource.uid }));
      toast(`The ${noun(kind)} is deleted`);
      deleted();
    },
  });
  contentsOf(kind, resource.uid).then(({ blocking, lost }) => {
    const item = ([text, href]) => h("li", null, href ? h("a", { href }, text) : text);
    inTheWay.replaceChildren(
      ...(blocking.length ? [h("div", { class: "note" }, h("p", null, "It cannot be deleted yet. In the way are:"), h("ul", null, blocking.map(item)))] : []),
      ...(lost.length ? [h("p", null, "Deleted with it:"), h("ul", null, lost.map(item))] : []),
    );
    if (blocking.length) dialog.querySelector("button.danger").disabled = true;
  }, (error) => inTheWay.replaceChildren(errorBox(error)));
}

/** Returns what prevents the delete of a resource, and what it deletes too, as pairs of a text and an address, which may be missing. */
async function contentsOf(kind, uid) {
  const text = (other, number) => `${number} ${number === 1 ? noun(other) : words(other.plural)}`;
  const count = async (other, query, params) => {
    const page = await call("GET", target(other.methods.list.path, params, [["page_size", 1], ...query])).catch(() => ({}));
    return Number(page.totalCount ?? 0);
  };
  const [blocking, lost] = [[], []];
  // The server says what is in the way.
  const refused = await call("DELETE", target(kind.methods.delete.path, { uid }, [["validateOnly", "true"]])).then(() => null, (error) => error);
  if (refused && !refused.blocked?.length) throw refused;
  for (const [plural, number] of Object.entries(refused?.metadata ?? {})) {
    const child = kindOf(plural);
    // A list below a group has the group itself, too.
    if (child) blocking.push([text(child, Number(number)), listAddress(child, { under: uid, mode: child === kind ? "in" : "" })]);
  }
  if (refused?.blocked.some((one) => one.type === "RESOURCE_IN_USE")) {
    const referring = await Promise.all(referrersOf(kind).map(async ([other, param]) => [other, param, await count(other, [[param.name, uid]], { [param.name]: uid })]));
    for (const [other, param, number] of referring) if (number) blocking.push([`${text(other, number)} to it`, listAddress(other, { [`f.${param.name}`]: uid })]);
  }
  if (refused && blocking.length === 0) blocking.push(...refused.blocked.map((one) => [one.description]));
  const children = [...childrenOf(kind), ...partsOf(kind)].filter((child) => child.cascade && child.methods.list && !child.methods.list.params.some((param) => param.required));
  await Promise.all(
    children.map(async (child) => {
      const number = await count(child, [["uidp.children_of", uid]]);
      if (number) lost.push([text(child, number), listAddress(child, { under: uid, mode: "in" })]);
    }),
  );
  return { blocking, lost };
}
