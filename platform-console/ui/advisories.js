// Advisories: the state of one in words, and the columns, orders and filters of their lists.

import { h } from "./dom.js";
import { call, target } from "./api.js";
import { capitalized } from "./format.js";
import { cveAddress, itemAddress, kindNamed } from "./kinds.js";
import { LEVELS, rank, severityTag, worst } from "./severity.js";

/** What the types of events mean for an artifact: words, the tone of their tag, and their place in orders. */
const STATES = {
  detection: ["Open", "bad"],
  truePositiveDetermination: ["Affected", "bad"],
  pendingUpstreamFix: ["Waiting for upstream", "warn"],
  analysisNotPlanned: ["No analysis planned", "warn"],
  fixNotPlanned: ["No fix planned", "warn"],
  patched: ["Patched", "good"],
  fixed: ["Fixed", "good"],
  falsePositiveDetermination: ["Not affected", "good"],
};
const FORMS = Object.keys(STATES);

/** Returns the most recent approved event of an advisory; of several at the same time, the last. */
function latestEvent(advisory) {
  const approved = (advisory.events ?? []).filter((event) => event.reviewState === "REVIEW_STATE_APPROVED");
  return approved.reduce((latest, event) => (!latest || Date.parse(event.createTime) >= Date.parse(latest.createTime) ? event : latest), null);
}

const formOf = (event) => FORMS.find((form) => event?.[form] != null) ?? "";

/** Whether an artifact is known not to be vulnerable any more. */
export const isResolved = (advisory) => STATES[formOf(latestEvent(advisory))]?.[1] === "good";

/** Returns the state of an advisory as a tag, such as "Fixed in 1.2.3-r0". */
function stateTag(advisory) {
  const event = latestEvent(advisory);
  const [text, tone] = STATES[formOf(event)] ?? ["In review", ""];
  const version = event?.fixed?.fixedVersion;
  return h("span", { class: `tag ${tone}` }, version ? `${text} in ${version}` : text);
}

/** The ids that one request asks for: its address must not become too long. */
const MOST_IDS = 100;

/** Returns the advisories about vulnerabilities that the caller may see, at most 1,000 for each 100 ids. */
export async function advisoriesAbout(ids) {
  const kind = kindNamed("Advisory");
  const found = [];
  if (!kind?.methods.list) return found;
  for (let at = 0; at < ids.length; at += MOST_IDS) {
    const query = [...ids.slice(at, at + MOST_IDS).map((id) => ["aliases", id]), ["page_size", 200]];
    let token = "";
    for (let pages = 0; pages < 5; pages += 1) {
      const page = await call("GET", target(kind.methods.list.path, {}, [...query, ["page_token", token]]));
      found.push(...(page[kind.plural] ?? []));
      token = page.nextPageToken;
      if (!token) break;
    }
  }
  return found;
}

/** Returns a link to the advisory with its state. */
export const stateLink = (advisory) => h("a", { href: itemAddress(kindNamed("Advisory"), advisory.uid), title: `${advisory.advisoryId} about ${advisory.artifactName}` }, stateTag(advisory));

/** Returns links to the pages of vulnerabilities. */
const cveLinks = (ids) => (ids ?? []).map((id, at) => [at ? ", " : "", h("a", { href: cveAddress(id), class: "id" }, id)]);

const severityOf = (one) => worst(one.severities);

/** Returns what people look for first in an advisory; `null` for other resources. */
export function factsOf(kind, item) {
  if (kind.name !== "Advisory" || kind.domain !== "vulnerabilities") return null;
  return h("p", { class: "facts" }, severityTag(severityOf(item)), stateTag(item), h("span", null, cveLinks(item.aliases)));
}

/** What is special to lists of vulnerability metadata; see `list.js`. */
export const metadataList = {
  order: "",
  address: (one) => cveAddress(one.id),
  columns: [
    { name: "id", label: "Vulnerability" },
    { name: "severity", label: "Severity", cell: (one) => severityTag(severityOf(one)) },
    { name: "summary" },
    { name: "updateTime" },
  ],
};

/** What is special to lists of advisories; see `list.js`. */
export const advisoryList = {
  order: "updateTime desc",
  columns: [
    { name: "advisoryId", label: "Advisory" },
    { name: "severity", label: "Severity", isLocal: true, cell: (one) => severityTag(severityOf(one)) },
    { name: "state", label: "State", isLocal: true, cell: stateTag },
    { name: "aliases", label: "Vulnerability", cell: (one) => cveLinks(one.aliases) },
    { name: "artifactName", label: "Package", cell: (one) => h("span", { class: "id" }, one.artifactName) },
    { name: "updateTime" },
  ],
  /** Orders and filters that the server does not have, by a number for each advisory; the largest is the worst. */
  local: {
    severity: (one) => {
      const { level, score } = severityOf(one);
      return -10 * rank(level) + (score ?? 0) / 10;
    },
    state: (one) => -FORMS.indexOf(formOf(latestEvent(one))),
  },
  filters: [{ name: "severity", label: "Severity", options: LEVELS.map((level) => [level, level === "unknown" ? "Not rated" : capitalized(level)]), test: (one, value) => severityOf(one).level === value }],
  /** The filters that are always in sight, with their labels. */
  first: { query: "Part of a name or CVE", latestEventType: "State" },
};
