// The base score of CVSS 4.0 (FIRST, specification 4.0, section 8). Only base metrics count, as in the scores of the server,
// so that scores of different versions can be compared: exploit maturity is "attacked" and all requirements are "high".

/** How much less severe than the worst each value of a metric is, in steps of 0.1. */
const STEPS = {
  AV: { N: 0, A: 1, L: 2, P: 3 },
  PR: { N: 0, L: 1, H: 2 },
  UI: { N: 0, P: 1, A: 2 },
  AC: { L: 0, H: 1 },
  AT: { N: 0, P: 1 },
  VC: { H: 0, L: 1, N: 2 },
  VI: { H: 0, L: 1, N: 2 },
  VA: { H: 0, L: 1, N: 2 },
  SC: { H: 1, L: 2, N: 3 },
  SI: { H: 1, L: 2, N: 3 },
  SA: { H: 1, L: 2, N: 3 },
};

/**
 * The scores of the macrovectors, by the levels of exploitability (EQ1), complexity (EQ2), impact on the system and its
 * requirements (EQ3 with EQ6: 00, 01, 10, 11, 21), and impact on other systems (EQ4, from 1).
 */
const SCORES = [
  [[[10, 9.3], [9.6, 9], [9.3, 8.8], [9.2, 8], [7.9, 6.9]], [[9.5, 9.2], [9.1, 8.1], [9.2, 8.4], [8.2, 7], [7.1, 6.3]]],
  [[[9.4, 8.7], [8.9, 7.5], [8.6, 7.2], [7.6, 5.7], [6.5, 5.3]], [[9, 7.7], [7.7, 6.6], [7.4, 6.1], [5.9, 5.2], [5.8, 2.3]]],
  [[[8.6, 7], [7.4, 5.4], [7.2, 5.3], [5.7, 3.6], [4.7, 2.4]], [[7.3, 5.4], [5.5, 4.3], [6.1, 4.6], [5.1, 1.8], [2.4, 1]]],
];

/** The worst vectors of each level, and the steps from them to the next level. */
const EXPLOITABILITY = [[["N/N/N"], 1], [["A/N/N", "N/L/N", "N/N/P"], 4], [["P/N/N", "A/L/P"], 5]];
const COMPLEXITY = [[["L/N"], 1], [["H/N", "L/P"], 2]];
const IMPACT = { 0: [["H/H/H"], 7], 2: [["L/H/H", "H/L/H"], 8], 4: [["L/L/L"], 10] };
const ELSEWHERE = [[["H/H/H"], 5], [["L/L/L"], 4]];

/** Returns the steps from the first of the worst vectors that is not less severe, as a share of those to the next level. */
function share(names, values, [worst, depth]) {
  for (const vector of worst) {
    const steps = vector.split("/").map((value, at) => STEPS[names[at]][values[at]] - STEPS[names[at]][value]);
    if (steps.every((one) => one >= 0)) return steps.reduce((sum, one) => sum + one) / depth;
  }
  return Number.NaN;
}

/** Returns the base score of the metrics of a vector; `NaN` if one is missing or has no such value. */
export function scoreOfVersion4(metrics) {
  const all = Object.keys(STEPS);
  if (!all.every((name) => metrics[name] in STEPS[name])) return Number.NaN;
  const of = (...names) => names.map((name) => metrics[name]);
  const isAny = (value, ...names) => of(...names).includes(value);
  const impacts = ["VC", "VI", "VA"];
  const others = ["SC", "SI", "SA"];
  if (of(...impacts, ...others).every((value) => value === "N")) return 0;
  const best = of("AV", "PR", "UI").filter((value) => value === "N").length;
  const exploitability = best === 3 ? 0 : best > 0 && metrics.AV !== "P" ? 1 : 2;
  const complexity = metrics.AC === "L" && metrics.AT === "N" ? 0 : 1;
  const impact = metrics.VC === "H" && metrics.VI === "H" ? 0 : isAny("H", ...impacts) ? 2 : 4;
  const elsewhere = isAny("H", ...others) ? 0 : 1;
  const score = SCORES[exploitability][complexity][impact][elsewhere];
  // The score of the next level of each; the least severe level has none.
  const byImpact = SCORES[exploitability][complexity];
  const next = [
    SCORES[exploitability + 1]?.[complexity][impact][elsewhere],
    SCORES[exploitability][complexity + 1]?.[impact][elsewhere],
    { 0: Math.max(byImpact[1][elsewhere], byImpact[2][elsewhere]), 2: byImpact[3][elsewhere] }[impact],
    byImpact[impact][elsewhere + 1],
  ];
  const shares = [
    share(["AV", "PR", "UI"], of("AV", "PR", "UI"), EXPLOITABILITY[exploitability]),
    share(["AC", "AT"], of("AC", "AT"), COMPLEXITY[complexity]),
    share(impacts, of(...impacts), IMPACT[impact]),
    share(others, of(...others), ELSEWHERE[elsewhere]),
  ];
  const lower = next.map((one, at) => (one == null ? null : (score - one) * shares[at])).filter((one) => one != null);
  // Exploit maturity (EQ5) has a lower level too, at a distance of 0.
  const distance = lower.reduce((sum, one) => sum + one, 0) / (lower.length + 1);
  return Math.round((score - distance + 1e-6) * 10) / 10;
}
