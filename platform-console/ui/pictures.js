// Pictures for kinds of Platform API v2. Each comes from one bounded request; where the server does not have the
// method, there is no picture.

import { h, svg, card, errorBox, freshId } from "./dom.js";
import { call, target } from "./api.js";
import { bytes, capitalized, day, enumLabels, number, relative, words } from "./format.js";
import { actionNamed, itemAddress, kindNamed, serviceAt } from "./kinds.js";

const COUNTS = "/registry/v1/vuln_reports/counts";
const DAYS = 30;
const STATES = ["open", "notPlanned", "notAffected", "fixed"];
const RATINGS = ["critical", "high", "medium", "low", "unrated"];
const SEVERITIES = ["CRITICAL", "HIGH", "MEDIUM", "LOW", "NEGLIGIBLE", "UNKNOWN"];

/** Whether the pictures of a kind's resources say more than their fields and parts. */
export const comeFirst = (kind) => kind.name === "Group" || kind.name === "Subscription";

/** Returns the cards with pictures of a resource. */
export function pictures(kind, item) {
  const drawn = { Subscription: [deliveries], Group: [advisories], Repo: [vulnerabilities, resolved], Tag: [architectures] }[kind.name] ?? [];
  return drawn.map((draw) => draw(item)).filter(Boolean);
}

/** Returns a card whose picture is drawn when its request is answered. */
function pictureCard(title, draw) {
  const body = h("div", { class: "body" }, h("p", { class: "muted" }, "Loading …"));
  draw()
    .then((content) => body.replaceChildren(...[content].flat()))
    .catch((error) => body.replaceChildren(error.status === 403 || error.status === 404 ? h("p", { class: "muted" }, "No data that you can see.") : errorBox(error)));
  return card(title, null, body);
}

/**
 * The advisories of a group by state, and those in one state by severity, on each of the last 30 days. There is no card
 * in groups without advisories.
 */
function advisories(group) {
  const count = actionNamed("CountAdvisories");
  if (!count) return null;
  const columnsOf = (reply, names) => (reply.days ?? []).map((one) => ({ date: dayOf(one.date), parts: names.map((name) => [name, one[name] ?? 0]) }));
  const read = (state) => call("GET", target(count.path, {}, [["uid", group.uid], ["days", DAYS], ["state", state]]));
  const severities = h("div");
  const showSeverities = (reply, state) => severities.replaceChildren(stacked(columnsOf(reply, RATINGS), `${capitalized(words(state))} advisories by severity as it is known today, at the end of each day`));
  const card = pictureCard(`Advisories, last ${DAYS} days`, async () => {
    const reply = await read("");
    const columns = columnsOf(reply, STATES);
    if (!columns.some((column) => column.parts.some(([, number]) => number))) {
      card.remove();
      return "";
    }
    showSeverities(reply, STATES[0]);
    const id = freshId();
    const options = STATES.map((state) => h("option", { value: state }, capitalized(words(state))));
    const select = h("select", { id, onchange: () => read(words(select.value).toUpperCase().replaceAll(" ", "_")).then((one) => showSeverities(one, select.value), (error) => severities.replaceChildren(errorBox(error))) }, options);
    return [stacked(columns, "Advisories of this group and those below it by state, at the end of each day"), h("div", { class: "field" }, h("label", { for: id }, "By severity, in the state"), select), severities];
  });
  return card;
}

const dayOf = (time) => String(time).slice(0, 10);
const since = (days) => new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);

/** The days of a picture, oldest first. */
const days = (count) => Array.from({ length: count }, (_, at) => new Date(Date.now() - (count - 1 - at) * 86_400_000).toISOString().slice(0, 10));

/** The vulnerabilities of a repo's images by severity, on each of the last 30 days. */
function vulnerabilities(repo) {
  if (!serviceAt(COUNTS)) return null;
  return pictureCard(`Vulnerabilities of latest, last ${DAYS} days`, async () => {
    const path = target(COUNTS, {}, [["repo", repo.uid], ["tag", "latest"], ["from", `${since(DAYS)}T00:00:00Z`]]);
    const { items = [] } = await call("GET", path);
    if (items.length === 0) return h("p", { class: "muted" }, "There are no vulnerability reports for the tag latest.");
    const byDay = new Map(items.map((one) => [dayOf(one.date), new Map((one.vulnCounts ?? []).map(({ severity, count }) => [severity, count]))]));
    if (!items.some((one) => (one.vulnCounts ?? []).some(({ count }) => count))) return h("p", { class: "muted" }, "No vulnerabilities of the tag latest are known in this time.");
    const columns = days(DAYS).map((date) => ({ date, parts: SEVERITIES.map((name) => [name.toLowerCase(), byDay.get(date)?.get(name) ?? 0]) }));
    return stacked(columns, "Vulnerabilities by severity on each day");
  });
}

/** The vulnerabilities that were resolved on each of the last 30 days. */
function resolved(repo) {
  const list = actionNamed("ListResolvedVulnsReports");
  if (!list) return null;
  return pictureCard(`Vulnerabilities resolved, last ${DAYS} days`, async () => {
    const path = target(list.path, {}, [["imageRefs", `${repo.uid}:latest`], ["startTime", `${since(DAYS)}T00:00:00Z`], ["endTime", `${since(1)}T00:00:00Z`]]);
    const { resolvedVulnsReports = [] } = await call("GET", path);
    const byDay = new Map(resolvedVulnsReports.map((one) => [dayOf(one.date), (one.resolvedVulns ?? []).length]));
    if (![...byDay.values()].some(Boolean)) return h("p", { class: "muted" }, "None were resolved in this time.");
    return stacked(days(DAYS).map((date) => ({ date, parts: [["plain", byDay.get(date) ?? 0]] })), "Resolved vulnerabilities on each day");
  });
}

/** The outcomes of the latest events of a subscription, the oldest first; a column is as high as it took attempts. */
function deliveries(subscription) {
  const kind = kindNamed("Delivery");
  const state = kind?.fields.find((field) => field.name === "state");
  if (!kind?.methods.list || !state?.type.enum) return null;
  const labels = enumLabels(state.type.enum);
  return pictureCard("Delivery health", async () => {
    const page = await call("GET", target(kind.methods.list.path, {}, [["uidp.children_of", subscription.uid], ["page_size", 100]]));
    const rows = (page[kind.plural] ?? []).reverse();
    if (rows.length === 0) return h("p", { class: "muted" }, "Nothing was delivered yet.");
    const [width, height] = [640, 72];
    const step = width / Math.max(rows.length, 40);
    const columns = rows.map((row, at) => {
      const part = Math.min(row.attempts ?? 1, 10) / 10;
      const bar = svg("rect", { class: `c-${row.state.toLowerCase()}`, x: at * step + 0.5, width: Math.max(1, step - 1.5), y: (height - 8) * (1 - part), height: 8 + (height - 8) * part, rx: 1.5, onclick: () => (location.hash = itemAddress(kind, row.uid)) });
      bar.append(svg("title", null, [row.eventType, labels.get(row.state), `${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}`, row.httpStatus && `status ${row.httpStatus}`, row.error, relative(row.updateTime)].filter(Boolean).join(" · ")));
      return bar;
    });
    const counts = Object.entries(Object.groupBy(rows, (row) => row.state));
    const caption = `${rows.length === 1 ? "The latest event" : `The latest ${number(rows.length)} events, the oldest first`}: ${counts.map(([name, some]) => `${number(some.length)} ${labels.get(name).toLowerCase()}`).join(", ")}. A higher column took more attempts; a click shows the last one.`;
    const failed = rows.findLast((row) => row.error);
    return [
      h("figure", null, h("ul", { class: "legend" }, counts.map(([name, some]) => h("li", null, h("i", { class: `c-${name.toLowerCase()}` }), `${number(some.length)} ${labels.get(name).toLowerCase()}`))), svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption }, columns), h("figcaption", null, caption)),
      failed ? h("p", { class: "small" }, "Last failure, ", relative(failed.updateTime), ": ", failed.error) : null,
    ].filter(Boolean);
  });
}

/** The sizes of an image by architecture. */
function architectures(tag) {
  const list = actionNamed("ListImageSizes");
  if (!list || !tag.digest) return null;
  const image = [["repoUid", tag.uid.slice(0, tag.uid.lastIndexOf("/"))], ["digest", tag.digest]];
  return pictureCard("Image", async () => {
    const { sizes = [] } = await call("GET", target(list.path, {}, image));
    const most = Math.max(1, ...sizes.map((one) => Number(one.size)));
    const rows = sizes.map((one) => {
      const bar = h("div", { class: "bar c-plain" });
      bar.style.width = `${(100 * Number(one.size)) / most}%`;
      return [h("dt", null, one.architecture), h("dd", { "aria-hidden": "true" }, bar), h("dd", null, bytes(one.size))];
    });
    return h("figure", null, h("dl", { class: "bars" }, rows), h("figcaption", null, "Size of the layers and the configuration by architecture"));
  });
}

/** Returns a chart with a column of stacked parts for each day, and the same numbers as a table for screen readers. */
function stacked(columns, caption) {
  const [width, height, left, bottom, top] = [640, 220, 44, 24, 10];
  const totals = columns.map((column) => column.parts.reduce((sum, [, count]) => sum + count, 0));
  const most = nice(Math.max(1, ...totals));
  const step = (width - left) / columns.length;
  const y = (count) => height - bottom - ((height - bottom - top) * count) / most;
  const grid = [0, most / 2, most].map((at) => [svg("line", { x1: left, x2: width, y1: y(at), y2: y(at) }), svg("text", { x: left - 8, y: y(at) + 4, "text-anchor": "end" }, number(at))]);
  const bars = columns.map((column, index) => {
    let below = 0;
    return column.parts.toReversed().map(([name, count]) => {
      if (!count) return null;
      below += count;
      const bar = svg("rect", { class: `c-${name}`, x: left + index * step + 1.5, y: y(below), width: Math.max(1, step - 3), height: y(below - count) - y(below), rx: 1.5 });
      bar.append(svg("title", null, `${day(column.date)}: ${number(count)} ${name === "plain" ? "" : words(name)}`));
      return bar;
    });
  });
  const marks = [0, Math.floor(columns.length / 2), columns.length - 1].map((at, which) => svg("text", { x: left + at * step + step / 2, y: height - 6, "text-anchor": ["start", "middle", "end"][which] }, day(columns[at].date)));
  const used = columns[0].parts.map(([name]) => name).filter((name) => columns.some((column) => column.parts.find(([one]) => one === name)[1]));
  const legend = used.length > 1 || used[0] !== "plain" ? h("ul", { class: "legend" }, used.map((name) => h("li", null, h("i", { class: `c-${name}` }), capitalized(words(name))))) : null;
  const rows = columns.filter((_, at) => totals[at]).map((column) => h("tr", null, h("th", { scope: "row" }, column.date), column.parts.map(([, count]) => h("td", null, count))));
  return h(
    "figure",
    null,
    legend,
    svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption }, grid, bars, marks),
    h("figcaption", null, caption),
    h("div", { class: "sr" }, h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, h("th", { scope: "col" }, "Day"), columns[0].parts.map(([name]) => h("th", { scope: "col" }, name === "plain" ? "Count" : words(name))))), h("tbody", null, rows))),
  );
}

/** Returns a round number that is at least as large. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((one) => one * power).find((one) => one >= value && one % 2 === 0) ?? 2 * Math.ceil(value / 2);
}
