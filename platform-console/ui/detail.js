// One resource of any kind: its fields, its parts, the resources in it, those that refer to it, and pictures.

import { h, card, copyButton, errorBox, toast } from "./dom.js";
import { call, curl, markdown, target } from "./api.js";
import { label, shortUid, words } from "./format.js";
import { accessAddress, childrenOf, editAddress, itemAddress, kindNamed, listAddress, nameOf, newAddress, noun, parentOf, partsOf, pathOf, referrersOf, title, top, treeAddress } from "./kinds.js";
import { explainer } from "./access.js";
import { attemptOf, eventFacts, redeliverButton } from "./deliveries.js";
import { factsOf } from "./advisories.js";
import { follow } from "./live.js";
import { mayCall } from "./me.js";
import { fields } from "./values.js";
import { embeddedList } from "./list.js";
import { actionsOf, actionsOrMenu, confirmDelete } from "./actions.js";
import { renderMarkdown } from "./markdown.js";
import { comeFirst, pictures } from "./pictures.js";
import { vulnerabilitiesOf } from "./vulnerabilities.js";

/** Shows a resource. */
export async function showItem(main, kind, params) {
  const uid = params.get("uid");
  const path = target(kind.methods.get.path, { uid });
  const item = await call("GET", path);
  const again = () => showItem(main, kind, params);
  /** Shows the resource again after an action on a part of it, and once more when the server has had time to act. */
  const changed = () => {
    // A dead letter that is delivered again is not one any more.
    const failed = (error) => main.isConnected && (error.status === 404 ? gone() : toast(error.message));
    const show = () => again().catch(failed);
    show();
    setTimeout(() => main.isConnected && show(), 2000);
  };
  const isTop = kind === top();
  const parent = parentOf(uid);
  const gone = () => (location.hash = parent && kindNamed(kind.parent)?.methods.get ? itemAddress(kindNamed(kind.parent), parent) : listAddress(kind));
  const drawn = pictures(kind, item);
  const attempt = attemptOf(kind, item);
  const line = curl("GET", path);
  main.replaceChildren(
    crumbs(kind, uid),
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", { tabindex: -1 }, nameOf(kind, item)), h("p", null, item.description || words(kind.name)), factsOf(kind, item), eventFacts(kind, item)),
      h(
        "div",
        { class: "buttons" },
        actionsOrMenu(kind, item, kind.domain === "events" ? changed : again),
        redeliverButton(kind, item, changed),
        explainer() && (isTop || kind.parent === top()?.name) ? h("a", { class: "button", href: accessAddress({ uid }) }, "Who has access") : null,
        mayCall(kind, "update", uid) ? h("a", { class: "button", href: editAddress(kind, uid) }, "Edit") : null,
        mayCall(kind, "delete", uid) ? h("button", { type: "button", class: "danger", onclick: () => confirmDelete(kind, item, gone) }, "Delete") : null,
      ),
    ),
    // What people open an image for comes before its fields.
    vulnerabilitiesOf(kind, item) ?? "",
    h(
      "div",
      { class: "columns" },
      attempt,
      card("Details", null, h("div", { class: "body" }, fields(attempt ? kind.fields.filter((field) => !field.unlisted) : kind.fields, item)), h("details", { class: "body small" }, h("summary", null, "JSON and request"), h("div", { class: "curl" }, h("code", { tabindex: 0 }, line), copyButton(line)), h("pre", { class: "json", tabindex: 0 }, JSON.stringify(item, null, 2)))),
      comeFirst(kind) ? drawn : null,
      partsOf(kind).map((part) => partCard(part, uid, changed)),
      comeFirst(kind) ? null : drawn,
    ),
    ...childrenOf(kind).map((child) => embeddedList(child, { under: uid, heading: title(child), tools: [h("a", { class: "button", href: listAddress(child, { under: uid }) }, "All with filters"), mayCall(child, "create", uid) ? h("a", { class: "button", href: newAddress(child, uid) }, `New ${noun(child)}`) : null] })),
    ...referrersOf(kind).map(([other, param]) => embeddedList(other, { mode: "", filters: { [param.name]: uid }, heading: `${title(other)} by ${words(param.name)}` })),
  );
}

/** Returns the way from the top of the hierarchy, with names as soon as they are known. */
export function crumbs(kind, uid) {
  const above = pathOf(uid).slice(0, -1);
  const group = top();
  const steps = above.map((one) => h("li", null, h("a", { href: treeAddress(one), title: one }, shortUid(one))));
  const list = h("nav", { "aria-label": "Place in the hierarchy" }, h("ol", { class: "crumbs" }, h("li", null, h("a", { href: listAddress(kind) }, title(kind))), steps));
  if (above.length && group) {
    call("GET", target(group.methods.list.path, {}, above.map((one) => ["uidp.ids", one])))
      .then((page) => {
        for (const one of page[group.plural] ?? []) steps[above.indexOf(one.uid)].firstChild.textContent = nameOf(group, one);
        // What is above and no group is a parent of another kind.
        const direct = kindNamed(kind.parent);
        const known = new Set((page[group.plural] ?? []).map((one) => one.uid));
        const last = above.at(-1);
        if (direct?.methods.get && direct !== group && !known.has(last)) {
          const link = steps.at(-1).firstChild;
          link.setAttribute("href", itemAddress(direct, last));
          return call("GET", target(direct.methods.get.path, { uid: last })).then((one) => (link.textContent = nameOf(direct, one)));
        }
      })
      .catch(() => {});
  }
  return list;
}

/** Returns a part of a resource, which has its uid: a readme, or the state of a delivery. */
function partCard(kind, uid, changed) {
  const name = label(kind.name.replace(kindNamed(kind.parent)?.name ?? "", "") || kind.name);
  const body = h("div", { class: "body" }, h("p", { class: "muted" }, "Loading …"));
  const tools = h("span", { class: "buttons" });
  const path = target(kind.methods.get.path, { uid });
  async function load() {
    try {
      const part = await call("GET", path);
      tools.replaceChildren(...actionsOf(kind, part, undefined, changed), ...(mayCall(kind, "update", uid) ? [h("a", { class: "button small", href: editAddress(kind, uid) }, "Edit")] : []));
      const text = kind.fields.find((field) => field.multiline && field.type === "string");
      if (text && part[text.name]) body.replaceChildren(renderMarkdown(await markdown(part[text.name])));
      else if (text) body.replaceChildren(h("p", { class: "muted" }, "Empty."));
      else body.replaceChildren(fields(kind.fields.filter((field) => field.name !== "uid"), part));
    } catch (error) {
      body.replaceChildren(error.status === 404 ? h("p", { class: "muted" }, "None yet.") : errorBox(error));
    }
  }
  load();
  // What the server writes changes by itself.
  if (kind.methods.list && !kind.methods.update) follow(target(kind.methods.list.path, {}, [["uidp.ids", uid], ["watch", "names"]]), () => body.isConnected, load);
  return card(name, [tools], body);
}
