// Who can do what at a place, and why: the role bindings that count, what is missing, and giving and taking roles.

import { h, announce, card, copyButton, dataTable, errorBox, filterCard, freshId, openDialog, toast } from "./dom.js";
import { call, curl, target } from "./api.js";
import { number, words } from "./format.js";
import { accessAddress, actionNamed, kindNamed, nameOf, parentOf, pathOf, rolesOf, table, top, treeAddress } from "./kinds.js";
import { clearProblems, showProblems } from "./form.js";
import { loadMe, mayCall, me } from "./me.js";
import { findNames, groupNames, pathsOf, uidIn, uidInput } from "./names.js";
import { uidLink } from "./values.js";

/** The endpoint that explains access; `null` if the server has none. */
export const explainer = () => actionNamed("ExplainAccess");

const isAtOrBelow = (uid, group) => group === "" || uid === group || uid.startsWith(`${group}/`);
const identityName = ({ identity, identityUid }) => identity?.name || identity?.email || identityUid;
const capabilityNames = (ids) => ids.map((id) => table.capabilities.find((one) => one.id === id)?.name ?? id);
const many = (count, noun) => `${number(count)} ${count === 1 ? noun : noun.replace(/y$/, "ies")}`;

/** Returns all role bindings of an identity that count at a place, at most a thousand, and whether they are all. */
async function bindingsAt(uid, identityUid) {
  const bindings = [];
  let after = "";
  let isAll = true;
  for (let pages = 0; pages < 10; pages += 1) {
    const reply = await call("GET", target(explainer().path, {}, [["uid", uid], ["identityUid", identityUid], ["after", after]]));
    bindings.push(...(reply.bindings ?? []));
    isAll &&= reply.complete !== false;
    after = reply.next;
    if (!after) return { bindings, isAll };
  }
  return { bindings, isAll: false };
}

/** Returns capabilities that can be unfolded. */
const capabilityList = (names) => h("details", null, h("summary", null, many(names.length, "capability")), h("div", { class: "tags" }, names.map((name) => h("span", { class: "tag" }, name))));

/** Asks to give a role at a group, and says what that changes. */
function giveAccess(group, { identityUid = "", roleUid = "" }, done) {
  const kind = kindNamed("RoleBinding");
  const effect = h("div", { role: "status", class: "effect" });
  const field = (name, text, uidOf, value) => {
    const id = freshId();
    const nodes = uidInput({ uidOf }, value, { isExact: true, id, name, "data-path": name, required: true, spellcheck: "false", autocomplete: "off" });
    return h("div", { class: "field" }, h("label", { for: id }, text), nodes);
  };
  const dialog = openDialog(`Give access at ${group.name}`, h("div", { onchange: show }, field("identityUid", "Who", "Identity", identityUid), field("roleUid", "Role", rolesOf().name, roleUid), effect), {
    action: "Give",
    submit: async (form, problems) => {
      try {
        await findNames(form);
        const body = Object.fromEntries(["identityUid", "roleUid"].map((name) => [name, uidIn(form.elements.namedItem(name))]));
        await call("POST", target(kind.methods.create.path, { uid: group.uid }), body);
        toast("The role is given");
        if (body.identityUid === me.uid) await loadMe();
        done();
      } catch (error) {
        showProblems(form, problems, error);
        throw Object.assign(error, { isShown: true });
      }
    },
  });
  async function show() {
    const form = dialog.querySelector("form");
    try {
      await findNames(form);
      clearProblems(form);
      const [who, what] = ["identityUid", "roleUid"].map((name) => form.elements.namedItem(name));
      if (!uidIn(who) || !uidIn(what)) return;
      const [role, now] = await Promise.all([call("GET", target(rolesOf().methods.get.path, { uid: uidIn(what) })), bindingsAt(group.uid, uidIn(who))]);
      const held = new Set(now.bindings.flatMap((one) => one.capabilities));
      const gained = capabilityNames(role.capabilities ?? []).filter((name) => !held.has(name));
      const name = who.value.trim().split("/").at(-1);
      const home = parentOf(uidIn(who));
      if (home && !isAtOrBelow(group.uid, home)) {
        effect.replaceChildren(h("p", { class: "note" }, `This would have no effect: ${name} was created in another group, and has no access outside of it.`));
        return;
      }
      effect.replaceChildren(
        h("p", null, h("strong", null, name), " becomes ", h("strong", null, role.name), " at ", h("strong", null, group.name), " and in everything below it."),
        gained.length ? h("div", null, "New there: ", capabilityList(gained)) : h("p", { class: "muted" }, "They have all of its capabilities there already."),
        now.isAll ? "" : h("p", { class: "muted" }, "There may be role bindings that you may not list and that give some of them already."),
      );
    } catch {
      effect.replaceChildren();
    }
  }
  if (identityUid && roleUid) show();
}

/** Asks to remove a role binding, and says what that changes. */
export function removeBinding(binding, done) {
  const kind = kindNamed("RoleBinding");
  const [who, role, group] = [identityName(binding), binding.role?.name || binding.roleUid, binding.group?.name || binding.group?.uid];
  const effect = h("div", { role: "status", class: "effect" }, "…");
  openDialog("Remove access", [h("p", null, "Remove ", h("strong", null, role), " from ", h("strong", null, who), " at ", h("strong", null, group), "?"), binding.identityUid === me.uid ? h("p", { class: "note" }, "This is your own access.") : null, effect], {
    action: "Remove",
    danger: true,
    submit: async () => {
      await call("DELETE", target(kind.methods.delete.path, { uid: binding.uid }));
      toast("The role is removed");
      if (binding.identityUid === me.uid) await loadMe();
      done();
    },
  });
  const show = async () => {
    const { bindings, isAll } = await bindingsAt(binding.group.uid, binding.identityUid);
    const own = bindings.find((one) => one.binding.uid === binding.uid)?.capabilities ?? [];
    const others = bindings.filter((one) => one.binding.uid !== binding.uid);
    const kept = new Set(others.flatMap((one) => one.capabilities));
    const lost = own.filter((name) => !kept.has(name));
    const by = others.map((one) => `${one.binding.role?.name} at ${one.binding.group?.name}`).join(", ");
    effect.replaceChildren(
      lost.length ? h("div", null, `Lost at ${group} and in everything below it: `, capabilityList(lost)) : h("p", { class: "muted" }, "Nothing is lost there."),
      by ? h("p", null, `They keep ${by}.`) : "",
      isAll ? "" : h("p", { class: "muted" }, "There may be other bindings that you may not list."),
    );
  };
  if (explainer()) show().catch(() => effect.replaceChildren());
  else effect.replaceChildren();
}

/** Returns what capabilities are for, such as "delete repos", by name. */
function uses() {
  const found = new Map();
  const add = (name, use) => found.set(name, [...(found.get(name) ?? []), use]);
  for (const kind of table.kinds) {
    for (const [verb, method] of Object.entries(kind.methods)) for (const name of method.capabilities) add(name, `${verb} ${words(kind.plural)}`);
    for (const action of kind.actions) for (const name of action.capabilities) add(name, words(action.name));
  }
  return found;
}

/** Shows the screen. */
export async function showAccess(main, params) {
  const action = explainer();
  const used = uses();
  const names = ["uid", "identityUid", "capability"];
  const values = Object.fromEntries(names.map((name) => [name, params.get(name) ?? ""]));
  const results = h("div");
  const line = h("code", { tabindex: 0 });
  const request = h("div", { class: "curl", hidden: true }, line, copyButton(() => line.textContent));
  const problems = h("div", { role: "alert" });
  const capabilities = h("datalist", { id: "capabilities" }, table.capabilities.map((one) => h("option", { value: one.name }, used.get(one.name)?.join(", "))));
  const input = (name, text, hint, props = {}) => {
    const id = freshId();
    const { uidOf, ...others } = props;
    return h("div", { class: "field" }, h("label", { for: id }, text), uidInput({ uidOf }, values[name], { id, name, "data-path": name, spellcheck: "false", autocomplete: "off", placeholder: hint, ...others }));
  };
  const form = h(
    "form",
    { class: "body", role: "search", "aria-label": "Explain access", onsubmit: submit },
    h("div", { class: "filters" }, input("uid", "At", "name, path or uid of a group or resource", { required: true, uidOf: top()?.name, anywhere: true }), input("identityUid", "Who", "everyone", { uidOf: "Identity" }), input("capability", "Capability", "any", { list: "capabilities" }), h("div", { class: "buttons" }, h("button", { class: "primary" }, "Explain"))),
    capabilities,
  );
  const question = values.uid ? filterCard(form, 0, "Question") : h("section", { class: "card" }, form);
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, "Access"), h("p", null, "Who can do what at a place, and the role bindings that allow it"))),
    problems,
    question,
    results,
    request,
  );
  async function submit(event) {
    event.preventDefault();
    try {
      await findNames(form);
    } catch (error) {
      showProblems(form, problems, error);
      return;
    }
    for (const name of names) values[name] = uidIn(form.elements.namedItem(name));
    history.replaceState(null, "", accessAddress(values));
    await load([]);
  }
  async function load(before, token = "") {
    const path = target(action.path, {}, [...names.map((name) => [name, values[name]]), ["after", token]]);
    line.textContent = curl("GET", path);
    request.hidden = false;
    problems.replaceChildren();
    clearProblems(form);
    try {
      const [reply, groups] = await Promise.all([call("GET", path), groupNames(pathOf(values.uid))]);
      const group = pathOf(values.uid).findLast((uid) => groups.has(uid));
      show([...before, ...(reply.bindings ?? [])], reply, group && { uid: group, name: groups.get(group) });
    } catch (error) {
      question.querySelector(".fold")?.setAttribute("aria-expanded", "true");
      showProblems(form, problems, error);
      results.replaceChildren();
    }
  }
  function show(bindings, reply, group) {
    const again = () => load([]);
    const canGive = group && rolesOf() && mayCall(kindNamed("RoleBinding"), "create", group.uid);
    const give = (chosen) => giveAccess(group, { identityUid: values.identityUid, ...chosen }, again);
    const needs = (used.get(values.capability) ?? []).slice(0, 3).join(" or ");
    const verdicts = {
      ALLOWED: ["good", "Allowed", values.capability ? `This identity has ${values.capability} here.` : "This identity has a role here."],
      DENIED: ["bad", "Not allowed", `This identity does not have ${values.capability || "any role"} here${needs ? `, which it needs to ${needs}` : ""}.`],
      UNKNOWN: ["warn", "Unknown", "You may not list all bindings that count here, and none of those that you may list allows it."],
    };
    const [tone, word, text] = verdicts[reply.decision] ?? [];
    const rows = bindings.map((one) => {
      const { binding } = one;
      return h(
        "tr",
        null,
        h("th", { scope: "row" }, uidLink("Identity", binding.identityUid, binding.identity?.name || binding.identity?.email || binding.identityUid), binding.identity?.email && binding.identity.name ? h("span", { class: "muted small others" }, ` ${binding.identity.email}`) : null),
        h("td", null, uidLink("Role", binding.roleUid, binding.role?.name || binding.roleUid)),
        h("td", null, h("div", { class: "buttons" }, binding.group ? h("a", { href: treeAddress(binding.group.uid), title: binding.group.uid }, binding.group.name || binding.group.uid) : "", h("span", { class: "muted small" }, binding.group?.uid === values.uid ? "here" : "above"))),
        h("td", null, h("details", null, h("summary", null, `${number(one.capabilities.length)} ${one.capabilities.length === 1 ? "capability" : "capabilities"}`), h("div", { class: "tags" }, one.capabilities.map((name) => h("span", { class: "tag" }, name))))),
        h("td", null, h("div", { class: "buttons" }, uidLink("RoleBinding", binding.uid, "Open"), mayCall(kindNamed("RoleBinding"), "delete", binding.group?.uid ?? values.uid) ? h("button", { type: "button", class: "small danger", "aria-label": `Remove ${binding.role?.name} from ${identityName(binding)}`, onclick: () => removeBinding(binding, again) }, "Remove") : null)),
      );
    });
    const denied = h("div");
    results.replaceChildren(
      word ? h("div", { class: "note" }, h("span", { class: `tag ${tone}` }, word), " ", text, reply.operator ? " It is an operator of this installation, who may do everything." : "") : "",
      denied,
      card(
        `Role bindings ${values.capability ? `that give ${values.identityUid ? "this identity " : ""}${values.capability}` : "that count"} here`,
        canGive ? h("button", { type: "button", onclick: () => give({}) }, "Give access") : null,
        rows.length ? dataTable("Role bindings", ["Identity", "Role", "Bound at", "Gives", "Binding"], rows) : h("div", { class: "empty" }, reply.complete === false ? "None that you may list." : "None."),
        reply.next ? h("div", { class: "pager" }, h("button", { type: "button", class: "small", onclick: () => load(bindings, reply.next) }, "More")) : null,
      ),
      reply.complete === false ? h("p", { class: "muted" }, "There may be more: you may not list the bindings of every group above this place.") : "",
    );
    if (values.identityUid && (reply.decision === "DENIED" || reply.decision === "UNKNOWN")) {
      whyNot(values, canGive ? give : null).then((cards) => denied.replaceChildren(...cards), (error) => denied.replaceChildren(errorBox(error)));
    }
    announce(`${bindings.length} role bindings`);
  }
  if (values.uid) await load([]);
}

/** Returns cards with the bindings that an identity has and why they do not suffice, and the roles that would. */
async function whyNot({ uid, identityUid, capability }, give) {
  const kind = kindNamed("RoleBinding");
  const read = async (other, query) => (await call("GET", target(other.methods.list.path, {}, [["page_size", 200], ...query])))[other.plural] ?? [];
  const [bindings, roles] = await Promise.all([read(kind, [["identity", identityUid]]), rolesOf() ? read(rolesOf(), []) : []]);
  const groups = bindings.map((one) => one.group).filter(Boolean);
  const paths = await pathsOf(top(), groups);
  const home = parentOf(identityUid);
  const homeName = home ? (await groupNames([home])).get(home) || home : "";
  const reason = ({ group, role }) => {
    if (!isAtOrBelow(uid, group?.uid ?? "")) return "This place is not in that group.";
    if (home && !isAtOrBelow(uid, home)) return `The identity was created in ${homeName}, and has no access outside of it.`;
    return capability ? `The role ${role?.name ?? ""} does not have ${capability}.` : "It counts here.";
  };
  const rows = bindings.map((one) =>
    h("tr", null, h("th", { scope: "row" }, uidLink("Role", one.roleUid, one.role?.name)), h("td", null, one.group ? h("a", { href: treeAddress(one.group.uid) }, paths.get(one.group.uid) ?? one.group.name) : ""), h("td", null, reason(one)), h("td", null, uidLink("RoleBinding", one.uid, "Open"))),
  );
  const shown = card("Why not: the role bindings of this identity", null, rows.length ? dataTable("Role bindings of this identity", ["Role", "Bound at", "Does not suffice because", "Binding"], rows) : h("div", { class: "empty" }, "It has no role binding that you may list."));
  const usable = roles.filter((role) => !role.uid.includes("/") || isAtOrBelow(uid, parentOf(role.uid)));
  const helpful = usable.filter((role) => !capability || capabilityNames(role.capabilities ?? []).includes(capability)).sort((one, other) => one.capabilities.length - other.capabilities.length);
  const choices = helpful.slice(0, 12).map((role) => h("li", null, uidLink("Role", role.uid, nameOf(rolesOf(), role)), h("span", { class: "muted small" }, ` ${many(role.capabilities.length, "capability")}`), give ? h("button", { type: "button", class: "small", "aria-label": `Give ${role.name}`, onclick: () => give({ roleUid: role.uid }) }, "Give") : null));
  return [shown, card(capability ? `Roles that have ${capability}` : "Roles", null, h("div", { class: "body" }, choices.length ? h("ul", { class: "choices-list" }, choices) : h("p", { class: "muted" }, "No role that you may list has it.")))];
}
