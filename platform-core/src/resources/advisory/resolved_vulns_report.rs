//! Daily reports of the vulnerabilities resolved in images (`docs/api.md`, Resolved vulnerabilities).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use platform_engine::{
    access::Capability,
    context::Context,
    error::{Error, Result, Violations},
    fields,
    kind::{Action, Authorization, Field, Kind, Resource, Roots, Type},
    scope::Scopes,
    store::{Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    super::{
        domain,
        registry::{Image, Repo, Tag, image::ImagePackage},
        vulnerabilities::{Advisory, Severity, advisory::EventType, severity::SEVERITY},
    },
    apk, public_groups,
    vulnerability_metadata::Severities,
};
use crate::capabilities::cap;

/// The vulnerabilities resolved on one day in the requested images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolvedVulnsReport {
    /// The start of the day in UTC.
    pub date: Option<Timestamp>,
    /// The resolved vulnerabilities, in the order of their ids; often none.
    pub resolved_vulns: Vec<ResolvedVuln>,
}

/// A vulnerability for which a fixed version was released and is installed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResolvedVuln {
    /// The advisory's id.
    pub id: String,
    /// Other ids of the vulnerability.
    pub aliases: Vec<String>,
    /// The severity scores.
    pub cvss_severities: Vec<Severity>,
}

const VULN: &[Field] = &[
    Field::string("id").about("The advisory's identifier."),
    Field::strings("aliases").about("Other identifiers of the same vulnerability, such as `CVE-2022-4203`."),
    Field::new("cvssSeverities", Type::List(&Type::Message(SEVERITY)))
        .about("How severe the vulnerability is, by CVSS."),
];

const FIELDS: &[Field] = &[
    Field::timestamp("date").about("The day of the report, at midnight UTC.").output_only(),
    Field::new("resolvedVulns", Type::List(&Type::Message(VULN)))
        .about("The vulnerabilities whose fix was approved on that day.")
        .output_only(),
];

const IMAGE_REF: &[Field] = &[
    Field::string("repo").about("The repo, by uid or name.").required(),
    Field::strings("tags").about("The tags of the images; `latest` when empty."),
];

const READ: &[Capability] = &[cap("apk.list"), cap("repo.list"), cap("manifest.metadata.list"), cap("tag.list")];

/// The maximum number of days per request; our choice.
const MAX_DAYS: i64 = 366;

/// The maximum number of images per request, counted by tags; our choice.
const MAX_IMAGES: usize = 100;

/// The approximate maximum size of a response in bytes; our choice.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The approximate size of a vulnerability in a response in bytes, in addition to its names.
const VULN_BYTES: usize = 100;

/// The tag of a request without tags.
const DEFAULT_TAG: &str = "latest";

const DAY: i64 = 24 * 60 * 60 * 1000;

impl Resource for ResolvedVulnsReport {
    const KIND: &'static Kind =
        &Kind::new("ResolvedVulnsReport", "resolvedVulnsReports", "SecurityAdvisoryService", domain::ADVISORY)
            .fields(FIELDS)
            .roots(Roots::Shared)
            .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::get("ListResolvedVulnsReports", "images/resolvedVulns", |cx, request| Box::pin(list(cx, request)))
            .request(&[
                Field::new("imageRefs", Type::List(&Type::Message(IMAGE_REF)))
                    .about("The images to report on, at most 100. A query string writes each as `repo` or `repo:tag`.")
                    .required()
                    .in_query(image_ref),
                Field::timestamp("startTime").about("The first day of the report.").required(),
                Field::timestamp("endTime")
                    .about("The last day of the report, at most 366 days after the first.")
                    .required(),
            ])
            .response(&[Field::new("resolvedVulnsReports", Type::List(&Type::Message(FIELDS)))
                .about("A report for each day, in order.")])
            .authorization(Authorization::FiltersResult(READ))];

    fn example() -> Self {
        Self {
            date: Some(Timestamp::EPOCH),
            resolved_vulns: vec![ResolvedVuln {
                id: "CGA-3gfc-9462-mc8m".to_owned(),
                aliases: vec!["CVE-2022-4203".to_owned()],
                cvss_severities: vec![Severity::default()],
            }],
        }
    }
}

/// A request for reports.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    image_refs: Vec<ImageRef>,
    start_time: Timestamp,
    end_time: Timestamp,
}

/// Images of a repo, by their tags.
#[derive(Deserialize)]
struct ImageRef {
    /// The repo's uid or name.
    repo: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// Parses `repo` or `repo:tag` from a query string.
pub fn image_ref(text: &str) -> Value {
    match text.rsplit_once(':') {
        Some((repo, tag)) => json!({ "repo": repo, "tags": [tag] }),
        None => json!({ "repo": text }),
    }
}

/// Reports the vulnerabilities resolved on each day from the first to the last, inclusive.
async fn list(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let request: Request = serde_json::from_value(request.into()).map_err(Error::internal)?;
    let day = |at: Timestamp| at.millis().div_euclid(DAY);
    let (first, last) = (day(request.start_time), day(request.end_time));
    let mut violations = Violations::default();
    if request.end_time < request.start_time {
        violations.add("endTime", "must not be before startTime");
    } else if last - first >= MAX_DAYS {
        violations.add("endTime", format!("must be at most {MAX_DAYS} days after startTime"));
    }
    if request.image_refs.iter().map(|image| image.tags.len().max(1)).sum::<usize>() > MAX_IMAGES {
        violations.add("imageRefs", format!("must be at most {MAX_IMAGES} images"));
    }
    violations.none_or(())?;

    let installed = installed(cx, &request.image_refs).await?;
    let mut days: BTreeMap<i64, BTreeMap<String, Advisory>> =
        (first..=last).map(|day| (day, BTreeMap::new())).collect();
    let mut bytes = 0_usize;
    for advisory in fixed(cx, &installed).await? {
        let resolved = advisory.events.iter().filter(|event| event.is_approved()).filter_map(|event| {
            let (at, fixed) = (event.create_time?, event.fixed.as_ref()?);
            let is_requested = (request.start_time..=request.end_time).contains(&at);
            (is_requested && installed.has(&advisory.artifact_name, &fixed.fixed_version)).then(|| day(at))
        });
        let names = advisory.names().map(|name| name.len().saturating_add(VULN_BYTES)).sum::<usize>();
        for day in resolved.collect::<BTreeSet<_>>() {
            bytes = bytes.saturating_add(names);
            if bytes > MAX_RESPONSE_BYTES {
                let rule = format!("must keep the reports within {MAX_RESPONSE_BYTES} bytes; request fewer days");
                return Err(Error::invalid_field("endTime", rule));
            }
            days.entry(day).or_default().insert(advisory.advisory_id.clone(), advisory.clone());
        }
    }
    let names = days.values().flat_map(BTreeMap::values).flat_map(Advisory::names);
    let severities = Severities::look_up(cx, names).await?;
    let reports = days.into_iter().map(|(day, resolved)| {
        let resolved_vulns = resolved.into_values().map(|advisory| ResolvedVuln {
            cvss_severities: severities.of(advisory.names()),
            id: advisory.advisory_id,
            aliases: advisory.aliases,
        });
        let date = Some(Timestamp::from_millis(day.saturating_mul(DAY)));
        let report = ResolvedVulnsReport { date, resolved_vulns: resolved_vulns.collect() };
        let mut report = serde_json::to_value(report).map_err(Error::internal)?;
        fields::prune_empty(FIELDS, &mut report);
        Ok(report)
    });
    Ok(json!({ "resolvedVulnsReports": reports.collect::<Result<Vec<Value>>>()? }))
}

/// The installed versions, by the names of packages and of the packages whose builds made them.
#[derive(Default)]
struct Installed(HashMap<String, BTreeSet<String>>);

impl Installed {
    fn add(&mut self, package: ImagePackage) {
        let made_by = Some(package.origin).filter(|origin| !origin.is_empty() && *origin != package.name);
        for name in made_by.into_iter().chain([package.name]) {
            self.0.entry(name).or_default().insert(package.version.clone());
        }
    }

    /// Returns whether the package is installed in the version `fixed` or a later one.
    fn has(&self, package: &str, fixed: &str) -> bool {
        self.0.get(package).is_some_and(|versions| versions.iter().any(|version| apk::is_at_least(version, fixed)))
    }
}

/// Reads the packages installed in the images that the caller may see.
async fn installed(cx: &Context<'_>, images: &[ImageRef]) -> Result<Installed> {
    let visible = cx.nodes(READ).scopes();
    let mut uids = BTreeMap::new();
    for image in images {
        for repo in repos(cx, &visible, &image.repo).await? {
            let tags = if image.tags.is_empty() { vec![DEFAULT_TAG.to_owned()] } else { image.tags.clone() };
            let names = Filter::AnyOf { key: "name", values: tags.iter().map(|tag| KeyValue::text(tag)).collect() };
            let query = Query { filters: vec![names], ..Query::new(Tag::KIND.name, Scope::Children(repo.clone())) };
            for tag in cx.find::<Tag>(query).await? {
                uids.insert(Image::uid_of(&repo, &tag.digest), tag.digest);
            }
        }
    }
    let found = cx.read_all::<Image>(uids.keys().cloned()).await?;
    let mut installed = Installed::default();
    for image in found.into_iter().flatten().filter(|image| uids.get(&image.uid) == Some(&image.digest)) {
        image.platforms.into_iter().flat_map(|platform| platform.packages).for_each(|package| installed.add(package));
    }
    Ok(installed)
}

/// Returns the repos with this name or uid in the visible scopes, at most 100.
pub async fn repos(cx: &Context<'_>, visible: &Scopes, named: &str) -> Result<Vec<Uid>> {
    let mut query = Query::new(Repo::KIND.name, Scope::Roots);
    query.limit = MAX_IMAGES;
    match Uid::parse(named) {
        Ok(uid) => query.scopes = visible.and(&Scopes::disjoint([Scope::Exact(uid)])).into_vec(),
        Err(_) => {
            query.scopes = visible.clone().into_vec();
            query.filters = vec![Filter::AnyOf { key: "name", values: vec![KeyValue::text(named)] }];
        }
    }
    Ok(cx.page(query).await?.items.into_iter().map(|item| item.uid()).collect())
}

/// The number of packages that are looked up at once.
const NAMES: usize = 200;

/// Returns the advisories with fixes of installed packages: public ones, and those of the groups in which the caller
/// may read images.
async fn fixed(cx: &Context<'_>, installed: &Installed) -> Result<Vec<Advisory>> {
    let own = cx.nodes(READ).scopes().into_vec();
    let public = public_groups(cx)?.into_vec();
    let all: BTreeSet<_> = own.into_iter().chain(public).collect();
    let is_in_another = |scope: &Scope| match scope {
        Scope::Subtree(uid) => {
            let contains = |above| all.contains(&Scope::Subtree(Uid::opaque(above)));
            all.contains(&Scope::All) || uid.ancestry().skip(1).any(contains)
        }
        _ => false,
    };
    // The scopes of a query must be disjoint.
    let scopes: Vec<_> = all.iter().filter(|scope| !is_in_another(scope)).cloned().collect();
    let mut names: Vec<_> = installed.0.keys().map(|name| KeyValue::text(name)).collect();
    names.sort();
    let mut found = Vec::new();
    for names in names.chunks(NAMES) {
        let mut query = Query::new(Advisory::KIND.name, Scope::Roots);
        query.scopes.clone_from(&scopes);
        query.filters = vec![
            Filter::AnyOf { key: "artifact", values: names.to_vec() },
            Filter::AnyOf { key: "eventType", values: vec![KeyValue::text(EventType::Fixed.filter_name())] },
        ];
        found.extend(cx.find::<Advisory>(query).await?);
    }
    Ok(found)
}
