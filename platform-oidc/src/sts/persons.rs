//! Persons: told who they are, registered, and gone.

use platform_core::{
    error::{Error, Result},
    iam::{Iam, Person},
    tokens::{GroupCapabilities, Profile, Register, Registration, WhoAmI},
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{Sts, bad_token, proof::name};

/// The most bytes of what [`WhoAmI`] tells of groups. Our choice.
const HELD: usize = 1 << 20;

impl Sts {
    /// Tells whom a token stands for and what it allows now.
    pub(super) async fn whom(&self, credential: &str) -> Result<WhoAmI> {
        let verified = self.verifier.verify(credential).await.map_err(bad_token)?;
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
        let held = held.into_iter().map(|(group, held)| GroupCapabilities::new(group, held)).collect();
        let said = match verified.own {
            true => verified.claims.get("upstream").and_then(Value::as_object),
            false => Some(&verified.claims),
        };
        Ok(WhoAmI {
            issuer: verified.issuer.clone(),
            subject: verified.subject.clone(),
            audience: verified.audiences.clone(),
            expiry: verified.expires,
            issued_at: verified.issued,
            capabilities: within(held, HELD),
            email: verified.email.clone().unwrap_or_default(),
            profile: said.map(profile).filter(|profile| *profile != Profile::default()),
        })
    }

    /// Registers the person whom an upstream token names, who then redeems an invite's code, if there is one. A code
    /// that is refused leaves the person registered.
    pub(super) async fn registered(&self, credential: &str, request: &Register) -> Result<Registration> {
        let verified = self.verifier.verify(credential).await.map_err(bad_token)?;
        if verified.own {
            return Err(Error::unauthenticated("A person registers with a token of an issuer that is trusted here"));
        }
        if request.identity.as_ref().is_some_and(|expected| *expected != verified.principal) {
            return Err(Error::invalid_field("identityId", "is not the uid of the person whom the token names"));
        }
        let name = name(&verified.claims);
        let person = Person {
            uid: &verified.principal,
            issuer: &verified.issuer,
            subject: &verified.subject,
            name: name.as_deref(),
            email: verified.email.as_deref(),
            email_unverified: verified.email_unverified.as_deref(),
        };
        Iam::of(&self.platform).register(&person).await?;
        let group = match &request.code {
            Some(code) => Iam::of(&self.platform).redeem_invite(person.uid, code.expose()).await?.group.to_string(),
            None => String::new(),
        };
        Ok(Registration { identity: verified.principal.clone(), group })
    }

    /// Deletes the person who asks.
    pub(super) async fn gone(&self, credential: &str, id: &str) -> Result<()> {
        let verified = self.verifier.verify(credential).await.map_err(bad_token)?;
        let id = Uid::parse(id).map_err(|rule| Error::invalid_field("id", rule.to_string()))?;
        if id != verified.principal {
            return Err(Error::denied());
        }
        Iam::of(&self.platform).unregister(&verified.caller()).await
    }
}

/// Returns as much of what is held at groups as has that many bytes in JSON, in the order of before. The groups that are
/// the fewest levels below an organization are kept, since what is held there is held below.
fn within(mut held: Vec<GroupCapabilities>, most: usize) -> Vec<GroupCapabilities> {
    let names = |held: &GroupCapabilities| held.capabilities.iter().map(|name| name.len() + 3).sum::<usize>();
    let length = |held: &GroupCapabilities| names(held) + held.group.len() + held.role.len() + OVERHEAD;
    held.sort_by_cached_key(|held| (held.group.ancestry().count(), held.group.clone()));
    let (mut bytes, mut kept) = (0_usize, 0);
    while let Some(next) = held.get(kept).filter(|next| bytes.saturating_add(length(next)) <= most) {
        bytes += length(next);
        kept += 1;
    }
    held.truncate(kept);
    held.sort_by(|a, b| a.group.cmp(&b.group));
    held
}

/// The bytes of a group's keys, quotes and brackets in JSON, at most.
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
    fn what_is_told_of_groups_is_bounded_and_the_topmost_are_kept() {
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
        let kept = within(all.iter().cloned().map(held).collect(), 100_000);
        let told = serde_json::to_vec(&kept).unwrap().len();
        assert!((90_000..=100_000).contains(&told), "{told}");
        assert!(kept.is_sorted_by(|a, b| a.group < b.group));
        let levels = |count: usize| kept.iter().filter(|held| held.group.ancestry().count() == count).count();
        assert!(levels(1) == 100 && levels(2) > 50 && levels(3) + levels(4) == 0, "{}", kept.len());
        assert_eq!(within(all.iter().cloned().map(held).collect(), usize::MAX).len(), all.len());
    }
}
