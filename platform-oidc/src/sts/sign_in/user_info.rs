//! Claims from the UserInfo endpoint of a provider (OpenID Connect Core section 5.3).
//!
//! With the code flow, issuers may return the claims of the scopes `email` and `profile`, and groups, from this endpoint
//! alone (section 5.4). It is asked when the id token lacks them.

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use platform_engine::{
    error::{Error, Result},
    seal::Secret,
};
use serde_json::{Map, Value};

use super::relying_party::Party;
use crate::{
    claims::{Claims, find},
    json,
    jws::MAX_TOKEN,
    sts::{Sts, proof::name},
};

impl Sts {
    /// Returns the claims that an id token lacks and that the provider's UserInfo endpoint has, as a JSON object of at
    /// most [`MAX_TOKEN`] bytes.
    ///
    /// Without an answer, the person signs in by the id token alone (our choice: it is sufficient to authenticate); the
    /// reason is logged.
    pub(super) async fn user_info(
        &self,
        party: &Party,
        access_token: Option<&Secret>,
        claims: &Claims,
    ) -> Map<String, Value> {
        let wanted = Wanted::of(claims, &party.groups_claim);
        let endpoint = party.endpoints.user_info.as_deref().filter(|_| wanted.is_any());
        let (Some(endpoint), Some(access_token)) = (endpoint, access_token) else { return Map::new() };
        match self.ask_user_info(party, endpoint, access_token).await {
            Ok(answer) if answer.get("sub").and_then(Value::as_str) == Some(&claims.subject) => wanted.take(&answer),
            // The values of another subject must not be used (section 5.3.2).
            Ok(_) => self.without_user_info(party, "its UserInfo endpoint answers for another subject"),
            Err(problem) => self.without_user_info(party, problem),
        }
    }

    async fn ask_user_info(
        &self,
        party: &Party,
        endpoint: &str,
        access_token: &Secret,
    ) -> Result<Map<String, Value>, &'static str> {
        const FAILED: &str = "its UserInfo endpoint cannot be asked";
        let permit = self.permit(party, endpoint).map_err(|_| FAILED)?;
        let request = request(endpoint, access_token).map_err(|_| FAILED)?;
        let answer = party.issuer.send(permit, request, MAX_TOKEN).await.map_err(|_| FAILED)?;
        match answer.status() {
            StatusCode::OK => json::object(answer.body())
                .ok_or("its UserInfo endpoint answers with something else than a JSON object without duplicate keys"),
            _ => Err("its UserInfo endpoint refuses the access token"),
        }
    }

    fn without_user_info(&self, party: &Party, problem: &'static str) -> Map<String, Value> {
        match &party.uid {
            Some(provider) => self.issuers.report(provider, problem),
            None => tracing::warn!(problem, "a sign-in by the identity provider has the claims of the id token alone"),
        }
        Map::new()
    }
}

fn request(endpoint: &str, access_token: &Secret) -> Result<Request<Bytes>> {
    let value = HeaderValue::try_from(format!("Bearer {}", access_token.expose()));
    let mut value = value.map_err(Error::internal)?;
    value.set_sensitive(true);
    let request = Request::get(endpoint).header(ACCEPT, "application/json").header(AUTHORIZATION, value);
    request.body(Bytes::new()).map_err(Error::internal)
}

/// The claims that an id token lacks.
struct Wanted<'a> {
    email: bool,
    name: bool,
    /// The name or path of the groups.
    groups: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn of(claims: &Claims, groups: &'a str) -> Self {
        let has_groups = groups.is_empty() || find(&claims.all, groups).is_some();
        Self {
            email: !claims.all.contains_key("email"),
            name: name(&claims.all).is_none(),
            groups: (!has_groups).then_some(groups),
        }
    }

    const fn is_any(&self) -> bool {
        self.email || self.name || self.groups.is_some()
    }

    /// Returns these claims of an answer. An address comes with whether it is verified, since the answer of one source
    /// says nothing about the address of another.
    fn take(&self, answer: &Map<String, Value>) -> Map<String, Value> {
        let email = ["email", "email_verified"].into_iter().filter(|_| self.email);
        let names = ["name", "given_name", "family_name", "picture"].into_iter().filter(|_| self.name);
        let paths = email.chain(names).chain(self.groups);
        // Groups are found by their name first, so a nested value is kept under the path.
        paths.filter_map(|path| Some((path.to_owned(), find(answer, path)?.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(more: Value) -> Claims {
        let mut claims = json!({ "iss": "https://a", "sub": "me", "aud": "api", "exp": 1 });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Claims::parse(claims.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn only_claims_that_the_id_token_lacks_are_taken() {
        let answer = json!({
            "sub": "me", "email": "a@b.example", "email_verified": true, "name": "A", "picture": "p", "roles": ["r"],
            "realm_access": { "roles": ["n"] }, "iss": "https://evil.example", "exp": 9, "azp": "x", "oid": "7",
        });
        for (id_token, groups, taken) in [
            (json!({}), "", json!({ "email": "a@b.example", "email_verified": true, "name": "A", "picture": "p" })),
            (
                json!({ "name": "B" }),
                "roles",
                json!({ "email": "a@b.example", "email_verified": true, "roles": ["r"] }),
            ),
            // Whether an address is verified is never taken for the address of the id token.
            (json!({ "email": "c@d.example", "name": "B" }), "roles", json!({ "roles": ["r"] })),
            (
                json!({ "email": "c@d.example", "name": "B" }),
                "realm_access.roles",
                json!({ "realm_access.roles": ["n"] }),
            ),
            (json!({ "email": "c@d.example", "name": "B", "roles": [] }), "roles", json!({})),
            (json!({ "email": "c@d.example", "given_name": "B" }), "", json!({})),
            (json!({ "email": "c@d.example", "name": "B" }), "missing", json!({})),
        ] {
            let mut claims = claims(id_token.clone());
            let found = Wanted::of(&claims, groups).take(answer.as_object().unwrap());
            assert_eq!(Value::Object(found.clone()), taken, "{id_token} {groups}");
            claims.complete(found);
            assert_eq!((claims.issuer.as_str(), claims.expires.seconds()), ("https://a", 1));
        }
        let mut unverified = claims(json!({ "email_verified": true }));
        unverified.complete(json!({ "email": "a@b.example" }).as_object().unwrap().clone());
        assert!(!unverified.email_verified, "the id token has no address that it could call verified");
    }
}
