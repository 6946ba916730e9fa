// Who can do what at a place, and why.

import { h, card, copyButton, errorBox, freshId, announce } from "./dom.js";
import { call, curl, target } from "./api.js";
import { number } from "./format.js";
import { accessAddress, table, top, treeAddress } from "./kinds.js";
import { uidInput } from "./form.js";
import { uidLink } from "./values.js";

/** The endpoint that explains access; `null` if the server has none. */
export function explainer() {
  for (const kind of table.kinds) {
    const action = kind.actions.find((one) => one.name === "ExplainAccess");
    if (action) return action;
  }
  return null;
}

/** Shows the screen. */
export async function showAccess(main, params) {
  const action = explainer();
  const names = ["uid", "identityUid", "capability"];
  const values = Object.fromEntries(names.map((name) => [name, params.get(name) ?? ""]));
  const results = h("div");
  const line = h("code", { tabindex: 0 });
  const problems = h("div", { role: "alert" });
  const capabilities = h("datalist", { id: "capabilities" }, table.capabilities.map((one) => h("option", { value: one.name })));
  const input = (name, text, hint, props = {}) => {
    const id = freshId();
    return h("div", { class: `field${name === "capability" ? "" : " wide"}` }, h("label", { for: id }, text), uidInput({ uidOf: props.uidOf }, values[name], { id, name, "data-path": name, spellcheck: "false", autocomplete: "off", placeholder: hint, ...props, uidOf: null }));
  };
  const form = h(
    "form",
    { class: "body", role: "search", "aria-label": "Explain access", onsubmit: submit },
    h("div", { class: "filters" }, input("uid", "At (uid, or name of a group)", "uid of any resource", { required: true, uidOf: top()?.name }), input("identityUid", "Identity (uid or name)", "everyone", { uidOf: "Identity" }), input("capability", "Capability", "any", { list: "capabilities" }), h("div", { class: "buttons" }, h("button", { class: "primary" }, "Explain"))),
    capabilities,
  );
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, "Access"), h("p", null, "Who can do what at a place, and the role bindings that allow it"))),
    problems,
    h("section", { class: "card" }, form),
    results,
    h("div", { class: "curl" }, line, copyButton(() => line.textContent)),
  );
  function submit(event) {
    event.preventDefault();
    const data = new FormData(form);
    for (const name of names) values[name] = data.get(name).trim();
    history.replaceState(null, "", accessAddress(values));
    load([]);
  }
  async function load(before, token = "") {
    const path = target(action.path, {}, [...names.map((name) => [name, values[name]]), ["after", token]]);
    line.textContent = curl("GET", path);
    problems.replaceChildren();
    try {
      const reply = await call("GET", path);
      show([...before, ...(reply.bindings ?? [])], reply);
    } catch (error) {
      problems.replaceChildren(errorBox(error));
      results.replaceChildren();
    }
  }
  function show(bindings, reply) {
    const verdicts = {
      ALLOWED: ["good", "Allowed", values.capability ? `This identity has ${values.capability} here.` : "This identity has a role here."],
      DENIED: ["bad", "Not allowed", `This identity does not have ${values.capability || "any role"} here.`],
      UNKNOWN: ["warn", "Unknown", "You may not list all bindings that count here, and none of those that you may list allows it."],
    };
    const [tone, word, text] = verdicts[reply.decision] ?? [];
    const rows = bindings.map((one) => {
      const { binding } = one;
      return h(
        "tr",
        null,
        h("th", { scope: "row" }, uidLink("Identity", binding.identityUid, binding.identity?.name || binding.identity?.email || binding.identityUid), binding.identity?.email && binding.identity.name ? h("div", { class: "muted small" }, binding.identity.email) : null),
        h("td", null, uidLink("Role", binding.roleUid, binding.role?.name || binding.roleUid)),
        h("td", null, binding.group ? h("a", { href: treeAddress(binding.group.uid), title: binding.group.uid }, binding.group.name || binding.group.uid) : "", h("div", { class: "muted small" }, binding.group?.uid === values.uid ? "here" : "above")),
        h("td", null, h("details", null, h("summary", null, `${number(one.capabilities.length)} ${one.capabilities.length === 1 ? "capability" : "capabilities"}`), h("div", { class: "tags" }, one.capabilities.map((name) => h("span", { class: "tag" }, name))))),
        h("td", null, uidLink("RoleBinding", binding.uid, "Open")),
      );
    });
    results.replaceChildren(
      word ? h("div", { class: "note" }, h("span", { class: `tag ${tone}` }, word), " ", text, reply.operator ? " It is an operator of this installation, who may do everything." : "") : "",
      card(
        "Role bindings that count here",
        null,
        rows.length
          ? h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Role bindings" }, h("table", null, h("thead", null, h("tr", null, ["Identity", "Role", "Bound at", "Gives", "Binding"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows)))
          : h("div", { class: "empty" }, "No role binding that you may list."),
        reply.next ? h("div", { class: "pager" }, h("button", { type: "button", class: "small", onclick: () => load(bindings, reply.next) }, "More")) : null,
      ),
      reply.complete === false ? h("p", { class: "muted" }, "There may be more: you may not list the bindings of every group above this place.") : "",
    );
    announce(`${bindings.length} role bindings`);
  }
  if (values.uid) await load([]);
}
