//! Public advisory documents, one for each package that is the origin of a build (`docs/api.md`, Documents).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use platform_engine::{
    context::Context,
    conversion,
    error::{Error, Result},
    fields,
    kind::{Action, Authorization, Field, Kind, Resource, Roots, Type},
    platform::{Rendered, ResponseCache},
    store::{Epoch, Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
    verbs::PAGE_BYTES,
};
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

/// The fields of a [`DocumentEvent`].
pub const EVENT: &[Field] = &[
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

/// The fields of a [`DocumentAdvisory`].
pub const ADVISORY: &[Field] = &[
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

/// The fields of a request for documents.
pub const REQUEST: &[Field] = &[
    Field::string("id").about("Only the document of this package."),
    Field::strings("cves").about("Only advisories with one of these aliases.").max_items(1000),
];

impl Resource for Document {
    const KIND: &'static Kind = &Kind::new("Document", "documents", "SecurityAdvisoryService", domain::ADVISORY)
        .fields(FIELDS)
        .roots(Roots::Shared)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::get_rendered("ListDocuments", "documents", |cx, request| Box::pin(list(cx, request, &VERSION_2)))
            .request(REQUEST)
            .response(&[Field::new("documents", Type::List(&Type::Message(FIELDS)))
                .about("A document for each package, in the order of their names.")])
            .authorization(Authorization::Public)];

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

/// The response of a version.
#[derive(Debug)]
pub struct Form {
    /// The field with the documents.
    pub list: &'static str,
    /// The fields of an advisory, if they are not those of [`DocumentAdvisory`].
    pub advisory: Option<&'static [Field]>,
    /// The text of all documents of this version, which the data of the platform has.
    pub cache: for<'c> fn(&'c Context<'_>) -> Result<&'c ResponseCache<Arc<Documents>>>,
}

const VERSION_2: Form =
    Form { list: "documents", advisory: None, cache: |cx| Ok(&data_of::<PublicAdvisories>(cx)?.documents) };

/// Lists all documents, or those of a package and of certain vulnerabilities, from the cached text of all.
pub async fn list(cx: &Context<'_>, request: Map<String, Value>, form: &Form) -> Result<Rendered> {
    let platform = cx.platform();
    let public = data_of::<PublicAdvisories>(cx)?;
    let epochs: BTreeSet<_> =
        public.groups.iter().map(|group| Epoch::of_organization(ADVISORIES_EPOCH, group)).collect();
    let epochs: Vec<_> = epochs.into_iter().collect();
    let documents = (form.cache)(cx)?.get(platform.store(), &epochs, Documents::read(cx, form)).await?;
    let id = request.get("id").and_then(Value::as_str);
    let cves = request.get("cves").and_then(Value::as_array);
    if id.is_none() && cves.is_none() {
        return Ok(documents.all.clone());
    }
    let selected = documents.select(id, cves.map(|cves| cves.iter().filter_map(Value::as_str)))?;
    Ok(documents.render(cx, &selected).await)
}

/// The number of advisories that are read at once.
const PAGE: usize = 200;

/// The maximum number of bytes of advisories in a response for one request; our choice. The response with all documents
/// is not limited, because it is rendered once for all requests.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The response with all documents, and the places of the advisories in it: other responses are made of parts of its
/// text. No response for one request therefore reads advisories, which would take a second of processor time for the
/// longest ones, and no token.
#[derive(Debug)]
pub struct Documents {
    /// The field of the response with the documents.
    list: &'static str,
    all: Rendered,
    /// The advisories, in the order of the packages' names.
    advisories: Vec<Place>,
    /// The places of the advisories of each package.
    by_package: HashMap<String, Range<usize>>,
    /// The places of the advisories with each alias, ascending.
    by_alias: HashMap<String, Vec<usize>>,
}

/// The package, the id and the uid of an advisory, by which documents are ordered.
type ByPackage = (String, String, Uid);

/// An advisory in the text of all documents.
#[derive(Debug)]
struct Place {
    /// The text of the package's name, as JSON.
    package: Range<usize>,
    advisory: Range<usize>,
}

/// The text of documents under construction.
#[derive(Debug)]
struct Text {
    body: Vec<u8>,
    has_documents: bool,
}

impl Text {
    fn new(list: &str, bytes: usize) -> Self {
        let mut body = Vec::with_capacity(bytes);
        body.extend_from_slice(format!("{{\"{list}\":[").as_bytes());
        Self { body, has_documents: false }
    }

    /// Begins the document of a package, and returns the place of the name.
    fn begin(&mut self, package: &[u8]) -> Range<usize> {
        self.body.extend_from_slice(if self.has_documents { b"]},{\"id\":" } else { b"{\"id\":" });
        let place = self.append(package);
        self.body.extend_from_slice(b",\"advisories\":[");
        self.has_documents = true;
        place
    }

    /// Adds an advisory to the document that was begun last, and returns its place.
    fn add(&mut self, advisory: &[u8]) -> Range<usize> {
        if self.body.last() != Some(&b'[') {
            self.body.push(b',');
        }
        self.append(advisory)
    }

    fn append(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.body.len();
        self.body.extend_from_slice(text);
        start..self.body.len()
    }

    async fn finish(mut self, cx: &Context<'_>) -> Rendered {
        self.body.extend_from_slice(if self.has_documents { b"]}]}" } else { b"]}" });
        Rendered::of_many(self.body, cx.platform().offload()).await
    }
}

impl Form {
    /// Returns the text of an advisory.
    fn text(&self, cx: &Context<'_>, advisory: &DocumentAdvisory) -> Result<Vec<u8>> {
        let shown = match self.advisory {
            Some(fields) => conversion::show(cx, fields, ADVISORY, advisory)?.into(),
            None => {
                let mut shown = serde_json::to_value(advisory).map_err(Error::internal)?;
                fields::prune_empty(ADVISORY, &mut shown);
                shown
            }
        };
        serde_json::to_vec(&shown).map_err(Error::internal)
    }
}

impl Documents {
    /// Reads the public advisories.
    async fn read(cx: &Context<'_>, form: &Form) -> Result<Arc<Self>> {
        let mut found: BTreeMap<ByPackage, (Vec<u8>, Vec<String>)> = BTreeMap::new();
        let mut query = Query::new(Advisory::KIND.name, Scope::Roots);
        query.scopes = public_groups(cx)?.into_vec();
        query.filters = vec![Filter::AnyOf { key: "live", values: vec![KeyValue::boolean(true)] }];
        (query.limit, query.bytes) = (PAGE, PAGE_BYTES);
        let mut pace = cx.pace();
        loop {
            let page = cx.page(query.clone()).await?;
            for item in &page.items {
                pace.step(item.body.len()).await;
                let advisory: Advisory = serde_json::from_slice(&item.body).map_err(Error::internal)?;
                if advisory.events.iter().any(AdvisoryEvent::is_approved) {
                    let shown = form.text(cx, &DocumentAdvisory::of(&advisory))?;
                    let place = (advisory.origin, advisory.advisory_id, item.uid());
                    found.insert(place, (shown, advisory.aliases));
                }
            }
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        let mut text = Text::new(form.list, found.values().map(|(shown, _)| shown.len()).sum());
        let (mut advisories, mut package) = (Vec::with_capacity(found.len()), 0..0);
        let (mut by_package, mut by_alias): (HashMap<String, Range<usize>>, HashMap<_, Vec<_>>) = Default::default();
        for ((origin, ..), (shown, aliases)) in found {
            let at = advisories.len();
            if !by_package.contains_key(&origin) {
                package = text.begin(&serde_json::to_vec(&origin).map_err(Error::internal)?);
            }
            by_package.entry(origin).or_insert(at..at).end = at + 1;
            for alias in aliases.into_iter().collect::<BTreeSet<_>>() {
                by_alias.entry(alias).or_default().push(at);
            }
            advisories.push(Place { package: package.clone(), advisory: text.add(&shown) });
            pace.step(shown.len()).await;
        }
        Ok(Arc::new(Self { list: form.list, all: text.finish(cx).await, advisories, by_package, by_alias }))
    }

    /// Returns the places of the advisories of a package, and of those with one of these aliases.
    fn select<'r>(&self, id: Option<&str>, cves: Option<impl Iterator<Item = &'r str>>) -> Result<BTreeSet<usize>> {
        let field = if cves.is_some() { "cves" } else { "id" };
        let of_package = id.map(|id| self.by_package.get(id).cloned().unwrap_or_default());
        let is_of_package = |at: &usize| of_package.as_ref().is_none_or(|places| places.contains(at));
        let (mut selected, mut bytes) = (BTreeSet::new(), 0_usize);
        let mut add = |at: usize| {
            if is_of_package(&at) && selected.insert(at) {
                bytes = bytes.saturating_add(self.advisories.get(at).map_or(0, |place| place.advisory.len()));
            }
            if bytes > MAX_RESPONSE_BYTES {
                let rule =
                    format!("must select at most {MAX_RESPONSE_BYTES} bytes of advisories; request fewer, or all");
                return Err(Error::invalid_field(field, rule));
            }
            Ok(())
        };
        match cves {
            Some(cves) => {
                cves.filter_map(|cve| self.by_alias.get(cve)).flatten().copied().try_for_each(&mut add)?;
            }
            None => of_package.clone().unwrap_or_default().try_for_each(&mut add)?,
        }
        Ok(selected)
    }

    /// Returns the response with these advisories.
    async fn render(&self, cx: &Context<'_>, selected: &BTreeSet<usize>) -> Rendered {
        let places = || selected.iter().filter_map(|at| self.advisories.get(*at));
        // Names are short compared with advisories.
        let mut text =
            Text::new(self.list, places().map(|place| place.advisory.len() + place.package.len() + 32).sum());
        let part = |range: &Range<usize>| self.all.body.get(range.clone()).unwrap_or_default();
        let (mut pace, mut package) = (cx.pace(), None);
        for place in places() {
            if package != Some(&place.package) {
                package = Some(&place.package);
                text.begin(part(&place.package));
            }
            text.add(part(&place.advisory));
            // To copy a byte takes a small part of the time that it takes to convert it.
            pace.step(place.advisory.len() / 16).await;
        }
        text.finish(cx).await
    }
}
