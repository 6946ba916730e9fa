// Methods of a kind other than the standard ones, and deletion.

import { h, openDialog, toast } from "./dom.js";
import { call, target } from "./api.js";
import { capitalized, words } from "./format.js";
import { nameOf, noun } from "./kinds.js";
import { readForm, formFields, showProblems } from "./form.js";

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

/** Returns buttons for the actions of a resource: all of them, or those of a row. */
export function actionsOf(kind, resource, actions, changed = () => {}) {
  return (actions ?? own(kind)).map((action) => h("button", { type: "button", class: actions ? "small" : null, onclick: () => open(kind, resource, action, changed) }, actionLabel(kind, action)));
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
  const fields = inputs(kind, action);
  const path = target(action.path, { [variable(kind, action)]: resource.uid });
  const name = actionLabel(kind, action);
  openDialog(`${name}: ${nameOf(kind, resource)}`, [fields.length ? null : h("p", null, `Calls ${action.name} for this ${noun(kind)}.`), formFields(fields, {}, "")], {
    action: name,
    submit: async (form, problems) => {
      try {
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
  openDialog(`${name}: done`, [h("pre", { tabindex: 0 }, JSON.stringify(reply, null, 2))], { action: "Close", cancels: false, submit: async () => {} });
}

/** Asks whether to delete a resource. Errors, such as resources that depend on it, appear in the dialog. */
export function confirmDelete(kind, resource, deleted) {
  openDialog(`Delete ${noun(kind)}`, [h("p", null, "Delete ", h("strong", null, nameOf(kind, resource)), "? This cannot be undone."), h("p", { class: "uid" }, resource.uid)], {
    action: "Delete",
    danger: true,
    submit: async () => {
      await call("DELETE", target(kind.methods.delete.path, { uid: resource.uid }));
      toast(`The ${noun(kind)} is deleted`);
      deleted();
    },
  });
}
