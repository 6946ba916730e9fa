// The hierarchy as a tree, with what is in the chosen group. Keys as in the tree pattern of WAI-ARIA.

import { h, card } from "./dom.js";
import { call, target } from "./api.js";
import { number, words } from "./format.js";
import { accessAddress, childrenOf, editAddress, itemAddress, listAddress, nameOf, newAddress, noun, pathOf, top, treeAddress } from "./kinds.js";
import { explainer } from "./access.js";
import { mayCall } from "./me.js";
import { fields } from "./values.js";

const PAGE = 100;

/** Shows the tree, opened as far as the group of the address. */
export async function showTree(main, params) {
  const kind = top();
  const chosen = params.get("uid") ?? "";
  const tree = h("ul", { role: "tree", "aria-label": "Groups", onkeydown: keys });
  const detail = h("div", { "aria-live": "polite" });
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, "Hierarchy"), h("p", null, "Organizations, the groups in them, and what each contains")), h("div", { class: "buttons" }, mayCall(kind, "create", chosen) ? h("a", { class: "button primary", href: newAddress(kind, chosen) }, `New ${noun(kind)}`) : null)),
    h("div", { class: "split" }, h("section", { class: "card", "aria-label": "Tree of groups" }, h("div", { class: "body" }, tree)), detail),
  );
  const page = (query) => call("GET", target(kind.methods.list.path, {}, [["page_size", PAGE], ...query]));

  const first = await page([["uidp.children_of", "/"], ["order_by", "name"]]);
  let roots = first[kind.plural] ?? [];
  if (roots.length === 0) {
    // A caller who sees groups, but not the organizations that contain them.
    const all = (await page([["order_by", "uid"]]))[kind.plural] ?? [];
    roots = all.filter((one) => !all.some((other) => one.uid.startsWith(`${other.uid}/`)));
  } else if (first.nextPageToken) tree.append(more(1, first.nextPageToken, [["uidp.children_of", "/"], ["order_by", "name"]]));
  for (const one of roots) tree.insertBefore(node(one, 1), tree.querySelector(":scope > .more"));
  if (roots.length === 0) tree.replaceWith(h("p", { class: "muted" }, "There are no groups that you can see."));
  await reveal();

  async function reveal() {
    let item = tree.querySelector("[role=treeitem]");
    for (const uid of chosen ? pathOf(chosen) : []) {
      const next = tree.querySelector(`[data-uid="${uid}"]`);
      if (!next) continue;
      item = next;
      if (uid !== chosen) await expand(item, true);
    }
    if (item) await select(item, false);
  }

  // An item and the list of the items in it are siblings, so that the item's text is its own name.
  function node(group, level) {
    const item = h("div", { role: "treeitem", class: "row", "aria-level": level, "aria-expanded": "false", "aria-selected": "false", tabindex: -1, "data-uid": group.uid, onclick: () => select(item) });
    const twist = h("span", { class: "twist", "aria-hidden": "true", onclick: (event) => { event.stopPropagation(); expand(item); } }, "▸");
    item.append(twist, h("span", null, nameOf(kind, group)));
    item.group = group;
    return h("li", { role: "none" }, item);
  }

  function more(level, token, query) {
    const item = h("div", { role: "treeitem", class: "row muted", "aria-level": level, "aria-selected": "false", tabindex: -1, onclick: load }, "more …");
    const row = h("li", { role: "none", class: "more" }, item);
    async function load() {
      const next = await page([...query, ["page_token", token]]);
      const nodes = (next[kind.plural] ?? []).map((one) => node(one, level));
      row.before(...nodes);
      if (next.nextPageToken) token = next.nextPageToken;
      else row.remove();
      focus(nodes[0].firstChild);
    }
    item.load = load;
    return row;
  }

  async function expand(item, isOpen = item.getAttribute("aria-expanded") !== "true") {
    if (!item.group || item.getAttribute("aria-expanded") === null) return;
    item.setAttribute("aria-expanded", String(isOpen));
    let list = item.nextElementSibling;
    if (list) list.hidden = !isOpen;
    if (!isOpen || list) return;
    list = h("ul", { role: "none" });
    item.after(list);
    const level = Number(item.getAttribute("aria-level")) + 1;
    const query = [["uidp.children_of", item.group.uid], ["order_by", "name"]];
    const children = await page(query);
    const groups = children[kind.plural] ?? [];
    list.append(...groups.map((one) => node(one, level)));
    if (children.nextPageToken) list.append(more(level, children.nextPageToken, query));
    if (groups.length === 0) {
      item.removeAttribute("aria-expanded");
      item.querySelector(".twist").textContent = "";
      list.remove();
    }
  }

  function focus(item) {
    for (const one of tree.querySelectorAll("[role=treeitem][tabindex='0']")) one.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  }

  async function select(item, withFocus = true) {
    if (item.load) return item.load();
    for (const one of tree.querySelectorAll("[aria-selected=true]")) one.setAttribute("aria-selected", "false");
    item.setAttribute("aria-selected", "true");
    for (const one of tree.querySelectorAll("[role=treeitem][tabindex='0']")) one.tabIndex = -1;
    item.tabIndex = 0;
    if (withFocus) item.focus();
    history.replaceState(null, "", treeAddress(item.group.uid));
    show(item.group);
    await expand(item, true);
  }

  function keys(event) {
    const item = event.target.closest("[role=treeitem]");
    const all = [...tree.querySelectorAll("[role=treeitem]")].filter((one) => !one.closest("ul[hidden]"));
    const at = all.indexOf(item);
    const isOpen = item.getAttribute("aria-expanded") === "true";
    const moves = {
      ArrowDown: () => all[at + 1] && focus(all[at + 1]),
      ArrowUp: () => all[at - 1] && focus(all[at - 1]),
      Home: () => focus(all[0]),
      End: () => focus(all.at(-1)),
      ArrowRight: () => (isOpen ? all[at + 1] && focus(all[at + 1]) : expand(item, true)),
      ArrowLeft: () => {
        const above = item.closest("ul").previousElementSibling;
        if (isOpen) expand(item, false);
        else if (above) focus(above);
      },
      Enter: () => select(item),
      " ": () => select(item),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  function show(group) {
    const counts = h("ul", { class: "counts" });
    detail.replaceChildren(
      card(
        nameOf(kind, group),
        [
          h("a", { class: "button", href: itemAddress(kind, group.uid) }, "Open"),
          explainer() ? h("a", { class: "button", href: accessAddress({ uid: group.uid }) }, "Who has access") : null,
          mayCall(kind, "update", group.uid) ? h("a", { class: "button", href: editAddress(kind, group.uid) }, "Edit") : null,
          mayCall(kind, "create", group.uid) ? h("a", { class: "button", href: newAddress(kind, group.uid) }, `New ${noun(kind)} in it`) : null,
        ],
        h("div", { class: "body" }, fields(kind.fields.filter((field) => field.name !== "name"), group)),
      ),
      card("In this group and below", null, h("div", { class: "body" }, counts)),
    );
    // One request for each kind, which answers the exact number without reading the resources.
    for (const child of childrenOf(kind)) {
      if (child.methods.list.params.some((param) => param.required)) continue;
      const shown = h("strong", null, "…");
      const row = h("li", null, h("a", { href: listAddress(child, { under: group.uid }) }, shown, h("span", null, words(child.plural))));
      counts.append(row);
      call("GET", target(child.methods.list.path, {}, [["page_size", 1], ["uidp.descendants_of", group.uid]]))
        .then((page) => {
          const own = child === kind ? 1 : 0;
          shown.textContent = number(Math.max(0, Number(page.totalCount) - own));
        })
        .catch(() => row.remove());
    }
  }
}
