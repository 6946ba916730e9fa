//! Events of advisories: findings and actions, with author and review state.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use platform_engine::{
    kind::{Field, Type, derived_uid},
    timestamp::Timestamp,
    uid::Uid,
};

/// A finding about a vulnerability or an action taken: exactly one of nine types of events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvisoryEvent {
    /// The uid of the advisory and a segment. Set when the advisory is written.
    pub uid: Uid,
    /// When the event happened.
    pub create_time: Option<Timestamp>,
    /// The findings of tools: JSON in standard base64.
    pub findings: String,
    /// The author of the event.
    pub author: String,
    /// The reviewer of the event.
    pub reviewer: String,
    /// The state of the review. Only approved events determine the status of an advisory.
    pub review_state: ReviewState,
    /// The address of the discussion.
    pub issue: String,
    /// The vulnerability was detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection: Option<Detection>,
    /// A fixed version was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Fixed>,
    /// The artifact was found not to be vulnerable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive_determination: Option<FalsePositiveDetermination>,
    /// No further analysis is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analysis_not_planned: Option<Note>,
    /// No fix is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_not_planned: Option<Note>,
    /// The upstream project of the component has to fix it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_upstream_fix: Option<Note>,
    /// The artifact was found to be vulnerable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_positive_determination: Option<Note>,
    /// Released versions were patched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patched: Option<Patched>,
    /// The component was found at another path. Replies omit such events; another version of the API shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_location_changed: Option<ComponentLocationChanged>,
}

/// The state of an event's review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum ReviewState {
    #[default]
    ReviewStateUnspecified,
    ReviewStatePending,
    ReviewStateApproved,
    ReviewStateRequestChanges,
    ReviewStateRejected,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum EventType {
    Detection,
    TruePositiveDetermination,
    Fixed,
    FalsePositiveDetermination,
    AnalysisNotPlanned,
    FixNotPlanned,
    PendingUpstreamFix,
    Patched,
}

impl EventType {
    /// All types, in the order of their numbers in the contract.
    pub const ALL: [Self; 8] = [
        Self::Detection,
        Self::TruePositiveDetermination,
        Self::Fixed,
        Self::FalsePositiveDetermination,
        Self::AnalysisNotPlanned,
        Self::FixNotPlanned,
        Self::PendingUpstreamFix,
        Self::Patched,
    ];

    /// Returns the field that events of this type have.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Detection => "detection",
            Self::TruePositiveDetermination => "truePositiveDetermination",
            Self::Fixed => "fixed",
            Self::FalsePositiveDetermination => "falsePositiveDetermination",
            Self::AnalysisNotPlanned => "analysisNotPlanned",
            Self::FixNotPlanned => "fixNotPlanned",
            Self::PendingUpstreamFix => "pendingUpstreamFix",
            Self::Patched => "patched",
        }
    }

    /// Returns the name of this type in list filters.
    pub const fn filter_name(self) -> &'static str {
        match self {
            Self::Detection => "EVENT_TYPE_FILTER_DETECTION",
            Self::TruePositiveDetermination => "EVENT_TYPE_FILTER_TRUE_POSITIVE_DETERMINATION",
            Self::Fixed => "EVENT_TYPE_FILTER_FIXED",
            Self::FalsePositiveDetermination => "EVENT_TYPE_FILTER_FALSE_POSITIVE_DETERMINATION",
            Self::AnalysisNotPlanned => "EVENT_TYPE_FILTER_ANALYSIS_NOT_PLANNED",
            Self::FixNotPlanned => "EVENT_TYPE_FILTER_FIX_NOT_PLANNED",
            Self::PendingUpstreamFix => "EVENT_TYPE_FILTER_PENDING_UPSTREAM_FIX",
            Self::Patched => "EVENT_TYPE_FILTER_PATCHED",
        }
    }
}

/// The names of the types in list filters, in the order of their numbers in the contract.
pub const EVENT_TYPE_FILTERS: &[&str] = &[
    "EVENT_TYPE_FILTER_UNSPECIFIED",
    EventType::Detection.filter_name(),
    EventType::TruePositiveDetermination.filter_name(),
    EventType::Fixed.filter_name(),
    EventType::FalsePositiveDetermination.filter_name(),
    EventType::AnalysisNotPlanned.filter_name(),
    EventType::FixNotPlanned.filter_name(),
    EventType::PendingUpstreamFix.filter_name(),
    EventType::Patched.filter_name(),
];

/// How a vulnerability was detected; at most one field is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detection {
    /// In the National Vulnerability Database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvdapi: Option<Nvdapi>,
    /// By a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<Manual>,
    /// By a scanner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scanv1: Option<ScanV1>,
}

/// A search in the National Vulnerability Database and its result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nvdapi {
    /// The CPE that was searched for.
    pub cpe_searched: String,
    /// The CPE that was found.
    pub cpe_found: String,
}

/// A detection by a person, without further data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manual {}

/// A scanner's finding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct ScanV1 {
    pub scanner: String,
    pub subpackage: String,
    pub component_id: String,
    pub component: String,
    pub component_version: String,
    pub component_type: String,
    pub component_location: String,
    pub artifact_version: String,
    pub scanner_version: String,
    pub grype_db_built: String,
    pub grype_db_checksum: String,
}

/// A version without the vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct Fixed {
    pub fixed_version: String,
    pub note: String,
    pub scanner_version: String,
    pub grype_db_built: String,
    pub grype_db_checksum: String,
}

/// The determination that an artifact is not vulnerable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FalsePositiveDetermination {
    /// The reason.
    #[serde(rename = "type")]
    pub reason: FalsePositiveType,
    /// An explanation.
    pub note: String,
}

/// The reasons why an artifact is not vulnerable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum FalsePositiveType {
    #[default]
    TypeUnspecified,
    TypeVulnerabilityRecordAnalysisContested,
    TypeComponentVulnerabilityMismatch,
    TypeVulnerableCodeVersionNotUsed,
    TypeVulnerableCodeNotIncludedInPackage,
    TypeVulnerableCodeNotInExecutionPath,
    TypeVulnerableCodeCannotBeControlledByAdversary,
    TypeInlineMitigationsExist,
}

/// The data of an event that has only a note.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// The note.
    pub note: String,
}

/// Released versions that were patched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct Patched {
    pub patched_versions: Vec<String>,
    pub note: String,
}

/// A change of a component's path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct ComponentLocationChanged {
    pub previous_location: String,
    pub new_location: String,
    pub note: String,
}

impl AdvisoryEvent {
    /// Returns the type of the event, or `None` if no type is set and for a change of the component's path.
    pub fn event_type(&self) -> Option<EventType> {
        let forms = [
            (self.detection.is_some(), EventType::Detection),
            (self.true_positive_determination.is_some(), EventType::TruePositiveDetermination),
            (self.fixed.is_some(), EventType::Fixed),
            (self.false_positive_determination.is_some(), EventType::FalsePositiveDetermination),
            (self.analysis_not_planned.is_some(), EventType::AnalysisNotPlanned),
            (self.fix_not_planned.is_some(), EventType::FixNotPlanned),
            (self.pending_upstream_fix.is_some(), EventType::PendingUpstreamFix),
            (self.patched.is_some(), EventType::Patched),
        ];
        forms.into_iter().find_map(|(set, form)| set.then_some(form))
    }

    /// Returns whether the event is approved.
    pub fn is_approved(&self) -> bool {
        self.review_state == ReviewState::ReviewStateApproved
    }

    /// Returns the number of types that are set, which must be one.
    pub fn types(&self) -> usize {
        let all = [
            self.detection.is_some(),
            self.fixed.is_some(),
            self.false_positive_determination.is_some(),
            self.analysis_not_planned.is_some(),
            self.fix_not_planned.is_some(),
            self.pending_upstream_fix.is_some(),
            self.true_positive_determination.is_some(),
            self.patched.is_some(),
            self.component_location_changed.is_some(),
        ];
        all.into_iter().filter(|set| *set).count()
    }

    pub(super) fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            create_time: Some(Timestamp::EPOCH),
            findings: "e30=".to_owned(),
            author: "ada@example.com".to_owned(),
            reviewer: "grace@example.com".to_owned(),
            review_state: ReviewState::ReviewStateApproved,
            issue: "https://example.com/issues/1".to_owned(),
            fixed: Some(Fixed {
                fixed_version: "3.1.0-r0".to_owned(),
                note: "released".to_owned(),
                scanner_version: "0.1".to_owned(),
                grype_db_built: "2026-01-01".to_owned(),
                grype_db_checksum: "sha256:0".to_owned(),
            }),
            ..Self::default()
        }
    }
}

/// Sets the uid of each event. The last segment is derived from the time and the type of the event, so that an event
/// keeps its uid when others are added before it.
pub(super) fn assign_uids(events: &mut [AdvisoryEvent], advisory: &Uid) {
    // Counts events with the same time and type, which would otherwise get the same uid.
    let mut counts: HashMap<(Option<Timestamp>, Option<&str>), usize> = HashMap::new();
    for event in events {
        let event_type = event.event_type().map(EventType::filter_name);
        let nth = counts.entry((event.create_time, event_type)).or_default();
        let at = event.create_time.map(|at| at.to_string()).unwrap_or_default();
        event.uid = derived_uid(advisory, &[&at, event_type.unwrap_or_default(), &nth.to_string()]);
        *nth += 1;
    }
}

/// The maximum length of a component's location in bytes; our choice. Scanners list all paths of a component that
/// occurs several times.
const MAX_LOCATION: usize = 64 << 10;

const NOTE: Field = Field::string("note").about("A note about the event.").multiline();

/// The field `truePositiveDetermination`, which documents have too.
pub const TRUE_POSITIVE_DETERMINATION: Field =
    Field::message("truePositiveDetermination", &[NOTE]).about("Set when the artifact was found to be vulnerable.");
/// The field `falsePositiveDetermination`, which documents have too.
pub const FALSE_POSITIVE_DETERMINATION: Field = Field::message(
    "falsePositiveDetermination",
    &[Field::enumeration("type", FalsePositiveType::VARIANTS).about("Why the artifact is not vulnerable."), NOTE],
)
.about("Set when the artifact was found not to be vulnerable.");
/// The field `analysisNotPlanned`, which documents have too.
pub const ANALYSIS_NOT_PLANNED: Field = Field::message("analysisNotPlanned", &[NOTE])
    .about("Set when no further analysis of the vulnerability is planned.");
/// The field `fixNotPlanned`, which documents have too.
pub const FIX_NOT_PLANNED: Field =
    Field::message("fixNotPlanned", &[NOTE]).about("Set when no fix of the vulnerability is planned.");
/// The field `pendingUpstreamFix`, which documents have too.
pub const PENDING_UPSTREAM_FIX: Field =
    Field::message("pendingUpstreamFix", &[NOTE]).about("Set while the fix has to come from the upstream project.");
/// The field `fixedVersion` of a fix.
pub const FIXED_VERSION: Field = Field::string("fixedVersion").about("The first version without the vulnerability.");
/// The field `scannerVersion` of a fix and of a scan.
pub const SCANNER_VERSION: Field = Field::string("scannerVersion").about("The version of the scanner.");
/// The field `grypeDbBuilt` of a fix and of a scan.
pub const GRYPE_DB_BUILT: Field = Field::string("grypeDbBuilt").about("When the scanner's database was built.");
/// The field `grypeDbChecksum` of a fix and of a scan.
pub const GRYPE_DB_CHECKSUM: Field = Field::string("grypeDbChecksum").about("The checksum of the scanner's database.");

/// Returns the field `fixed` with these subfields.
pub const fn fixed(fields: &'static [Field]) -> Field {
    Field::message("fixed", fields).about("Set when a version without the vulnerability was released.")
}

/// Returns the field `detection` with these subfields.
pub const fn detection(fields: &'static [Field]) -> Field {
    Field::message("detection", fields).about("Set when the vulnerability was detected; says how.")
}

/// Returns the fields of a detection, where those of a scan are `scan`.
pub const fn detected(scan: &'static [Field]) -> [Field; 3] {
    const NVDAPI: &[Field] = &[
        Field::string("cpeSearched").about("The CPE that was searched for."),
        Field::string("cpeFound").about("The CPE that was found."),
    ];
    [
        Field::message("nvdapi", NVDAPI)
            .about("Set when the vulnerability was found in the National Vulnerability Database.")
            .oneof("type"),
        Field::message("manual", &[]).about("Set when a person found the vulnerability.").oneof("type"),
        Field::message("scanv1", scan).about("Set when a scanner found the vulnerability.").oneof("type"),
    ]
}

/// Returns the fields of a scan, with these names for the subpackage and the component.
pub const fn scan(subpackage: &'static str, component: &'static str) -> [Field; 11] {
    [
        Field::string("scanner").about("The scanner's name."),
        Field::string(subpackage).about("The subpackage that has the component."),
        Field::string("componentId").about("The component's identifier in the scanner's report."),
        Field::string(component).about("The vulnerable component's name."),
        Field::string("componentVersion").about("The vulnerable component's version."),
        Field::string("componentType").about("The vulnerable component's type, such as `go-module`."),
        Field::string("componentLocation")
            .about("The path of the vulnerable component in the artifact.")
            .max_len(MAX_LOCATION),
        Field::string("artifactVersion").about("The version of the artifact that was scanned."),
        SCANNER_VERSION,
        GRYPE_DB_BUILT,
        GRYPE_DB_CHECKSUM,
    ]
}

const SCAN: &[Field] = &scan("subpackage", "component");
const DETECTED: &[Field] = &detected(SCAN);

/// The filter key `eventType` of events that have no type of this version.
pub(super) const MOVED: &str = "EVENT_TYPE_FILTER_COMPONENT_LOCATION_CHANGED";

/// The fields of an [`AdvisoryEvent`].
pub const FIELDS: &[Field] = &[
    Field::string("uid").about("The event's uid.").output_only(),
    Field::timestamp("createTime").about("When the event happened.").output_only(),
    Field::new("findings", Type::Bytes).about("The findings of tools: JSON in base64.").max_len(64 << 10),
    Field::string("author").about("The author of the event.").always(),
    Field::string("reviewer").about("The reviewer of the event."),
    Field::enumeration("reviewState", ReviewState::VARIANTS)
        .about("The state of the review. Only approved events count.")
        .always(),
    Field::string("issue").about("The address of the discussion."),
    detection(DETECTED).oneof("type"),
    fixed(&[FIXED_VERSION, NOTE, SCANNER_VERSION, GRYPE_DB_BUILT, GRYPE_DB_CHECKSUM]).oneof("type"),
    FALSE_POSITIVE_DETERMINATION.oneof("type"),
    ANALYSIS_NOT_PLANNED.oneof("type"),
    FIX_NOT_PLANNED.oneof("type"),
    PENDING_UPSTREAM_FIX.oneof("type"),
    TRUE_POSITIVE_DETERMINATION.oneof("type"),
    Field::message("patched", &[Field::strings("patchedVersions").about("The versions that were patched."), NOTE])
        .about("Set when released versions were patched.")
        .oneof("type"),
    Field::message(
        "componentLocationChanged",
        &[
            Field::string("previousLocation").about("The path before.").max_len(MAX_LOCATION),
            Field::string("newLocation").about("The path now.").max_len(MAX_LOCATION),
            NOTE,
        ],
    )
    .about("Set when the component was found at another path. Replies omit such events.")
    .input_only()
    .rest_only()
    .oneof("type"),
];

/// The maximum number of events of an advisory; our choice.
pub const MAX_EVENTS: usize = 1000;
