//! The OpenID Connect configuration of a provider, and the rules for its fields.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantNames;

use platform_engine::{kind::Field, seal::Secret};

/// A client at an OpenID Connect issuer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Oidc {
    /// The issuer's URL.
    pub issuer: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret. Input only: stored sealed, and never returned.
    pub client_secret: Secret,
    /// OAuth scopes to request in addition to the default ones, in this order.
    pub additional_scopes: Vec<String>,
    /// The claim with the external groups of a person.
    pub groups_claim: String,
    /// The claim that equals the person's external id in the directory; immutable.
    pub correlation_rule: CorrelationRule,
    /// Whether sign-ins use PKCE, which proves that the client that began a sign-in completes it.
    pub pkce_enabled: bool,
}

/// The claim that equals the external id of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(clippy::enum_variant_names, reason = "the contract names them so")]
pub enum CorrelationRule {
    /// The claim `sub`, as the default.
    #[default]
    CorrelationRuleUnspecified,
    /// The claim `sub`.
    CorrelationRuleSubEqualsExternalId,
    /// The claim `oid`.
    CorrelationRuleOidEqualsExternalId,
}

/// The maximum length of a client secret, a client id, a scope or a claim's name in bytes; our choice.
const MAX_TEXT: usize = 4096;

pub(super) const FIELDS: &[Field] = &[
    Field::string("issuer").about("The issuer's URL.").required().check(issuer),
    Field::string("clientId")
        .about("The client identifier of this installation at the issuer.")
        .required()
        .max_len(MAX_TEXT),
    Field::string("clientSecret")
        .about(
            "The client secret. Never returned. An update with an empty secret keeps the stored one unless the mask names it.",
        )
        .input_only()
        .max_len(MAX_TEXT),
    Field::strings("additionalScopes")
        .about("OAuth scopes to request in addition to `openid`, `email` and `profile`.")
        .max_len(MAX_TEXT)
        .distinct()
        .check(scopes),
    Field::string("groupsClaim")
        .about("The claim with the person's groups, by name or by a path of names joined by dots; none by default.")
        .max_len(MAX_TEXT),
    Field::enumeration("correlationRule", CorrelationRule::VARIANTS)
        .about("The claim that identifies the person in the provider's directory. Immutable.")
        .immutable(),
    Field::bool("pkceEnabled").about("Whether sign-ins use PKCE."),
];

/// Requires an issuer's URL as in OpenID Connect Discovery, without query and fragment, and here without userinfo.
fn issuer(value: &Value) -> std::result::Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'@' | b'\\'));
    if plain && !host.is_empty() && !host.starts_with(':') && text.len() <= MAX_TEXT {
        Ok(())
    } else {
        Err("must be the URL of an issuer, such as https://sign-in.example.com".to_owned())
    }
}

/// Requires OAuth 2.0 scopes: strings without spaces, quotes and backslashes.
fn scopes(value: &Value) -> std::result::Result<(), String> {
    let is_scope_byte = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\');
    let is_scope =
        |scope: &Value| scope.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(is_scope_byte));
    if value.as_array().into_iter().flatten().all(is_scope) {
        Ok(())
    } else {
        Err("must be OAuth scopes without spaces".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_must_be_a_plain_url_with_a_host() {
        for good in ["https://a.example", "http://localhost:8080", "https://a.example/tenant/v2.0"] {
            assert_eq!(issuer(&good.into()), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a.example",
            "https://",
            "https://a b",
            "https://a@b",
            "https://a?b",
            "https://a#b",
            "https://:1",
            "ftp://a",
            "https://a\\b",
        ] {
            assert!(issuer(&bad.into()).is_err(), "{bad}");
        }
    }
}
