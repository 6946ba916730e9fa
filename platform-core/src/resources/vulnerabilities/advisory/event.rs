//! Events of advisories: what was found and done, by whom, and whether somebody agreed.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    kind::{Field, Type, derived_uid},
    timestamp::Timestamp,
    uid::Uid,
};

/// Something that was found or done about a vulnerability: one of the eight kinds of events, which exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvisoryEvent {
    /// The advisory's and a segment. Set when the advisory is written.
    pub uid: Uid,
    /// When it happened.
    pub create_time: Option<Timestamp>,
    /// What tools reported: JSON, in standard base64.
    pub findings: String,
    /// Who recorded it.
    pub author: String,
    /// Who reviewed it.
    pub reviewer: String,
    /// Whether it is agreed upon. Only approved events count as what became of an advisory.
    pub review_state: ReviewState,
    /// Where it is discussed.
    pub issue: String,
    /// The vulnerability was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection: Option<Detection>,
    /// A version without it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Fixed>,
    /// The artifact is not vulnerable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive_determination: Option<FalsePositiveDetermination>,
    /// Nobody will look further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analysis_not_planned: Option<Note>,
    /// Nobody will fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_not_planned: Option<Note>,
    /// Whoever makes the component has to fix it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_upstream_fix: Option<Note>,
    /// The artifact is vulnerable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_positive_determination: Option<Note>,
    /// Released versions were patched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patched: Option<Patched>,
}

/// Whether an event is agreed upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum ReviewState {
    #[default]
    ReviewStateUnspecified,
    ReviewStatePending,
    ReviewStateApproved,
    ReviewStateRequestChanges,
    ReviewStateRejected,
}

/// The names of [`ReviewState`].
pub const REVIEW_STATES: &[&str] = &[
    "REVIEW_STATE_UNSPECIFIED",
    "REVIEW_STATE_PENDING",
    "REVIEW_STATE_APPROVED",
    "REVIEW_STATE_REQUEST_CHANGES",
    "REVIEW_STATE_REJECTED",
];

/// Which of the eight kinds of events one is.
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
    /// All of them, as the contract numbers them.
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

    /// Returns the field of an event that has what it says.
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

    /// Returns the name by which lists filter.
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

/// The names by which lists filter, as the contract numbers them.
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

/// How a vulnerability was found: one of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detection {
    /// In the national vulnerability database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvdapi: Option<Nvdapi>,
    /// By somebody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<Manual>,
    /// By a scanner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scanv1: Option<ScanV1>,
}

/// What the national vulnerability database was asked and answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nvdapi {
    /// The CPE that was searched for.
    pub cpe_searched: String,
    /// The CPE that was found.
    pub cpe_found: String,
}

/// Somebody found it; there is no more to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manual {}

/// What a scanner found.
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

/// Why the artifact is not vulnerable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FalsePositiveDetermination {
    /// The reason.
    #[serde(rename = "type")]
    pub reason: FalsePositiveType,
    /// In words.
    pub note: String,
}

/// The reasons why an artifact is not vulnerable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
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

/// The names of [`FalsePositiveType`].
pub const FALSE_POSITIVE_TYPES: &[&str] = &[
    "TYPE_UNSPECIFIED",
    "TYPE_VULNERABILITY_RECORD_ANALYSIS_CONTESTED",
    "TYPE_COMPONENT_VULNERABILITY_MISMATCH",
    "TYPE_VULNERABLE_CODE_VERSION_NOT_USED",
    "TYPE_VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE",
    "TYPE_VULNERABLE_CODE_NOT_IN_EXECUTION_PATH",
    "TYPE_VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY",
    "TYPE_INLINE_MITIGATIONS_EXIST",
];

/// An event that has nothing to it but words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// The words.
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

impl AdvisoryEvent {
    /// Returns which kind of event it is; none when no form is set.
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

    /// Tells whether it is agreed upon.
    pub fn is_approved(&self) -> bool {
        self.review_state == ReviewState::ReviewStateApproved
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

/// Gives each event its uid below the advisory, which follows from when it happened and what it is, so that an event
/// keeps its uid when others are added before it.
pub(super) fn number(events: &mut [AdvisoryEvent], advisory: &Uid) {
    let mut alike: HashMap<(Option<Timestamp>, Option<&str>), usize> = HashMap::new();
    for event in events {
        let what = event.event_type().map(EventType::filter_name);
        let nth = alike.entry((event.create_time, what)).or_default();
        let at = event.create_time.map(|at| at.to_string()).unwrap_or_default();
        event.uid = derived_uid(advisory, &[&at, what.unwrap_or_default(), &nth.to_string()]);
        *nth += 1;
    }
}

/// The most bytes of where a component is; our choice. Scanners list all paths of a component that is in many places.
const MAX_LOCATION: usize = 64 << 10;

const NOTE: Field = Field::string("note").about("What a reader should know about the event.").multiline();

// Fields that documents (`advisory::Document`) have too.
pub(crate) const TRUE_POSITIVE_DETERMINATION: Field =
    Field::message("truePositiveDetermination", &[NOTE]).about("Set when the artifact was found to be vulnerable.");
pub(crate) const FALSE_POSITIVE_DETERMINATION: Field = Field::message(
    "falsePositiveDetermination",
    &[Field::enumeration("type", FALSE_POSITIVE_TYPES).about("Why the artifact is not vulnerable."), NOTE],
)
.about("Set when the artifact was found not to be vulnerable.");
pub(crate) const ANALYSIS_NOT_PLANNED: Field =
    Field::message("analysisNotPlanned", &[NOTE]).about("Set when nobody plans to analyze the vulnerability.");
pub(crate) const FIX_NOT_PLANNED: Field =
    Field::message("fixNotPlanned", &[NOTE]).about("Set when nobody plans to fix the vulnerability.");
pub(crate) const PENDING_UPSTREAM_FIX: Field =
    Field::message("pendingUpstreamFix", &[NOTE]).about("Set while the fix has to come from the upstream project.");
pub(crate) const FIXED_VERSION: Field =
    Field::string("fixedVersion").about("The first version without the vulnerability.");
pub(crate) const SCANNER_VERSION: Field = Field::string("scannerVersion").about("The version of the scanner.");
pub(crate) const GRYPE_DB_BUILT: Field = Field::string("grypeDbBuilt").about("When the scanner's database was built.");
pub(crate) const GRYPE_DB_CHECKSUM: Field =
    Field::string("grypeDbChecksum").about("The checksum of the scanner's database.");

/// Returns a `fixed` with these fields.
pub(crate) const fn fixed(fields: &'static [Field]) -> Field {
    Field::message("fixed", fields).about("Set when a version without the vulnerability was released.")
}

/// Returns a `detection` with these fields.
pub(crate) const fn detection(fields: &'static [Field]) -> Field {
    Field::message("detection", fields).about("Set when the vulnerability was detected; says how.")
}

/// Returns the fields of a detection by a scan with these fields, or otherwise.
pub(crate) const fn detected(scan: &'static [Field]) -> [Field; 3] {
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

/// Returns the fields of a scan, where the subpackage and the component are called this.
pub(crate) const fn scan(subpackage: &'static str, component: &'static str) -> [Field; 11] {
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

/// The fields of an [`AdvisoryEvent`].
pub const FIELDS: &[Field] = &[
    Field::string("uid").about("The event's uid.").output_only(),
    Field::timestamp("createTime").about("When the event happened.").output_only(),
    Field::new("findings", Type::Bytes).about("What tools reported: JSON, in base64.").max_len(64 << 10),
    Field::string("author").about("Who recorded the event.").always(),
    Field::string("reviewer").about("Who reviewed the event."),
    Field::enumeration("reviewState", REVIEW_STATES)
        .about("Whether the event is agreed upon. Only approved events count.")
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
];
