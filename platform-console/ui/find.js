// Finds resources of all kinds by a part of a name or of another text that identifies them, or by a uid.

import { h, announce, card, dataTable, errorBox, freshId } from "./dom.js";
import { call, target } from "./api.js";
import { number, words } from "./format.js";
import { findAddress, findFields, listed, nameField, nameOf, title } from "./kinds.js";
import { addressOf } from "./list.js";
import { mayCall } from "./me.js";
import { pathsOf } from "./names.js";

/** The first resources of each kind that are searched, unless the server searches them. */
const SEARCHED = 1000;
const SHOWN = 20;

const has = (kind, name) => kind.methods.list.params.some((param) => param.name === name);

/** Returns the kinds that are searched: those with names, other texts that identify them or an own search, whose lists need no filter. */
const searched = () => listed().filter((kind) => mayCall(kind, "list") && !kind.methods.list.path.includes("{") && (findFields(kind).length || has(kind, "query")) && !kind.methods.list.params.some((param) => param.required));

/** Returns a text as a part of a quoted one in a filter. */
const escaped = (text) => text.replace(/[\\"'*]/g, "\\$&");

/** Searches a kind. Returns the matches, and how many resources were searched if there are more. */
async function search(kind, text) {
  const list = (query) => call("GET", target(kind.methods.list.path, {}, query));
  if (/^[0-9a-f]{40}(\/|$)/.test(text)) {
    // Kinds outside of the hierarchy have uids of their own forms.
    if (!kind.parent) return { found: [], searched: 0 };
    const page = await list([["uidp.ids", text], ["page_size", 1]]);
    return { found: page[kind.plural] ?? [], searched: 0 };
  }
  if (has(kind, "query")) {
    const page = await list([["query", text], ["page_size", SHOWN + 1]]);
    return { found: page[kind.plural] ?? [], searched: 0 };
  }
  const order = kind.methods.list.sorts.includes("name") ? "name" : "";
  const fields = findFields(kind);
  const [found, low] = [[], text.toLowerCase()];
  const add = (items) => found.push(...items.filter((one) => !found.some((other) => other.uid === one.uid)));
  const filtered = async (filter) => (await list([["filter", filter], ["order_by", order], ["page_size", SHOWN + 1]]))[kind.plural] ?? [];
  /** Those with exactly this text, as it is written or in one case, if the server has an index of it. */
  const exactly = async ({ name }) => (has(kind, name) ? filtered([text, low, text.toUpperCase()].map((one) => `${name} = "${escaped(one)}"`).join(" OR ")) : []);
  let isWhole = true;
  for (const field of fields) {
    if (!field.findable && !(field.searched && new TextEncoder().encode(text).length >= 3)) {
      isWhole = false;
      continue;
    }
    try {
      add(await exactly(field));
      // Names of the API are in lower case; other texts may be as the text is written.
      for (const part of new Set([low, text])) add(await filtered(`${field.name}:"*${escaped(part)}*"`));
    } catch (error) {
      // The part is in too many texts: search the first resources.
      if (error.status !== 400) throw error;
      isWhole = false;
    }
  }
  if (isWhole) return { found, searched: 0 };
  let [read, total, token] = [0, 0, ""];
  const matches = [];
  do {
    const page = await list([["order_by", order], ["page_size", 200], ["page_token", token]]);
    const items = page[kind.plural] ?? [];
    matches.push(...items.filter((one) => [...fields.map((field) => one[field.name] ?? ""), one.uid].some((value) => value.toLowerCase().includes(low))));
    read += items.length;
    total = Number(page.totalCount ?? 0);
    token = page.nextPageToken;
  } while (token && read < SEARCHED && matches.length <= SHOWN);
  // One with exactly this text is found wherever it is.
  if (token) for (const field of fields) add(await exactly(field));
  add(matches);
  found.sort((one, other) => Number(nameOf(kind, other) === text) - Number(nameOf(kind, one) === text));
  return { found, searched: token ? read : 0, total };
}

/** Returns what to call a match, with a link to its screen if it has one. */
function linked(kind, one) {
  const href = addressOf(kind, one);
  return href ? h("a", { href }, nameOf(kind, one)) : nameOf(kind, one);
}

/** Returns what else is known of a match: the texts by which it may have been found, and what it is for. */
const described = (kind, one) => [...findFields(kind).filter((field) => field !== nameField(kind)).map((field) => one[field.name]).filter((value) => value && value !== nameOf(kind, one)), one.description || one.summary].filter(Boolean).join(" · ");

/** Shows the screen. */
export async function showFind(main, params) {
  const text = (params.get("q") ?? "").trim();
  const id = freshId();
  const input = h("input", { id, type: "search", name: "q", value: text, placeholder: "part of a name, email address or CVE, or a uid", spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    location.hash = findAddress(input.value.trim());
  };
  const results = h("div");
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, text ? `Find “${text}”` : "Find"), h("p", null, "All kinds of resources that you may see, by a part of a name, of an email address or of a CVE, or by the uid"))),
    h("section", { class: "card" }, h("form", { class: "body", role: "search", "aria-label": "Find on this page", onsubmit: submit }, h("div", { class: "filters" }, h("div", { class: "field" }, h("label", { for: id }, "Name, address, CVE or uid"), input), h("div", { class: "buttons" }, h("button", { class: "primary" }, "Find"))))),
    results,
  );
  if (!text) return {};
  const kinds = searched();
  results.append(h("p", { class: "empty busy" }, "Searching …"));
  const loaded = Promise.all(kinds.map((kind) => search(kind, text).catch((error) => ({ found: [], searched: 0, error })))).then(async (all) => {
    const cards = [];
    for (const [at, { found, error }] of all.entries()) {
      const kind = kinds[at];
      if (error && error.status !== 403) cards.push(card(title(kind), null, h("div", { class: "body" }, errorBox(error))));
      if (!found.length) continue;
      const shown = found.slice(0, SHOWN);
      const paths = await pathsOf(kind, shown);
      const rows = shown.map((one) => h("tr", null, h("th", { scope: "row" }, linked(kind, one)), h("td", { class: "id" }, paths.get(one.uid).split("/").slice(0, -1).join("/") || h("span", { class: "muted" }, "–")), h("td", null, described(kind, one))));
      const more = found.length > SHOWN ? h("p", { class: "pager muted" }, `The first ${SHOWN}; write more of the name.`) : "";
      cards.push(card(title(kind), null, dataTable(title(kind), ["Name", "In", "Description"], rows), more));
    }
    const bounded = kinds.map((kind, at) => [kind, all[at]]).filter(([, one]) => one.searched);
    const bounds = bounded.length ? h("p", { class: "muted" }, "Searched the first ", bounded.map(([kind, one], at) => `${at ? ", " : ""}${number(one.searched)} of ${number(one.total)} ${words(kind.plural)}`), ", by name, and for exactly this name in all.") : "";
    results.replaceChildren(...cards, cards.length ? "" : h("p", { class: "empty" }, `Nothing that you may see has “${text}” in its name, address or identifier.`), bounds);
    announce(`${cards.length} kinds with matches`);
  });
  return { loaded };
}
