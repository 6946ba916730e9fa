//! Issues the access token for a proof: narrows and signs it.

use std::{collections::HashMap, time::Duration};

use platform_core::tokens::Narrow;
use platform_engine::{
    access::{CapabilitySet, Grants, Narrowing, RegistrationId},
    error::{Error, Result},
    timestamp::Timestamp,
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{
    ACCESS_TOKEN_TTL, Sts, not_authorized,
    private::{self, Internal},
    proof::Proof,
};
use crate::issuer::{AccessToken, IssueError, IssuedToken};

/// An issued token, the `cap` claim that narrows it, if any, the registration that it was issued for, and the number of
/// revocations before it.
pub(super) struct Grant {
    pub(super) token: IssuedToken,
    pub(super) narrowing: Option<Value>,
    pub(super) registration: Option<RegistrationId>,
    pub(super) generation: u64,
    /// When the first token was issued that the token was exchanged for, in seconds, if that was before.
    pub(super) since: Option<i64>,
}

impl Sts {
    /// Issues an access token for a proof, narrowed as requested and at least as far as the bearer already is.
    pub(super) async fn grant(&self, proof: &Proof, audiences: &[String], narrow: &Narrow) -> Result<Grant> {
        let caller = &proof.caller;
        let only = narrow.capability_set(self.platform.capabilities())?;
        let grants = self.platform.current_grants(caller).await?;
        let base = caller.narrowing.as_deref();
        let is_narrowed = base.is_some() || !narrow.scopes.is_empty() || only.is_some();
        let cap = private::encode_cap(&capabilities_by_group(&grants, base, &narrow.scopes, only));
        let narrowing = match (is_narrowed, &cap) {
            (true, None) => return narrow.too_large(),
            (true, Some(cap)) => Some(cap.clone()),
            (false, _) => None,
        };
        let mut claims = Map::from_iter([("act".to_owned(), proof.act.clone())]);
        claims.extend(proof.profile.clone());
        // The `cap` of a token that is not narrowed is informational: the current grants apply.
        let cap_is_live = !is_narrowed && cap.is_some();
        claims.extend(cap.map(|cap| ("cap".to_owned(), cap)));
        let (registration, generation) = (grants.registration(), grants.revocations().generation());
        // The token counts as issued when the first one was that it is exchanged for. The issuer's clock may be ahead.
        let since = caller.credential.as_ref().map(|credential| credential.issued.seconds());
        let since = since.filter(|since| (0..self.clock.now().seconds()).contains(since));
        let session = caller.session.as_deref();
        let internal = Internal { cap_is_live, session, registration, since, generation }.encode();
        claims.extend(internal.map(|claim| ("internal".to_owned(), claim)));

        let seconds_left = |expires: Timestamp| expires.seconds() - self.clock.now().seconds();
        let max_ttl = proof.expires.map_or(i64::MAX, seconds_left);
        let ttl = ACCESS_TOKEN_TTL.min(Duration::from_secs(u64::try_from(max_ttl).unwrap_or_default()));
        if ttl.is_zero() {
            return Err(not_authorized());
        }
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        let mut request = AccessToken { subject: &caller.identity, audiences: &audiences, ttl, claims };
        self.count_operation();
        let mut issued = self.issuer.access_token(&request);
        // Many groups of a sign-in leave no room for a claim that is informational.
        if cap_is_live && matches!(issued, Err(IssueError::TooLong)) {
            request.claims.shift_remove("cap");
            issued = self.issuer.access_token(&request);
        }
        let token = issued.map_err(|error| match error {
            IssueError::Audience => {
                Error::invalid_field("aud", "must not be `customer`, which is reserved for webhooks")
            }
            IssueError::TooLong => Error::invalid_field(
                "aud",
                "must be shorter, or the person must have fewer external groups: the token would exceed 16 KiB",
            ),
            other => Error::internal(other),
        })?;
        Ok(Grant { token, narrowing, registration, generation, since })
    }
}

/// Returns the capabilities of a token at each group that it names: the requested scopes, or all groups with a role
/// binding. A group has the capabilities that are bound at it and at its ancestors, up to the nearest ancestor that is
/// named too. All of them are limited by `base`, the bearer's own narrowing, and by `only`.
fn capabilities_by_group(
    grants: &Grants,
    base: Option<&Narrowing>,
    scopes: &[Uid],
    only: Option<CapabilitySet>,
) -> Vec<(Uid, CapabilitySet)> {
    let mut groups: Vec<Uid> = match scopes {
        [] => grants
            .bound()
            .map(|(group, _)| group.clone())
            .chain(base.into_iter().flat_map(|base| base.groups().cloned()))
            .collect(),
        scopes => scopes.to_vec(),
    };
    groups.sort();
    groups.dedup();
    let bound: HashMap<&str, CapabilitySet> = grants.bound().map(|(group, held)| (group.as_str(), held)).collect();
    let held_at = |group: &Uid| {
        let mut all = CapabilitySet::EMPTY;
        for (step, above) in group.ancestry().enumerate() {
            if step > 0 && groups.iter().any(|group| **group == *above) {
                break;
            }
            all = all.union(bound.get(above).copied().unwrap_or_default());
        }
        let all = base.map_or(all, |base| {
            // Where the bearer's own token names this group, the bindings at all of its ancestors count.
            let named = base.groups().any(|named| named == group);
            let reach = if named { grants.at(group) } else { all };
            reach.intersection(base.at(group))
        });
        only.map_or(all, |only| all.intersection(only))
    };
    let held = groups.iter().map(|group| (group.clone(), held_at(group)));
    held.filter(|(_, held)| !held.is_empty()).collect()
}
