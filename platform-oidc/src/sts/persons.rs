//! Persons: told who they are, registered, and gone.

use platform_core::{
    access::{GroupCapabilities, Profile, Register, Registration, WhoAmI},
    error::{Error, Result},
    platform::Person,
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{Sts, bad_token, proof::name};

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
            capabilities: held.into_iter().map(|(group, held)| GroupCapabilities::new(group, held)).collect(),
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
        self.platform.register(&person).await?;
        let group = match &request.code {
            Some(code) => self.platform.redeem_invite(person.uid, code.expose()).await?.group.to_string(),
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
        self.platform.unregister(&verified.caller()).await
    }
}

fn profile(claims: &Map<String, Value>) -> Profile {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Profile {
        name: text("name"),
        picture: text("picture"),
        given_name: text("given_name"),
        family_name: text("family_name"),
    }
}
