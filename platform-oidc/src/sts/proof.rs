//! Whom an upstream token lets its bearer act as.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::{
    access::{Caller, Session},
    error::{Code, Error, Result},
    iam::{Iam, Person},
    kind::Resource,
    resources::iam::{
        CorrelationRule, DirectoryUsers, Identity, IdentityProvider, Oidc, StaticKeys, normalize_issuer,
        provider_person_uid,
    },
    timestamp::Timestamp,
    tokens::Exchange,
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::{Sts, bad_token, matching, not_proved, refused};
use crate::{claims::Claims, jwks::KeySet, jws::Jws, key::VerifyingKey, verifier::check_kind};

/// The most external groups of a sign-in, and the most bytes of all of them; our choice.
const MAX_GROUPS: usize = 500;
const MAX_GROUP_BYTES: usize = 6 * 1024;

/// What an upstream token has proved.
#[derive(Debug)]
pub(super) struct Proof {
    /// Whom to act as.
    pub(super) caller: Caller,
    /// Its record.
    pub(super) identity: Identity,
    /// The upstream token's issuer, subject and audience, for the claim `act`.
    pub(super) act: Value,
    /// What the upstream token says of a person: the claims `email`, `email_verified` and `upstream`.
    pub(super) about: Map<String, Value>,
    /// Until when a token may be good, if what proved it says so.
    pub(super) until: Option<Timestamp>,
    /// Whether refresh tokens may keep this up.
    pub(super) refreshable: bool,
}

impl Sts {
    /// Finds out whom a token lets its bearer act as. What is wrong with the token alone is told; beyond that, the
    /// answer for an identity that is not there and for one that the token does not fit is the same.
    pub(super) async fn prove(&self, credential: &str, request: &Exchange) -> Result<Proof> {
        if is_signed_request(credential) {
            let why = "Identities of AWS cannot be exchanged: it takes a call to AWS, which this server does not make";
            return Err(Error::new(Code::Unimplemented, why));
        }
        let jws = Jws::parse(credential).map_err(bad_token)?;
        let claims = Claims::parse(&jws.payload).map_err(bad_token)?;
        claims.check_times(&*self.clock).map_err(bad_token)?;
        let own = claims.issuer == self.issuer.url();
        match (&request.identity, &request.identity_provider) {
            (_, Some(_)) if own => Err(refused()),
            (asked, None) if own => self.of_own_token(credential, &claims, asked.as_ref()).await,
            (asked, Some(provider)) => self.of_provider(&jws, &claims, provider, asked.as_ref()).await,
            (Some(asked), None) if !asked.is_root() => self.of_identity(&jws, &claims, asked).await,
            (asked, None) => self.of_person(credential, &claims, asked.as_ref()).await,
        }
    }

    /// A registered person, for whom an issuer vouches that the operator trusts.
    async fn of_person(&self, credential: &str, claims: &Claims, asked: Option<&Uid>) -> Result<Proof> {
        let verified = self.verifier.verify(credential).await.map_err(bad_token)?;
        if asked.is_some_and(|asked| *asked != verified.principal) {
            return Err(refused());
        }
        let identity = Iam::of(&self.platform).identity(&verified.principal).await?;
        let missing = || match asked {
            Some(_) => refused(),
            None => Error::new(Code::NotFound, "The person whom the token names is not registered")
                .of_resource(Identity::KIND, verified.principal.as_str()),
        };
        let identity = identity.ok_or_else(missing)?;
        let caller = verified.caller();
        Ok(Proof { caller, identity, act: act(claims), about: about(claims), until: None, refreshable: true })
    }

    /// An identity of a group, by the one relationship that it has.
    async fn of_identity(&self, jws: &Jws<'_>, claims: &Claims, asked: &Uid) -> Result<Proof> {
        let identity = Iam::of(&self.platform).identity(asked).await?.ok_or_else(refused)?;
        check_kind(jws.typ.as_deref(), false).map_err(not_proved)?;
        let mut until = None;
        if let Some(wanted) = &identity.claim_match {
            // Before any key is looked for: a token that does not fit sends this server nowhere.
            if !matching::fits(wanted, claims, &self.audiences) {
                return Err(refused());
            }
            self.check_signature(jws, &*self.key_of(asked.root(), &claims.issuer, jws).await?)?;
        } else if let Some(keys) = &identity.static_keys {
            if !matching::fits_keys(keys, claims, &self.audiences) {
                return Err(refused());
            }
            until = Some(self.check_static(jws, keys)?);
        } else {
            return Err(refused());
        }
        let caller = Caller::new(identity.uid.clone());
        Ok(Proof { caller, identity, act: act(claims), about: Map::new(), until, refreshable: false })
    }

    /// Checks a signature by keys that are an identity's own. They are read here and kept nowhere, so that they are
    /// never another's; returns until when they are good.
    fn check_static(&self, jws: &Jws<'_>, keys: &StaticKeys) -> Result<Timestamp> {
        let until = keys.expiration_time.filter(|until| self.clock.now() < *until).ok_or_else(refused)?;
        let set = KeySet::parse(keys.issuer_keys.as_bytes()).map_err(|_| refused())?;
        let key = set.find(jws.kid.as_deref(), jws.algorithm).ok_or_else(refused)?;
        self.check_signature(jws, key)?;
        Ok(until)
    }

    /// A token of this server's own: the same identity again, narrowed further, or one whose claim match names this
    /// server. Neither outlives the token that was brought.
    async fn of_own_token(&self, credential: &str, claims: &Claims, asked: Option<&Uid>) -> Result<Proof> {
        let verified = self.verifier.verify(credential).await.map_err(bad_token)?;
        let bearer = verified.caller();
        // The bearer must still be somebody.
        self.platform.current_grants(&bearer).await?;
        let proof = |caller, identity, about| Proof {
            caller,
            identity,
            act: act(claims),
            about,
            until: Some(verified.expires),
            refreshable: false,
        };
        let same = asked.is_none_or(|asked| *asked == bearer.identity);
        if same {
            let identity = Iam::of(&self.platform).identity(&bearer.identity).await?.ok_or_else(refused)?;
            let carried = ["email", "email_verified", "upstream"];
            let carried = carried.iter().filter_map(|name| Some(((*name).to_owned(), claims.all.get(*name)?.clone())));
            let about = carried.collect();
            return Ok(proof(bearer, identity, about));
        }
        // A token that was narrowed does not become another's whole power.
        let asked = asked.filter(|asked| !asked.is_root() && bearer.narrowing.is_none()).ok_or_else(refused)?;
        let identity = Iam::of(&self.platform).identity(asked).await?.ok_or_else(refused)?;
        let fits = identity.claim_match.as_ref().is_some_and(|wanted| matching::fits(wanted, claims, &self.audiences));
        if fits { Ok(proof(Caller::new(identity.uid.clone()), identity, Map::new())) } else { Err(refused()) }
    }

    /// A person for whom an organisation's own identity provider vouches, registered by their first sign-in.
    async fn of_provider(&self, jws: &Jws<'_>, claims: &Claims, uid: &Uid, asked: Option<&Uid>) -> Result<Proof> {
        let provider = Iam::of(&self.platform).identity_provider(uid).await?.ok_or_else(refused)?;
        let oidc = provider.oidc.as_ref().ok_or_else(refused)?;
        let ours = claims.audiences.contains(&oidc.client_id) || matching::any_in(&claims.audiences, &self.audiences);
        let issuer = normalize_issuer(&claims.issuer);
        let person = provider_person_uid(uid, issuer, &claims.subject);
        if normalize_issuer(&oidc.issuer) != issuer || !ours || asked.is_some_and(|asked| *asked != person) {
            return Err(refused());
        }
        check_kind(jws.typ.as_deref(), false).map_err(not_proved)?;
        self.check_signature(jws, &*self.key_of(uid.root(), issuer, jws).await?)?;

        let user = self.directory_entry(&provider, oidc, claims).await?;
        let groups = groups(&oidc.groups_claim, claims)?;
        // What a tenant's issuer calls verified is that tenant's word and nobody else's.
        let email_unverified = claims.email.as_deref();
        let (subject, name) = (claims.subject.as_str(), name(&claims.all));
        let told = Person { uid: &person, issuer, subject, name: name.as_deref(), email: None, email_unverified };
        Iam::of(&self.platform).register(&told).await?;
        let identity = Iam::of(&self.platform).identity(&person).await?.ok_or_else(refused)?;
        let (issuer, groups_claim) = (oidc.issuer.clone(), oidc.groups_claim.clone());
        let session = Session { provider: uid.clone(), issuer, user, groups_claim, groups };
        let mut about = about(claims);
        about.entry("email_verified").and_modify(|verified| *verified = false.into());
        let caller = Caller::new(person).signed_in(session);
        // Groups are as fresh as the sign-in: who has some signs in again.
        let refreshable = oidc.groups_claim.is_empty();
        Ok(Proof { caller, identity, act: act(claims), about, until: None, refreshable })
    }

    /// Returns the person's entry in the provider's directory, by the id that the provider's rule says and never by a
    /// mail address. Where the directory tells of users there must be one, and one that is there must be active.
    async fn directory_entry(&self, provider: &IdentityProvider, oidc: &Oidc, claims: &Claims) -> Result<Option<Uid>> {
        let id = match oidc.correlation_rule {
            CorrelationRule::CorrelationRuleOidEqualsExternalId => claims.all.get("oid").and_then(Value::as_str),
            _ => Some(claims.subject.as_str()),
        };
        let users = id.filter(|id| !id.is_empty()).map(|id| DirectoryUsers::External(id.to_owned()));
        let found = match users {
            Some(users) => Iam::of(&self.platform).directory_users(&provider.uid, &users, 0, 1).await?.0.pop(),
            None => None,
        };
        let tells = provider.scim.as_ref().is_some_and(|scim| scim.enabled);
        match found {
            Some(user) if user.active => Ok(Some(user.uid)),
            None if !tells => Ok(None),
            _ => Err(refused()),
        }
    }

    /// Returns the key that an issuer signed a token with: of the operator's trusted ones as they are kept, of any
    /// other as it publishes them, by the share of the organization that named it.
    async fn key_of(&self, organization: &str, issuer: &str, jws: &Jws<'_>) -> Result<Arc<VerifyingKey>> {
        let found = match self.verifier.trusted(issuer) {
            Some(trusted) => trusted.key(jws.wanted()).await.map(|(key, _)| key),
            None => self.issuers.key(organization, issuer, jws.wanted()).await,
        };
        found.map_err(not_proved)
    }

    fn check_signature(&self, jws: &Jws<'_>, key: &VerifyingKey) -> Result<()> {
        self.count_operation();
        jws.verify(key).map_err(not_proved)
    }
}

/// Tells whether a credential is a signed request to AWS, in base64url, instead of a token.
pub(super) fn is_signed_request(credential: &str) -> bool {
    let start: String = credential.chars().take(8).collect();
    URL_SAFE_NO_PAD.decode(start).is_ok_and(|bytes| bytes.starts_with(b"POST "))
}

fn act(claims: &Claims) -> Value {
    let audience = match claims.audiences.as_slice() {
        [audience] => json!(audience),
        audiences => json!(audiences),
    };
    json!({ "iss": claims.issuer, "sub": claims.subject, "aud": audience })
}

/// Returns a person's name: the claim `name`, or else the given name and the family name.
pub(super) fn name(claims: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let parts = || {
        let parts: Vec<_> = ["given_name", "family_name"].into_iter().filter_map(text).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    };
    text("name").map(str::to_owned).or_else(parts)
}

/// Returns what a token says of a person, as far as this server's own tokens repeat it.
fn about(claims: &Claims) -> Map<String, Value> {
    let mut about = Map::new();
    if let Some(email) = &claims.email {
        about.insert("email".to_owned(), email.as_str().into());
        about.insert("email_verified".to_owned(), claims.email_verified.into());
    }
    let plain = |text: &&str| crate::claims::is_plain(text, 512);
    let texts = ["name", "given_name", "family_name", "picture"].iter().filter_map(|name| {
        let text = claims.all.get(*name).and_then(Value::as_str).filter(plain)?;
        Some(((*name).to_owned(), Value::from(text)))
    });
    let upstream: Map<_, _> = texts.collect();
    if !upstream.is_empty() {
        about.insert("upstream".to_owned(), upstream.into());
    }
    about
}

/// Returns the external groups in a claim, which is a text or a list of them.
fn groups(name: &str, claims: &Claims) -> Result<Vec<String>> {
    let groups: Vec<String> = match claims.all.get(name).filter(|_| !name.is_empty()) {
        Some(Value::String(group)) => vec![group.clone()],
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    if groups.len() > MAX_GROUPS || groups.iter().map(String::len).sum::<usize>() > MAX_GROUP_BYTES {
        return Err(Error::unauthenticated("The token names too many groups; let the provider send fewer"));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bounded_in_number_and_bytes() {
        let named = |named: Vec<String>| {
            let claims = json!({ "iss": "i", "sub": "s", "exp": 1, "iat": 0, "aud": "a", "groups": named });
            let claims = Claims::parse(claims.to_string().as_bytes()).map_err(bad_token)?;
            groups("groups", &claims).map(|groups| groups.len())
        };
        assert_eq!(named(vec!["g".to_owned(); MAX_GROUPS]).unwrap(), MAX_GROUPS);
        assert!(named(vec!["g".to_owned(); MAX_GROUPS + 1]).is_err());
        assert_eq!(named(vec!["g".repeat(MAX_GROUP_BYTES / 2); 2]).unwrap(), 2);
        assert!(named(vec!["g".repeat(MAX_GROUP_BYTES / 2 + 1); 2]).is_err());
    }

    #[test]
    fn a_signed_request_is_told_from_a_token() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        assert!(is_signed_request(&encode("POST / HTTP/1.1\r\nHost: sts.amazonaws.com\r\n\r\n")));
        for other in ["", "a", "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", &encode("GET / HTTP/1.1"), &encode("POST")] {
            assert!(!is_signed_request(other), "{other}");
        }
    }
}
