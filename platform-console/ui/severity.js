// Severities of vulnerabilities: levels, CVSS base scores, and what a vector says in words.

import { scoreOfVersion4 } from "./cvss4.js";
import { h } from "./dom.js";
import { capitalized } from "./format.js";

/** The levels, worst first. */
export const LEVELS = ["critical", "high", "medium", "low", "negligible", "unknown"];

/** Returns the level of a score from 0 to 10, by the qualitative scale of CVSS 3 and 4. */
export function levelOf(score) {
  if (score == null) return "unknown";
  return score >= 9 ? "critical" : score >= 7 ? "high" : score >= 4 ? "medium" : score > 0 ? "low" : "negligible";
}

/** The place of a level in `LEVELS`. */
export const rank = (level) => LEVELS.indexOf(level);

/** Returns a text without what databases write around a vector: a slash at its end, and parentheses. */
const bare = (text) => text.trim().replace(/^\((.*)\)$/, "$1").replace(/\/$/, "");

const metricsOf = (vector) => Object.fromEntries(bare(vector).split("/").map((part) => part.split(":")));

const V3 = {
  AV: { N: 0.85, A: 0.62, L: 0.55, P: 0.2 },
  AC: { L: 0.77, H: 0.44 },
  UI: { N: 0.85, R: 0.62 },
  PR: { U: { N: 0.85, L: 0.62, H: 0.27 }, C: { N: 0.85, L: 0.68, H: 0.5 } },
  CIA: { H: 0.56, L: 0.22, N: 0 },
};

/** Rounds up to one decimal, as Appendix A of CVSS 3.1 does. */
function roundUp(value) {
  const large = Math.round(value * 100_000);
  return large % 10_000 === 0 ? large / 100_000 : (Math.floor(large / 10_000) + 1) / 10;
}

function scoreOfVersion3(metrics) {
  const isChanged = metrics.S === "C";
  const impacts = ["C", "I", "A"].map((name) => V3.CIA[metrics[name]]);
  const base = 1 - impacts.reduce((left, impact) => left * (1 - impact), 1);
  const impact = isChanged ? 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15 : 6.42 * base;
  const ease = 8.22 * V3.AV[metrics.AV] * V3.AC[metrics.AC] * V3.PR[isChanged ? "C" : "U"][metrics.PR] * V3.UI[metrics.UI];
  return impact <= 0 ? 0 : roundUp(Math.min(isChanged ? 1.08 * (impact + ease) : impact + ease, 10));
}

const V2 = {
  AV: { L: 0.395, A: 0.646, N: 1 },
  AC: { H: 0.35, M: 0.61, L: 0.71 },
  Au: { M: 0.45, S: 0.56, N: 0.704 },
  CIA: { N: 0, P: 0.275, C: 0.66 },
};

function scoreOfVersion2(metrics) {
  const impact = 10.41 * (1 - ["C", "I", "A"].reduce((left, name) => left * (1 - V2.CIA[metrics[name]]), 1));
  const ease = 20 * V2.AV[metrics.AV] * V2.AC[metrics.AC] * V2.Au[metrics.Au];
  return Math.round((0.6 * impact + 0.4 * ease - 1.5) * (impact === 0 ? 0 : 1.176) * 10) / 10;
}

const versionOf = (vector) => /^CVSS:(\d\.\d)\//.exec(bare(vector))?.[1] ?? (/^AV:.*Au:/.test(bare(vector)) ? "2.0" : "");

const SCORES = { 2: scoreOfVersion2, 3: scoreOfVersion3, 4: scoreOfVersion4 };

/** Returns the base score of a vector of CVSS 2, 3 or 4; `null` for other texts. */
export function scoreOf(vector) {
  const score = SCORES[versionOf(vector)[0]]?.(metricsOf(vector));
  return Number.isFinite(score) ? score : null;
}

/** Returns the worst of some severities of the API, as `{ level, score, version, vector }`. */
export function worst(severities = []) {
  const all = severities.map(({ score: vector }) => ({ vector, version: versionOf(vector), score: scoreOf(vector) }));
  const [first] = all.sort((one, other) => (other.score ?? -1) - (one.score ?? -1));
  return { ...(first ?? { vector: "", version: "", score: null }), level: levelOf(first?.score) };
}

const WORDS = {
  AV: { N: "over the network", A: "from the same network", L: "on the machine", P: "with physical access" },
  AC: { L: "easy to exploit", M: "somewhat hard to exploit", H: "hard to exploit" },
  PR: { N: "without privileges", L: "with low privileges", H: "with high privileges" },
  Au: { N: "without privileges", S: "after signing in", M: "after signing in more than once" },
  UI: { N: "without a user's help", R: "needs a user's help", P: "needs a user's help", A: "needs a user's help" },
};
const LOSSES = [[["C", "VC"], "confidentiality"], [["I", "VI"], "integrity"], [["A", "VA"], "availability"]];

/** Returns what the metrics of a vector say, such as "over the network, easy to exploit, …". */
export function inWords(vector) {
  const metrics = metricsOf(vector);
  const how = Object.entries(WORDS).map(([name, words]) => words[metrics[name]]);
  const lost = LOSSES.map(([names, what]) => {
    const value = names.map((name) => metrics[name]).find(Boolean);
    return value && value !== "N" ? `${value === "H" || value === "C" ? "high" : "some"} loss of ${what}` : null;
  });
  return [...how, ...lost].filter(Boolean).join(", ");
}

/** Returns a severity as a mark of its color and words, such as "Critical 9.8". */
export function severityTag({ level, score }) {
  const text = level === "unknown" ? "Not rated" : capitalized(level);
  return h("span", { class: "severity" }, h("i", { class: `c-${level}`, "aria-hidden": "true" }), text, score == null ? null : ` ${score.toFixed(1)}`);
}
