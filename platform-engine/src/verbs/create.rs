//! Creates (AIP-133).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Once, Sent, is_stored, rendered_one, uid_in, written};
use crate::{
    aip::field_mask::Mask,
    context::Context,
    error::{Error, Result},
    etag::Reply,
    fields::{self, Checked, Values, times},
    kind::{Change, Kind, Parent, Registered, Verb, WriteRules},
    store::{Filter, Item, Key, OrderBy, Query, Require, Scope},
    uid::Uid,
    write::Write,
};

pub(crate) async fn create(
    cx: &Context<'_>,
    registered: &Registered,
    parent: &str,
    body: &Map<String, Value>,
    once: &Once,
) -> Result<Reply> {
    let prepared = prepare(cx, registered, parent, body, once, WriteRules::of(registered.kind)).await?;
    commit(cx, registered, prepared).await
}

/// Commits a create, and returns the resource as the method does.
pub(crate) async fn commit(cx: &Context<'_>, registered: &Registered, mut prepared: Prepared) -> Result<Reply> {
    let is_stored = is_stored(registered.kind, prepared.computed);
    if let Some((existing, revision)) = &prepared.unchanged {
        let body = rendered_one(cx, registered, existing, prepared.computed).await?;
        return Ok(Reply::new(body, *revision, is_stored));
    }
    // The reply is rendered before the commit, because the event contains it.
    let after = cx.after(&prepared.write);
    let body = rendered_one(&after, registered, &prepared.body, prepared.computed).await?;
    cx.record_method_event(&mut prepared.write, registered, Verb::Create, &prepared.uid, Some(&body)).await?;
    let sequence = cx.commit(prepared.write).await?;
    written(cx, registered.kind, body, sequence, is_stored)
}

/// A create that is ready to be committed.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) uid: Uid,
    /// The resource as it is stored.
    pub body: Checked,
    /// Whether [`Resource::render`](crate::kind::Resource::render) completes it.
    pub computed: bool,
    /// The commit.
    pub write: Write,
    /// The stored resource with its revision, if the create would replace it with an equal one: nothing has to be
    /// committed.
    pub(crate) unchanged: Option<(Checked, u64)>,
}

/// Prepares a create without committing it.
pub(crate) async fn prepare(
    cx: &Context<'_>,
    registered: &Registered,
    parent: &str,
    body: &Map<String, Value>,
    once: &Once,
    rules: WriteRules,
) -> Result<Prepared> {
    let kind = registered.kind;
    let parent = demand(cx, registered, parent).await?;
    cx.options().preconditions.reject()?;

    // A uid that equals the parent's adds no level.
    if !kind.parent.shares_uid() && parent.as_ref().is_some_and(|uid| uid.ancestry().count() >= Uid::MAX_SEGMENTS) {
        return Err(Error::invalid_field("parent", format!("must lie less than {} levels deep", Uid::MAX_SEGMENTS)));
    }

    let share = match &parent {
        Some(parent) => parent,
        None => &cx.demand_caller()?.identity,
    };
    let known = Arc::clone(cx.platform().capabilities());
    let read = move |body| {
        let mut input = fields::read(rules.fields, &known, body, None);
        input.require(rules.fields);
        let mask = Mask::Paths(std::mem::take(&mut input.paths));
        Ok(Sent { values: input.checked()?, mask })
    };
    let Sent { mut values, mask } = once.read(cx, kind, share, body, read).await?;

    let mut write = Write::default();
    if let (Some(parent), Some(parent_kind)) = (&parent, cx.platform().parent_kind(kind)) {
        let missing = Error::not_found(parent_kind, parent.as_str());
        write.require_or_fail(Require::Exists(Key::new(parent_kind.name, parent.clone())), missing);
    }
    let existing = match (rules.upsert, &parent) {
        (Some(field), Some(parent)) => find_existing(cx, kind, parent, field, &values).await?,
        _ => None,
    };
    let revision = existing.as_ref().map_or(0, |item| item.revision);
    let now = cx.now();
    let (verb, uid, old, create_time, update_time) = match existing {
        Some(item) => {
            // In the kind's own version, a create that replaces is part of what the create allows.
            if kind.method(Verb::Create).is_none_or(|create| create.upsert.is_none()) {
                cx.demand_method(kind, Verb::Update, &item.uid())?;
            }
            write.require_or_retry(Require::Revision(Key::new(kind.name, item.uid()), item.revision));
            let old = Checked::stored(kind, &item.body)?;
            values.retain(rules.retained, &old);
            let (created, updated) = times(&old, now);
            (Verb::Update, item.uid(), Some(old), created, updated)
        }
        None => {
            let uid = new_uid(cx, kind, parent.as_ref());
            let key = Key::new(kind.name, uid.clone());
            // A resource with its parent's uid exists at most once. Other uids are random: retry with a new one.
            if kind.parent.shares_uid() {
                write.require_or_fail(Require::Absent(key), already_there(kind, &uid));
            } else {
                write.require_or_retry(Require::Absent(key));
            }
            (Verb::Create, uid, None, now, now)
        }
    };
    let new = Checked::created(kind, &uid, values, create_time, update_time);
    let before = old.clone();
    let mut change = Change {
        verb,
        uid,
        old,
        new: Some(new),
        private: Bytes::new(),
        paths: mask.paths(kind.fields),
        replaces_all: false,
        rules,
        write,
    };
    let prepared = (registered.prepare)(cx, &mut change).await?;
    let (body, computed) = prepared.ok_or_else(|| Error::internal("a prepared create without a resource"))?;
    // An upsert that changes nothing commits nothing. The stored private part is unknown here, so a new private
    // part always counts as a change.
    let is_same = |before: &Checked| change.private.is_empty() && super::update::is_same(before, &body);
    let is_unchanged = change.write.is_empty() && before.as_ref().is_some_and(is_same);
    change.write.put_bounded(kind, &change.uid, before.as_ref(), &body, computed, change.private)?;
    if rules.upsert.is_some() {
        change.write.mark_upsert();
    }
    let unchanged = before.filter(|_| is_unchanged).map(|before| (before, revision));
    Ok(Prepared { uid: change.uid, body, computed, write: change.write, unchanged })
}

/// Checks that the caller may create here, and returns the parent, if there is one.
pub(crate) async fn demand(cx: &Context<'_>, registered: &Registered, parent: &str) -> Result<Option<Uid>> {
    let kind = registered.kind;
    let Some(method) = kind.method(Verb::Create) else { return Err(Error::denied()) };
    Ok(match kind.parent {
        Parent::GroupOrNone | Parent::None => (registered.parent_for_create)(cx, parent, method.capabilities).await?,
        _ => {
            let parent = uid_in("parent", parent)?;
            cx.demand(&parent, method.capabilities)?;
            Some(parent)
        }
    })
}

fn new_uid(cx: &Context<'_>, kind: &Kind, parent: Option<&Uid>) -> Uid {
    let entropy = cx.platform().entropy();
    match parent {
        None => Uid::new_root(entropy),
        Some(parent) if kind.parent.shares_uid() => parent.clone(),
        Some(parent) => parent.new_child(entropy),
    }
}

fn already_there(kind: &Kind, uid: &Uid) -> Error {
    let parent = kind.parent.kind().unwrap_or("parent");
    let message = format!("A resource of kind {} of this {parent} already exists", kind.name);
    Error::already_exists(message).of_resource(kind, uid.as_str())
}

/// Returns the resource that an upsert replaces: the one of the same parent with the same value in the field.
async fn find_existing(
    cx: &Context<'_>,
    kind: &'static Kind,
    parent: &Uid,
    field: &'static str,
    values: &Values,
) -> Result<Option<Item>> {
    let Some(value) = kind.field(field).map(|field| field.ty.key(values.get(field.name))) else { return Ok(None) };
    let page = cx
        .page(Query {
            filters: vec![Filter::AnyOf { key: field, values: vec![value] }],
            limit: 1,
            order: crate::store::Order { by: OrderBy::Uid, descending: false },
            ..Query::new(kind.name, Scope::Children(parent.clone()))
        })
        .await?;
    Ok(page.items.into_iter().next())
}
