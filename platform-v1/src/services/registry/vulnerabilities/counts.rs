//! Counts of the vulnerabilities of images by day.

use std::collections::BTreeMap;

use platform_core::resources::{
    advisory::repos,
    registry::{Repo, Tag},
    vulnerabilities::Level,
};
use platform_engine::{
    context::Context,
    error::{Error, Result, Violations},
    kind::{Action, Authorization, Field, Resource, Type},
    platform::Rendered,
    scope::Scopes,
    store::{Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{READ, SEVERITY, any_of, distinct};
use crate::{
    findings::{self, History, Subject},
    resources::VulnerabilityReport,
};

pub(super) const LIST: Action =
    Action::get_rendered("ListVulnCountReports", "vuln_reports/counts", |cx, request| Box::pin(list(cx, request)))
        .request(FILTER)
        .response(REPORTS)
        .authorization(Authorization::FiltersResult(READ));

pub(super) const LIST_CUMULATIVE: Action =
    Action::get_rendered("ListCumulativeVulnCountReports", "vuln_reports/counts_cumulative", |cx, request| {
        Box::pin(list_cumulative(cx, request))
    })
    .request(FILTER)
    .response(REPORTS)
    .authorization(Authorization::FiltersResult(READ));

const FILTER: &[Field] = &[
    Field::string("repo").about("Only images of this repo, by uid or name."),
    Field::string("tag").about("Only the images that tags of this name refer to."),
    Field::timestamp("from")
        .about("The first day. By default that of `to`, or 29 days before it for cumulative counts."),
    Field::timestamp("to").about("The last moment, at most 365 days after the first day; by default now."),
    Field::new(
        "references",
        Type::List(&Type::Message(&[
            Field::string("repo").about("The repo, by uid or name.").required(),
            Field::string("tag").about("The name of the tag; all tags if it is empty."),
        ])),
    )
    .about("Only these images, at most 100. A query string writes each as `repo` or `repo:tag`.")
    .in_query(reference),
];

const REPORTS: &[Field] = &[Field::new(
    "items",
    Type::List(&Type::Message(&[
        Field::string("repo").about("The repo as the request names it, or else its name."),
        Field::string("tag").about("The name of the tag."),
        Field::timestamp("date").about("The day, at midnight UTC."),
        Field::new(
            "vulnCounts",
            Type::List(&Type::Message(&[
                Field::enumeration("severity", SEVERITY).about("The level of severity."),
                Field::new("count", Type::Int32).about("The number of vulnerabilities."),
            ])),
        )
        .about("A count for each level of severity."),
        Field::new("sizeBytes", Type::Int64).about("The size of the image for one architecture in bytes."),
        Field::strings("cveIds").about("The identifiers of all vulnerabilities."),
        Field::strings("lowCveIds").about("The identifiers of those of the level LOW."),
        Field::strings("medCveIds").about("The identifiers of those of the level MEDIUM."),
        Field::strings("highCveIds").about("The identifiers of those of the level HIGH."),
        Field::strings("critCveIds").about("The identifiers of those of the level CRITICAL."),
        Field::strings("negligibleCveIds").about("The identifiers of those of the level NEGLIGIBLE."),
        Field::strings("unknownCveIds").about("The identifiers of those whose level is not known."),
    ])),
)
.about("A report for each day.")];

/// Parses `repo` or `repo:tag` from a query string.
fn reference(text: &str) -> Value {
    match text.rsplit_once(':') {
        Some((repo, tag)) => json!({ "repo": repo, "tag": tag }),
        None => json!({ "repo": text }),
    }
}

/// A request for counts.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    repo: String,
    tag: String,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    references: Vec<Reference>,
}

/// Images of a repo, by a tag; empty for any.
#[derive(Deserialize, Default, Clone, PartialEq, Eq, Hash)]
#[serde(default)]
struct Reference {
    repo: String,
    tag: String,
}

const DAY: i64 = 24 * 60 * 60 * 1000;

/// The maximum number of days per request. Our choice.
const MAX_DAYS: i64 = 366;

/// The number of days of cumulative counts for a request without `from`. Our choice.
const DEFAULT_DAYS: i64 = 30;

/// The maximum number of images per request, counted by tags. Our choice.
const MAX_IMAGES: usize = 1_000;

/// The maximum number of vulnerabilities that a request examines: the sum of those that are known of each image, times the
/// days. Our choice: half a second of processor time.
const MAX_EXAMINED: usize = 5_000_000;

/// The number of bytes of JSON whose conversion takes as long as an examined vulnerability.
const EXAMINED_BYTES: usize = 8;

/// The maximum size of a response in bytes. Our choice.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The image that a tag refers to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tagged {
    repo: String,
    tag: String,
    subject: Subject,
}

/// A day of a report: its start, and the moment whose vulnerabilities count.
struct Day {
    date: Timestamp,
    moment: Timestamp,
}

impl Request {
    fn of(request: Map<String, Value>) -> Result<Self> {
        serde_json::from_value(request.into()).map_err(Error::internal)
    }

    /// Returns the days up to today. Each counts as of its end, the last one as of `to`, or now.
    fn days(&self, now: Timestamp, default: i64) -> Result<Vec<Day>> {
        let day = |at: Timestamp| at.millis().div_euclid(DAY);
        let to = self.to.unwrap_or(now);
        let from = self.from.unwrap_or_else(|| Timestamp::from_millis((day(to) - default + 1).saturating_mul(DAY)));
        let mut violations = Violations::default();
        if to < from {
            match self.to {
                Some(_) => violations.add("to", "must not be before from"),
                None => violations.add("from", "must not be in the future"),
            }
        } else if day(to) - day(from) >= MAX_DAYS {
            violations.add("to", format!("must be at most {} days after from", MAX_DAYS - 1));
        }
        violations.none_or(())?;
        let last = to.min(now);
        let days = (day(from)..=day(last)).map(|day| {
            let date = Timestamp::from_millis(day.saturating_mul(DAY));
            Day { date, moment: date.plus_millis(DAY - 1).min(last) }
        });
        Ok(days.collect())
    }

    /// Returns the requested references, each once; an empty one for a request without any.
    fn references(&self) -> Vec<Reference> {
        let own = Reference { repo: self.repo.clone(), tag: self.tag.clone() };
        let is_set = own != Reference::default() || self.references.is_empty();
        distinct(is_set.then_some(own).into_iter().chain(self.references.iter().cloned()).collect())
    }

    /// The field to narrow when a request selects too much.
    const fn widest(&self) -> &'static str {
        if self.references.is_empty() { "repo" } else { "references" }
    }
}

/// Returns the requested images that the caller may see, and the history of each.
async fn histories(cx: &Context<'_>, request: &Request) -> Result<Vec<(Tagged, History)>> {
    let visible = cx.visible(VulnerabilityReport::KIND, READ, &Scopes::all());
    let mut found: Vec<(String, Tag)> = Vec::new();
    for Reference { repo, tag } in request.references() {
        let mut query = Query::new(Tag::KIND.name, Scope::Roots);
        query.scopes = match repo.as_str() {
            "" => visible.as_slice().to_vec(),
            repo => repos(cx, &visible, repo).await?.into_iter().map(Scope::Children).collect(),
        };
        if !tag.is_empty() {
            query.filters = vec![any_of("name", &tag)];
        }
        // More are read than may be selected, because some are left out.
        query.limit = MAX_IMAGES.saturating_mul(4);
        let page = cx.page(query).await?;
        for item in &page.items {
            let one: Tag = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            // Tags such as `sha256-…` refer to signatures and the like.
            if !one.digest.is_empty() && (!tag.is_empty() || !one.name.starts_with("sha256-")) {
                found.push((repo.clone(), one));
            }
        }
        if found.len() > MAX_IMAGES || page.next.is_some() {
            let rule = format!("must select at most {MAX_IMAGES} images");
            return Err(Error::invalid_field(request.widest(), rule));
        }
    }
    let unnamed = found.iter().filter(|(repo, _)| repo.is_empty()).filter_map(|(_, tag)| tag.uid.parent());
    let unnamed = cx.read_all::<Repo>(distinct(unnamed.collect())).await?;
    let names: BTreeMap<Uid, String> = unnamed.into_iter().flatten().map(|repo| (repo.uid, repo.name)).collect();
    let tagged = found.into_iter().filter_map(|(repo, tag)| {
        let uid = tag.uid.parent()?;
        let repo = if repo.is_empty() { names.get(&uid)?.clone() } else { repo };
        Some(Tagged { repo, tag: tag.name, subject: Subject { repo: uid, digest: tag.digest } })
    });
    let mut tagged = distinct(tagged.collect());
    tagged.sort();
    let subjects: Vec<_> = tagged.iter().map(|tagged| tagged.subject.clone()).collect();
    let histories = findings::histories(cx, &visible, &subjects, request.widest()).await?;
    Ok(tagged.into_iter().zip(histories).collect())
}

/// Lists the counts of each image by day. An image is left out on days for which nothing is known of it.
async fn list(cx: &Context<'_>, request: Map<String, Value>) -> Result<Rendered> {
    let request = Request::of(request)?;
    let days = request.days(cx.now(), 1)?;
    let histories = histories(cx, &request).await?;
    check_work(&histories, days.len(), request.widest())?;
    let (mut reply, mut pace) = (Reply::new(), cx.pace());
    for (tagged, history) in &histories {
        for day in &days {
            let mut counts = Counts::default();
            if history.at(day.moment, |id, level| counts.add(id, level)) {
                reply.push(&counts.report(&tagged.repo, &tagged.tag, day, history.size()))?;
            }
            pace.step(history.examined() * EXAMINED_BYTES).await;
        }
    }
    Ok(reply.send(cx).await)
}

/// Lists, for each day, the counts of all vulnerabilities that any of the images had from the first day up to then.
async fn list_cumulative(cx: &Context<'_>, request: Map<String, Value>) -> Result<Rendered> {
    let request = Request::of(request)?;
    let days = request.days(cx.now(), DEFAULT_DAYS)?;
    let histories = histories(cx, &request).await?;
    check_work(&histories, days.len(), request.widest())?;
    let (mut reply, mut pace) = (Reply::new(), cx.pace());
    let mut seen: BTreeMap<&str, Level> = BTreeMap::new();
    let (repo, tag) = match request.references().as_slice() {
        [one] => (one.repo.clone(), one.tag.clone()),
        _ => Default::default(),
    };
    for day in days {
        let (mut is_known, mut size) = (false, 0_i64);
        for (_, history) in &histories {
            let is_one = history.at(day.moment, |id, level| {
                let known = seen.entry(id).or_default();
                *known = level.max(*known);
            });
            if is_one {
                (is_known, size) = (true, size.saturating_add(history.size()));
            }
            pace.step(history.examined() * EXAMINED_BYTES).await;
        }
        if is_known {
            let mut counts = Counts::default();
            seen.iter().for_each(|(id, level)| counts.add(id, *level));
            reply.push(&counts.report(&repo, &tag, &day, size))?;
            pace.step(seen.len() * EXAMINED_BYTES).await;
        }
    }
    Ok(reply.send(cx).await)
}

/// Rejects a request before it examines too many vulnerabilities.
fn check_work(histories: &[(Tagged, History)], days: usize, field: &str) -> Result<()> {
    // An image of which nothing is known takes time, too.
    let of_a_day: usize = histories.iter().map(|(_, history)| history.examined() + 1).sum();
    if of_a_day.saturating_mul(days) <= MAX_EXAMINED {
        return Ok(());
    }
    let rule = format!(
        "must select images with at most {MAX_EXAMINED} vulnerabilities times days; they have {of_a_day}, and the request \
         has {days} days"
    );
    Err(Error::invalid_field(field, rule))
}

/// The vulnerabilities of a day, by level.
#[derive(Default)]
struct Counts<'f> {
    all: Vec<&'f str>,
    low: Vec<&'f str>,
    medium: Vec<&'f str>,
    high: Vec<&'f str>,
    critical: Vec<&'f str>,
    negligible: Vec<&'f str>,
    unknown: Vec<&'f str>,
}

impl<'f> Counts<'f> {
    fn add(&mut self, id: &'f str, level: Level) {
        self.all.push(id);
        let of_level = match level {
            Level::LevelUnspecified => &mut self.unknown,
            Level::LevelNegligible => &mut self.negligible,
            Level::LevelLow => &mut self.low,
            Level::LevelMedium => &mut self.medium,
            Level::LevelHigh => &mut self.high,
            Level::LevelCritical => &mut self.critical,
        };
        of_level.push(id);
    }

    fn report<'a>(&'a self, repo: &'a str, tag: &'a str, day: &Day, size: i64) -> CountReport<'a> {
        let levels = [&self.unknown, &self.low, &self.medium, &self.high, &self.critical, &self.negligible];
        let counts = SEVERITY
            .iter()
            .zip(levels)
            .map(|(severity, ids)| Count { severity, count: i32::try_from(ids.len()).unwrap_or(i32::MAX) });
        CountReport {
            repo,
            tag,
            date: day.date,
            vuln_counts: counts.collect(),
            size_bytes: size.to_string(),
            cve_ids: &self.all,
            low_cve_ids: &self.low,
            med_cve_ids: &self.medium,
            high_cve_ids: &self.high,
            crit_cve_ids: &self.critical,
            negligible_cve_ids: &self.negligible,
            unknown_cve_ids: &self.unknown,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CountReport<'a> {
    repo: &'a str,
    tag: &'a str,
    date: Timestamp,
    vuln_counts: Vec<Count>,
    size_bytes: String,
    cve_ids: &'a [&'a str],
    low_cve_ids: &'a [&'a str],
    med_cve_ids: &'a [&'a str],
    high_cve_ids: &'a [&'a str],
    crit_cve_ids: &'a [&'a str],
    negligible_cve_ids: &'a [&'a str],
    unknown_cve_ids: &'a [&'a str],
}

#[derive(Serialize)]
struct Count {
    severity: &'static str,
    count: i32,
}

/// A reply that is written as bytes, because it may be long.
struct Reply {
    body: Vec<u8>,
    is_empty: bool,
}

impl Reply {
    fn new() -> Self {
        Self { body: b"{\"items\":[".to_vec(), is_empty: true }
    }

    /// Adds a report.
    fn push(&mut self, report: &CountReport<'_>) -> Result<()> {
        if !self.is_empty {
            self.body.push(b',');
        }
        self.is_empty = false;
        serde_json::to_writer(&mut self.body, report).map_err(Error::internal)?;
        if self.body.len() > MAX_RESPONSE_BYTES {
            let rule = format!("must keep the reports within {MAX_RESPONSE_BYTES} bytes; request fewer days or images");
            return Err(Error::invalid_field("to", rule));
        }
        Ok(())
    }

    async fn send(mut self, cx: &Context<'_>) -> Rendered {
        self.body.extend_from_slice(b"]}");
        Rendered::of_many(self.body, cx.platform().offload()).await
    }
}
