// Lists of any kind: pages by cursor, jumps by skip, exact totals, orders, filters and a place in the hierarchy.

import { h, announce, card, copyButton, errorBox, filterCard, freshId } from "./dom.js";
import { call, curl, target } from "./api.js";
import { capitalized, enumLabels, label, number, words } from "./format.js";
import { itemAddress, kindNamed, listAddress, nameField, newAddress, noun, parentOf, title, top } from "./kinds.js";
import { brief, hasValue, isBrief } from "./values.js";
import { actionsOf, rowActions } from "./actions.js";
import { advisoryList, metadataList } from "./advisories.js";
import { deliveryList } from "./deliveries.js";
import { follow } from "./live.js";
import { mayCall } from "./me.js";
import { findNames, groupNames, uidIn, uidInput } from "./names.js";
import { keepPlace } from "./place.js";

const SIZES = [20, 50, 100, 200];
const MAX_COLUMNS = 6;

/** The number of filters that are always in sight, if there are many. */
const MAX_FILTERS = 3;

/** The parameter of every list that filters by any field. */
const FILTER = { name: "filter", type: "string", about: "A filter over the fields, such as name:*ngi* AND createTime > 2026-01-31T00:00:00Z" };

/** Returns the parameters of a list that are filters. */
const paramsOf = (list) => [...list.params, FILTER];

/** The most resources that an order or filter of the page, which the server does not have, looks at. */
const WINDOW = 2000;

/**
 * What is special to lists of a kind: `order`, the usual order; `columns` with a `name`, maybe a `label`, and a `cell`
 * that shows a resource; `local`, orders by numbers that the page computes; `filters` with a `test` that the page
 * evaluates; `first`, the labels of the filters that are in sight; `address`, the screen of a resource; and `facts`, what
 * the head says about a place.
 */
const specialOf = (kind) => ({ "vulnerabilities Advisory": advisoryList, "advisory VulnerabilityMetadata": metadataList, "events Delivery": deliveryList })[`${kind.domain} ${kind.name}`] ?? {};

/** Returns the address of the screen of a resource; `null` if it has none. */
export const addressOf = (kind, item) => specialOf(kind).address?.(item) ?? (item.uid && kind.methods.get ? itemAddress(kind, item.uid) : null);

/** Returns the fields of a kind that can be columns, the most important first: its name, then those that fit a line. */
function columnsOf(kind) {
  const { columns } = specialOf(kind);
  if (columns) return columns.map((column) => ({ type: "string", ...kind.fields.find((field) => field.name === column.name), ...column }));
  const id = `${kind.name.charAt(0).toLowerCase()}${kind.name.slice(1)}Id`;
  const name = nameField(kind) ?? kind.fields.find((field) => field.name === id && isBrief(field));
  // What happened to a resource comes before what else is known of it.
  const rank = (field) => (/^(state|reason|error)$/.test(field.name) ? -1 : field.name === "description" ? 2 : /Id$/.test(field.name) ? 1 : field.access === "output" && field.uidOf ? 1 : 0);
  const others = kind.fields
    .filter((field) => field !== name && isBrief(field) && !["uid", "createTime", "updateTime"].includes(field.name))
    // A message with the name of what a uid refers to replaces the uid.
    .filter((field) => !kind.fields.some((other) => other.name === field.name.replace(/Uid$/, "") && other !== field && other.type.message))
    .sort((one, other) => rank(one) - rank(other));
  // Without a name, the first text leads to the resource, or else the uid.
  const first = name ?? others.find((field) => field.type === "string" && !field.uidOf && rank(field) === 0) ?? kind.fields.find((field) => field.name === "uid");
  return [...(first ? [first] : []), ...others.filter((field) => field !== first)];
}

/** The order that people expect: by name, or the kind's own. */
const usual = (kind) => specialOf(kind).order ?? (kind.methods.list.sorts.includes("name") ? "name" : "");

/** Shows the names of places in a list, with one request for those that are not known. */
async function namePlaces(root) {
  const buttons = [...root.querySelectorAll("[data-place]")];
  const names = await groupNames(buttons.map((one) => one.dataset.place));
  for (const one of buttons) if (names.has(one.dataset.place)) one.textContent = names.get(one.dataset.place);
}

/** Shows the list of a kind, with the state of the screen's address. Returns when its first page is there. */
export async function showList(main, kind, params) {
  const state = { under: params.get("under") ?? "", mode: params.get("mode") ?? "", order: params.get("order") ?? usual(kind), size: Number(params.get("size")) || 50, page: Number(params.get("page")) || 1, filters: {} };
  for (const [name, value] of params) if (name.startsWith("f.")) state.filters[name.slice(2)] = value;
  let isShown = false;
  // The state is in the address, so that Back and a reload return to it; a change of it is a step of the history.
  const remember = () => {
    const filters = Object.fromEntries(Object.entries(state.filters).map(([name, value]) => [`f.${name}`, value]));
    const { under, mode, order } = state;
    const shown = { under, mode, order, size: state.size === 50 ? "" : state.size, page: state.page === 1 ? "" : state.page, ...filters };
    const address = listAddress(kind, shown);
    if (!isShown) history.replaceState(history.state, "", address);
    else if (address !== location.hash) {
      keepPlace();
      history.pushState(null, "", address);
    }
    isShown = true;
  };
  const under = state.under && kind.parent ? state.under : "";
  const view = listView(kind, state, { remember, filters: true });
  main.replaceChildren(
    h(
      "div",
      { class: "head" },
      h("div", null, h("h1", { tabindex: -1 }, title(kind)), h("p", null, kind.parent ? `In ${kind.parent === top()?.name ? "groups" : words(kind.parent) + "s"}${under ? ", below the chosen place" : ""}` : "Shared by all organizations"), under ? specialOf(kind).facts?.(under) : null),
      h("div", { class: "buttons" }, mayCall(kind, "create", under) ? h("a", { class: "button primary", href: newAddress(kind, under) }, `New ${noun(kind)}`) : null),
    ),
    view.root,
  );
  return { loaded: view.loaded };
}

/** Returns a list inside another screen: the resources in one place, or those that a parameter selects. */
export function embeddedList(kind, { under = "", mode = "in", filters = {}, heading = title(kind), tools = null }) {
  const state = { under, mode, order: usual(kind), size: 20, page: 1, filters: { ...filters } };
  return listView(kind, state, { heading, tools }).root;
}

function queryOf(kind, state) {
  const list = kind.methods.list;
  const query = [];
  if (state.under) query.push([state.mode === "in" ? "uidp.children_of" : "uidp.descendants_of", state.under]);
  const order = isLocalOrder(kind, state.order) ? usual(kind) : state.order;
  if (order) query.push(["order_by", order]);
  for (const param of paramsOf(list)) {
    const value = state.filters[param.name];
    if (value == null || value === "" || isInPath(list, param.name)) continue;
    if (param.type.list) for (const one of value.split(/[\s,]+/).filter(Boolean)) query.push([param.name, one]);
    else query.push([param.name, value]);
  }
  return query;
}

/** Returns the kind whose uid a parameter of a list takes, if it takes one. */
function uidOfParam(kind, { name, key = name, type }) {
  if (type !== "string") return null;
  const field = kind.fields.find((one) => one.name === key || one.name === name);
  return field?.uidOf ?? (/Uid$/.test(key) ? (kindNamed(capitalized(name))?.name ?? null) : null);
}

/** Returns the input of a filter, with the elements that belong to it. */
function filterInput(kind, param, value, props) {
  const { type } = param;
  const text = { ...props, spellcheck: "false", autocomplete: "off" };
  const choice = (offers) => [h("select", props, offers.map(([name, shown]) => h("option", { value: name, selected: name === value }, shown)))];
  const names = type.enum ?? type.list?.enum;
  if (names) return choice([["", param.required ? "choose" : "any"], ...enumLabels(names)]);
  if (type === "bool") return choice([["", "any"], ["true", "Yes"], ["false", "No"]]);
  const uidOf = uidOfParam(kind, param);
  if (uidOf) return uidInput({ uidOf }, value, { ...text, placeholder: "name, path or uid" });
  return [h("input", { ...text, value, placeholder: type.list ? "a, b, …" : type === "timestamp" ? "2026-01-31T00:00:00Z" : param === FILTER ? "name:*ngi* AND …" : null })];
}

const isLocalOrder = (kind, order) => Boolean(specialOf(kind).local?.[order.split(" ")[0]]);

const isInPath = (list, name) => list.path.includes(`{${name}`);

function listView(kind, state, { remember = () => {}, filters = false, heading = null, tools = null }) {
  const list = kind.methods.list;
  const special = specialOf(kind);
  const fitting = columnsOf(kind);
  const created = special.columns ? [] : kind.fields.filter((field) => field.name === "createTime");
  // The fields that had a value on a page that was shown: others are not worth a column.
  const used = new Set();
  // A column may already name the group.
  const withPlace = filters && kind.parent != null && !fitting.some((field) => field.type.message && field.name === words(kind.parent));
  const actions = rowActions(kind);
  // The token of each page after one that was shown, for the same request.
  const tokens = new Map();
  // What was read for the orders and filters of the page, for the same request.
  const read = { base: "", items: [], total: 0 };
  const results = h("div", { class: "results" });
  const line = h("code", { tabindex: 0 });
  const shown = { total: 0, request: "" };
  let pending = null;
  const live = liveRows();

  async function load(focus) {
    pending?.abort();
    const mine = (pending = new AbortController());
    const query = queryOf(kind, state);
    results.classList.add("busy");
    // A change after the page was read is then not missed.
    if (filters) await live.begin(query);
    if (mine.signal.aborted) return;
    query.push(["page_size", state.size]);
    const base = JSON.stringify(query);
    if (tokens.base !== base) {
      tokens.clear();
      tokens.base = base;
    }
    const token = tokens.get(state.page);
    const skip = (state.page - 1) * state.size;
    if (token) query.push(["page_token", token]);
    else if (skip > 0) query.push(["skip", skip]);
    shown.request = target(list.path, state.filters, query);
    line.textContent = curl("GET", shown.request);
    request.hidden = false;
    remember();
    try {
      const page = isLocal() ? await localPage(mine.signal) : await call("GET", shown.request, undefined, { signal: mine.signal });
      if (page.nextPageToken) tokens.set(state.page + 1, page.nextPageToken);
      shown.total = Number(page.totalCount ?? 0);
      const items = page[kind.plural] ?? [];
      results.replaceChildren(items.length || shown.total ? tableOf(items) : empty());
      if (items.length || shown.total) results.append(pager(items.length));
      if (filters) results.append(live.note());
      if (page.bound) results.append(h("p", { class: "pager muted" }, page.bound));
      if (withPlace && kind.parent === top()?.name && items.length) namePlaces(results);
      announce(`${number(items.length)} of ${number(shown.total)} ${words(kind.plural)}`);
      if (focus) {
        results.querySelector(focus)?.focus({ preventScroll: true });
        if (results.getBoundingClientRect().top < 0) root.scrollIntoView({ block: "start" });
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      const unknown = (error.violations ?? []).filter((one) => !markProblem(one));
      results.replaceChildren(h("div", { class: "empty", role: "alert" }, errorBox(error, unknown)));
    }
    results.classList.remove("busy");
  }

  const localFilters = () => (special.filters ?? []).filter((one) => state.filters[one.name]);
  const isLocal = () => isLocalOrder(kind, state.order) || localFilters().length > 0;

  /** Returns a page in an order or by a filter of the page: of the first resources in the usual order. */
  async function localPage(signal) {
    const query = queryOf(kind, state);
    const base = JSON.stringify(query);
    if (read.base !== base) {
      Object.assign(read, { base: "", items: [], total: 0 });
      let token = "";
      do {
        const next = await call("GET", target(list.path, state.filters, [...query, ["page_size", 200], ["page_token", token]]), undefined, { signal });
        read.items.push(...(next[kind.plural] ?? []));
        read.total = Number(next.totalCount ?? 0);
        token = next.nextPageToken;
      } while (token && read.items.length < WINDOW);
      read.base = base;
    }
    const [by, way] = state.order.split(" ");
    const items = read.items.filter((item) => localFilters().every((one) => one.test(item, state.filters[one.name])));
    const value = special.local?.[by];
    if (value) items.sort((one, other) => (way === "desc" ? value(other) - value(one) : value(one) - value(other)));
    const bound = read.items.length < read.total ? `Among the first ${number(read.items.length)} of ${number(read.total)}, by ${label(usual(kind).split(" ")[0]).toLowerCase()}` : "";
    return { totalCount: items.length, [kind.plural]: items.slice((state.page - 1) * state.size, state.page * state.size), bound };
  }

  function empty() {
    const isFiltered = Object.values(state.filters).some(Boolean);
    const { name } = state.filters;
    const hint = name ? [" Names are compared as a whole; for a part of one, use Filter: ", h("code", null, `name:*${name}*`)] : null;
    return h("div", { class: "empty" }, isFiltered ? `No ${words(kind.plural)} match.` : `No ${words(kind.plural)} here that you can see.`, hint);
  }

  function tableOf(items) {
    const [by, way] = (state.order || list.order).split(" ");
    for (const field of fitting) if (items.some((item) => hasValue(item[field.name]))) used.add(field);
    const columns = special.columns ? fitting : [...fitting.filter((field, at) => at === 0 || used.has(field)).slice(0, MAX_COLUMNS - 1), ...created];
    const named = (field) => field.label ?? label(field.name);
    const head = columns.map((field) => {
      if (!field.isLocal && !list.sorts.includes(field.name)) return h("th", { scope: "col" }, named(field));
      const isBy = by === field.name;
      const isDown = way === "desc";
      const flip = () => {
        // The worst and the latest come first.
        const isDownFirst = field.isLocal || field.type === "timestamp";
        state.order = isBy !== isDownFirst && !(isBy && isDown) ? `${field.name} desc` : field.name;
        state.page = 1;
        load(`button[data-by="${field.name}"]`);
      };
      return h("th", { scope: "col", "aria-sort": isBy ? (isDown ? "descending" : "ascending") : null }, h("button", { type: "button", "data-by": field.name, onclick: flip }, named(field), h("span", { "aria-hidden": "true" }, isBy ? (isDown ? "↓" : "↑") : "")));
    });
    const rowOf = (item) => {
      const cells = columns.map((field, at) => {
        const value = field.cell ? field.cell(item) : brief(field, item[field.name]);
        if (at > 0) return h("td", { class: field.type === "int32" || field.type === "int64" ? "number" : null }, value);
        const href = addressOf(kind, item);
        return h("th", { scope: "row" }, href ? h("a", { href }, value) : value);
      });
      if (withPlace) cells.push(h("td", { class: "in" }, item.uid ? place(parentOf(item.uid)) : ""));
      if (actions.length) cells.push(h("td", null, h("div", { class: "buttons" }, actionsOf(kind, item, actions, () => load()))));
      return h("tr", null, cells);
    };
    const rows = items.map(rowOf);
    live.shows(items, rows, rowOf);
    return h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": title(kind) },
      h("table", null, h("thead", null, h("tr", null, head, withPlace ? h("th", { scope: "col" }, "In") : null, actions.length ? h("th", { scope: "col" }, h("span", { class: "sr" }, "Actions")) : null)), h("tbody", null, rows)),
    );
  }

  /**
   * Returns what keeps the rows of a page up to date: a changed row is replaced where it is, a deleted one is struck, and
   * new ones are counted, because they would move the others.
   */
  function liveRows() {
    const rows = new Map();
    const changed = new Set();
    const fresh = new Set();
    const line = h("p", { class: "news", role: "status" });
    let followed = { text: "", end: () => {} };
    let rowOf = null;
    let timer = 0;

    async function begin(query) {
      const params = query.filter(([name]) => name !== "order_by");
      // A resource without a parent is in no organization, whose changes could be followed.
      const text = kind.parent && !isLocal() ? JSON.stringify(params) : "";
      if (followed.text === text) return;
      followed.end();
      const path = target(list.path, state.filters, [...params, ["watch", "names"]]);
      followed = { text, end: () => {}, ...(text ? follow(path, () => root.isConnected, happened) : {}) };
      await followed.begun;
    }

    function happened({ type, resource }) {
      if (type === "expired") say("The list has changed.");
      if (!resource) return;
      const { uid } = resource;
      if (type === "deleted") {
        fresh.delete(uid);
        rows.get(uid)?.classList.add("gone");
      } else if (rows.has(uid)) changed.add(uid);
      else if (type === "added") fresh.add(uid);
      if (fresh.size) say(`${number(fresh.size)} new ${fresh.size === 1 ? noun(kind) : words(kind.plural)}.`);
      else if (type === "deleted") say("");
      // Many changes at once are one request.
      if (changed.size) timer ||= setTimeout(update, 200);
    }

    function say(text) {
      const show = () => load(".scroll");
      line.replaceChildren(...(text ? [text, " ", h("button", { type: "button", class: "small", onclick: show }, "Show")] : []));
    }

    async function update() {
      timer = 0;
      const uids = [...changed].slice(0, 50);
      for (const uid of uids) changed.delete(uid);
      const query = [...queryOf(kind, state), ...uids.map((uid) => ["uidp.ids", uid]), ["page_size", uids.length]];
      // What fails is tried again at the next change, or when the page is read again.
      const page = await call("GET", target(list.path, state.filters, query)).catch(() => ({}));
      for (const item of page[kind.plural] ?? []) {
        const row = rows.get(item.uid);
        if (!row) continue;
        const next = rowOf(item);
        const focused = [...row.querySelectorAll("a, button")].indexOf(document.activeElement);
        row.replaceWith(next);
        rows.set(item.uid, next);
        if (focused >= 0) next.querySelectorAll("a, button")[focused]?.focus({ preventScroll: true });
      }
      if (withPlace && kind.parent === top()?.name) namePlaces(results);
      if (changed.size) timer ||= setTimeout(update, 200);
    }

    return {
      begin,
      note: () => line,
      shows(items, made, make) {
        rows.clear();
        fresh.clear();
        say("");
        rowOf = make;
        items.forEach((item, at) => rows.set(item.uid, made[at]));
      },
    };
  }

  /** Returns a button that narrows the list to a place. */
  function place(uid) {
    if (!uid || uid === state.under) return h("span", { class: "muted" }, uid ? "here" : "–");
    const shownUid = state.under && uid.startsWith(`${state.under}/`) ? `…${uid.slice(state.under.length)}` : uid.length > 42 ? `${uid.slice(0, 6)}…${uid.slice(-16)}` : `${uid.slice(0, 8)}…`;
    const narrow = () => {
      state.under = uid;
      state.page = 1;
      load();
      const field = document.getElementById(underId);
      if (field) Object.assign(field, { value: uid }).dataset.uid = uid;
    };
    return h("button", { type: "button", class: "quiet small", "data-place": uid, title: `Only below ${uid}`, onclick: narrow }, shownUid);
  }

  function pager(count) {
    const pages = Math.max(1, Math.ceil(shown.total / state.size));
    const first = (state.page - 1) * state.size;
    const go = (page, focus) => () => {
      state.page = Math.min(Math.max(1, page), pages);
      load(focus);
    };
    const button = (text, name, page, isOff) => h("button", { type: "button", class: "small", "data-go": name, disabled: isOff, onclick: go(page, `[data-go=${name}]:not(:disabled)`) }, text);
    const jump = h("input", { type: "number", min: 1, max: pages, value: state.page, onchange: () => go(Number(jump.value) || 1, ".pager input")() });
    const size = h("select", { onchange: () => { state.size = Number(size.value); state.page = 1; load(".pager select"); } }, SIZES.map((one) => h("option", { value: one, selected: one === state.size }, one)));
    return h(
      "nav",
      { class: "pager", "aria-label": `Pages of ${words(kind.plural)}` },
      h("span", { class: "grow" }, count ? `${number(first + 1)}–${number(first + count)} of ` : "0 of ", h("strong", { class: "total" }, number(shown.total))),
      pages > 1 ? [button("First", "first", 1, state.page === 1), button("Previous", "previous", state.page - 1, state.page === 1), h("label", null, "Page", jump, `of ${number(pages)}`), button("Next", "next", state.page + 1, state.page >= pages), button("Last", "last", pages, state.page >= pages)] : null,
      shown.total > SIZES[0] ? h("label", null, "Rows", size) : null,
    );
  }

  const underId = freshId();
  const inputs = new Map();

  /** Marks the filter that an error names. Returns whether there is one. */
  function markProblem({ field, description }) {
    const input = inputs.get(field);
    if (!input) return false;
    input.setAttribute("aria-invalid", "true");
    input.closest("details")?.setAttribute("open", "");
    const hint = h("p", { class: "problem", id: freshId() }, description);
    input.setAttribute("aria-describedby", hint.id);
    input.parentElement.querySelector(".problem")?.remove();
    input.parentElement.append(hint);
    return true;
  }

  function filterForm() {
    const rows = [];
    const field = (id, text, ...contents) => h("div", { class: "field" }, h("label", { for: id }, text), contents);
    let depth = null;
    if (kind.parent) {
      const props = { id: underId, name: "under", placeholder: "anywhere", spellcheck: "false", autocomplete: "off" };
      const nodes = uidInput({ uidOf: top() ? top().name : kind.parent }, state.under, { ...props, anywhere: true });
      for (const name of ["under", "uidp.descendants_of", "uidp.children_of"]) inputs.set(name, nodes[0]);
      const modeId = freshId();
      const mode = h("select", { id: modeId, name: "mode" }, h("option", { value: "below", selected: state.mode !== "in" }, "at any depth"), h("option", { value: "in", selected: state.mode === "in" }, "directly in it"));
      rows.push(field(underId, nodes.length > 1 ? "Below (name or uid)" : "Below (uid)", nodes));
      depth = field(modeId, "Depth", mode);
    }
    const first = Object.keys(special.first ?? {});
    const rankOf = ({ name, required }) => (required || isInPath(list, name) ? -1 : first.includes(name) ? first.indexOf(name) : first.length);
    for (const one of special.filters ?? []) {
      const id = freshId();
      const select = h("select", { id, name: `f.${one.name}` }, h("option", { value: "" }, "any"), one.options.map(([name, text]) => h("option", { value: name, selected: name === state.filters[one.name] }, text)));
      rows.push(field(id, one.label, select));
    }
    for (const param of paramsOf(list).toSorted((one, other) => rankOf(one) - rankOf(other))) {
      const id = freshId();
      const value = state.filters[param.name] ?? "";
      const props = { id, name: `f.${param.name}`, title: param.about };
      const [input, ...offers] = filterInput(kind, param, value, props);
      inputs.set(param.name, input);
      inputs.set(props.name, input);
      rows.push(h("div", { class: "field" }, h("label", { for: id }, special.first?.[param.name] ?? label(param.name), param.required || isInPath(list, param.name) ? h("span", { class: "required" }, " *") : null), input, offers));
    }
    if (rows.length === 0) return null;
    const inSight = first.length ? first.length + (special.filters ?? []).length + (kind.parent ? 1 : 0) : MAX_FILTERS + 1;
    const rest = [...(depth ? [depth] : []), ...rows.splice(inSight)];
    const isUsed = rest.some((row) => row !== depth && row.querySelector("input, select").value) || state.mode === "in";
    const more = rest.length ? h("details", { open: isUsed }, h("summary", null, "More filters"), h("div", { class: "filters" }, rest)) : null;
    const apply = async (event) => {
      event?.preventDefault();
      for (const input of inputs.values()) {
        input.removeAttribute("aria-invalid");
        input.parentElement.querySelector(".problem")?.remove();
      }
      try {
        await findNames(form);
      } catch (error) {
        if (!error.violations?.every(markProblem)) results.replaceChildren(h("div", { class: "empty", role: "alert" }, errorBox(error)));
        return;
      }
      const data = new FormData(form);
      const place = form.elements.namedItem("under");
      state.under = place ? uidIn(place) : "";
      state.mode = data.get("mode") === "in" ? "in" : "";
      for (const { name } of [...(special.filters ?? []), ...paramsOf(list)]) {
        const input = inputs.get(name);
        state.filters[name] = input?.dataset.names ? uidIn(input) : (data.get(`f.${name}`) ?? "").trim();
      }
      state.page = 1;
      load();
    };
    const clear = () => {
      for (const input of form.querySelectorAll("input, select")) {
        input.value = input.name === "mode" ? "below" : "";
        delete input.dataset.uid;
      }
      apply();
    };
    const buttons = h("div", { class: "buttons" }, h("button", null, "Apply"), h("button", { type: "button", class: "quiet", onclick: clear }, "Clear"));
    const form = h("form", { class: "body", role: "search", "aria-label": `Filter ${words(kind.plural)}`, onsubmit: apply, onchange: (event) => event.target.tagName === "SELECT" && apply() }, h("div", { class: "filters" }, rows, buttons), more);
    const count = Object.values(state.filters).filter(Boolean).length + (state.under ? 1 : 0);
    return filterCard(form, count);
  }

  const request = h("div", { class: "curl" }, line, copyButton(() => line.textContent));
  const isWaiting = list.params.some((param) => (param.required || isInPath(list, param.name)) && !state.filters[param.name]);
  const form = filters ? filterForm() : null;
  if (isWaiting) {
    results.append(h("div", { class: "empty" }, "Set the filters that are marked with an asterisk."));
    request.hidden = true;
  }
  const root = heading ? card(heading, tools, results, h("details", { class: "body small" }, h("summary", null, "Request"), request)) : h("div", { class: "list" }, form, h("div", { class: "card" }, results), request);
  return { root, loaded: isWaiting ? null : load() };
}
