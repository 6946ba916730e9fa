//! Users of an identity provider's own directory, provisioned by SCIM (`docs/api.md`, SCIM).

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::{Column, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Unique},
    store::{Delete, Filter, Item, Key, KeyValue, Position, Query, Require, Scope},
    timestamp::Timestamp,
    uid::{self, Uid},
    verbs::PAGE_BYTES,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::super::domain;
use super::{IdentityProvider, names::DIRECTORY_USER, owner};
use crate::{capabilities::cap, iam::provider_epoch};

/// A user of an identity provider's directory. Our own kind: the contract has the directory's token, but no resource
/// that shows its users. Only the directory writes it, with its token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DirectoryUser {
    /// The uid of the provider and a segment, which is the user's SCIM id.
    pub uid: Uid,
    /// The sign-in name; unique in the directory, regardless of case.
    pub user_name: String,
    /// The id by which the provider's tokens identify the user (`correlationRule`); unique in the directory.
    pub external_id: String,
    /// The display name.
    pub display_name: String,
    /// The given name.
    pub given_name: String,
    /// The family name.
    pub family_name: String,
    /// The primary email address. Accounts are not linked by it.
    pub email: String,
    /// Whether the user may sign in and use existing sessions.
    pub active: bool,
    /// When the directory created the user.
    pub create_time: Option<Timestamp>,
    /// When the directory last changed the user.
    pub update_time: Option<Timestamp>,
}

impl Resource for DirectoryUser {
    const KIND: &'static Kind = &Kind::new(DIRECTORY_USER, "directoryUsers", "DirectoryUsersService", domain::IAM)
        .parent(Parent::Of(IdentityProvider::KIND))
        .methods(&[
            Method::list(&[cap("identity_providers.list")]).params(&[
                Param::exact("userName").about("Only the user with exactly this user name."),
                Param::exact("externalId").about("Only the user with exactly this external identifier."),
            ]),
            Method::get(&[cap("identity_providers.list")]),
        ])
        .columns(&Column::fields(["userName", "displayName", "email", "active"]))
        .fields(&[
            Field::UID,
            Field::string("userName").about("The user name in the directory.").output_only(),
            Field::string("externalId").about("The identifier of the user in the directory.").output_only(),
            Field::string("displayName").about("The display name.").output_only(),
            Field::string("givenName").about("The given name.").output_only(),
            Field::string("familyName").about("The family name.").output_only(),
            Field::string("email").about("The primary email address.").output_only().findable(),
            Field::bool("active").about("Whether the user may sign in.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .keys(&[DerivedKey::new("foldedUserName", |body| vec![folded(body)])])
        .unique(&[
            Unique::new("directoryUser.userName", "A user of this name in the directory", |body| {
                Some(of_provider(body, folded(body).as_bytes()))
            }),
            Unique::new("directoryUser.externalId", "A user of this external id in the directory", |body| {
                let id = text(body, "externalId");
                (!id.is_empty()).then(|| of_provider(body, id.as_bytes()))
            }),
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            user_name: "ada@example.com".to_owned(),
            external_id: "00u1a2b3".to_owned(),
            display_name: "Ada Lovelace".to_owned(),
            given_name: "Ada".to_owned(),
            family_name: "Lovelace".to_owned(),
            email: "ada@example.com".to_owned(),
            active: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn folded(body: &Value) -> KeyValue {
    KeyValue::text(&text(body, "userName").to_lowercase())
}

/// Returns the unique key of a value that is unique within a provider.
fn of_provider(body: &Value, value: &[u8]) -> KeyValue {
    let provider = uid::parent(text(body, "uid")).unwrap_or_default();
    KeyValue::from_bytes([provider.as_bytes(), &[0], value].concat())
}

/// A selection of a directory's users.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryUsers {
    /// All users.
    All,
    /// The user with this name, regardless of case.
    Named(String),
    /// The user with this external id.
    External(String),
}

impl DirectoryUsers {
    /// Returns the query for these users, or `None` if the value is longer than any stored one.
    fn query(&self, provider: &Uid) -> Option<Query> {
        let filter = match self {
            Self::All => None,
            Self::Named(name) => Some(("foldedUserName", name.to_lowercase())),
            Self::External(id) => Some(("externalId", id.clone())),
        };
        if filter.as_ref().is_some_and(|(_, text)| text.len() > MAX_FOLDED) {
            return None;
        }
        let filter = filter.map(|(key, text)| Filter::AnyOf { key, values: vec![KeyValue::text(&text)] });
        let filters = filter.into_iter().collect();
        Some(Query { filters, ..Query::new(DirectoryUser::KIND.name, Scope::Children(provider.clone())) })
    }
}

/// Lists users of a directory in the order of their uids, and returns their total count as well. Skips `skip` users and
/// returns at most `limit` of them, and at most [`PAGE_BYTES`] bytes.
pub(crate) async fn list(
    cx: &Context<'_>,
    provider: &Uid,
    users: &DirectoryUsers,
    skip: u64,
    limit: usize,
) -> Result<(Vec<DirectoryUser>, u64)> {
    // A limit of 0 is allowed here, for the count alone, but not in a query.
    let Some(query) = users.query(provider) else { return Ok((Vec::new(), 0)) };
    let page = cx.page(Query { skip, limit: limit.max(1), bytes: PAGE_BYTES, count: true, ..query }).await?;
    let found = page.items.get(..limit).unwrap_or(&page.items);
    Ok((read(cx, found).await?, page.total.unwrap_or_default()))
}

/// Reads users of a directory in the order of their uids after `after`, at most `limit` of them and at most
/// [`PAGE_BYTES`] bytes. Returns the uid to read on after, or `None` at the end.
pub(crate) async fn scan(
    cx: &Context<'_>,
    provider: &Uid,
    after: Option<Uid>,
    limit: usize,
) -> Result<(Vec<DirectoryUser>, Option<Uid>)> {
    let after = after.map(|uid| Position { value: KeyValue::default(), uid });
    let all = Query::new(DirectoryUser::KIND.name, Scope::Children(provider.clone()));
    let page = cx.page(Query { after, limit, bytes: PAGE_BYTES, ..all }).await?;
    Ok((read(cx, &page.items).await?, page.next.map(|next| next.uid)))
}

async fn read(cx: &Context<'_>, items: &[Item]) -> Result<Vec<DirectoryUser>> {
    let (mut users, mut pace) = (Vec::with_capacity(items.len()), cx.pace());
    for item in items {
        pace.step(item.body.len()).await;
        users.push(serde_json::from_slice(&item.body).map_err(Error::internal)?);
    }
    Ok(users)
}

/// Creates a user, or replaces the user `expected`, given as it was read with its revision.
pub(crate) async fn put(
    cx: &Context<'_>,
    provider: &Uid,
    expected: Option<(DirectoryUser, u64)>,
    mut user: DirectoryUser,
) -> Result<DirectoryUser> {
    let mut write = Write::default();
    let provider_key = Key::new(IdentityProvider::KIND.name, provider.clone());
    write.require_or_fail(Require::Exists(provider_key), Error::not_found(IdentityProvider::KIND, provider.as_str()));
    let now = cx.now();
    let name_before = expected.as_ref().map(|(old, _)| old.user_name.clone());
    match expected {
        None => {
            user.uid = provider.new_child(cx.platform().entropy());
            (user.create_time, user.update_time) = (Some(now), Some(now));
            write.require_or_retry(Require::Absent(Key::new(DirectoryUser::KIND.name, user.uid.clone())));
        }
        Some((old, revision)) => {
            if old.active && (!user.active || user.external_id != old.external_id) {
                keep_owner(cx, provider, &old, &mut write).await?;
            }
            user.uid = old.uid;
            (user.create_time, user.update_time) = (old.create_time, old.update_time.max(Some(now)));
            write.require_or_retry(Require::Revision(Key::new(DirectoryUser::KIND.name, user.uid.clone()), revision));
        }
    }
    check(&user)?;
    // Only a changed name is checked, so that a stored name that violates the rule does not prevent a deactivation.
    if name_before.is_none_or(|name| name != user.user_name) {
        check_name(&user.user_name)?;
    }
    // A user who may no longer sign in may no longer use existing sessions either, as soon as this is acknowledged.
    write.raise(provider_epoch(provider));
    match cx.record(DirectoryUser::KIND, &user.uid).await? {
        Some(record) => write.replace(&record, &user, Bytes::new())?,
        None => write.put(&user.uid.clone(), &user, Bytes::new())?,
    }
    cx.commit(write).await?;
    Ok(user)
}

/// Deletes the user `expected`, given as it was read with its revision, and ends their sessions.
pub(crate) async fn delete(cx: &Context<'_>, provider: &Uid, expected: (DirectoryUser, u64)) -> Result<()> {
    let (user, revision) = expected;
    let key = Key::new(DirectoryUser::KIND.name, user.uid.clone());
    let mut write = Write::default();
    write.require_or_retry(Require::Revision(key.clone(), revision));
    if user.active {
        keep_owner(cx, provider, &user, &mut write).await?;
    }
    write.raise(provider_epoch(provider));
    write.delete(Delete::Key(key));
    cx.commit(write).await.map(drop)
}

/// Requires that the organization of a provider has an owner left when this user can no longer sign in.
async fn keep_owner(cx: &Context<'_>, provider: &Uid, user: &DirectoryUser, write: &mut Write) -> Result<()> {
    match cx.read::<IdentityProvider>(provider).await? {
        Some(provider) => owner::keep_without_user(cx, &provider.admission(), &user.external_id, write).await,
        None => Ok(()),
    }
}

/// The maximum length of a user's string fields in bytes; our choice. Names and ids are index keys, prefixed with the
/// provider's uid.
const MAX_TEXT: usize = 256;

/// The maximum length of a name in lower case in bytes: lower case may take one and a half times as many.
const MAX_FOLDED: usize = MAX_TEXT * 3 / 2;

/// Rejects a name that could be displayed like another user's name although it differs.
fn check_name(name: &str) -> Result<()> {
    let is_invisible = |c: char| c.general_category() == GeneralCategory::Format;
    if name.trim() != name || name.contains(is_invisible) {
        let rule = "must not begin or end with whitespace, and must not contain invisible characters";
        return Err(Error::invalid_field("userName", rule));
    }
    Ok(())
}

fn check(user: &DirectoryUser) -> Result<()> {
    if user.user_name.is_empty() {
        return Err(Error::invalid_field("userName", "is required"));
    }
    for (name, value) in [
        ("userName", &user.user_name),
        ("externalId", &user.external_id),
        ("displayName", &user.display_name),
        ("name.givenName", &user.given_name),
        ("name.familyName", &user.family_name),
        ("emails.value", &user.email),
    ] {
        if value.len() > MAX_TEXT || value.contains(char::is_control) {
            return Err(Error::invalid_field(
                name,
                format!("must have at most {MAX_TEXT} bytes and no control characters"),
            ));
        }
    }
    Ok(())
}
