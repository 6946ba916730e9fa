//! Vulnerability reports, and counts of vulnerabilities.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;
use platform_core::{
    capabilities::cap,
    resources::{
        registry::{Digest, Tag},
        vulnerabilities::Level,
    },
};
use platform_engine::{
    access::Capability,
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Field, Kind, ListPage, Registered, Resource, Type},
    offload::Pace,
    scope::Scopes,
    store::{Filter, KeyValue, Order, OrderBy, Position, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::REGISTRY;
use crate::{
    findings::{self, Exposure, Subject},
    resources::{
        RawVulnerabilityReport, VulnerabilityReport,
        vulnerability_report::{CVSS, DIGEST_KEY, FixState, Scanner, ScannerName, Score, Vulnerability},
    },
};

mod counts;

/// The service.
pub const SERVICE: Registered = Registered::service(
    &Kind::service_of("VulnerabilitiesV1", "vulnerabilities", "Vulnerabilities", REGISTRY),
    &[LIST, GET_RAW, counts::LIST, counts::LIST_CUMULATIVE],
);

const READ: &[Capability] = &[cap("vuln_report.list")];

/// The digest of an image in a request.
pub(super) const DIGEST: Field = Field::string("digest")
    .about("The digest of the image: `sha256:` and 64 hexadecimal digits.")
    .documented_pattern(Digest::PATTERN)
    .check(|value| Digest::parse(value.as_str().unwrap_or_default()).map(drop).map_err(|rule| rule.to_string()));

const LIST: Action = Action::get_pages("ListVulnReports", "vuln_reports", |cx, request, page_token| {
    Box::pin(list(cx, request, page_token))
})
.request(&[
    Field::string("repoId").about("Only reports of images of this repo. It or `digest` is required."),
    DIGEST,
    Field::string("tag").about("Only reports of the image that the tag of this name refers to; ignored with `digest`."),
    SCANNER.about("Only reports of this scanner, by the fields that are set."),
    Field::timestamp("createdSince").about("Only reports that were made after this time."),
])
.response(&[Field::new("items", Type::List(&Type::Message(REPORT)))
    .about("The imported reports in the order of their uids, then computed ones of images without any.")])
.authorization(Authorization::FiltersResult(READ));

const GET_RAW: Action =
    Action::get("GetRawVulnReport", "vuln_reports/raw", |cx, request| Box::pin(get_raw(cx, request)))
        .request(&[
            DIGEST.required(),
            Field::enumeration("scanner", SCANNER_NAME).about("The scanner; any if it is not set."),
            Field::timestamp("createdAt").about("When the report was made; the latest if it is not set."),
        ])
        .response(&[
            Field::string("digest").about("The digest of the image."),
            SCANNER.about("The scanner that made the report."),
            Field::timestamp("createdAt").about("When the scanner made the report."),
            Field::string("rawReport").about("The scanner's JSON, or that of a computed report in a list.").multiline(),
            Field::string("rawReportUrl").about("Empty: the report is in `rawReport`."),
        ])
        .authorization(Authorization::Anywhere(READ));

const SCANNER_NAME: &[&str] = &["UNKNOWN", "GRYPE", "TRIVY"];

const SCANNER: Field = Field::message(
    "scanner",
    &[
        Field::enumeration("name", SCANNER_NAME).about("The name of the scanner; UNKNOWN for a computed report."),
        Field::string("version").about("The version of the scanner."),
        Field::timestamp("dbBuildTime").about("When the scanner's database was built."),
    ],
);

/// The levels of severity.
const SEVERITY: &[&str] = &["UNKNOWN", "LOW", "MEDIUM", "HIGH", "CRITICAL", "NEGLIGIBLE"];

const REPORT: &[Field] = &[
    Field::string("digest").about("The digest of the image."),
    SCANNER.about("The scanner that made the report."),
    Field::timestamp("createdAt").about("When the report was made."),
    Field::new("vulnerabilities", Type::List(&Type::Message(VULNERABILITY))).about("The vulnerabilities of the image."),
];

/// The fix of a vulnerability, in both forms of reports.
pub(super) const FIX: Field = Field::message(
    "fix",
    &[
        Field::strings("versions").about("The versions without the vulnerability."),
        Field::enumeration("state", &["UNKNOWN", "FIXED", "NOT_FIXED", "WONT_FIX"]).about("Whether there is a fix."),
    ],
)
.about("The fix of the vulnerability.");

const VULNERABILITY: &[Field] = &[
    Field::string("id").about("The identifier, such as `CVE-2022-4203`."),
    Field::strings("aliases").about("Other identifiers of the same vulnerability."),
    Field::strings("purls").about("The package URLs of the vulnerable packages."),
    Field::string("description").about("A description in a few sentences.").multiline(),
    Field::string("details").about("A longer description.").multiline(),
    Field::enumeration("severity", SEVERITY).about("How severe it is."),
    CVSS,
    FIX,
    Field::strings("relatedUrls").about("Pages about it."),
    Field::strings("locations").about("The paths of the vulnerable packages in the image."),
];

/// A report as replies show it, with the fields of [`REPORT`]. It is written without a tree of values, which would cost
/// several times as much: reports are long.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'r> {
    digest: &'r str,
    scanner: Value,
    created_at: Option<Timestamp>,
    vulnerabilities: [(); 0],
}

/// A vulnerability, with the fields of [`VULNERABILITY`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found<'r> {
    id: &'r str,
    aliases: Cow<'r, [&'r str]>,
    purls: &'r [String],
    description: &'r str,
    details: &'r str,
    severity: &'static str,
    cvss: &'r [Score],
    fix: FoundFix<'r>,
    related_urls: &'r [String],
    locations: &'r [String],
}

#[derive(Serialize)]
struct FoundFix<'r> {
    versions: &'r [String],
    state: &'static str,
}

/// The approximate size of a vulnerability in JSON, in bytes.
const FOUND_BYTES: usize = 640;

/// Returns a report as replies show it, in JSON.
async fn bytes<'r>(
    digest: &'r str,
    by: &Scanner,
    created_at: Option<Timestamp>,
    found: impl ExactSizeIterator<Item = Found<'r>>,
    pace: &mut Pace<'_>,
) -> Result<Bytes> {
    let report = Report { digest, scanner: scanner(by), created_at, vulnerabilities: [] };
    let mut bytes = Vec::with_capacity(found.len().saturating_mul(FOUND_BYTES));
    serde_json::to_writer(&mut bytes, &report).map_err(Error::internal)?;
    // The list is last, and empty so far.
    bytes.truncate(bytes.len().saturating_sub(2));
    for (at, one) in found.enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        let start = bytes.len();
        serde_json::to_writer(&mut bytes, &one).map_err(Error::internal)?;
        pace.step(bytes.len() - start).await;
    }
    bytes.extend_from_slice(b"]}");
    Ok(bytes.into())
}

impl<'r> Found<'r> {
    fn of(one: &'r Vulnerability) -> Self {
        Self {
            id: &one.id,
            aliases: one.aliases.iter().map(String::as_str).collect(),
            purls: &one.purls,
            description: &one.description,
            details: &one.details,
            severity: severity_name(one.severity),
            cvss: &one.cvss,
            fix: FoundFix { versions: &one.fix.versions, state: state_name(one.fix.state) },
            related_urls: &one.related_urls,
            locations: &one.locations,
        }
    }

    fn of_computed(one: &'r Exposure<'_>) -> Self {
        Self {
            id: &one.fact.id,
            aliases: one.aliases.as_slice().into(),
            purls: &one.purls,
            description: &one.fact.description,
            details: "",
            severity: severity_name(one.fact.level),
            cvss: &one.fact.scores,
            fix: FoundFix { versions: &one.fix.versions, state: state_name(one.fix.state) },
            related_urls: &one.fact.urls,
            locations: &[],
        }
    }
}

pub(super) const fn severity_name(level: Level) -> &'static str {
    match level {
        Level::LevelUnspecified => "UNKNOWN",
        Level::LevelNegligible => "NEGLIGIBLE",
        Level::LevelLow => "LOW",
        Level::LevelMedium => "MEDIUM",
        Level::LevelHigh => "HIGH",
        Level::LevelCritical => "CRITICAL",
    }
}

pub(super) const fn state_name(state: FixState) -> &'static str {
    match state {
        FixState::StateUnspecified => "UNKNOWN",
        FixState::StateFixed => "FIXED",
        FixState::StateNotFixed => "NOT_FIXED",
        FixState::StateWontFix => "WONT_FIX",
    }
}

/// Returns a scanner with all fields, those of a computed report too.
fn scanner(scanner: &Scanner) -> Value {
    json!({
        "name": scanner_name(scanner.name), "version": scanner.version, "dbBuildTime": scanner.db_build_time,
    })
}

pub(super) const fn scanner_name(name: ScannerName) -> &'static str {
    match name {
        ScannerName::ScannerUnspecified => "UNKNOWN",
        ScannerName::ScannerGrype => "GRYPE",
        ScannerName::ScannerTrivy => "TRIVY",
    }
}

/// A request for reports.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    repo_id: String,
    digest: Digest,
    tag: String,
    scanner: Wanted,
    created_since: Option<Timestamp>,
}

/// A scanner in a request: only the fields that are set count.
#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    name: String,
    version: String,
    db_build_time: Option<Timestamp>,
}

impl Wanted {
    fn is(&self, scanner: &Scanner) -> bool {
        (self.name.is_empty() || self.name == scanner_name(scanner.name))
            && (self.version.is_empty() || self.version == scanner.version)
            && (self.db_build_time.is_none() || self.db_build_time == scanner.db_build_time)
    }
}

/// The number of reports that are read at once.
const PAGE: usize = 50;

/// The number of bytes of reports that are read at once.
const PAGE_BYTES: usize = 4 << 20;

/// The number of tags whose images' reports are computed at once.
const TAGS: usize = 10;

/// The part of a list that has the computed reports, as the first word of the tokens of its pages.
const COMPUTED: &str = "computed";

/// Lists imported reports, then computed ones. The token of a page is the part of the list, and the uid of the last
/// report or tag that was read.
async fn list(cx: &Context<'_>, request: Map<String, Value>, page_token: &str) -> Result<ListPage> {
    let mut request: Request = serde_json::from_value(request.into()).map_err(Error::internal)?;
    if request.repo_id.is_empty() && request.digest.is_empty() {
        return Err(Error::invalid_field("repoId", "is required unless digest is set"));
    }
    let mut places = Scopes::all();
    if !request.repo_id.is_empty() {
        let repo = Uid::parse(&request.repo_id).map_err(|rule| Error::invalid_field("repoId", rule.to_string()))?;
        places = Scopes::disjoint([Scope::Children(repo)]);
    }
    if !request.digest.is_empty() {
        request.tag.clear();
    }
    let within = places.and(&cx.visible(VulnerabilityReport::KIND, READ, &places));
    let (part, after) = page_token.split_once(' ').unwrap_or((page_token, ""));
    let after = Some(after).filter(|uid| !uid.is_empty());
    let after = after.map(|uid| Position { value: KeyValue::default(), uid: Uid::opaque(uid.to_owned()) });
    match part {
        COMPUTED => {
            let (items, next) = list_computed(cx, &request, &within, after, cx.now()).await?;
            Ok(ListPage { items, next_page_token: next.map(|next| format!("{COMPUTED} {}", next.uid)) })
        }
        _ => list_imported(cx, &request, &within, after).await,
    }
}

async fn list_imported(
    cx: &Context<'_>,
    request: &Request,
    within: &Scopes,
    after: Option<Position>,
) -> Result<ListPage> {
    let mut query = Query::new(VulnerabilityReport::KIND.name, Scope::Roots);
    query.scopes = within.as_slice().to_vec();
    (query.after, query.limit, query.bytes) = (after, PAGE, PAGE_BYTES);
    let digest = match request.tag.as_str() {
        "" => Some(request.digest.clone()).filter(|digest| !digest.is_empty()),
        tag => {
            let tags = Query { filters: vec![any_of("name", tag)], ..Query::new(Tag::KIND.name, Scope::Roots) };
            let tags = Query { scopes: within.as_slice().to_vec(), limit: 1, ..tags };
            let Some(tag) = cx.find::<Tag>(tags).await?.pop().filter(|tag| !tag.digest.is_empty()) else {
                return Ok(ListPage { items: Vec::new(), next_page_token: None });
            };
            Some(tag.digest)
        }
    };
    query.filters.extend(digest.map(|digest| any_of(DIGEST_KEY, &digest)));
    let page = cx.page(query).await?;
    let (mut items, mut pace) = (Vec::new(), cx.pace());
    for item in page.items {
        pace.step(item.body.len()).await;
        let report: VulnerabilityReport = serde_json::from_slice(&item.body).map_err(Error::internal)?;
        let is_recent = request.created_since.is_none_or(|since| report.create_time > Some(since));
        if is_recent && request.scanner.is(&report.scanner) {
            let found = report.vulnerabilities.iter().map(Found::of);
            items.push(bytes(&report.digest, &report.scanner, report.create_time, found, &mut pace).await?);
        }
    }
    let computed = (request.scanner == Wanted::default()).then(|| COMPUTED.to_owned());
    let next_page_token = page.next.map(|next| format!("imported {}", next.uid)).or(computed);
    Ok(ListPage { items, next_page_token })
}

/// Returns computed reports as of a moment, and where the next ones begin.
async fn list_computed(
    cx: &Context<'_>,
    request: &Request,
    within: &Scopes,
    after: Option<Position>,
    moment: Timestamp,
) -> Result<(Vec<Bytes>, Option<Position>)> {
    let mut items = Vec::new();
    if request.created_since.is_some_and(|since| moment <= since) {
        return Ok((items, None));
    }
    let mut subjects = Vec::new();
    let mut next = None;
    if let [Scope::Children(repo)] = within.as_slice()
        && !request.digest.is_empty()
    {
        // The image need not have a tag.
        subjects.push(Subject { repo: repo.clone(), digest: request.digest.clone() });
    } else {
        let mut query = Query::new(Tag::KIND.name, Scope::Roots);
        query.scopes = within.as_slice().to_vec();
        if !request.tag.is_empty() {
            query.filters.push(any_of("name", &request.tag));
        }
        if !request.digest.is_empty() {
            query.filters.push(any_of("digest", &request.digest));
        }
        (query.after, query.limit) = (after, TAGS);
        let page = cx.page(query).await?;
        next = page.next;
        for item in page.items {
            let tag: Tag = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            let Some(repo) = tag.uid.parent().filter(|_| !tag.digest.is_empty()) else { continue };
            // Of several tags of an image, the one with the first uid counts.
            if request.tag.is_empty() {
                let mut first = Query::new(Tag::KIND.name, Scope::Children(repo.clone()));
                (first.filters, first.limit) = (vec![any_of("digest", &tag.digest)], 1);
                if cx.page(first).await?.items.first().is_none_or(|first| first.uid() != tag.uid) {
                    continue;
                }
            }
            subjects.push(Subject { repo, digest: tag.digest });
        }
    }
    let mut pace = cx.pace();
    for subject in subjects {
        let mut imported = Query::new(VulnerabilityReport::KIND.name, Scope::Children(subject.repo.clone()));
        (imported.filters, imported.limit) = (vec![any_of(DIGEST_KEY, &subject.digest)], 1);
        if !cx.page(imported).await?.items.is_empty() {
            continue;
        }
        if let Some(exposures) = findings::exposures(cx, &subject).await? {
            let exposures = exposures.at(moment, &mut pace).await;
            let found = exposures.iter().map(Found::of_computed);
            items.push(bytes(&subject.digest, &Scanner::default(), Some(moment), found, &mut pace).await?);
        }
    }
    Ok((items, next))
}

/// Returns a scanner's own report or, if there is no report of a scanner, the computed one as the list shows it, so that
/// every report of the list can be had.
async fn get_raw(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let (digest, created) = (text("digest"), Timestamp::parse(text("createdAt")).ok());
    let wanted = Wanted { name: text("scanner").to_owned(), ..Wanted::default() };
    let mut query = Query::new(VulnerabilityReport::KIND.name, Scope::Roots);
    let within = cx.visible(VulnerabilityReport::KIND, READ, &Scopes::all());
    query.scopes = within.as_slice().to_vec();
    query.filters = vec![any_of(DIGEST_KEY, digest)];
    query.order = Order { by: OrderBy::Key("createTime"), descending: true };
    (query.limit, query.bytes) = (PAGE, PAGE_BYTES);
    let mut pace = cx.pace();
    loop {
        let page = cx.page(query.clone()).await?;
        for item in page.items {
            pace.step(item.body.len()).await;
            let report: VulnerabilityReport = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            if !wanted.is(&report.scanner) || (created.is_some() && created != report.create_time) {
                continue;
            }
            if let Some(raw) = cx.read::<RawVulnerabilityReport>(&report.uid).await? {
                return Ok(json!({
                    "digest": report.digest, "scanner": scanner(&report.scanner), "createdAt": report.create_time,
                    "rawReport": raw.text()?, "rawReportUrl": "",
                }));
            }
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let (moment, mut after) = (created.unwrap_or(cx.now()).min(cx.now()), None);
    let computed = Request { digest: Digest::parse(digest).unwrap_or_default(), ..Request::default() };
    while wanted == Wanted::default() {
        let (reports, next) = list_computed(cx, &computed, &within, after, moment).await?;
        if let Some(report) = reports.first() {
            return Ok(json!({
                "digest": digest, "scanner": scanner(&Scanner::default()), "createdAt": moment,
                "rawReport": String::from_utf8_lossy(report), "rawReportUrl": "",
            }));
        }
        let Some(next) = next else { break };
        after = Some(next);
    }
    Err(Error::not_found(RawVulnerabilityReport::KIND, digest))
}

fn any_of(key: &'static str, value: &str) -> Filter {
    Filter::AnyOf { key, values: vec![KeyValue::text(value)] }
}

/// Returns the elements that differ, in order.
fn distinct<T: Clone + Eq + std::hash::Hash>(values: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.clone())).collect()
}
