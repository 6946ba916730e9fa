//! Tags, which version 1 may create without an image.

use platform_core::{
    capabilities::cap,
    resources::registry::{Repo, Tag, TagMove},
};
use platform_engine::{
    access::Capability,
    context::Context,
    conversion::{Conversion, ListConversion, shown},
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Registered, Resource, Type},
    request::{ListRequest, MAX_PAGE_SIZE},
    scope::Scopes,
    store::Scope,
    uid::Uid,
    verbs::ListReply,
};
use serde_json::{Map, Value, json};

use super::super::{ITEM_ID, REGISTRY, UIDP};

pub(super) const CREATE: Action = Action::create_as::<Message>("CreateTag", "tags/{repoId=**}");
pub(super) const UPDATE: Action = Action::replace_as::<Message>("UpdateTag", "tags/{id=**}");
pub(super) const DELETE: Action = Action::delete_as::<Message>("DeleteTag", "tags/{id=**}");
pub(super) const LIST: Action = Action::list_as::<Filtered>("ListTags", "tags");
pub(super) const HISTORY: Action = Action::list_as::<History>("ListTagHistory", "tags/{parentId=**}/history")
    .authorization(Authorization::At("parentId", READ));
pub(super) const SUMMARY: Action =
    Action::get("GetRepoTagsSummary", "repotagssummary/{repoId=**}", |cx, request| Box::pin(summary(cx, request)))
        .request(&[REPO_ID, EXCLUDE_REFERRERS, EXCLUDE_DATES, EXCLUDE_EPOCHS])
        .response(&[
            Field::string("id").about("The repo."),
            Field::new("tagCount", Type::Int64).about("The number of tags."),
            Field::timestamp("lastUpdated").about("When a tag was last created or moved."),
            Field::message("latestTag", Message::FIELDS)
                .about("The tag `latest`, or else the one that was last created or moved."),
            Field::string("latestVersion").about(
                "The most exact version among the tags of the same image, such as `1.29.3`; empty if there is none.",
            ),
        ])
        .authorization(Authorization::At("repoId", READ));
pub(super) const UPDATE_STATUS: Action =
    Action::get("GetUpdateStatus", "repos/{repoId=**}:updatestatus", |cx, request| {
        Box::pin(update_status(cx, request))
    })
    .request(&[REPO_ID])
    .response(&[Field::bool("recentlyUpdated").about("Whether a tag was created or moved in the last 7 days.")])
    .authorization(Authorization::At("repoId", READ));

const READ: &[Capability] = &[cap("tag.list")];
const REPO_ID: Field = Field::string("repoId").about("The repo.");
const EXCLUDE_REFERRERS: Field = Field::bool("excludeReferrers")
    .of("")
    .about("Whether to leave out tags such as `sha256-…`, which refer to an image's signatures and the like.");
const EXCLUDE_DATES: Field =
    Field::bool("excludeDates").of("").about("Whether to leave out tags that end in a date such as `…-20260102`.");
const EXCLUDE_EPOCHS: Field =
    Field::bool("excludeEpochs").of("").about("Whether to leave out tags that end in an epoch such as `…-r3`.");

/// The period in which a repo counts as recently updated: 7 days. Our choice.
const RECENT_MILLIS: i64 = 7 * 24 * 60 * 60 * 1000;

/// The number of pages of tags of an image among which the latest version is found. Our choice.
const VERSION_PAGES: usize = 10;

struct Message;

impl Conversion for Message {
    type Resource = Tag;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "tags";
    const MESSAGE: &'static str = "Tag";
    const PARENT: &'static str = "repoId";
    const ITEM: &'static str = "tag";
    const UPSERT: &'static str = "name";
    const RETAINED: &'static [&'static str] = &["digest"];
    const FIELDS: &'static [Field] = &[
        Tag::KIND.show("uid").named("id"),
        Tag::KIND.show("name"),
        Tag::KIND.show("digest"),
        Tag::KIND.show("updateTime").named("lastUpdated"),
        Tag::KIND.show("deprecated"),
        Tag::KIND.show("bundles"),
    ];
    const WRITES: &'static [Field] =
        &Tag::KIND.fields_with::<{ Tag::KIND.fields.len() }>(&[Tag::DIGEST.not_required()]);
}

struct Filtered;

impl ListConversion for Filtered {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        UIDP,
        Field::string("name").about("Only tags with exactly this name, excluded ones too."),
        Field::timestamp("updatedSince").about("Only tags that were updated after this time."),
        EXCLUDE_REFERRERS,
        EXCLUDE_DATES,
        EXCLUDE_EPOCHS,
        ITEM_ID,
        Field::string("digest").about("Only tags of this digest."),
    ];
    const RESPONSE: &'static [Field] =
        &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
            .about("The tags, in the order of their uids.")];

    fn to_parameters(request: &Map<String, Value>, parameters: &mut Map<String, Value>) {
        parameters.extend(included(request));
    }
}

/// Returns the parameters of version 2, which hides the families of tags that version 1 shows, for the families that a
/// request does not exclude.
pub(super) fn included(request: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    let families = [
        ("excludeReferrers", "includeReferrers"),
        ("excludeDates", "includeDates"),
        ("excludeEpochs", "includeEpochs"),
    ];
    families.into_iter().map(|(exclude, include)| {
        let is_excluded = request.get(exclude).and_then(Value::as_bool).unwrap_or_default();
        (include.to_owned(), Value::Bool(!is_excluded))
    })
}

struct Move;

impl Conversion for Move {
    type Resource = TagMove;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "tags";
    const MESSAGE: &'static str = "TagHistory";
    const FIELDS: &'static [Field] =
        &[TagMove::KIND.show("createTime").named("updateTimestamp"), TagMove::KIND.show("digest")];
}

struct History;

impl ListConversion for History {
    type Item = Move;
    const ORDER_BY: &'static str = "createTime desc";
    const REQUEST: &'static [Field] = &[
        Field::string("parentId").of("uidp.childrenOf").about("The tag."),
        Field::timestamp("start").about("Only moves at this time or later."),
        Field::timestamp("end").about("Only moves before this time."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Move::FIELDS)))
        .about("The images that the tag has referred to, the latest first.")];
}

/// Returns the tags of a repo that match, in order: at most one page, and the number of all.
async fn tags(cx: &Context<'_>, repo: &Uid, parameters: Map<String, Value>) -> Result<(Vec<Tag>, u64)> {
    let reply = page(cx, repo, parameters).await?;
    let tags = reply.items.iter().map(|tag| serde_json::from_slice(tag).map_err(Error::internal));
    Ok((tags.collect::<Result<_>>()?, reply.total_count))
}

async fn page(cx: &Context<'_>, repo: &Uid, parameters: Map<String, Value>) -> Result<ListReply> {
    let registered = Registered::of::<Tag>();
    let request = ListRequest::from_json(registered.kind, parameters)?;
    cx.list_in(&registered, &request, Scopes::disjoint([Scope::Children(repo.clone())])).await
}

/// Returns the repo that a request names.
pub(super) async fn repo(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Uid> {
    let uid = request.get("repoId").and_then(Value::as_str).unwrap_or_default();
    let uid = Uid::parse(uid).map_err(|rule| Error::invalid_field("repoId", rule.to_string()))?;
    match cx.read::<Repo>(&uid).await? {
        Some(_) => Ok(uid),
        None => Err(Error::not_found(Repo::KIND, uid.as_str())),
    }
}

/// Returns the tag of a repo that was updated last, and the number of all, without the families that the request
/// excludes.
async fn newest(cx: &Context<'_>, repo: &Uid, request: &Map<String, Value>) -> Result<(Option<Tag>, u64)> {
    let mut newest: Map<_, _> = included(request).collect();
    newest.extend([("orderBy".to_owned(), "updateTime desc".into()), ("pageSize".to_owned(), 1.into())]);
    let (newest, count) = tags(cx, repo, newest).await?;
    Ok((newest.into_iter().next(), count))
}

/// Counts the tags of a repo, and returns the latest.
async fn summary(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let repo = repo(cx, &request).await?;
    let (newest, count) = newest(cx, &repo, &request).await?;
    let mut summary = json!({ "id": repo, "tagCount": count.to_string(), "latestVersion": "" });
    let Some(newest) = newest else { return Ok(summary) };
    let named = Map::from_iter([("name".to_owned(), "latest".into())]);
    let latest = tags(cx, &repo, named).await?.0.into_iter().next();
    let latest = latest.unwrap_or_else(|| newest.clone());
    if let Value::Object(summary) = &mut summary {
        summary.insert("lastUpdated".to_owned(), json!(newest.update_time));
        if !latest.digest.is_empty() {
            let mut same: Map<_, _> = included(&request).collect();
            same.insert("digest".to_owned(), json!(latest.digest));
            summary.insert("latestVersion".to_owned(), most_exact_version(cx, &repo, same).await?.into());
        }
        summary.insert("latestTag".to_owned(), shown::<Message>(cx, &latest)?.into());
    }
    Ok(summary)
}

/// Returns the most exact version among the first [`VERSION_PAGES`] pages of the tags that match; empty if there is none.
async fn most_exact_version(cx: &Context<'_>, repo: &Uid, mut parameters: Map<String, Value>) -> Result<String> {
    parameters.insert("pageSize".to_owned(), MAX_PAGE_SIZE.into());
    let (mut version, mut pace) = (String::new(), cx.pace());
    for _ in 0..VERSION_PAGES {
        let page = page(cx, repo, parameters.clone()).await?;
        for item in &page.items {
            pace.step(item.len()).await;
            let tag: Tag = serde_json::from_slice(item).map_err(Error::internal)?;
            let exactness = |name: &str| (name.split('.').count(), name.len());
            if is_version(&tag.name) && (version.is_empty() || exactness(&tag.name) >= exactness(&version)) {
                version = tag.name;
            }
        }
        match page.next_page_token {
            Some(next) => parameters.insert("pageToken".to_owned(), next.into()),
            None => break,
        };
    }
    Ok(version)
}

/// Returns whether a tag is a version: numbers that are separated by dots.
fn is_version(name: &str) -> bool {
    name.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

async fn update_status(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let repo = repo(cx, &request).await?;
    // The first in the order by time, which costs a page, and not those after a time, whose number has no bound.
    let updated = newest(cx, &repo, &Map::new()).await?.0.and_then(|newest| newest.update_time);
    Ok(json!({ "recentlyUpdated": updated > Some(cx.now().plus_millis(-RECENT_MILLIS)) }))
}
