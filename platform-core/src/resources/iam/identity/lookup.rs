//! Finds identities by the tokens that assume them.

use platform_engine::{
    context::Context,
    error::Result,
    kind::{DerivedKey, Resource},
    store::{Filter, KeyValue, Query, Scope},
    uid::Uid,
};
use serde_json::Value;

use super::{super::names::ROLE_BINDING, Identity, LIST, person_uid};
use crate::capabilities::cap;

impl Identity {
    /// Returns the registered person, or otherwise the first identity by uid, whose tokens have exactly this issuer and
    /// subject, of those that the caller may know: identities in groups where the caller may list identities, and
    /// persons who have a role in a group where the caller may list role bindings. The operator may know
    /// all persons, and each person themselves.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn of_claims(cx: &Context<'_>, issuer: &str, subject: &str) -> Result<Option<Self>> {
        let uid = person_uid(issuer, subject);
        if let Some(person) = cx.read::<Self>(&uid).await?
            && knows(cx, &uid).await?
        {
            return Ok(Some(person));
        }
        let with_claims = Filter::AnyOf { key: "claims", values: vec![KeyValue::text(&uid)] };
        let mut query = Query { filters: vec![with_claims], limit: 1, ..Query::new(Self::KIND.name, Scope::All) };
        query.scopes = cx.nodes(LIST).scopes().into_vec();
        Ok(cx.find::<Self>(query).await?.pop())
    }
}

/// Returns whether the caller may know a person.
async fn knows(cx: &Context<'_>, person: &Uid) -> Result<bool> {
    if cx.is_operator() || cx.own_root(LIST) == Some(person) {
        return Ok(true);
    }
    let bound = Filter::AnyOf { key: "identityUid", values: vec![KeyValue::text(person)] };
    let mut query = Query { filters: vec![bound], limit: 1, ..Query::new(ROLE_BINDING, Scope::All) };
    query.scopes = cx.nodes(&[cap("role_bindings.list")]).scopes().into_vec();
    Ok(!cx.page(query).await?.items.is_empty())
}

/// The key of identities by the issuer and the subject of their tokens.
pub(super) const CLAIMS: DerivedKey = DerivedKey::new("claims", claims);

/// Returns the uid that a person with the identity's issuer and subject would have, as a key for both.
fn claims(body: &Value) -> Vec<KeyValue> {
    let of = |form: &str| {
        let text = |name: &str| body.get(form)?.get(name)?.as_str();
        Some(KeyValue::text(&person_uid(text("issuer")?, text("subject")?)))
    };
    ["claimMatch", "staticKeys"].into_iter().filter_map(of).collect()
}
