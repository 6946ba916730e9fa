//! The severity that is stored with an advisory, so that advisories can be counted by it.
//!
//! It is the highest CVSS score in the vulnerability metadata by the names of the vulnerability: when an advisory is
//! written, it is looked up; when metadata is written or removed, the advisories with one of its names are updated.
//! Replies never contain it, because reads look all severities up.

use platform_engine::{
    access::Caller,
    context::Context,
    error::{Error, Result},
    kind::Resource,
    platform::Platform,
    store::{Epoch, Filter, Key, KeyName, KeyValue, Position, Query, Require, Scope},
    write::Write,
};
use serde_json::{Map, Value, json};

use super::{
    super::{Level, Severity},
    Advisory,
};
use crate::resources::advisory::vulnerability_metadata::{Severities, VULNERABILITIES_EPOCH};

/// How severe a vulnerability is. A vulnerability without a CVSS score has no rating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rating {
    Critical,
    High,
    Medium,
    Low,
}

impl Rating {
    /// All ratings, in the order of the fields of the trend.
    pub(crate) const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    /// Returns the rating of a stored advisory.
    pub(super) fn of(body: &Value) -> Option<Self> {
        let score = body.get("severities")?.get(0)?.get("score")?.as_str()?;
        let severity = Severity { score: score.to_owned(), ..Severity::default() };
        Some(match Level::of_score(severity.base_score()?) {
            Level::LevelCritical => Self::Critical,
            Level::LevelHigh => Self::High,
            Level::LevelMedium => Self::Medium,
            _ => Self::Low,
        })
    }
}

/// The maximum number of advisories in a commit. Our choice, so that no other write waits long.
const BATCH: usize = 500;

/// Returns the severity to store with each of these advisories.
///
/// # Errors
/// Those of the store.
pub(super) async fn look_up(cx: &Context<'_>, bodies: &[&Value]) -> Result<Vec<Map<String, Value>>> {
    let found = Severities::look_up(cx, bodies.iter().flat_map(|body| names(body))).await?;
    let stored = |body: &&Value| highest(found.of(names(body)));
    let values = bodies.iter().map(stored).map(|severity| {
        let severity = severity.map(|severity| ("severities".to_owned(), json!([severity])));
        Map::from_iter(severity)
    });
    Ok(values.collect())
}

/// Sets the severity that is stored with an advisory. Returns the requirement that the metadata stays as it is.
///
/// # Errors
/// Those of the store.
pub async fn complete(cx: &Context<'_>, advisory: &mut Advisory) -> Result<Require> {
    let epoch = Epoch::of_organization(VULNERABILITIES_EPOCH, "");
    let values = cx.epochs(std::slice::from_ref(&epoch)).await?;
    let found = Severities::look_up(cx, advisory.names()).await?;
    advisory.severities = Vec::from_iter(highest(found.of(advisory.names())));
    Ok(Require::Epoch(epoch, values.first().copied().unwrap_or_default()))
}

/// Returns the highest CVSS score; the first of equal ones.
fn highest(severities: Vec<Severity>) -> Option<Severity> {
    let scored = severities.into_iter().filter_map(|severity| Some((severity.base_score()?, severity)));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, severity)| severity)
}

fn names(body: &Value) -> impl Iterator<Item = &str> {
    let aliases = body.get("aliases").and_then(Value::as_array).into_iter().flatten();
    aliases.chain(body.get("advisoryId")).filter_map(Value::as_str)
}

/// Updates the severities of all advisories about vulnerabilities with these names, which are sorted. The caller has
/// written metadata. An advisory that is withdrawn keeps its severity.
///
/// # Errors
/// Those of the store.
pub(crate) async fn update(platform: &Platform, caller: &Caller, names: &[KeyValue]) -> Result<()> {
    for key in ["alias", "id"] {
        let mut after = None;
        loop {
            let from = &after;
            let update = platform.with_caller(caller, |cx| Box::pin(update_some(cx, key, names, from.clone())));
            after = update.await?;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Updates some advisories, and returns the position after which others begin.
async fn update_some(
    cx: &Context<'_>,
    key: KeyName,
    names: &[KeyValue],
    after: Option<Position>,
) -> Result<Option<Position>> {
    let filters = vec![Filter::AnyOf { key, values: names.to_vec() }];
    let query = Query { filters, after, limit: BATCH, ..Query::new(Advisory::KIND.name, Scope::All) };
    let found = cx.page(query).await?.items;
    let last = found.last().filter(|_| found.len() == BATCH);
    let last = last.map(|item| Position { value: KeyValue::default(), uid: item.uid() });
    let mut keys = Vec::new();
    for (item, advisory) in found.iter().zip(with_severities(cx, found.iter().map(|item| &*item.body)).await?) {
        if advisory.is_some() {
            keys.push(Key::new(Advisory::KIND.name, item.uid()));
        }
    }
    if keys.is_empty() {
        return Ok(last);
    }
    let records: Vec<_> = cx.records(&keys).await?.into_iter().flatten().collect();
    let mut write = Write::default();
    for (record, advisory) in records.iter().zip(with_severities(cx, records.iter().map(|record| &*record.body)).await?)
    {
        if let Some(advisory) = advisory {
            write.append(cx.write_imported(&advisory, &record.key.uid, Some(record))?);
        }
    }
    if !write.is_empty() {
        cx.commit(write).await?;
    }
    Ok(last)
}

/// Returns each of these stored advisories with its current severity; `None` for those that have it already.
async fn with_severities<'b>(
    cx: &Context<'_>,
    bodies: impl Iterator<Item = &'b [u8]>,
) -> Result<Vec<Option<Advisory>>> {
    let advisories: Result<Vec<Advisory>> =
        bodies.map(|body| serde_json::from_slice(body).map_err(Error::internal)).collect();
    let advisories = advisories?;
    let found = Severities::look_up(cx, advisories.iter().flat_map(Advisory::names)).await?;
    let current = advisories.into_iter().map(|mut advisory| {
        let severities = Vec::from_iter(highest(found.of(advisory.names())));
        (severities != advisory.severities).then(|| {
            advisory.severities = severities;
            advisory
        })
    });
    Ok(current.collect())
}
