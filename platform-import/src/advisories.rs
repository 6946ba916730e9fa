//! Reads advisory documents: YAML, schema 2, one document per package.
//!
//! Each entry of a document becomes one advisory, identified by the package and its id. The documents were published
//! after review, so their events count as approved. The create and update times of an advisory are those of its first
//! and its latest event. A component becomes that of the advisory if all detections by scanners name the same. Values
//! that a document does not contain stay empty.

use std::collections::HashSet;

use platform_core::resources::vulnerabilities::{
    Advisory, AdvisoryEvent,
    advisory::event::{
        Detection, FalsePositiveDetermination, FalsePositiveType, Fixed, Manual, Note, Nvdapi, ReviewState, ScanV1,
    },
};
use platform_engine::{store::KeyValue, timestamp::Timestamp};
use serde::Deserialize;

use crate::{Parsed, Placed, Refusal, yaml};

/// Reads the advisories of a document. `namespace` is the distribution of the package, such as `wolfi`; it may be
/// empty.
///
/// An advisory that violates rules is rejected by itself, with every violated rule. A document that does not match the
/// schema is rejected as a whole. Unknown keys are ignored, since later versions of the schema may have more.
pub fn document(bytes: &[u8], namespace: &str) -> Parsed<Advisory> {
    let document: Document = match yaml::read(bytes) {
        Ok(document) => document,
        Err(refusal) => return Parsed::refused(refusal),
    };
    let version = document.schema_version.as_str();
    if version.split('.').next() != Some("2") {
        return Parsed::refused(Refusal::new(
            "schema-version",
            format!("must be 2 or 2.x, not `{}`", shortened(version)),
        ));
    }
    if document.package.name.is_empty() {
        return Parsed::refused(Refusal::new("package.name", "is required"));
    }
    let mut parsed = Parsed::default();
    let mut ids = HashSet::new();
    for (index, entry) in document.advisories.unwrap_or_default().into_iter().enumerate() {
        let place = format!("advisories[{index}]");
        let mut rules = Rules::default();
        let id = entry.id.clone();
        let advisory = entry.advisory(&document.package.name, namespace, &place, &mut rules);
        if !id.is_empty() && !ids.insert(id) {
            rules.add(&place, "id", "is specified more than once");
        }
        if rules.0.is_empty() {
            parsed.resources.push(Placed { place, resource: advisory });
        } else {
            parsed.refused.append(&mut rules.0);
        }
    }
    parsed
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    schema_version: String,
    package: Package,
    advisories: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    id: String,
    aliases: Option<Vec<String>>,
    events: Option<Vec<Event>>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    timestamp: String,
    #[serde(rename = "type", default)]
    ty: String,
    data: Option<Data>,
}

/// The union of the data of all event types.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Data {
    #[serde(rename = "type")]
    form: String,
    fixed_version: String,
    note: Option<String>,
    data: Option<DetectionData>,
}

/// The union of the data of all detection types.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DetectionData {
    #[serde(rename = "cpeSearched")]
    cpe_searched: String,
    #[serde(rename = "cpeFound")]
    cpe_found: String,
    #[serde(rename = "subpackageName")]
    subpackage: String,
    #[serde(rename = "componentID")]
    component_id: String,
    #[serde(rename = "componentName")]
    component: String,
    #[serde(rename = "componentVersion")]
    component_version: String,
    #[serde(rename = "componentType")]
    component_type: String,
    #[serde(rename = "componentLocation")]
    component_location: String,
    scanner: String,
}

/// Collects violated rules.
#[derive(Default)]
struct Rules(Vec<Refusal>);

impl Rules {
    fn add(&mut self, place: &str, field: &str, rule: impl Into<String>) {
        self.0.push(Refusal::new(format!("{place}.{field}"), rule));
    }
}

impl Entry {
    fn advisory(self, package: &str, namespace: &str, place: &str, rules: &mut Rules) -> Advisory {
        if self.id.is_empty() {
            rules.add(place, "id", "is required");
        }
        let events = self.events.unwrap_or_default().into_iter().enumerate();
        let mut events: Vec<_> =
            events.map(|(index, event)| event.read(&format!("{place}.events[{index}]"), rules)).collect();
        events.sort_by_key(|event| event.create_time);
        let mut advisory = Advisory {
            advisory_id: self.id,
            aliases: self.aliases.unwrap_or_default(),
            artifact_name: package.to_owned(),
            package_namespace: namespace.to_owned(),
            create_time: events.first().and_then(|event| event.create_time),
            update_time: events.last().and_then(|event| event.create_time),
            events,
            ..Advisory::default()
        };
        let of = |field: fn(&ScanV1) -> &String| common_value(&advisory.events, field);
        let (name, location, kind) =
            (of(|scan| &scan.component), of(|scan| &scan.component_location), of(|scan| &scan.component_type));
        (advisory.component_name, advisory.component_location, advisory.component_type) = (name, location, kind);
        advisory
    }
}

/// Returns the value of a field if all detections by scanners agree on it; empty when they differ, or when the value is
/// too long to filter lists by, such as the location of a component that occurs in a hundred places. The events contain
/// the value in either case.
fn common_value(events: &[AdvisoryEvent], field: fn(&ScanV1) -> &String) -> String {
    let scans = events.iter().filter_map(|event| event.detection.as_ref()?.scanv1.as_ref());
    let mut values = scans.map(field);
    match values.next() {
        Some(first) if first.len() <= KeyValue::MAX_LEN && values.all(|value| value == first) => first.clone(),
        _ => String::new(),
    }
}

impl Event {
    fn read(self, place: &str, rules: &mut Rules) -> AdvisoryEvent {
        let create_time = match Timestamp::parse(&self.timestamp) {
            Ok(at) => Some(at),
            Err(rule) => {
                rules.add(
                    place,
                    "timestamp",
                    if self.timestamp.is_empty() { "is required".into() } else { rule.to_string() },
                );
                None
            }
        };
        let data = self.data.unwrap_or_default();
        let note = data.note.clone().unwrap_or_default();
        let only_note = || Some(Note { note: note.clone() });
        let mut event =
            AdvisoryEvent { create_time, review_state: ReviewState::ReviewStateApproved, ..AdvisoryEvent::default() };
        match self.ty.as_str() {
            "detection" => event.detection = Some(detection(data, place, rules)),
            "true-positive-determination" => event.true_positive_determination = only_note(),
            "fixed" => {
                if data.fixed_version.is_empty() {
                    rules.add(place, "data.fixed-version", "is required");
                }
                event.fixed = Some(Fixed { fixed_version: data.fixed_version, note, ..Fixed::default() });
            }
            "false-positive-determination" => {
                let reason = false_positive(&data.form).unwrap_or_else(|| {
                    rules.add(place, "data.type", format!("unknown reason `{}`", shortened(&data.form)));
                    FalsePositiveType::TypeUnspecified
                });
                event.false_positive_determination = Some(FalsePositiveDetermination { reason, note });
            }
            "analysis-not-planned" => event.analysis_not_planned = only_note(),
            "fix-not-planned" => event.fix_not_planned = only_note(),
            "pending-upstream-fix" => event.pending_upstream_fix = only_note(),
            "" => rules.add(place, "type", "is required"),
            other => rules.add(place, "type", format!("unknown event type `{}`", shortened(other))),
        }
        event
    }
}

fn detection(data: Data, place: &str, rules: &mut Rules) -> Detection {
    let found = data.data.unwrap_or_default();
    let mut detection = Detection::default();
    match data.form.as_str() {
        "manual" => detection.manual = Some(Manual {}),
        "nvdapi" => {
            detection.nvdapi = Some(Nvdapi { cpe_searched: found.cpe_searched, cpe_found: found.cpe_found });
        }
        "scan/v1" => {
            detection.scanv1 = Some(ScanV1 {
                scanner: found.scanner,
                subpackage: found.subpackage,
                component_id: found.component_id,
                component: found.component,
                component_version: found.component_version,
                component_type: found.component_type,
                component_location: found.component_location,
                ..ScanV1::default()
            });
        }
        "" => rules.add(place, "data.type", "is required"),
        other => rules.add(place, "data.type", format!("unknown detection type `{}`", shortened(other))),
    }
    detection
}

fn false_positive(name: &str) -> Option<FalsePositiveType> {
    Some(match name {
        "vulnerability-record-analysis-contested" => FalsePositiveType::TypeVulnerabilityRecordAnalysisContested,
        "component-vulnerability-mismatch" => FalsePositiveType::TypeComponentVulnerabilityMismatch,
        "vulnerable-code-version-not-used" => FalsePositiveType::TypeVulnerableCodeVersionNotUsed,
        "vulnerable-code-not-included-in-package" => FalsePositiveType::TypeVulnerableCodeNotIncludedInPackage,
        "vulnerable-code-not-in-execution-path" => FalsePositiveType::TypeVulnerableCodeNotInExecutionPath,
        "vulnerable-code-cannot-be-controlled-by-adversary" => {
            FalsePositiveType::TypeVulnerableCodeCannotBeControlledByAdversary
        }
        "inline-mitigations-exist" => FalsePositiveType::TypeInlineMitigationsExist,
        _ => return None,
    })
}

/// Shortens a text for an error message.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
