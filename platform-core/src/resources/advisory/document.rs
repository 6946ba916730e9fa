//! Public advisory documents, one for each package that is the origin of a build (`docs/api.md`, Documents).

use std::collections::{BTreeMap, BTreeSet};

use futures_lite::future::yield_now;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    super::vulnerabilities::{
        Advisory, AdvisoryEvent,
        advisory::{
            ADVISORIES_EPOCH,
            event::{self, FalsePositiveDetermination, Manual, Note, Nvdapi},
        },
    },
    super::{data_of, domain},
    PublicAdvisories, public_groups,
};
use crate::{
    context::Context,
    error::{Error, Result},
    fields,
    kind::{Action, Authorization, Field, Kind, Resource, Roots, Type},
    platform::Rendered,
    store::{Epoch, Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    verbs::PAGE_BYTES,
};

/// The advisories of a package and of the other packages that its build makes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
    /// The package's name.
    pub id: String,
    /// The advisories, in the order of their ids.
    pub advisories: Vec<DocumentAdvisory>,
}

/// An advisory of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DocumentAdvisory {
    /// The public id.
    pub id: String,
    /// The approved events of the advisory.
    pub events: Vec<DocumentEvent>,
    /// Other ids of the vulnerability.
    pub aliases: Vec<String>,
    /// The distribution, such as `wolfi`.
    pub package_namespace: String,
}

/// An event of an advisory: the time and one of seven types.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "as in an event of an advisory")]
pub struct DocumentEvent {
    pub timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_positive_determination: Option<Note>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive_determination: Option<FalsePositiveDetermination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<DocumentFixed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection: Option<DocumentDetection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analysis_not_planned: Option<Note>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_not_planned: Option<Note>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_upstream_fix: Option<Note>,
}

/// A version without the vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct DocumentFixed {
    pub fixed_version: String,
    pub scanner_version: String,
    pub grype_db_built: String,
    pub grype_db_checksum: String,
}

/// How a vulnerability was detected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "as in an event of an advisory")]
pub struct DocumentDetection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvdapi: Option<Nvdapi>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual: Option<Manual>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scanv1: Option<DocumentScanV1>,
}

/// A scanner's finding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub struct DocumentScanV1 {
    pub scanner: String,
    pub subpackage_name: String,
    pub component_id: String,
    pub component_name: String,
    pub component_version: String,
    pub component_type: String,
    pub component_location: String,
    pub artifact_version: String,
    pub scanner_version: String,
    pub grype_db_built: String,
    pub grype_db_checksum: String,
}

const SCAN: &[Field] = &event::scan("subpackageName", "componentName");
const DETECTED: &[Field] = &event::detected(SCAN);

const EVENT: &[Field] = &[
    Field::timestamp("timestamp").about("When the event happened."),
    event::TRUE_POSITIVE_DETERMINATION.oneof("data"),
    event::FALSE_POSITIVE_DETERMINATION.oneof("data"),
    event::fixed(&[event::FIXED_VERSION, event::SCANNER_VERSION, event::GRYPE_DB_BUILT, event::GRYPE_DB_CHECKSUM])
        .oneof("data"),
    event::detection(DETECTED).oneof("data"),
    event::ANALYSIS_NOT_PLANNED.oneof("data"),
    event::FIX_NOT_PLANNED.oneof("data"),
    event::PENDING_UPSTREAM_FIX.oneof("data"),
];

const ADVISORY: &[Field] = &[
    Field::string("id").about("The advisory's identifier, such as `CGA-3gfc-9462-mc8m`."),
    Field::new("events", Type::List(&Type::Message(EVENT))).about("The approved events of the advisory, oldest first."),
    Field::strings("aliases").about("Other identifiers of the same vulnerability, such as `CVE-2022-4203`."),
    Field::string("packageNamespace").about("The distribution that the package belongs to, such as `wolfi`."),
];

const FIELDS: &[Field] = &[
    Field::string("id").about("The package whose advisories the document has.").output_only(),
    Field::new("advisories", Type::List(&Type::Message(ADVISORY)))
        .about("The advisories of the package.")
        .output_only(),
];

impl Resource for Document {
    const KIND: &'static Kind = &Kind::new("Document", "documents", "SecurityAdvisoryService", domain::ADVISORY)
        .fields(FIELDS)
        .roots(Roots::Shared)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::get("ListDocuments", "documents", |cx, request| Box::pin(list(cx, request)))
            .request(&[
                Field::string("id").about("Only the document of this package."),
                Field::strings("cves").about("Only advisories with one of these aliases.").max_items(1000),
            ])
            .response(&[Field::new("documents", Type::List(&Type::Message(FIELDS)))
                .about("A document for each package, in the order of their names.")])
            .authorization(Authorization::Public)
            .with_etag()];

    fn example() -> Self {
        Self { id: "openssl".to_owned(), advisories: vec![DocumentAdvisory::of(&Advisory::example())] }
    }
}

impl DocumentAdvisory {
    /// Converts an advisory, leaving out events that are not approved.
    fn of(advisory: &Advisory) -> Self {
        Self {
            id: advisory.advisory_id.clone(),
            events: advisory.events.iter().filter(|event| event.is_approved()).filter_map(DocumentEvent::of).collect(),
            aliases: advisory.aliases.clone(),
            package_namespace: advisory.package_namespace.clone(),
        }
    }
}

impl DocumentEvent {
    /// Converts an event. Returns `None` for a type that documents do not have.
    fn of(event: &AdvisoryEvent) -> Option<Self> {
        if event.patched.is_some() || event.event_type().is_none() {
            return None;
        }
        Some(Self {
            timestamp: event.create_time,
            true_positive_determination: event.true_positive_determination.clone(),
            false_positive_determination: event.false_positive_determination.clone(),
            fixed: event.fixed.clone().map(|fixed| DocumentFixed {
                fixed_version: fixed.fixed_version,
                scanner_version: fixed.scanner_version,
                grype_db_built: fixed.grype_db_built,
                grype_db_checksum: fixed.grype_db_checksum,
            }),
            detection: event.detection.clone().map(|found| DocumentDetection {
                nvdapi: found.nvdapi,
                manual: found.manual,
                scanv1: found.scanv1.map(|scan| DocumentScanV1 {
                    scanner: scan.scanner,
                    subpackage_name: scan.subpackage,
                    component_id: scan.component_id,
                    component_name: scan.component,
                    component_version: scan.component_version,
                    component_type: scan.component_type,
                    component_location: scan.component_location,
                    artifact_version: scan.artifact_version,
                    scanner_version: scan.scanner_version,
                    grype_db_built: scan.grype_db_built,
                    grype_db_checksum: scan.grype_db_checksum,
                }),
            }),
            analysis_not_planned: event.analysis_not_planned.clone(),
            fix_not_planned: event.fix_not_planned.clone(),
            pending_upstream_fix: event.pending_upstream_fix.clone(),
        })
    }
}

/// Lists all documents, from a cached response, or those of a package and of certain vulnerabilities.
async fn list(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let mut filters = Vec::new();
    if let Some(id) = request.get("id").and_then(Value::as_str) {
        filters.push(Filter::AnyOf { key: "madeBy", values: vec![KeyValue::text(id)] });
    }
    if let Some(cves) = request.get("cves").and_then(Value::as_array) {
        let values = cves.iter().filter_map(Value::as_str).map(KeyValue::text).collect();
        filters.push(Filter::AnyOf { key: "alias", values });
    }
    let rendered = match filters.is_empty() {
        true => {
            let all = vec![Filter::AnyOf { key: "live", values: vec![KeyValue::boolean(true)] }];
            let platform = cx.platform();
            let public = data_of::<PublicAdvisories>(cx)?;
            let epochs: BTreeSet<_> =
                public.groups.iter().map(|group| Epoch::of_organization(ADVISORIES_EPOCH, group)).collect();
            let epochs: Vec<_> = epochs.into_iter().collect();
            public.documents.get(platform.store(), &epochs, render(cx, all, usize::MAX)).await?
        }
        false => render(cx, filters, MAX_RESPONSE_BYTES).await?,
    };
    cx.reply_with(rendered);
    Ok(Value::Null)
}

/// The number of advisories that are read, and of documents that are assembled, before the task yields.
const PAGE: usize = 200;

/// The maximum number of bytes of advisories in a response for one request; our choice. The response with all documents
/// is not limited, because it is rendered once for all requests.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Renders the documents of the public advisories that match these filters, of at most `max_bytes`.
async fn render(cx: &Context<'_>, filters: Vec<Filter>, max_bytes: usize) -> Result<Rendered> {
    let narrowest =
        if filters.iter().any(|filter| matches!(filter, Filter::AnyOf { key: "alias", .. })) { "cves" } else { "id" };
    let mut bytes = 0_usize;
    // Rendered advisories by package and id, so that no more than the response is held in memory.
    let mut documents: BTreeMap<String, BTreeMap<(String, String), Vec<u8>>> = BTreeMap::new();
    let mut query = Query::new(Advisory::KIND.name, Scope::Roots);
    query.scopes = public_groups(cx)?.into_vec();
    query.filters = filters;
    query.limit = PAGE;
    query.bytes = PAGE_BYTES;
    loop {
        let page = cx.page(query.clone()).await?;
        for item in &page.items {
            let advisory: Advisory = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            if advisory.events.iter().any(AdvisoryEvent::is_approved) {
                let mut shown = serde_json::to_value(DocumentAdvisory::of(&advisory)).map_err(Error::internal)?;
                fields::prune_empty(ADVISORY, &mut shown);
                let shown = serde_json::to_vec(&shown).map_err(Error::internal)?;
                bytes = bytes.saturating_add(shown.len());
                if bytes > max_bytes {
                    let rule = format!("must select at most {max_bytes} bytes of advisories; request fewer, or all");
                    return Err(Error::invalid_field(narrowest, rule));
                }
                let place = (advisory.advisory_id, item.uid().to_string());
                documents.entry(advisory.origin).or_default().insert(place, shown);
            }
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
        yield_now().await;
    }
    let mut body = b"{\"documents\":[".to_vec();
    for (place, (id, advisories)) in documents.into_iter().enumerate() {
        body.extend_from_slice(if place > 0 { b",{\"id\":" } else { b"{\"id\":" });
        serde_json::to_writer(&mut body, &id).map_err(Error::internal)?;
        body.extend_from_slice(b",\"advisories\":[");
        for (place, advisory) in advisories.into_values().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&advisory);
        }
        body.extend_from_slice(b"]}");
        if place % PAGE == PAGE - 1 {
            yield_now().await;
        }
    }
    body.extend_from_slice(b"]}");
    Ok(Rendered::of_many(body).await)
}
