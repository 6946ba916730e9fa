//! Authorization requests of OAuth 2.0 (RFC 6749 section 4.1.1): another form of the parameters of `/oauth`, whose responses
//! are those of OAuth 2.0.

use super::{CodeChallenge, Field, Input, Loopback, Redemption, SignIn, Target, is_state, is_word};

/// The parameters by which an authorization request of OAuth 2.0 is recognized (RFC 6749 section 4.1.1).
pub(super) const RESPONSE_TYPE: Field =
    Field::string("responseType").about("`code`, the only response type of OAuth 2.0.");
pub(super) const REDIRECT_URI: Field = Field::string("redirectUri").about(
    "The client's callback in OAuth 2.0: `http`, `localhost`, `127.0.0.1` or `[::1]`, any port and path, without a query.",
);

impl SignIn {
    /// Returns the callback to which an error of an authorization request of OAuth 2.0 is reported, whatever else is
    /// wrong with it (RFC 6749 section 4.1.2.1). `None` for a redirect URI or client that is invalid, and for the other
    /// form of the request.
    pub fn callback_of_errors(pairs: &[(String, String)]) -> Option<Loopback> {
        let only = |name: &str| {
            let mut found = pairs.iter().filter(|(other, _)| other == name);
            found.next().filter(|_| found.next().is_none()).map(|(_, value)| value.as_str())
        };
        only("client_id").filter(|client| !client.is_empty() && is_word(client))?;
        let state = only("state").filter(|state| is_state(state)).unwrap_or_default().to_owned();
        Some(Loopback { is_standard: true, state, ..Loopback::parse_uri(only("redirect_uri")?)? })
    }

    /// Returns whether a program may redeem the code of this sign-in: it has the verifier of the challenge, and names the
    /// callback and the client as the sign-in does, if at all.
    pub fn is_redeemed_by(&self, request: &Redemption) -> bool {
        let Target::Loopback(callback) = &self.target else { return false };
        let is_proven = callback.challenge().is_some_and(|challenge| challenge.is_of(request.verifier.expose()));
        let is_of_callback = match &request.redirect_uri {
            Some(uri) => callback.is_at(uri),
            // Required where the authorization request has it.
            None => !callback.is_standard(),
        };
        is_proven && is_of_callback && request.client.as_ref().is_none_or(|client| *client == self.client)
    }
}

impl Input {
    /// Reads the callback of an authorization request of OAuth 2.0, which must have a challenge.
    pub(super) fn standard_target(&mut self) -> Option<Target> {
        if self.text("responseType").is_none_or(|response| response != "code") {
            self.add("responseType", "must be code");
        }
        if self.text("clientId").is_none() {
            self.add("clientId", "is required");
        }
        for field in ["redirect", "headlessCode"] {
            if self.text(field).is_some() {
                self.add(field, "must not be set together with redirect_uri");
            }
        }
        let callback = self.text("redirectUri").and_then(|uri| Loopback::parse_uri(&uri));
        if callback.is_none() {
            let rule =
                "must be http://127.0.0.1, http://[::1] or http://localhost with any port and path, and no query";
            self.add("redirectUri", rule);
        }
        let challenge = self.text("codeChallenge").and_then(|text| CodeChallenge::parse(&text));
        if challenge.is_none() {
            self.add("codeChallenge", "is required: 32 bytes in base64url without padding");
        }
        // Without a method, it is `plain` (RFC 7636 section 4.3).
        if self.text("codeChallengeMethod").is_none_or(|method| method != "S256") {
            self.add("codeChallengeMethod", "must be S256");
        }
        let state = self.state().unwrap_or_default();
        Some(Target::Loopback(Loopback { is_standard: true, state, challenge, ..callback? }))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Narrow, Provider, Result, Secret, Uid},
        *,
    };

    const CALLBACK: (&str, &str) = ("redirect", "http://localhost:8123/callback");

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn read(query: &[(&str, &str)]) -> Result<SignIn> {
        SignIn::read(&pairs(query))
    }

    fn fields_of(query: &[(&str, &str)]) -> Vec<String> {
        let error = read(query).unwrap_err();
        error.violations().iter().map(|violation| violation.field.clone()).collect()
    }

    const CHALLENGE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    const STANDARD: [(&str, &str); 5] = [
        ("response_type", "code"),
        ("client_id", "app"),
        ("redirect_uri", "http://127.0.0.1:8123/any/path"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];

    /// Returns the standard request with other parameters, of which an empty one is left out.
    fn standard(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        let mut query = STANDARD.to_vec();
        for (name, value) in more {
            query.retain(|(other, _)| other != name);
            query.push((name, value));
        }
        query.retain(|(_, value)| !value.is_empty());
        query
    }

    #[test]
    fn an_authorization_request_of_oauth_ignores_unknown_parameters_and_scopes_of_openid_connect() {
        let request = read(&standard(&[
            ("scope", "openid email profile"),
            ("nonce", "n"),
            ("state", "a b"),
            ("prompt", "login"),
        ]));
        let request = request.unwrap();
        let Target::Loopback(callback) = &request.target else { panic!("headless") };
        assert_eq!((callback.url().as_str(), callback.state()), ("http://127.0.0.1:8123/any/path", "a b"));
        assert!(callback.is_standard() && callback.challenge().is_some());
        assert!(request.narrow == Narrow::default() && !request.refresh && request.client == "app");
        let group = "1111111111111111111111111111111111111111";
        let more = [("scope", "offline_access 1111111111111111111111111111111111111111"), ("idp_id", "acme")];
        let request = read(&standard(&more)).unwrap();
        assert!(request.refresh && request.narrow.scopes == [Uid::opaque(group)]);
        assert_eq!(request.provider, Provider::Organization("acme".to_owned()));
        // A token for the API must not be what a program sends to another server.
        let query =
            [&STANDARD[..], &[("audience", "a,b"), ("resource", "https://c"), ("resource", "https://d")]].concat();
        assert_eq!(read(&query).unwrap().audiences, ["a", "b", "https://c", "https://d"]);
    }

    #[test]
    fn an_authorization_request_of_oauth_has_a_challenge_and_its_errors_reach_valid_callbacks_alone() {
        for (more, fields, reported) in [
            (&[("response_type", "token")][..], &["responseType"][..], true),
            (&[("response_type", "")], &["responseType"], true),
            (&[("code_challenge", "")], &["codeChallenge"], true),
            (&[("code_challenge", "x")], &["codeChallenge"], true),
            (&[("code_challenge_method", "plain")], &["codeChallengeMethod"], true),
            (&[("code_challenge_method", "")], &["codeChallengeMethod"], true),
            (&[("scope", "admin")], &["scope"], true),
            (&[("state", "\u{e9}")], &["state"], true),
            (&[("resource", "c")], &["resource"], true),
            (&[CALLBACK], &["redirect"], true),
            (&[("client_id", "")], &["clientId"], false),
            (&[("client_id", "click Allow")], &["clientId"], false),
            (&[("redirect_uri", "")], &["redirectUri"], false),
            (&[("redirect_uri", "https://evil.example/callback")], &["redirectUri"], false),
            (&[("redirect_uri", "http://127.0.0.1:1/?code=x")], &["redirectUri"], false),
        ] {
            let query = standard(more);
            assert_eq!(fields_of(&query), fields, "{query:?}");
            assert_eq!(SignIn::callback_of_errors(&pairs(&query)).is_some(), reported, "{query:?}");
        }
        // Repeated, and of the other form.
        for query in
            [[&STANDARD[..], &STANDARD[2..3]].concat(), [&STANDARD[..], &STANDARD[1..2]].concat(), vec![CALLBACK]]
        {
            assert_eq!(SignIn::callback_of_errors(&pairs(&query)), None);
        }
        assert_eq!(fields_of(&[&STANDARD[..], &[("nonce", "a"), ("nonce", "b")]].concat()), ["nonce"]);
    }

    #[test]
    fn a_code_is_redeemed_by_the_program_that_began_the_sign_in() {
        let (verifier, uri) = ("a".repeat(43), "http://127.0.0.1:8123/any/path");
        let sign_in = |mut request: SignIn| {
            let Target::Loopback(callback) = &mut request.target else { panic!("headless") };
            // printf %s aaa… | openssl sha256 -binary | basenc --base64url
            callback.challenge = CodeChallenge::parse("ZtNPunH49FD35FWYhT5Tv8I7vRKQJ8uxMaL0_9eHjNA");
            request
        };
        let (standard, own) = (sign_in(read(&STANDARD).unwrap()), sign_in(read(&[CALLBACK]).unwrap()));
        let request = |verifier: &str, uri: Option<&str>, client: Option<&str>| Redemption {
            code: Secret::new("c"),
            verifier: Secret::new(verifier),
            redirect_uri: uri.map(str::to_owned),
            client: client.map(str::to_owned),
            audiences: Vec::new(),
        };
        for (sign_in, uri, client, is_redeemed) in [
            (&standard, Some(uri), Some("app"), true),
            (&standard, Some(uri), None, true),
            (&standard, None, Some("app"), false),
            (&standard, Some(uri), Some("another"), false),
            (&standard, Some("http://127.0.0.1:8123/any"), Some("app"), false),
            (&standard, Some("http://localhost:8123/any/path"), None, false),
            (&own, None, None, true),
            (&own, Some("http://localhost:8123/callback"), Some(""), true),
            (&own, Some("http://localhost:8124/callback"), None, false),
            (&own, None, Some("app"), false),
        ] {
            assert_eq!(sign_in.is_redeemed_by(&request(&verifier, uri, client)), is_redeemed, "{uri:?} {client:?}");
            assert!(!sign_in.is_redeemed_by(&request("b", uri, client)));
        }
    }
}
