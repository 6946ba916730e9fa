//! Reports of the builds of images.

use std::collections::BTreeMap;

use bytes::Bytes;
use platform_core::capabilities::cap;
use platform_engine::{
    context::Context,
    conversion::{Conversion, shown},
    error::{Error, Result, Violations},
    kind::{Action, Authorization, Domain, Field, ListPage, Resource, Type},
    offload::Pace,
    request::uidp_scopes,
    scope::Scopes,
    store::{Filter, Item, KeyValue, Order, OrderBy, Position, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{REGISTRY, UIDP};
use crate::resources::{
    BuildReport,
    build_report::{BuildResult, STARTED_KEY},
};

const READ: &[platform_engine::access::Capability] = &[cap("build_report.list")];

pub(super) const LIST: Action = Action::get_pages("ListBuildReports", "buildreports", |cx, request, page_token| {
    Box::pin(list(cx, request, page_token))
})
.request(FILTER)
.response(&[Field::new("reports", Type::List(&Type::Message(Report::FIELDS)))
    .about("The reports, the one of the latest start first.")])
.authorization(Authorization::FiltersResult(READ));

pub(super) const STATUS: Action =
    Action::get("GetBuildStatus", "buildstatus", |cx, request| Box::pin(status(cx, request)))
        .request(FILTER)
        .response(&[Field::new(
            "failures",
            Type::List(&Type::Message(&[
                Field::string("repoId").about("The uid of the repo."),
                Field::new("total", Type::Int32).about("The number of builds that failed."),
            ])),
        )
        .about("The repos with builds that failed, in the order of their uids.")])
        .authorization(Authorization::FiltersResult(READ));

const FILTER: &[Field] = &[
    UIDP,
    Field::timestamp("startedSince").about("Only builds that were started at or after this time."),
    Field::timestamp("startedBefore").about("Only builds that were started before this time."),
    Field::bool("excludeLogs").about("Whether to leave out the logs."),
    Field::new("pageSize", Type::Int32).about("The number of the latest reports to return; 0 means all."),
];

struct Report;

impl Conversion for Report {
    type Resource = BuildReport;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "buildreports";
    const MESSAGE: &'static str = "BuildReport";
    const FIELDS: &'static [Field] = &[
        BuildReport::KIND.show("uid").named("id"),
        BuildReport::KIND.show("mediaType"),
        BuildReport::KIND.show("config"),
        BuildReport::KIND.show("lockedConfig"),
        BuildReport::KIND.show("result").ty(Type::Enum(&["Unknown", "Success", "Failure"])),
        BuildReport::KIND.show("warnings"),
        BuildReport::KIND.show("log"),
        BuildReport::KIND.show("digest"),
        BuildReport::KIND.show("builderVersion").named("apkoVersion"),
        BuildReport::KIND.show("startTime").named("startedAt"),
        BuildReport::KIND.show("completeTime").named("completedAt"),
    ];
}

/// A request for reports.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Request {
    uidp: Option<Value>,
    started_since: Option<Timestamp>,
    started_before: Option<Timestamp>,
    exclude_logs: bool,
    page_size: i32,
}

/// The number of reports that are read at once.
const PAGE: usize = 200;

/// The number of bytes of reports that are read at once.
const PAGE_BYTES: usize = 4 << 20;

impl Request {
    /// Reads a request.
    fn of(request: Map<String, Value>) -> Result<Self> {
        let request: Self = serde_json::from_value(request.into()).map_err(Error::internal)?;
        let mut violations = Violations::default();
        if request.started_since.zip(request.started_before).is_some_and(|(since, before)| before < since) {
            violations.add("startedBefore", "must not be before startedSince");
        }
        if request.page_size < 0 {
            violations.add("pageSize", "must not be negative");
        }
        violations.none_or(request)
    }

    /// Returns the query for the reports that the caller may see, the latest first. Those that were started too late
    /// have to be left out afterwards.
    fn query(&self, cx: &Context<'_>) -> Result<Query> {
        let requested = uidp_scopes(self.uidp.as_ref())?;
        let visible: Scopes = requested.and(&cx.visible(BuildReport::KIND, READ, &requested));
        let mut query = Query::new(BuildReport::KIND.name, Scope::Roots);
        query.scopes = visible.into_vec();
        if let Some(since) = self.started_since {
            // The bound of the filter is exclusive.
            let value = KeyValue::integer(since.millis().saturating_sub(1));
            query.filters = vec![Filter::Above { key: STARTED_KEY, value }];
        }
        query.order = Order { by: OrderBy::Key("startTime"), descending: true };
        (query.limit, query.bytes) = (PAGE, PAGE_BYTES);
        Ok(query)
    }

    /// Returns the reports of a page that match.
    async fn matching(&self, items: &[Item], pace: &mut Pace<'_>) -> Result<Vec<BuildReport>> {
        let mut reports = Vec::with_capacity(items.len());
        for item in items {
            pace.step(item.body.len()).await;
            let report: BuildReport = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            if self.started_before.is_none_or(|before| report.start_time < Some(before)) {
                reports.push(report);
            }
        }
        Ok(reports)
    }
}

/// Lists reports. The token of a page is the number of reports that are left of those that the request asks for, and
/// the time and the uid of the last report that was read.
async fn list(cx: &Context<'_>, request: Map<String, Value>, page_token: &str) -> Result<ListPage> {
    let request = Request::of(request)?;
    let mut query = request.query(cx)?;
    let mut left = match usize::try_from(request.page_size) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(size) => size,
    };
    let mut parts = page_token.splitn(3, ' ');
    if let (Some(Ok(count)), Some(Ok(millis)), Some(uid)) =
        (parts.next().map(str::parse), parts.next().map(str::parse::<i64>), parts.next())
    {
        left = count;
        query.after = Some(Position { value: KeyValue::integer(millis), uid: Uid::opaque(uid.to_owned()) });
    }
    query.limit = if request.started_before.is_some() { PAGE } else { PAGE.min(left) };
    let page = cx.page(query).await?;
    let mut pace = cx.pace();
    let mut reports = request.matching(&page.items, &mut pace).await?;
    reports.truncate(left);
    left -= reports.len();
    let mut items = Vec::with_capacity(reports.len());
    for mut report in reports {
        if request.exclude_logs {
            report.log.clear();
        }
        let item = serde_json::to_vec(&shown::<Report>(cx, &report)?).map_err(Error::internal)?;
        pace.step(item.len()).await;
        items.push(Bytes::from(item));
    }
    let next_page_token = match (page.next, page.items.last()) {
        (Some(next), Some(last)) if left > 0 => {
            let last: BuildReport = serde_json::from_slice(&last.body).map_err(Error::internal)?;
            Some(format!("{left} {} {}", last.start_time.map_or(0, Timestamp::millis), next.uid))
        }
        _ => None,
    };
    Ok(ListPage { items, next_page_token })
}

/// Counts the builds that failed, of the latest reports that a list with the same request would return.
async fn status(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let request = Request::of(request)?;
    let mut query = request.query(cx)?;
    let mut left = match usize::try_from(request.page_size) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(size) => size,
    };
    let (mut failures, mut pace): (BTreeMap<Uid, i32>, _) = (BTreeMap::new(), cx.pace());
    loop {
        let page = cx.page(query.clone()).await?;
        let mut reports = request.matching(&page.items, &mut pace).await?;
        reports.truncate(left);
        left -= reports.len();
        for report in reports.iter().filter(|report| report.result == BuildResult::ResultFailure) {
            let total = failures.entry(report.uid.parent().unwrap_or_default()).or_default();
            *total = total.saturating_add(1);
        }
        query.after = page.next;
        if query.after.is_none() || left == 0 {
            break;
        }
    }
    let failures = failures.into_iter().map(|(repo, total)| json!({ "repoId": repo, "total": total }));
    Ok(json!({ "failures": failures.collect::<Vec<_>>() }))
}
