//! Persons: describing the caller, registration, and deletion.

use platform_core::{
    iam::{Iam, Person},
    tokens::{GroupCapabilities, Profile, Register, Registration, WhoAmI},
};
use platform_engine::{
    error::{Error, Result},
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{Sts, proof::name, token_error};

/// The maximum size of the capabilities in [`WhoAmI`], in bytes of JSON. Our choice.
const MAX_CAPABILITIES_BYTES: usize = 1 << 20;

impl Sts {
    /// Returns the identity that a token authenticates and its current capabilities.
    pub(super) async fn describe_caller(&self, credential: &str) -> Result<WhoAmI> {
        let verified = self.verifier.verify(credential).await.map_err(token_error)?;
        let caller = verified.caller();
        let grants = self.platform.current_grants(&caller).await?;
        let mut held: Vec<(Uid, _)> = match &caller.narrowing {
            None => grants.bound().map(|(group, held)| (group.clone(), held)).collect(),
            Some(narrowing) => {
                let groups = grants.bound().map(|(group, _)| group).chain(narrowing.groups());
                groups.map(|group| (group.clone(), grants.at(group).intersection(narrowing.at(group)))).collect()
            }
        };
        held.sort_by(|(a, _), (b, _)| a.cmp(b));
        held.dedup_by(|(a, _), (b, _)| a == b);
        held.retain(|(_, held)| !held.is_empty());
        let known = self.platform.capabilities();
        let held = held.into_iter().map(|(group, held)| GroupCapabilities::new(known, group, held)).collect();
        let upstream = if verified.own {
            verified.claims.get("upstream").and_then(Value::as_object)
        } else {
            Some(&verified.claims)
        };
        Ok(WhoAmI {
            issuer: verified.issuer.clone(),
            subject: verified.subject.clone(),
            audience: verified.audiences.clone(),
            expiry: verified.expires,
            issued_at: verified.issued,
            capabilities: truncate(held, MAX_CAPABILITIES_BYTES),
            email: verified.email.clone().unwrap_or_default(),
            profile: upstream.map(profile).filter(|profile| *profile != Profile::default()),
        })
    }

    /// Registers the person identified by an upstream token, and then redeems the invite code, if there is one. If the
    /// code is rejected, the person stays registered.
    pub(super) async fn register_person(&self, credential: &str, request: &Register) -> Result<Registration> {
        let verified = self.verifier.verify(credential).await.map_err(token_error)?;
        if verified.own {
            return Err(Error::unauthenticated("Registration requires a token of a trusted issuer"));
        }
        if request.identity.as_ref().is_some_and(|expected| *expected != verified.principal) {
            return Err(Error::invalid_field("identityId", "must be the uid of the person identified by the token"));
        }
        let name = name(&verified.claims);
        let person = Person {
            uid: &verified.principal,
            issuer: &verified.issuer,
            subject: &verified.subject,
            name: name.as_deref(),
            email: verified.email.as_deref(),
            email_unverified: verified.email_unverified.as_deref(),
            credential: Some(&verified.credential),
        };
        Iam::of(&self.platform).register(&person).await?;
        let group = match &request.code {
            Some(code) => {
                let iam = Iam::of(&self.platform);
                iam.redeem_invite_by(person.uid, person.credential, code.expose()).await?.group.to_string()
            }
            None => String::new(),
        };
        Ok(Registration { identity: verified.principal.clone(), group })
    }

    /// Deletes the calling person.
    pub(super) async fn delete_person(&self, credential: &str, id: &str) -> Result<()> {
        let verified = self.verifier.verify(credential).await.map_err(token_error)?;
        let id = Uid::parse(id).map_err(|rule| Error::invalid_field("id", rule.to_string()))?;
        if id != verified.principal {
            return Err(Error::denied());
        }
        Iam::of(&self.platform).unregister(&verified.caller()).await
    }
}

/// Returns the capabilities of as many groups as fit into `max_bytes` of JSON, sorted by group. Prefers groups with the
/// fewest ancestors, since capabilities are inherited by descendants.
fn truncate(mut held: Vec<GroupCapabilities>, max_bytes: usize) -> Vec<GroupCapabilities> {
    let names_length = |held: &GroupCapabilities| held.capabilities.iter().map(|name| name.len() + 3).sum::<usize>();
    let length = |held: &GroupCapabilities| names_length(held) + held.group.len() + held.role.len() + OVERHEAD;
    held.sort_by_cached_key(|held| (held.group.ancestry().count(), held.group.clone()));
    let (mut bytes, mut count) = (0_usize, 0);
    while let Some(next) = held.get(count).filter(|next| bytes.saturating_add(length(next)) <= max_bytes) {
        bytes += length(next);
        count += 1;
    }
    held.truncate(count);
    held.sort_by(|a, b| a.group.cmp(&b.group));
    held
}

/// The maximum size of a group's keys, quotes and brackets in JSON, in bytes.
const OVERHEAD: usize = 48;

fn profile(claims: &Map<String, Value>) -> Profile {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Profile {
        name: text("name"),
        picture: text("picture"),
        given_name: text("given_name"),
        family_name: text("family_name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_truncated_to_the_groups_with_the_fewest_ancestors() {
        let uid = |organization: usize, levels: usize| {
            Uid::opaque(format!("{organization:040}{}", "/0123456789abcdef".repeat(levels)))
        };
        let held = |uid: Uid| GroupCapabilities {
            group: uid,
            role: String::new(),
            capabilities: vec!["CAP_IAM_ROLES_LIST"; 20],
        };
        let all: Vec<_> =
            (0..100).flat_map(|organization| (0..4).map(move |levels| uid(organization, levels))).collect();
        let truncated = truncate(all.iter().cloned().map(held).collect(), 100_000);
        let length = serde_json::to_vec(&truncated).unwrap().len();
        assert!((90_000..=100_000).contains(&length), "{length}");
        assert!(truncated.is_sorted_by(|a, b| a.group < b.group));
        let levels = |count: usize| truncated.iter().filter(|held| held.group.ancestry().count() == count).count();
        assert!(levels(1) == 100 && levels(2) > 50 && levels(3) + levels(4) == 0, "{}", truncated.len());
        assert_eq!(truncate(all.iter().cloned().map(held).collect(), usize::MAX).len(), all.len());
    }
}
