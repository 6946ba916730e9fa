//! Determines which identity an upstream token may assume.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::{
    iam::{Iam, Person},
    resources::iam::{
        CorrelationRule, DirectoryUsers, Identity, IdentityProvider, Oidc, StaticKeys, normalize_issuer,
        provider_person_uid,
    },
    tokens::Exchange,
};
use platform_engine::{
    access::{Caller, Credential, Session},
    error::{Code, Error, Result},
    kind::Resource,
    timestamp::Timestamp,
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::{
    Sts,
    matching::{self, Mismatch},
    not_authorized, proof_error, token_error,
};
use crate::{
    claims::{Claims, find},
    jwks::KeySet,
    jws::Jws,
    verifier::check_typ,
};

/// The maximum number of external groups of a sign-in, and their maximum total length in bytes; our choice. Entra puts at
/// most 200 groups of 36 bytes into a token, and more would not fit into the tokens of this server.
const MAX_GROUPS: usize = 500;
const MAX_GROUP_BYTES: usize = 8 * 1024;

/// The identity that an upstream token may assume, and the claims to copy from the token.
#[derive(Debug)]
pub(super) struct Proof {
    /// The caller that the issued token authenticates.
    pub(super) caller: Caller,
    /// The record of the caller's identity.
    pub(super) identity: Identity,
    /// The upstream token's issuer, subject and audience, for the claim `act`.
    pub(super) act: Value,
    /// The profile of a person in the upstream token: the claims `email`, `email_verified` and `upstream`.
    pub(super) profile: Map<String, Value>,
    /// The latest expiry of issued tokens, if the proof has one.
    pub(super) expires: Option<Timestamp>,
    /// Whether refresh tokens may be issued.
    pub(super) refreshable: bool,
}

impl Sts {
    /// Determines which identity a token may assume. Errors of the token itself are reported in detail; beyond that,
    /// the error for a nonexistent identity is the same as for one that the token does not match.
    pub(super) async fn prove(&self, credential: &str, request: &Exchange) -> Result<Proof> {
        if is_signed_request(credential) {
            return self.prove_by_aws(credential, request).await;
        }
        let jws = Jws::parse(credential).map_err(token_error)?;
        let claims = Claims::parse(&jws.payload).map_err(token_error)?;
        claims.check_times(&*self.clock).map_err(token_error)?;
        let own = claims.issuer == self.issuer.url();
        if !own {
            check_typ(jws.typ.as_deref(), false).map_err(token_error)?;
        }
        match (&request.identity, &request.identity_provider) {
            (_, Some(_)) if own => Err(not_authorized()),
            (requested, None) if own => self.prove_by_own_token(credential, &claims, requested.as_ref()).await,
            (requested, Some(provider)) => {
                self.prove_provider_person(&jws, &claims, provider, requested.as_ref()).await
            }
            (Some(requested), None) if !requested.is_root() => self.prove_identity(&jws, &claims, requested).await,
            (requested, None) => self.prove_person(credential, &claims, requested.as_ref()).await,
        }
    }

    /// Proves a registered person by a token of a trusted issuer.
    async fn prove_person(&self, credential: &str, claims: &Claims, requested: Option<&Uid>) -> Result<Proof> {
        let verified = self.verifier.verify(credential).await.map_err(token_error)?;
        if requested.is_some_and(|requested| *requested != verified.principal) {
            return Err(not_authorized());
        }
        let identity = Iam::of(&self.platform).identity(&verified.principal).await?;
        let missing = || match requested {
            Some(_) => not_authorized(),
            None => Error::new(Code::NotFound, "The person identified by the token is not registered")
                .of_resource(Identity::KIND, verified.principal.as_str()),
        };
        let identity = identity.ok_or_else(missing)?;
        let caller = verified.caller();
        Ok(Proof { caller, identity, act: act(claims), profile: profile(claims), expires: None, refreshable: true })
    }

    /// Proves an identity of a group by its one relationship.
    async fn prove_identity(&self, jws: &Jws<'_>, claims: &Claims, requested: &Uid) -> Result<Proof> {
        let identity = Iam::of(&self.platform).identity(requested).await?.ok_or_else(not_authorized)?;
        let mut expires = None;
        if let Some(claim_match) = &identity.claim_match {
            // Match before looking up a key: a token that does not match must not trigger a fetch.
            let matched = matching::check_claims(claim_match, claims, &self.audiences);
            if matched == Err(Mismatch::Hidden) {
                return Err(not_authorized());
            }
            let verified = self.check_signature(requested.root(), &claims.issuer, jws).await;
            if let Err(mismatch) = matched {
                // Only who has proved the issuer and the subject learns the claim.
                return Err(verified.map_or_else(|_| not_authorized(), |()| mismatched(&mismatch)));
            }
            verified?;
        } else if let Some(keys) = &identity.static_keys {
            if !matching::matches_static_keys(keys, claims, &self.audiences) {
                return Err(not_authorized());
            }
            expires = Some(self.check_static(jws, keys)?);
        } else {
            return Err(not_authorized());
        }
        let caller = Caller::new(identity.uid.clone()).with_credential(Credential::issued_at(claims.issued));
        Ok(Proof { caller, identity, act: act(claims), profile: Map::new(), expires, refreshable: false })
    }

    /// Verifies a signature with an identity's static keys and returns their expiry. The keys are parsed here and
    /// cached nowhere, so that they never apply to another identity.
    fn check_static(&self, jws: &Jws<'_>, keys: &StaticKeys) -> Result<Timestamp> {
        let expires = keys.expiration_time.filter(|expires| self.clock.now() < *expires).ok_or_else(not_authorized)?;
        let set = KeySet::parse(keys.issuer_keys.as_bytes()).map_err(|_| not_authorized())?;
        let key = set.find(jws.kid.as_deref(), jws.algorithm).ok_or_else(not_authorized)?;
        self.count_operation();
        jws.verify(key).map_err(proof_error)?;
        Ok(expires)
    }

    /// Proves an identity by one of this server's own tokens: the token's identity, possibly narrowed further, or
    /// another one whose claim match names this server. The issued token never outlives the presented one.
    async fn prove_by_own_token(&self, credential: &str, claims: &Claims, requested: Option<&Uid>) -> Result<Proof> {
        let verified = self.verifier.verify(credential).await.map_err(token_error)?;
        let bearer = verified.caller();
        // The bearer's identity must still exist and be active.
        self.platform.current_grants(&bearer).await?;
        let proof = |caller, identity, profile| Proof {
            caller,
            identity,
            act: act(claims),
            profile,
            expires: Some(verified.expires),
            refreshable: false,
        };
        let is_same_identity = requested.is_none_or(|requested| *requested == bearer.identity);
        if is_same_identity {
            let identity = Iam::of(&self.platform).identity(&bearer.identity).await?.ok_or_else(not_authorized)?;
            let copied = ["email", "email_verified", "upstream"];
            let copied = copied.iter().filter_map(|name| Some(((*name).to_owned(), claims.all.get(*name)?.clone())));
            let profile = copied.collect();
            return Ok(proof(bearer, identity, profile));
        }
        // A narrowed token must not be exchanged for the full power of another identity.
        let requested = requested
            .filter(|requested| !requested.is_root() && bearer.narrowing.is_none())
            .ok_or_else(not_authorized)?;
        let identity = Iam::of(&self.platform).identity(requested).await?.ok_or_else(not_authorized)?;
        let claim_match = identity.claim_match.as_ref().ok_or_else(not_authorized)?;
        matching::check_claims(claim_match, claims, &self.audiences).map_err(|mismatch| mismatched(&mismatch))?;
        let since = verified.credential.issued;
        let caller = Caller::new(identity.uid.clone()).with_credential(Credential::issued_at(Some(since)));
        Ok(proof(caller, identity, Map::new()))
    }

    /// Proves a person by a token of an organization's own identity provider, and registers the person at the first
    /// sign-in.
    pub(super) async fn prove_provider_person(
        &self,
        jws: &Jws<'_>,
        claims: &Claims,
        uid: &Uid,
        requested: Option<&Uid>,
    ) -> Result<Proof> {
        let provider = Iam::of(&self.platform).identity_provider(uid).await?.ok_or_else(not_authorized)?;
        let oidc = provider.oidc.as_ref().ok_or_else(not_authorized)?;
        let is_for_us =
            claims.audiences.contains(&oidc.client_id) || matching::intersects(&claims.audiences, &self.audiences);
        let issuer = normalize_issuer(&claims.issuer);
        let person_uid = provider_person_uid(uid, issuer, &claims.subject);
        if normalize_issuer(&oidc.issuer) != issuer
            || !is_for_us
            || requested.is_some_and(|requested| *requested != person_uid)
        {
            return Err(not_authorized());
        }
        // Only now: all checks that need no key come before a fetch of keys.
        self.check_signature(uid.root(), issuer, jws).await?;

        let user = self.directory_entry(&provider, oidc, claims).await?;
        let groups = self.external_groups(uid, &oidc.groups_claim, claims).await?;
        // Email addresses that a tenant's issuer calls verified count as unverified: other tenants do not trust that
        // issuer.
        let email_unverified = claims.email.as_deref();
        let (subject, name) = (claims.subject.as_str(), name(&claims.all));
        let credential = Arc::new(Credential::issued_at(claims.issued));
        let person = Person {
            uid: &person_uid,
            issuer,
            subject,
            name: name.as_deref(),
            email: None,
            email_unverified,
            credential: Some(&credential),
        };
        Iam::of(&self.platform).register(&person).await?;
        let identity = Iam::of(&self.platform).identity(&person_uid).await?.ok_or_else(not_authorized)?;
        let (issuer, groups_claim) = (oidc.issuer.clone(), oidc.groups_claim.clone());
        let session = Session { provider: uid.clone(), issuer, user, groups_claim, groups };
        let mut profile = profile(claims);
        profile.entry("email_verified").and_modify(|verified| *verified = false.into());
        let caller = Caller::new(person_uid).signed_in(session).with_credential(credential);
        // Without refresh tokens, a person with external groups signs in again, which updates the groups.
        let refreshable = oidc.groups_claim.is_empty();
        Ok(Proof { caller, identity, act: act(claims), profile, expires: None, refreshable })
    }

    /// Returns the external groups of a person: those in the claim or, if these are too many, those that a mapping of the
    /// provider names now. Logs a claim whose groups cannot be read, at most once a minute for each provider, because the
    /// person silently has no roles by them.
    async fn external_groups(&self, provider: &Uid, name: &str, claims: &Claims) -> Result<Vec<String>> {
        let (mut groups, problem) = groups(name, &claims.all);
        if let Some(problem) = problem {
            self.issuers.report(provider, problem);
        }
        if !are_within_bounds(&groups) {
            let mapped = Iam::of(&self.platform).mapped_groups(provider).await?;
            groups.retain(|group| mapped.contains(group));
        }
        if are_within_bounds(&groups) {
            return Ok(groups);
        }
        Err(Error::unauthenticated(format!(
            "The token has too many groups that mappings of the identity provider name: {} of at most {MAX_GROUPS}, in at \
             most {MAX_GROUP_BYTES} bytes; configure the identity provider to send fewer, or delete mappings",
            groups.len()
        )))
    }

    /// Returns the person's entry in the provider's directory, found by the id that the provider's correlation rule
    /// selects and never by an email address. If the directory is enabled, an entry is required; an existing entry
    /// must be active in any case.
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
        let scim_enabled = provider.scim.as_ref().is_some_and(|scim| scim.enabled);
        match found {
            Some(user) if user.active => Ok(Some(user.uid)),
            None if !scim_enabled => Ok(None),
            _ => Err(not_authorized()),
        }
    }

    /// Verifies a signature by the keys of an issuer: those of an issuer that the operator trusts, or otherwise fetched
    /// within the limits of the organization that configured the issuer.
    pub(super) async fn check_signature(&self, organization: &str, issuer: &str, jws: &Jws<'_>) -> Result<()> {
        let count = || self.count_operation();
        let verified = match self.verifier.trusted(issuer) {
            Some(trusted) => trusted.verify(jws, &count).await.map(drop),
            None => self.issuers.verify(organization, issuer, jws, &count).await,
        };
        verified.map_err(proof_error)
    }
}

/// Describes how a verified token differs from the relationship of an identity.
fn mismatched(mismatch: &Mismatch) -> Error {
    match mismatch {
        Mismatch::Hidden => not_authorized(),
        Mismatch::Claim(name) => Error::new(
            Code::PermissionDenied,
            format!("The token does not authorize acting as this identity: invalid {name:?}"),
        ),
    }
}

/// Returns whether a credential is a signed request to AWS instead of a token: one in base64url, or in a form that is not
/// accepted, for an error that says so.
pub(super) fn is_signed_request(credential: &str) -> bool {
    let start: String = credential.chars().take(8).collect();
    let is_request = |bytes: Vec<u8>| bytes.starts_with(b"POST ") || bytes.starts_with(b"GET /");
    ["https://sts", "k8s-aws-v1."].iter().any(|form| credential.starts_with(form))
        || URL_SAFE_NO_PAD.decode(start).is_ok_and(is_request)
}

pub(super) fn act(claims: &Claims) -> Value {
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

/// Returns the profile claims of a person that this server's own tokens copy.
pub(super) fn profile(claims: &Claims) -> Map<String, Value> {
    let mut profile = Map::new();
    if let Some(email) = &claims.email {
        profile.insert("email".to_owned(), email.as_str().into());
        profile.insert("email_verified".to_owned(), claims.email_verified.into());
    }
    let is_bounded = |text: &&str| crate::claims::is_bounded_text(text, 512);
    let texts = ["name", "given_name", "family_name", "picture"].iter().filter_map(|name| {
        let text = claims.all.get(*name).and_then(Value::as_str).filter(is_bounded)?;
        Some(((*name).to_owned(), Value::from(text)))
    });
    let upstream: Map<_, _> = texts.collect();
    if !upstream.is_empty() {
        profile.insert("upstream".to_owned(), upstream.into());
    }
    profile
}

/// Returns the external groups in a claim, which is a string or a list of strings, and why others cannot be read. Without
/// the claim there are none.
fn groups(name: &str, claims: &Map<String, Value>) -> (Vec<String>, Option<&'static str>) {
    const SHAPE: &str = "the claim with the groups must be a text or a list of texts; other values are no groups";
    // Entra names the claims that do not fit into a token (OpenID Connect Core section 5.6.2).
    const OVERAGE: &str = "the identity provider has left out the groups, because there are too many of them \
                           (`_claim_names`), so no groups count; configure it to send only those of this application";
    let values = match find(claims, name).filter(|_| !name.is_empty()) {
        Some(Value::Array(values)) => values.iter().collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    };
    let groups: Vec<_> = values.iter().filter_map(|value| value.as_str()).map(str::to_owned).collect();
    let is_overage = || claims.get("_claim_names").is_some_and(|names| names.get(name).is_some());
    let problem =
        if groups.len() < values.len() { Some(SHAPE) } else { (values.is_empty() && is_overage()).then_some(OVERAGE) };
    (groups, problem)
}

fn are_within_bounds(groups: &[String]) -> bool {
    groups.len() <= MAX_GROUPS && groups.iter().map(String::len).sum::<usize>() <= MAX_GROUP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_text_or_a_list_of_texts_by_name_or_path() {
        let claims = json!({
            "groups": ["a", "b"], "one": "a", "realm_access": { "roles": ["admins"] }, "https://a.example/groups": ["c"],
            "roles": { "admins": { "1": "x" } }, "named": [{ "name": "admins" }], "numbers": [1], "mixed": ["a", 1],
            "_claim_names": { "overage": "src1", "groups": "src1" },
        });
        let read = |name: &str| groups(name, claims.as_object().unwrap());
        let list = |names: &[&str]| (names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), None);
        assert_eq!(read("groups"), list(&["a", "b"]));
        assert_eq!(read("one"), list(&["a"]));
        assert_eq!(read("realm_access.roles"), list(&["admins"]));
        assert_eq!(read("https://a.example/groups"), list(&["c"]));
        assert_eq!((read("missing"), read("")), (list(&[]), list(&[])));
        assert!(read("overage").0.is_empty() && read("overage").1.unwrap().contains("_claim_names"));
        for (other, texts) in [("roles", &[][..]), ("named", &[]), ("numbers", &[]), ("mixed", &["a"])] {
            let (groups, problem) = read(other);
            assert_eq!(groups, texts, "{other}");
            assert!(problem.unwrap().contains("must be a text or a list of texts"), "{other}");
        }
    }

    #[test]
    fn groups_are_bounded_in_number_and_bytes() {
        assert!(are_within_bounds(&vec!["0".repeat(36); 200]), "as Entra sends them");
        assert!(are_within_bounds(&vec!["g".to_owned(); MAX_GROUPS]));
        assert!(!are_within_bounds(&vec!["g".to_owned(); MAX_GROUPS + 1]));
        assert!(are_within_bounds(&vec!["g".repeat(MAX_GROUP_BYTES / 2); 2]));
        assert!(!are_within_bounds(&vec!["g".repeat(MAX_GROUP_BYTES / 2 + 1); 2]));
    }

    #[test]
    fn signed_requests_are_distinguished_from_tokens() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        assert!(is_signed_request(&encode("POST / HTTP/1.1\r\nHost: sts.amazonaws.com\r\n\r\n")));
        for form in [encode("GET /?Action=GetCallerIdentity HTTP/1.1"), "k8s-aws-v1.aHR0cHM6Ly9zdHM".to_owned()] {
            assert!(is_signed_request(&form), "{form}");
        }
        assert!(is_signed_request("https://sts.amazonaws.com/?Action=GetCallerIdentity"));
        for other in ["", "a", "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", &encode("GET"), &encode("POST")] {
            assert!(!is_signed_request(other), "{other}");
        }
    }
}
