//! The rule that nobody gives away what they do not hold, once for every way of giving (`docs/api.md`, Giving power).
//!
//! A write gives power when somebody holds more after it, or may act as an identity that they could not act as before.
//! Fields and actions that can do so say it in their kind's table ([`Field::gives`](crate::kind::Field::gives)); the
//! kind's `prepare` then calls one of these functions. Each decides by what the caller holds with the token of the
//! request, so that a narrowed token gives no more than it allows, and makes the commit require that what was read has
//! not changed.

use crate::{
    access::{Caller, Capability, CapabilitySet},
    context::Context,
    error::{Code, Error, Result},
    kind::Resource,
    resources::iam::{Role, role},
    store::{Key, Require},
    uid::Uid,
    write::Write,
};

/// Refuses a caller who would give away, at a group, what they do not hold there themselves.
///
/// Only the operator gives internal capabilities; they give nothing that an owner of a group needs.
///
/// # Errors
/// INVALID_ARGUMENT for an internal capability, PERMISSION_DENIED otherwise.
pub(crate) fn may_give(cx: &Context<'_>, group: &str, given: CapabilitySet, field: &str) -> Result<()> {
    if !given.intersection(internal()).is_empty() && !cx.is_operator() {
        return Err(Error::invalid_field(field, "must not have capabilities that are internal to the installation"));
    }
    if holds(cx, group, given) { Ok(()) } else { Err(Error::denied()) }
}

/// Refuses to give a role at a group where it cannot be given, or that has what the caller does not hold there; and
/// requires that the role still exists when it is given.
///
/// A role that is changed in between raises an epoch that every commit requires, so that the decision is made again.
///
/// # Errors
/// INVALID_ARGUMENT on `field`, and as [`may_give`].
pub(crate) async fn may_give_role(
    cx: &Context<'_>,
    group: &Uid,
    role: &str,
    field: &'static str,
    write: &mut Write,
) -> Result<()> {
    let missing = || Error::invalid_field(field, "is no role of this group or one above it");
    let found = role::of_group(cx, group, &Uid::opaque(role)).await?.ok_or_else(missing)?;
    write.require_or_fail(Require::Exists(Key::new(Role::KIND.name, found.uid)), missing());
    may_give(cx, group, found.capabilities.into_iter().collect(), field)
}

/// Refuses a caller who would let somebody else act as an identity that holds what the caller does not hold, at any
/// group that something is bound at, cut to the identity's reach.
///
/// A binding that is made in between raises an epoch that the commit requires, so that the decision is made again.
///
/// # Errors
/// PERMISSION_DENIED.
pub(crate) async fn may_give_identity(cx: &Context<'_>, identity: &Uid, write: &mut Write) -> Result<()> {
    let platform = cx.platform();
    let grants = platform.read_grants(&Caller::new(identity.clone())).await;
    let grants = grants.map_err(|error| match error.code() {
        // It was deleted after it was read: the decision is made again.
        Code::Unauthenticated => Error::stale(),
        _ => error,
    })?;
    let as_of = grants.as_of_all();
    for (epoch, value) in as_of.iter() {
        write.require_or_retry(Require::Epoch(epoch.clone(), value));
    }
    let holds_all = grants.bound().all(|(group, held)| holds(cx, group, held));
    if holds_all && (!grants.is_operator() || cx.is_operator()) { Ok(()) } else { Err(Error::denied()) }
}

/// Returns whether the caller holds all of these at a group. The operator has all internal capabilities to give, and
/// nobody else has any.
fn holds(cx: &Context<'_>, group: &str, given: CapabilitySet) -> bool {
    let held = cx.held_at(group);
    let held = if cx.is_operator() { held.union(internal()) } else { held.difference(internal()) };
    held.is_superset(&given)
}

fn internal() -> CapabilitySet {
    Capability::all().filter(|capability| capability.is_internal()).collect()
}
