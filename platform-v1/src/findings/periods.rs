//! The periods in which a package is vulnerable, by the events of an advisory.

use platform_core::resources::{
    advisory::apk,
    vulnerabilities::{Advisory, advisory::EventType},
};
use platform_engine::{timestamp::Timestamp, uid::Uid};

use crate::resources::vulnerability_report::{Fix, FixState};

/// The parts of an advisory that decide whether a package is vulnerable.
#[derive(Debug)]
pub(super) struct Known {
    /// The group of the advisory.
    pub(super) group: Uid,
    pub(super) artifact: String,
    /// The architecture as packages name it, such as `x86_64`; empty for all.
    architecture: String,
    pub(super) namespace: String,
    /// The names of the vulnerability, the main one first.
    pub(super) names: Vec<String>,
    /// When the advisory was withdrawn.
    deleted: Option<Timestamp>,
    /// The approved events, oldest first.
    events: Vec<(Timestamp, Mark)>,
}

/// The effect of an event: which versions it marks as vulnerable or not.
#[derive(Debug)]
enum Mark {
    /// All versions are vulnerable.
    Vulnerable(FixState),
    /// No version is vulnerable.
    Cleared,
    /// This version and later ones are not vulnerable.
    Fixed(String),
    /// Exactly these versions are not vulnerable.
    Patched(Vec<String>),
}

/// A time in which a package is vulnerable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Period {
    /// The first moment.
    pub(super) from: Timestamp,
    /// The moment after the last.
    pub(super) until: Option<Timestamp>,
    pub(super) fix: Fix,
}

impl Period {
    pub(super) fn contains(&self, moment: Timestamp) -> bool {
        self.from <= moment && self.until.is_none_or(|until| moment < until)
    }
}

/// The maximum number of versions of a fix: the first ones. Our choice. Each event may begin a period with all versions
/// up to then, so that their number must not grow with the number of events.
const MAX_FIXES: usize = 100;

impl Known {
    /// Returns the parts of an advisory of a package; `None` for one of another artifact, and for one without approved
    /// events.
    pub(super) fn of(advisory: Advisory, group: Uid) -> Option<Self> {
        if !matches!(advisory.artifact_type.as_str(), "" | "apk") {
            return None;
        }
        let main = advisory.vulnerability();
        let others = advisory.names().filter(|name| *name != main);
        let names = [main].into_iter().chain(others).map(str::to_owned).collect();
        let approved = advisory.events.into_iter().filter(|event| event.is_approved());
        let mut events: Vec<_> = approved
            .filter_map(|event| {
                let mark = match event.event_type()? {
                    EventType::Detection | EventType::TruePositiveDetermination | EventType::PendingUpstreamFix => {
                        Mark::Vulnerable(FixState::StateNotFixed)
                    }
                    EventType::FixNotPlanned => Mark::Vulnerable(FixState::StateWontFix),
                    EventType::AnalysisNotPlanned => Mark::Vulnerable(FixState::StateUnspecified),
                    EventType::FalsePositiveDetermination => Mark::Cleared,
                    EventType::Fixed => Mark::Fixed(event.fixed?.fixed_version),
                    EventType::Patched => Mark::Patched(event.patched?.patched_versions),
                };
                Some((event.create_time?, mark))
            })
            .collect();
        if events.is_empty() {
            return None;
        }
        // A stable order: of events at the same time, the last in the list is the latest.
        events.sort_by_key(|(at, _)| *at);
        Some(Self {
            group,
            artifact: advisory.artifact_name,
            architecture: advisory.artifact_architecture,
            namespace: advisory.package_namespace,
            names,
            deleted: advisory.delete_time,
            events,
        })
    }

    /// Returns whether the advisory is about packages of this architecture, as packages name it.
    pub(super) fn is_for(&self, architecture: &str) -> bool {
        self.architecture.is_empty() || self.architecture == architecture
    }

    /// Returns the periods in which this version of the package is vulnerable, in order.
    pub(super) fn periods(&self, version: &str) -> Vec<Period> {
        let mut periods: Vec<Period> = Vec::new();
        let (mut is_fixed, mut fixes): (bool, Vec<String>) = (false, Vec::new());
        let add = |fixes: &mut Vec<String>, version: &String| {
            if fixes.len() < MAX_FIXES && !fixes.contains(version) {
                fixes.push(version.clone());
            }
        };
        for (at, mark) in &self.events {
            if self.deleted.is_some_and(|deleted| deleted <= *at) {
                break;
            }
            let state = match mark {
                Mark::Vulnerable(found) => Some(*found),
                Mark::Cleared => None,
                Mark::Fixed(fixed) => {
                    if apk::is_at_least(version, fixed) {
                        is_fixed = true;
                    } else {
                        add(&mut fixes, fixed);
                    }
                    Some(FixState::StateFixed)
                }
                Mark::Patched(patched) => {
                    if patched.iter().any(|one| one == version) {
                        is_fixed = true;
                    } else {
                        patched.iter().for_each(|one| add(&mut fixes, one));
                    }
                    Some(FixState::StateFixed)
                }
            };
            let state = if fixes.is_empty() { state } else { state.map(|_| FixState::StateFixed) };
            let fix = state.filter(|_| !is_fixed).map(|state| Fix { versions: fixes.clone(), state });
            let open = periods.last_mut().filter(|period| period.until.is_none());
            if open.as_ref().map(|period| &period.fix) == fix.as_ref() {
                continue;
            }
            if let Some(open) = open {
                open.until = Some(*at);
            }
            periods.extend(fix.map(|fix| Period { from: *at, until: None, fix }));
        }
        if let Some(open) = periods.last_mut().filter(|period| period.until.is_none()) {
            open.until = self.deleted;
        }
        periods.retain(|period| period.until.is_none_or(|until| period.from < until));
        periods
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn day(day: u32) -> String {
        format!("2026-01-{day:02}T00:00:00.000Z")
    }

    fn known(events: &[(u32, &str, Value)], deleted: Option<u32>) -> Option<Known> {
        let events: Vec<_> = events
            .iter()
            .map(|(at, form, value)| {
                json!({ "createTime": day(*at), "reviewState": "REVIEW_STATE_APPROVED", *form: value })
            })
            .collect();
        let advisory = json!({ "advisoryId": "CGA-1", "events": events, "deleteTime": deleted.map(day) });
        Known::of(serde_json::from_value(advisory).unwrap(), Uid::default())
    }

    /// Writes periods as `1-3 NotFixed`.
    fn periods(version: &str, events: &[(u32, &str, Value)], deleted: Option<u32>) -> Vec<String> {
        let number = |at: Timestamp| at.to_string()[8..10].trim_start_matches('0').to_owned();
        let shown = |period: Period| {
            let until = period.until.map(number).unwrap_or_default();
            let state = format!("{:?}", period.fix.state);
            let versions = period.fix.versions.join(",");
            format!("{}-{until} {} {versions}", number(period.from), &state["State".len()..]).trim_end().to_owned()
        };
        known(events, deleted).unwrap().periods(version).into_iter().map(shown).collect()
    }

    #[test]
    fn a_package_is_vulnerable_from_its_detection_until_it_is_cleared_or_the_advisory_is_withdrawn() {
        let found = (1, "detection", json!({ "manual": {} }));
        let cleared = (3, "falsePositiveDetermination", json!({ "note": "n" }));
        assert_eq!(periods("1.0", std::slice::from_ref(&found), None), ["1- NotFixed"]);
        assert_eq!(periods("1.0", &[found.clone(), cleared.clone()], None), ["1-3 NotFixed"]);
        let again = (5, "truePositiveDetermination", json!({ "note": "n" }));
        assert_eq!(periods("1.0", &[again, cleared, found.clone()], None), ["1-3 NotFixed", "5- NotFixed"]);
        assert_eq!(periods("1.0", std::slice::from_ref(&found), Some(4)), ["1-4 NotFixed"]);
        assert_eq!(periods("1.0", &[found], Some(1)), [""; 0]);
    }

    #[test]
    fn a_fix_counts_for_its_version_and_later_ones() {
        let events = [
            (1, "detection", json!({ "manual": {} })),
            (3, "fixed", json!({ "fixedVersion": "1.2-r0" })),
            (5, "fixed", json!({ "fixedVersion": "1.1-r3" })),
        ];
        assert_eq!(periods("1.0-r0", &events, None), ["1-3 NotFixed", "3-5 Fixed 1.2-r0", "5- Fixed 1.2-r0,1.1-r3"]);
        assert_eq!(periods("1.1-r3", &events, None), ["1-3 NotFixed", "3-5 Fixed 1.2-r0"]);
        assert_eq!(periods("1.2-r0", &events, None), ["1-3 NotFixed"]);
        assert_eq!(periods("1.10-r0", &events, None), ["1-3 NotFixed"]);
        let alone = [(3, "fixed", json!({ "fixedVersion": "1.2-r0" }))];
        assert_eq!(periods("1.1", &alone, None), ["3- Fixed 1.2-r0"], "versions before the fix are vulnerable");
        assert_eq!(periods("1.2-r1", &alone, None), [""; 0]);
        let patched = [(3, "patched", json!({ "patchedVersions": ["1.1-r3", "1.2-r0"] }))];
        assert_eq!(periods("1.1-r4", &patched, None), ["3- Fixed 1.1-r3,1.2-r0"]);
        assert_eq!(periods("1.1-r3", &patched, None), [""; 0]);
    }

    #[test]
    fn a_fix_has_each_version_once_and_at_most_the_first_hundred() {
        let fixed = |version: usize| (3, "fixed", json!({ "fixedVersion": format!("{version}") }));
        let same = periods("1", &[fixed(2), fixed(2), fixed(3), fixed(2)], None);
        assert_eq!(same, ["3- Fixed 2,3"]);
        let event = |(index, version): (usize, usize)| {
            json!({
                "createTime": format!("2026-01-01T00:00:00.{index:03}Z"), "reviewState": "REVIEW_STATE_APPROVED",
                "fixed": { "fixedVersion": version.to_string() },
            })
        };
        let events: Vec<_> = (2..900).enumerate().map(event).collect();
        let advisory = json!({ "advisoryId": "CGA-1", "events": events });
        let known = Known::of(serde_json::from_value(advisory).unwrap(), Uid::default()).unwrap();
        let periods = known.periods("1");
        assert_eq!(periods.len(), MAX_FIXES);
        assert_eq!(periods.iter().map(|period| period.fix.versions.len()).max(), Some(MAX_FIXES));
    }

    #[test]
    fn the_latest_event_is_the_state_of_the_fix() {
        let note = json!({ "note": "n" });
        let events = [
            (1, "detection", json!({ "manual": {} })),
            (2, "pendingUpstreamFix", note.clone()),
            (3, "fixNotPlanned", note.clone()),
            (4, "analysisNotPlanned", note),
        ];
        assert_eq!(periods("1.0", &events, None), ["1-3 NotFixed", "3-4 WontFix", "4- Unspecified"]);
    }

    #[test]
    fn only_approved_events_with_a_time_count() {
        let pending = json!({
            "advisoryId": "CGA-1",
            "events": [
                { "createTime": day(1), "reviewState": "REVIEW_STATE_PENDING", "detection": { "manual": {} } },
                { "reviewState": "REVIEW_STATE_APPROVED", "detection": { "manual": {} } },
                { "createTime": day(1), "reviewState": "REVIEW_STATE_APPROVED" },
            ],
        });
        assert!(Known::of(serde_json::from_value(pending).unwrap(), Uid::default()).is_none());
        assert!(known(&[], None).is_none());
    }

    #[test]
    fn the_main_name_is_a_cve_or_else_the_first_alias_or_else_the_advisory_id() {
        for (aliases, expected) in [
            (json!(["GHSA-1", "CVE-1"]), vec!["CVE-1", "GHSA-1", "CGA-1"]),
            (json!(["GHSA-1", "GO-1"]), vec!["GHSA-1", "GO-1", "CGA-1"]),
            (json!([]), vec!["CGA-1"]),
        ] {
            let event = json!({
                "createTime": day(1), "reviewState": "REVIEW_STATE_APPROVED", "detection": { "manual": {} },
            });
            let advisory = json!({ "advisoryId": "CGA-1", "aliases": aliases, "events": [event] });
            let known = Known::of(serde_json::from_value(advisory).unwrap(), Uid::default()).unwrap();
            assert_eq!(known.names, expected);
        }
    }
}
