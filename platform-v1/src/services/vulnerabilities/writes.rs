//! Writes of advisories by callers (`docs/api.md`, Advisories). Version 2 has no methods for them.
//!
//! A write keeps the fields that only imports set: the origin, the namespace and the legacy id.

use platform_core::{
    capabilities::cap,
    resources::{
        iam::Identity,
        vulnerabilities::{
            Advisory, AdvisoryEvent,
            advisory::{ReviewState, event, rating},
        },
    },
};
use platform_engine::{
    access::Capability,
    context::Context,
    entropy::Entropy,
    error::{Code, Error, Result, Violations},
    kind::{Imported, Resource},
    store::Record,
    timestamp::Timestamp,
    uid::Uid,
};

/// The capability that a caller needs at an advisory to set the result of a review.
const APPROVE: &[Capability] = &[cap("advisories.approve")];

/// The letters of an advisory's id, which has no vowels and no letters that look like digits.
const LETTERS: &[u8] = b"23456789cfghjmpqrvwx";

/// Creates an advisory with its events, and returns it as it is stored. The caller's capability to create it is not
/// checked.
///
/// # Errors
/// INVALID_ARGUMENT with each rule that it breaks, PERMISSION_DENIED for events that are reviewed already if the
/// caller may not approve, NOT_FOUND for a missing group.
pub(super) async fn create(cx: &Context<'_>, group: &Uid, mut advisory: Advisory) -> Result<Advisory> {
    let mut violations = Violations::default();
    // Events lie two levels below the group.
    if group.ancestry().count() + 1 >= Uid::MAX_SEGMENTS {
        violations.add("parent", format!("must lie less than {} levels deep", Uid::MAX_SEGMENTS - 1));
    }
    if advisory.artifact_name.is_empty() {
        violations.add("artifactName", "is required");
    }
    for (at, event) in advisory.events.iter().enumerate() {
        check(event, None, &format!("events[{at}]."), &mut violations);
    }
    violations.none_or(())?;
    advisory.advisory_id = new_id(cx.platform().entropy());
    let uid = advisory.uid_in(group);
    for event in &mut advisory.events {
        begin(cx, &uid, event)?;
    }
    if advisory.author.is_empty() {
        advisory.author = caller_name(cx)?;
    }
    let now = cx.now();
    (advisory.create_time, advisory.update_time) = (Some(now), Some(now));
    advisory.origin.clone_from(&advisory.artifact_name);
    advisory.uid = uid.clone();
    let unchanged = rating::complete(cx, &mut advisory).await?;
    let mut write = cx.write_imported(&advisory, &uid, None)?;
    write.require_or_retry(unchanged);
    cx.commit(write).await?;
    Ok(advisory)
}

/// Replaces an advisory except for its events, and returns it as it is stored. The artifact's name cannot change,
/// because the uid is derived from it; an empty author is not changed.
///
/// # Errors
/// NOT_FOUND, INVALID_ARGUMENT with each rule that it breaks, PERMISSION_DENIED if an approved event would apply to
/// another vulnerability or artifact and the caller may not approve.
pub(super) async fn replace(cx: &Context<'_>, uid: &Uid, advisory: Advisory) -> Result<Advisory> {
    let (record, old) = live(cx, uid).await?;
    if advisory.artifact_name != old.artifact_name {
        return Err(Error::invalid_field("artifactName", "is immutable"));
    }
    let author = Some(advisory.author).filter(|author| !author.is_empty());
    let new = Advisory {
        author: author.unwrap_or_else(|| old.author.clone()),
        artifact_type: advisory.artifact_type,
        artifact_architecture: advisory.artifact_architecture,
        component_name: advisory.component_name,
        component_location: advisory.component_location,
        component_type: advisory.component_type,
        aliases: advisory.aliases,
        ..old.clone()
    };
    // An approved event is a statement about these.
    let subject = |one: &Advisory| (one.aliases.clone(), one.artifact_type.clone(), one.artifact_architecture.clone());
    if old.events.iter().any(AdvisoryEvent::is_approved) && subject(&new) != subject(&old) {
        cx.demand(uid, APPROVE)?;
    }
    if new == old { Ok(old) } else { store(cx, new, &record).await }
}

/// Withdraws an advisory: lists hide it from then on.
///
/// # Errors
/// NOT_FOUND, for a withdrawn one too.
pub(super) async fn withdraw(cx: &Context<'_>, uid: &Uid) -> Result<()> {
    let (record, advisory) = live(cx, uid).await?;
    store(cx, Advisory { delete_time: Some(cx.now()), ..advisory }, &record).await.map(drop)
}

/// Appends an event to an advisory, and returns it as it is stored.
///
/// # Errors
/// NOT_FOUND, INVALID_ARGUMENT with each rule that the event breaks, PERMISSION_DENIED if it is reviewed already
/// and the caller may not approve, FAILED_PRECONDITION when the advisory has as many events as it can have.
pub(super) async fn add_event(cx: &Context<'_>, uid: &Uid, mut event: AdvisoryEvent) -> Result<AdvisoryEvent> {
    let (record, mut advisory) = live(cx, uid).await?;
    check_event(&event, None)?;
    if advisory.events.len() >= event::MAX_EVENTS {
        let why = format!("an advisory can have at most {} events", event::MAX_EVENTS);
        return Err(Error::blocked("TOO_MANY_EVENTS", why));
    }
    begin(cx, uid, &mut event)?;
    advisory.events.push(event.clone());
    store(cx, advisory, &record).await?;
    Ok(event)
}

/// Replaces an event until it is approved or rejected, and returns it as it is stored. Its time does not change; an
/// empty author is not changed.
///
/// # Errors
/// NOT_FOUND, INVALID_ARGUMENT with each rule that the event breaks, PERMISSION_DENIED if it sets the result of a
/// review and the caller may not approve, FAILED_PRECONDITION when the event is approved or rejected.
pub(super) async fn replace_event(cx: &Context<'_>, uid: &Uid, mut event: AdvisoryEvent) -> Result<AdvisoryEvent> {
    let missing = || Error::not_found(Advisory::KIND, uid.as_str());
    let found = live(cx, &uid.parent().ok_or_else(missing)?).await;
    let (record, mut advisory) =
        found.map_err(|error| if error.code() == Code::NotFound { missing() } else { error })?;
    let old = advisory.events.iter_mut().find(|old| old.uid == *uid).ok_or_else(missing)?;
    check_event(&event, Some(old))?;
    event.uid = uid.clone();
    event.create_time = old.create_time;
    if event.author.is_empty() {
        event.author.clone_from(&old.author);
    }
    if event == *old {
        return Ok(event);
    }
    if matches!(old.review_state, ReviewState::ReviewStateApproved | ReviewState::ReviewStateRejected) {
        return Err(Error::blocked("EVENT_REVIEWED", "an approved or rejected event cannot be changed"));
    }
    review(cx, &record.key.uid, old.review_state, &mut event)?;
    *old = event.clone();
    store(cx, advisory, &record).await?;
    Ok(event)
}

/// Returns the events of an advisory, or the event with this uid; none for one that does not exist.
///
/// # Errors
/// Those of the store.
pub(super) async fn events_of(cx: &Context<'_>, uid: &Uid) -> Result<Vec<AdvisoryEvent>> {
    let advisories = [Some(uid.clone()), uid.parent()].into_iter().flatten();
    let advisories = cx.read_all::<Advisory>(advisories).await?.into_iter().flatten();
    let events = advisories.filter(|one| one.delete_time.is_none()).flat_map(|one| one.events);
    Ok(events.filter(|event| event.uid == *uid || event.uid.parent().as_ref() == Some(uid)).collect())
}

/// Commits a change to a stored advisory.
async fn store(cx: &Context<'_>, mut advisory: Advisory, stored: &Record) -> Result<Advisory> {
    let before = advisory.update_time.unwrap_or(Timestamp::MIN);
    advisory.update_time = Some(cx.now().max(before));
    let unchanged = rating::complete(cx, &mut advisory).await?;
    let mut write = cx.write_imported(&advisory, &stored.key.uid, Some(stored))?;
    write.require_or_retry(unchanged);
    cx.commit(write).await?;
    Ok(advisory)
}

/// Reads an advisory that is not withdrawn.
async fn live(cx: &Context<'_>, uid: &Uid) -> Result<(Record, Advisory)> {
    let missing = || Error::not_found(Advisory::KIND, uid.as_str());
    let record = cx.record(Advisory::KIND, uid).await?.ok_or_else(missing)?;
    let advisory: Advisory = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    if advisory.delete_time.is_some() { Err(missing()) } else { Ok((record, advisory)) }
}

fn check_event(event: &AdvisoryEvent, old: Option<&AdvisoryEvent>) -> Result<()> {
    let mut violations = Violations::default();
    check(event, old, "", &mut violations);
    violations.none_or(())
}

/// Checks an event of a request. A new event may leave out the review state.
fn check(event: &AdvisoryEvent, old: Option<&AdvisoryEvent>, prefix: &str, violations: &mut Violations) {
    if event.types() != 1 {
        violations.add(format!("{prefix}type"), "must be exactly one type of event");
    }
    if old.is_some() && event.review_state == ReviewState::ReviewStateUnspecified {
        violations.add(format!("{prefix}reviewState"), "is required");
    }
}

/// Completes a new event.
fn begin(cx: &Context<'_>, advisory: &Uid, event: &mut AdvisoryEvent) -> Result<()> {
    event.uid = advisory.new_child(cx.platform().entropy());
    event.create_time = Some(cx.now());
    if event.author.is_empty() {
        event.author = caller_name(cx)?;
    }
    if event.review_state == ReviewState::ReviewStateUnspecified {
        event.review_state = ReviewState::ReviewStatePending;
    }
    review(cx, advisory, ReviewState::ReviewStatePending, event)
}

/// Checks that the caller may set the result of a review, if the event has another one than before. Clears the reviewer
/// of a pending event if the caller may not approve, so that nobody names the reviewer in advance.
fn review(cx: &Context<'_>, advisory: &Uid, before: ReviewState, event: &mut AdvisoryEvent) -> Result<()> {
    if event.review_state == ReviewState::ReviewStatePending && !cx.allows(advisory, APPROVE) {
        event.reviewer.clear();
    }
    if event.review_state == before || event.review_state == ReviewState::ReviewStatePending {
        return Ok(());
    }
    cx.demand(advisory, APPROVE)?;
    if event.reviewer.is_empty() {
        event.reviewer = caller_name(cx)?;
    }
    Ok(())
}

/// Returns the verified email address of the caller, or the uid of the identity.
fn caller_name(cx: &Context<'_>) -> Result<String> {
    let email = cx.grants().record().map(|identity: &Identity| identity.email.clone());
    let email = email.filter(|email| !email.is_empty());
    Ok(match email {
        Some(email) => email,
        None => cx.demand_caller()?.identity.to_string(),
    })
}

/// Returns a new public id, such as `CGA-3gfc-9462-mc8m`, of 51 random bits.
fn new_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    let mut rest = u64::from_be_bytes(bytes);
    let mut id = "CGA".to_owned();
    for at in 0..12 {
        if at % 4 == 0 {
            id.push('-');
        }
        let letter = usize::try_from(rest % 20).ok().and_then(|letter| LETTERS.get(letter));
        id.push(char::from(*letter.unwrap_or(&b'2')));
        rest /= 20;
    }
    id
}
