// Vulnerabilities of images: a first page by severity, those of one image, and the page of one vulnerability. All of
// it comes from version 1 of the registry, advisories and vulnerability metadata; a server without them has no such pages.

import { h, announce, card, dataTable, errorBox, filterCard, freshId } from "./dom.js";
import { call, markdown, target } from "./api.js";
import { capitalized, number } from "./format.js";
import { cveAddress, imageAddress, itemAddress, kindNamed, listAddress, parentOf, pathOf, serviceAt, top, treeAddress, vulnerabilitiesAddress } from "./kinds.js";
import { may } from "./me.js";
import { advisoriesAbout, isResolved, stateLink } from "./advisories.js";
import { showProblems } from "./form.js";
import { findNames, groupNames, uidIn, uidInput } from "./names.js";
import { embeddedList } from "./list.js";
import { renderMarkdown } from "./markdown.js";
import { LEVELS, inWords, levelOf, rank, severityTag, worst } from "./severity.js";
import { time } from "./values.js";

const COUNTS = "/registry/v1/vuln_reports/counts";
const REPORT = "/registry/v1/repos/{repoId=**}/digests/{digest=*}/vulnreport";

/** The repos whose images are read; the page says so if there are more. */
const MOST_REPOS = 1000;
const REPOS_AT_ONCE = 50;
const ROWS = 50;

/** Whether the caller may see the vulnerabilities of any images. */
export function hasVulnerabilities() {
  const counts = serviceAt(COUNTS);
  return Boolean(counts && kindNamed("Repo")?.methods.list && may(counts.capabilities));
}

/** Returns the first repos, by name, below a group or anywhere. */
async function readRepos(under) {
  const kind = kindNamed("Repo");
  const repos = [];
  let token = "";
  do {
    const query = [["order_by", "name"], ["page_size", 200], ["uidp.descendants_of", under], ["page_token", token]];
    const page = await call("GET", target(kind.methods.list.path, {}, query));
    repos.push(...(page[kind.plural] ?? []));
    token = page.nextPageToken;
  } while (token && repos.length < MOST_REPOS);
  return { repos, isAll: !token };
}

/** Whether there are any tags that the caller may see. */
async function hasTags() {
  const kind = kindNamed("Tag");
  const page = kind?.methods.list ? await call("GET", target(kind.methods.list.path, {}, [["page_size", 1]])) : {};
  return Number(page.totalCount ?? 0) > 0;
}

/** Returns the tags of repos with the vulnerabilities of their images; those with the same vulnerabilities are one. */
async function readImages(under = "") {
  const { repos, isAll } = await readRepos(under);
  const names = new Map(repos.map((repo) => [repo.uid, repo.name]));
  const found = new Map();
  let isLatest = false;
  const read = (uids, tag) => call("GET", target(COUNTS, {}, uids.map((uid) => ["references", uid + tag])));
  const batches = Array.from({ length: Math.ceil(repos.length / REPOS_AT_ONCE) }, (_, at) => repos.slice(at * REPOS_AT_ONCE, (at + 1) * REPOS_AT_ONCE).map((repo) => repo.uid));
  const replies = await Promise.all(
    batches.map((uids) =>
      read(uids, "").catch((error) => {
        // More images, or more of their vulnerabilities, than a request may count.
        if (error.status !== 400) throw error;
        isLatest = true;
        return read(uids, ":latest");
      }),
    ),
  );
  for (const one of replies.flatMap((reply) => reply.items ?? [])) {
    const counts = Object.fromEntries((one.vulnCounts ?? []).map(({ severity, count }) => [severity.toLowerCase(), count]));
    const ids = { critical: one.critCveIds, high: one.highCveIds, medium: one.medCveIds, low: one.lowCveIds, negligible: one.negligibleCveIds, unknown: one.unknownCveIds };
    const key = JSON.stringify([one.repo, one.cveIds?.toSorted()]);
    const image = found.get(key) ?? { repo: one.repo, name: names.get(one.repo) ?? one.repo, tags: [], counts, ids, total: LEVELS.reduce((sum, level) => sum + (counts[level] ?? 0), 0) };
    image.tags.push(one.tag);
    found.set(key, image);
  }
  const images = [...found.values()].sort(worstFirst);
  const groups = await groupNames(images.flatMap((image) => pathOf(image.repo).slice(0, -1)));
  for (const image of images) image.path = pathOf(image.repo).slice(0, -1).map((uid) => groups.get(uid)).filter(Boolean).join("/");
  // The tag that people know comes first.
  for (const image of images) image.tags.sort((one, other) => Number(other === "latest") - Number(one === "latest") || other.localeCompare(one, "en", { numeric: true }));
  return { images, isAll, isLatest, repos: repos.length };
}

function worstFirst(one, other) {
  for (const level of LEVELS) {
    const more = (other.counts[level] ?? 0) - (one.counts[level] ?? 0);
    if (more) return more;
  }
  return one.name.localeCompare(other.name, "en");
}

/** Returns a strip of the parts of an image's vulnerabilities by severity. `most` is the number that fills it. */
function strip(counts, most) {
  const parts = LEVELS.filter((level) => counts[level]).map((level) => {
    const part = h("i", { class: `c-${level}` });
    part.style.width = `${(100 * counts[level]) / most}%`;
    return part;
  });
  return h("span", { class: "strip", "aria-hidden": "true" }, parts);
}

/** Shows the first page: images by severity, or their vulnerabilities. Without any image, it returns false. */
export async function showVulnerabilities(main, params, isFirst = false) {
  const state = Object.fromEntries(["by", "under", "q", "level", "rows"].map((name) => [name, params.get(name) ?? ""]));
  if (isFirst && !(await hasTags())) return false;
  const read = await readImages(state.under);
  if (isFirst && read.images.length === 0) return false;
  const results = h("div");
  const problems = h("div", { role: "alert" });
  const remember = () => history.replaceState(history.state, "", vulnerabilitiesAddress(state));
  const ids = [freshId(), freshId(), freshId()];
  const change = (name, value) => {
    state[name] = value;
    state.rows = "";
    remember();
    draw();
  };
  const text = h("input", { id: ids[0], type: "search", value: state.q, placeholder: "part of a repo, tag or CVE", spellcheck: "false", autocomplete: "off", oninput: () => change("q", text.value.trim()) });
  const level = h("select", { id: ids[1], onchange: () => change("level", level.value) }, h("option", { value: "" }, "any severity"), LEVELS.slice(0, 4).map((one) => h("option", { value: one, selected: one === state.level }, one === "critical" ? "critical" : `${one} or worse`)));
  const place = uidInput({ uidOf: top()?.name }, state.under, { id: ids[2], name: "under", "data-path": "under", placeholder: "anywhere", spellcheck: "false", autocomplete: "off" });
  const apply = async (event) => {
    event.preventDefault();
    const form = event.target;
    try {
      await findNames(form);
      location.hash = vulnerabilitiesAddress({ ...state, under: uidIn(place[0]) });
    } catch (error) {
      showProblems(form, problems, error);
    }
  };
  const field = (id, label, input) => h("div", { class: "field" }, h("label", { for: id }, label), input);
  const views = [["", "By image"], ["cve", "By vulnerability"]].map(([by, name]) => h("button", { type: "button", class: "small", "data-by": by, onclick: () => change("by", by) }, name));
  main.replaceChildren(
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, "Vulnerabilities"), h("p", null, "Images that you may see, worst first")), h("div", { class: "segments", role: "group", "aria-label": "Show" }, views)),
    problems,
    filterCard(h("form", { class: "body", role: "search", "aria-label": "Filter images", onsubmit: apply }, h("div", { class: "filters" }, field(ids[0], "Find", text), field(ids[1], "With", level), field(ids[2], "Below the group", place), h("div", { class: "buttons" }, h("button", null, "Apply")))), [state.q, state.level, state.under].filter(Boolean).length),
    results,
  );

  function matching() {
    const words = state.q.toLowerCase();
    const levels = state.level ? LEVELS.slice(0, rank(state.level) + 1) : [];
    return read.images.filter((image) => {
      const names = [...image.tags.map((tag) => `${image.path}/${image.name}:${tag}`), ...LEVELS.flatMap((one) => image.ids[one] ?? [])];
      return (!words || names.some((name) => name.toLowerCase().includes(words))) && (!levels.length || levels.some((one) => image.counts[one]));
    });
  }

  // Back returns to as many rows.
  const grown = (rows) => {
    state.rows = rows;
    remember();
  };

  function draw() {
    const images = matching();
    const shownRows = [Number(state.rows) || ROWS, grown];
    for (const view of views) view.setAttribute("aria-pressed", String(view.dataset.by === state.by));
    const bounds = [
      read.isAll ? null : `Only the first ${number(read.repos)} repos, by name, are shown: choose a group.`,
      read.isLatest ? "Some repos have too many images to count: of those, only the tag latest is shown." : null,
    ].filter(Boolean);
    results.replaceChildren(state.by === "cve" ? vulnerabilitiesCard(images, state, shownRows) : imagesCard(images, shownRows), ...bounds.map((one) => h("p", { class: "muted" }, one)));
    announce(`${images.length} images`);
  }

  draw();
  return { isShown: true };
}

const imageLink = (image, tag = image.tags[0]) => h("a", { href: imageAddress(image.repo, tag), class: "id", title: image.path }, `${image.name}:${tag}`);
const groupLink = (image) => h("a", { href: treeAddress(parentOf(image.repo)), class: "id" }, image.path);
const noImages = () => h("div", { class: "empty" }, "There are no images with reports here that you can see.");

function imagesCard(images, shownRows) {
  const critical = images.filter((image) => image.counts.critical).length;
  const heading = critical ? `Critical vulnerabilities in ${number(critical)} of ${number(images.length)} ${images.length === 1 ? "image" : "images"}` : images.length ? "No image has critical vulnerabilities" : "Images";
  if (images.length === 0) return card(heading, null, noImages());
  const most = Math.max(1, ...images.map((image) => image.total));
  const shown = LEVELS.slice(0, 4);
  const row = (image) => {
    const others = image.tags.slice(1);
    return h(
      "tr",
      null,
      h("th", { scope: "row", class: "id" }, imageLink(image), others.length ? h("span", { class: "muted small others", title: others.join(", ") }, ` ${others.slice(0, 2).join(", ")}${others.length > 2 ? ` +${others.length - 2}` : ""}`) : null),
      h("td", { class: "n-path" }, groupLink(image)),
      h("td", { class: "picture" }, image.total ? strip(image.counts, most) : h("span", { class: "muted small" }, "none known")),
      shown.map((level) => h("td", { class: `number n-${level}` }, image.counts[level] ? number(image.counts[level]) : h("span", { class: "muted" }, "0"))),
      h("td", { class: "number n-other" }, number((image.counts.negligible ?? 0) + (image.counts.unknown ?? 0))),
    );
  };
  const heads = ["Image", ["In", "n-path"], ["Vulnerabilities", "picture"], ...shown.map((level) => [capitalized(level), `number n-${level}`]), ["Other", "number n-other"]];
  return card(heading, null, growing("Images by severity", heads, images, row, ...shownRows));
}

/** The vulnerabilities of images, the worst and most frequent first, with what fixes them. */
function vulnerabilitiesCard(images, state, shownRows) {
  const byId = new Map();
  const words = state.q.toLowerCase();
  const isNamed = images.some((image) => LEVELS.some((level) => (image.ids[level] ?? []).some((id) => id.toLowerCase().includes(words))));
  for (const image of images) {
    for (const level of state.level ? LEVELS.slice(0, rank(state.level) + 1) : LEVELS) {
      for (const id of image.ids[level] ?? []) {
        // A text that is a part of ids selects vulnerabilities; any other selects images.
        if (words && isNamed && !id.toLowerCase().includes(words)) continue;
        const one = byId.get(id) ?? { id, level, images: [] };
        one.images.push(image);
        byId.set(id, one);
      }
    }
  }
  const found = [...byId.values()].sort((one, other) => rank(one.level) - rank(other.level) || other.images.length - one.images.length || one.id.localeCompare(other.id));
  if (found.length === 0) return card("Vulnerabilities", null, images.length ? h("div", { class: "empty" }, "None is known.") : noImages());
  const row = (one) => {
    const fix = h("td", { "data-cve": one.id }, "…");
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: cveAddress(one.id), class: "id" }, one.id)), h("td", null, severityTag({ level: one.level, score: null })), h("td", { class: "number" }, number(one.images.length)), h("td", { class: "n-path" }, one.images.slice(0, 2).map((image, at) => [at ? ", " : "", imageLink(image)]), one.images.length > 2 ? h("span", { class: "muted small" }, ` +${one.images.length - 2}`) : null), fix);
  };
  const table = growing("Vulnerabilities of images", ["Vulnerability", "Severity", ["Images", "number"], ["Such as", "n-path"], "Fix"], found, row, ...shownRows);
  const shown = card(`${number(found.length)} vulnerabilities`, null, table);
  const fill = () => showFixes([...shown.querySelectorAll("[data-cve]")]);
  fill();
  table[1]?.addEventListener("click", fill);
  return shown;
}

/** Shows in each cell how many of the advisories about its vulnerability have a fix. */
async function showFixes(cells) {
  const ids = cells.map((cell) => cell.dataset.cve);
  for (const cell of cells) delete cell.dataset.cve;
  try {
    const advisories = await advisoriesAbout(ids);
    for (const [at, cell] of cells.entries()) {
      const about = advisories.filter((one) => one.aliases?.includes(ids[at]));
      const resolved = about.filter(isResolved).length;
      const tone = resolved === about.length ? "good" : resolved ? "warn" : "bad";
      cell.replaceChildren(about.length === 0 ? h("span", { class: "muted" }, "no advisory") : about.length === 1 ? stateLink(about[0]) : h("span", { class: `tag ${tone}` }, `${number(resolved)} of ${number(about.length)} packages`));
    }
  } catch {
    for (const cell of cells) cell.replaceChildren("–");
  }
}

/** Returns a table of the first rows, and a button that shows more. `grown` gets the number of rows that are shown then. */
function growing(label, heads, items, row, first = ROWS, grown = () => {}) {
  const table = dataTable(label, heads, items.slice(0, first).map(row));
  const body = table.querySelector("tbody");
  const more = h("button", { type: "button", class: "small", onclick: grow }, "Show more");
  const shown = h("span", { class: "grow" });
  const pager = h("div", { class: "pager" }, shown, more);
  const say = () => {
    shown.textContent = `${number(body.rows.length)} of ${number(items.length)}`;
    more.hidden = body.rows.length >= items.length;
  };
  function grow() {
    const at = body.rows.length;
    body.append(...items.slice(at, at + 4 * ROWS).map(row));
    body.rows[at].querySelector("a")?.focus();
    grown(body.rows.length);
    say();
  }
  say();
  return items.length > first ? [table, pager] : [table];
}

/** Opens the image of a tag, which is known by its name. */
export async function showImage(main, params) {
  const [repo, name] = [params.get("repo"), params.get("tag")];
  const kind = kindNamed("Tag");
  const page = await call("GET", target(kind.methods.list.path, {}, [["uidp.children_of", repo], ["name", name]]));
  const [tag] = page[kind.plural] ?? [];
  location.replace(tag ? itemAddress(kind, tag.uid) : itemAddress(kindNamed("Repo"), repo));
}

/** Returns the card with the vulnerabilities of the image of a tag; `null` for other resources. */
export function vulnerabilitiesOf(kind, item) {
  const report = serviceAt(REPORT);
  if (kind.name !== "Tag" || !report || !item.digest) return null;
  const repo = parentOf(item.uid);
  const body = h("div", { class: "results" }, h("p", { class: "empty" }, "Loading …"));
  const draw = async () => {
    if (!may(report.capabilities, repo)) {
      body.replaceChildren(h("p", { class: "empty" }, `You may not see them: this needs ${report.capabilities.join(" and ")}.`));
      return;
    }
    const reply = await call("GET", target(REPORT, { repoId: repo, digest: item.digest }));
    body.replaceChildren(...matchesOf(reply, repo));
  };
  draw().catch((error) => body.replaceChildren(h("div", { class: "empty" }, error.status === 404 ? "Nothing is known of this image." : errorBox(error))));
  return card("Vulnerabilities", null, body);
}

/** Returns the contents of the card: each vulnerability of a package once, the worst first. */
function matchesOf(report, repo) {
  const found = new Map();
  for (const { vulnerability, pkg, fix } of report.vulnerabilityMatches ?? []) {
    const score = Math.max(...(vulnerability.cvss ?? []).map((one) => Number(one.score)).filter(Number.isFinite));
    const level = vulnerability.severity === "UNKNOWN" && Number.isFinite(score) ? levelOf(score) : vulnerability.severity.toLowerCase();
    const versions = fix?.versions ?? [];
    const one = { id: vulnerability.id, level, score: Number.isFinite(score) ? score : null, name: pkg.name, version: pkg.version, versions, state: fix?.state };
    found.set(JSON.stringify([one.id, one.name, one.version]), one);
  }
  const matches = [...found.values()].sort((one, other) => rank(one.level) - rank(other.level) || (other.score ?? 0) - (one.score ?? 0) || one.id.localeCompare(other.id) || one.name.localeCompare(other.name));
  const source = report.scanner?.name && report.scanner.name !== "unknown" ? ["Found by ", capitalized(report.scanner.name), report.scanner.version ? ` ${report.scanner.version}` : "", ", ", time(report.reportGeneration)] : ["Computed from the packages of the image and their advisories, as of now"];
  if (matches.length === 0) return [h("p", { class: "empty" }, "No vulnerabilities of this image are known.")];
  const counts = {};
  for (const one of matches) counts[one.level] = (counts[one.level] ?? 0) + 1;
  const summary = h("div", { class: "body summary" }, strip(counts, matches.length), h("ul", { class: "legend" }, LEVELS.filter((level) => counts[level]).map((level) => h("li", null, h("i", { class: `c-${level}` }), `${number(counts[level])} ${level}`))), h("p", { class: "muted small" }, source));
  const waiting = new Map();
  const row = (one) => {
    const state = h("td", null, "…");
    waiting.set(one, state);
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: cveAddress(one.id), class: "id" }, one.id)), h("td", null, severityTag(one)), h("td", { class: "id" }, one.name), h("td", { class: "id" }, h("code", null, one.version || "–")), h("td", { class: "id" }, one.versions.length ? h("code", null, one.versions.slice(0, 3).join(", ")) : h("span", { class: "muted" }, one.state === "WONT_FIX" ? "will not be fixed" : "no fix yet")), state);
  };
  const table = growing("Vulnerabilities of this image", ["Vulnerability", "Severity", "Package", "Installed", "Fixed in", "Advisory"], matches, row);
  const fill = () => {
    const rows = [...waiting];
    waiting.clear();
    if (rows.length) showStates(rows, repo);
  };
  fill();
  table[1]?.addEventListener("click", fill);
  return [summary, ...table];
}

/** Shows the states of the advisories about vulnerabilities of packages: those that apply to the images of a repo. */
async function showStates(rows, repo) {
  try {
    const advisories = await advisoriesAbout([...new Set(rows.map(([one]) => one.id))]);
    for (const [one, cell] of rows) {
      const about = advisories.filter((advisory) => advisory.aliases?.includes(one.id));
      const isAbove = (advisory) => repo.startsWith(`${parentOf(advisory.uid)}/`);
      const best = about.find((advisory) => advisory.artifactName === one.name && isAbove(advisory)) ?? about.find((advisory) => advisory.artifactName === one.name) ?? about.find(isAbove);
      cell.replaceChildren(best ? stateLink(best) : h("span", { class: "muted" }, "none"));
    }
  } catch {
    for (const [, cell] of rows) cell.replaceChildren("–");
  }
}

/** Shows the page of a vulnerability: how bad it is, the images that have it, and the advisories about it. */
export async function showCve(main, params) {
  const id = params.get("id") ?? "";
  const metadata = kindNamed("VulnerabilityMetadata");
  const page = metadata?.methods.list ? await call("GET", target(metadata.methods.list.path, {}, [["ids", id]])) : {};
  const known = page[metadata?.plural]?.[0] ?? null;
  const severity = worst(known?.severities);
  const words = inWords(severity.vector);
  const details = h("div");
  if (known?.details) markdown(known.details).then((steps) => details.replaceChildren(renderMarkdown(steps)), () => details.replaceChildren(h("p", null, known.details)));
  const images = h("div", null, h("p", { class: "empty" }, "Loading …"));
  const rating = h("p", { class: "big" }, severityTag(severity), severity.score == null ? null : h("span", { class: "muted small" }, ` of 10 by CVSS ${severity.version}`));
  const advisory = kindNamed("Advisory");
  main.replaceChildren(
    h("nav", { "aria-label": "Above" }, h("ol", { class: "crumbs" }, h("li", null, h("a", { href: vulnerabilitiesAddress({ by: "cve" }) }, "Vulnerabilities")))),
    h("div", { class: "head" }, h("div", null, h("h1", { tabindex: -1 }, id), h("p", null, known?.summary || "A vulnerability"))),
    h(
      "div",
      { class: "columns" },
      card(
        "Severity",
        null,
        h(
          "div",
          { class: "body" },
          rating,
          words ? h("p", null, `${capitalized(words)}.`) : h("p", { class: "muted" }, known ? "The metadata has no score." : "There is no metadata of this vulnerability on this server."),
          severity.vector ? h("p", { class: "muted small" }, h("code", null, severity.vector)) : null,
          details,
          known?.references?.length ? h("ul", { class: "plain" }, known.references.slice(0, 10).map((one) => h("li", null, h("a", { href: one.url, target: "_blank", rel: "noopener noreferrer nofollow" }, one.url)))) : null,
        ),
      ),
      hasVulnerabilities() ? card("Images that have it", null, images) : null,
    ),
    advisory?.methods.list ? embeddedList(advisory, { mode: "", filters: { aliases: id }, heading: "Advisories about it", tools: [h("a", { class: "button", href: listAddress(advisory, { "f.aliases": id }) }, "All with filters")] }) : "",
  );
  if (!hasVulnerabilities()) return;
  readImages().then(
    (read) => {
      const has = read.images.filter((image) => LEVELS.some((level) => image.ids[level]?.includes(id)));
      const row = (image) => h("tr", null, h("th", { scope: "row" }, imageLink(image)), h("td", null, image.tags.slice(1, 4).join(", "), image.tags.length > 4 ? ` +${image.tags.length - 4}` : ""), h("td", null, groupLink(image)));
      const level = LEVELS.find((one) => has.some((image) => image.ids[one]?.includes(id)));
      if (severity.score == null && level && level !== "unknown") rating.replaceChildren(severityTag({ level, score: null }), h("span", { class: "muted small" }, " by the reports of its images"));
      images.replaceChildren(...(has.length ? growing("Images that have it", ["Image", "Also tagged", "In"], has, row) : [h("p", { class: "empty" }, "No image that you can see has it.")]), ...(read.isAll ? [] : [h("p", { class: "pager muted" }, `Of the first ${number(read.repos)} repos, by name`)]));
    },
    (error) => images.replaceChildren(errorBox(error)),
  );
}
