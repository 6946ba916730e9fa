//! The rule that callers can only give capabilities that they hold themselves, for every way of giving (`docs/api.md`,
//! Giving power).
//!
//! A write gives power if after it another identity holds more capabilities, or a caller may act as an identity that it
//! could not act as before. Fields and actions that can do so are marked in their kind's table
//! ([`Field::privileged`](platform_engine::kind::Field::privileged)); the kind's `prepare` then calls one of these functions.
//! Each decides by the capabilities that the caller holds with the token of the request, so that a narrowed token
//! cannot give more than it allows, and makes the commit require that the resources it read are unchanged.

use platform_engine::{
    access::{Caller, CapabilitySet},
    context::Context,
    error::{Code, Error, Result},
    kind::Resource,
    store::{Key, Require},
    uid::Uid,
    write::Write,
};

use crate::resources::iam::{Role, role};

/// Rejects giving capabilities at a group that the caller does not hold there.
///
/// Only the operator can give internal capabilities; owners of groups never need them.
///
/// # Errors
/// INVALID_ARGUMENT for an internal capability, PERMISSION_DENIED otherwise.
pub(crate) fn may_give(cx: &Context<'_>, group: &str, given: CapabilitySet, field: &str) -> Result<()> {
    if !given.intersection(internal(cx)).is_empty() && !cx.is_operator() {
        return Err(Error::invalid_field(field, "must not have capabilities that are internal to the installation"));
    }
    if can_give(cx, group, given) {
        return Ok(());
    }
    Err(cx.denied(group, cx.platform().capabilities().in_set(given)))
}

/// Rejects giving a role at a group where the role is not available, or where the caller does not hold all of its
/// capabilities. Makes the commit require that the role still exists.
///
/// A concurrent change of the role raises an epoch that every commit requires, so the check is repeated in that case.
///
/// # Errors
/// INVALID_ARGUMENT on `field`, and as [`may_give`].
pub(crate) async fn may_give_role(
    cx: &Context<'_>,
    group: &Uid,
    role: &Uid,
    field: &'static str,
    write: &mut Write,
) -> Result<()> {
    let missing = || Error::invalid_field(field, role::NOT_AVAILABLE);
    let found = role::of_group(cx, group, role).await?.ok_or_else(missing)?;
    write.require_or_fail(Require::Exists(Key::new(Role::KIND.name, found.uid)), missing());
    may_give(cx, group, cx.platform().capabilities().set_of(&found.capabilities), field)
}

/// Rejects letting another caller act as an identity that holds capabilities which this caller does not hold, at any
/// group that the identity can reach.
///
/// A concurrent binding of the identity raises an epoch that the commit requires, so the check is repeated in that
/// case.
///
/// # Errors
/// PERMISSION_DENIED.
pub(crate) async fn may_give_identity(cx: &Context<'_>, identity: &Uid, write: &mut Write) -> Result<()> {
    let platform = cx.platform();
    let grants = platform.read_grants(&Caller::new(identity.clone())).await;
    let grants = grants.map_err(|error| match error.code() {
        // The identity was deleted after it was read: retry.
        Code::Unauthenticated => Error::stale(),
        _ => error,
    })?;
    let as_of = grants.as_of_all();
    for (epoch, value) in as_of.iter() {
        write.require_or_retry(Require::Epoch(epoch.clone(), value));
    }
    let holds_all = grants.bound().all(|(group, held)| can_give(cx, group, held));
    if holds_all && (!grants.is_operator() || cx.is_operator()) { Ok(()) } else { Err(Error::denied()) }
}

/// Returns whether the caller can give all of these capabilities at a group. The operator can give every internal
/// capability, and those that owners do not hold, which nobody could give otherwise. Other callers can give no internal
/// capability.
fn can_give(cx: &Context<'_>, group: &str, given: CapabilitySet) -> bool {
    let held = cx.held_at(group);
    let held = if cx.is_operator() { held.union(not_of_owners(cx)) } else { held.difference(internal(cx)) };
    held.is_superset(&given)
}

fn not_of_owners(cx: &Context<'_>) -> CapabilitySet {
    let known = cx.platform().capabilities();
    let owners = role::built_in_capabilities(known, &role::owner_uid()).unwrap_or_default();
    known.iter().collect::<CapabilitySet>().difference(owners)
}

fn internal(cx: &Context<'_>) -> CapabilitySet {
    cx.platform().capabilities().iter().filter(|capability| capability.is_internal()).collect()
}
