//! What is issued for a proof: narrowed, told and signed.

use std::{collections::HashMap, time::Duration};

use platform_core::{
    access::{CapabilitySet, Grants, Narrowing, RegistrationId},
    error::{Error, Result},
    timestamp::Timestamp,
    tokens::Narrow,
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{ACCESS_TOKEN_TTL, Sts, private, proof::Proof, refused};
use crate::issuer::{AccessToken, IssueError, IssuedToken};

/// A token that was issued, the claim that narrows it, if one does, and the registration that it is for.
pub(super) struct Grant {
    pub(super) token: IssuedToken,
    pub(super) narrowing: Option<Value>,
    pub(super) registration: Option<RegistrationId>,
}

impl Sts {
    /// Issues an access token for what was proved, narrowed as asked and never less than the bearer was.
    pub(super) async fn grant(&self, proof: &Proof, audiences: &[String], narrow: &Narrow) -> Result<Grant> {
        let caller = &proof.caller;
        let grants = self.platform.current_grants(caller).await?;
        let base = caller.narrowing.as_deref();
        let asked = base.is_some() || !narrow.scopes.is_empty() || narrow.capabilities.is_some();
        let cap = private::cap(&held(&grants, base, narrow));
        let narrowing = match (asked, &cap) {
            (true, None) => return narrow.too_large(),
            (true, Some(cap)) => Some(cap.clone()),
            (false, _) => None,
        };
        let mut claims = Map::from_iter([("act".to_owned(), proof.act.clone())]);
        claims.extend(proof.about.clone());
        let told = !asked && cap.is_some();
        claims.extend(cap.map(|cap| ("cap".to_owned(), cap)));
        let registration = grants.registration();
        let internal = private::internal(told, caller.session.as_deref(), registration);
        claims.extend(internal.map(|said| ("internal".to_owned(), said)));

        let left = |until: Timestamp| until.seconds() - self.clock.now().seconds();
        let most = proof.until.map_or(i64::MAX, left);
        let ttl = ACCESS_TOKEN_TTL.min(Duration::from_secs(u64::try_from(most).unwrap_or_default()));
        if ttl.is_zero() {
            return Err(refused());
        }
        let audiences: Vec<&str> = audiences.iter().map(String::as_str).collect();
        let request = AccessToken { subject: &caller.identity, audiences: &audiences, ttl, claims };
        self.count_operation();
        let token = self.issuer.access_token(&request).map_err(|error| match error {
            IssueError::Audience => Error::invalid_field("aud", "must not be `customer`, which is for webhooks"),
            IssueError::TooLong => Error::invalid_field("aud", "makes the token too long, with what it must say"),
            other => Error::internal(other),
        })?;
        Ok(Grant { token, narrowing, registration })
    }
}

/// Returns what a token holds at each group that it names: at those that are asked for or at all that something is
/// bound at, what is bound there or above, as far as no group further up that is named has it. None of it is more
/// than `base` allows.
fn held(grants: &Grants, base: Option<&Narrowing>, narrow: &Narrow) -> Vec<(Uid, CapabilitySet)> {
    let mut groups: Vec<Uid> = match narrow.scopes.as_slice() {
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
    let at = |group: &Uid| {
        let mut all = CapabilitySet::EMPTY;
        for (step, above) in group.ancestry().enumerate() {
            if step > 0 && groups.iter().any(|group| **group == *above) {
                break;
            }
            all = all.union(bound.get(above).copied().unwrap_or_default());
        }
        let all = base.map_or(all, |base| {
            // What is bound further up counts here as far as the bearer's own token names this group.
            let named = base.groups().any(|named| named == group);
            let reach = if named { grants.at(group) } else { all };
            reach.intersection(base.at(group))
        });
        narrow.capabilities.map_or(all, |only| all.intersection(only))
    };
    let held = groups.iter().map(|group| (group.clone(), at(group)));
    held.filter(|(_, held)| !held.is_empty()).collect()
}
