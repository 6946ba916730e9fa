//! `/oauth/token`, the token endpoint of OAuth 2.0 (`docs/api.md`, OAuth clients). It only converts: the requests and the
//! errors are those of the token services and of the browser sign-in.

use platform_core::tokens::{CredentialOf, Grant, GrantType, RawToken, SignInService, TokenPair, TokenService};
use platform_engine::{
    error::{Code, Error},
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{
    Reply,
    mount::{self, Body, Call, Refusal},
};
use serde::Serialize;

use super::{Unknown, json_not_cached, parameters};

/// The reply: the members of an exchange, and those of OAuth 2.0 (RFC 6749 section 5.1, RFC 8693 section 2.2.1).
#[derive(Debug, Serialize)]
struct Tokens {
    token: Secret,
    #[serde(rename = "refreshToken", skip_serializing_if = "Secret::is_empty")]
    refresh: Secret,
    expiry: Timestamp,
    access_token: Secret,
    token_type: &'static str,
    /// In seconds.
    expires_in: i64,
    #[serde(skip_serializing_if = "Secret::is_empty")]
    refresh_token: Secret,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_token_type: Option<&'static str>,
    /// The groups that the token is narrowed to, if it is by this request.
    #[serde(skip_serializing_if = "String::is_empty")]
    scope: String,
}

impl Tokens {
    fn new(issued: RawToken, now: Timestamp) -> Self {
        Self {
            expires_in: issued.expiry.seconds().saturating_sub(now.seconds()).max(0),
            expiry: issued.expiry,
            access_token: issued.token.clone(),
            token: issued.token,
            token_type: "Bearer",
            refresh_token: issued.refresh_token.clone(),
            refresh: issued.refresh_token,
            issued_token_type: None,
            scope: String::new(),
        }
    }

    fn narrowed_to(self, groups: &[Uid]) -> Self {
        Self { scope: groups.iter().map(Uid::as_str).collect::<Vec<_>>().join(" "), ..self }
    }
}

/// Answers a request to the endpoint.
pub(super) async fn answer(
    tokens: &dyn TokenService,
    sign_ins: Option<&dyn SignInService>,
    call: &Call<'_>,
    body: Body<'_>,
) -> Result<Reply, Refusal> {
    // Tokens belong into the body: an address is logged.
    mount::reject_parameters(call.query)?;
    let read = parameters(Grant::FIELDS, Unknown::Ignored, "", body, &call.limits.of_tokens()).await?;
    let name = ["grantType", "grant_type"].iter().find_map(|name| read.get(*name)?.as_str()).unwrap_or_default();
    if name.is_empty() {
        return Err(Error::invalid_field("grant_type", "is required").into());
    }
    let unsupported = || {
        let names = GrantType::ALL.map(GrantType::name).join(", ");
        let error = Error::invalid_field("grant_type", format!("must be one of {names}"));
        Refusal::from(error).in_oauth("unsupported_grant_type")
    };
    let now = call.platform.now();
    let issued = match Grant::read(GrantType::find(name).ok_or_else(unsupported)?, read)? {
        Grant::Code(request) => {
            let sign_ins = sign_ins.ok_or_else(unsupported)?;
            Tokens::new(sign_ins.redeem(&request).await.map_err(invalid_grant)?, now)
        }
        Grant::Refresh(credential, request) => {
            tokens.check_form(credential.expose(), CredentialOf::Refresh).map_err(invalid_grant)?;
            let TokenPair { token, refresh_token } =
                tokens.refresh(credential.expose(), &request).await.map_err(invalid_grant)?;
            let issued = RawToken { token: token.token, refresh_token: refresh_token.token, expiry: token.expiry };
            Tokens::new(issued, now).narrowed_to(&request.narrow.scopes)
        }
        Grant::Exchange(credential, request, issued_type) => {
            tokens.check_form(credential.expose(), CredentialOf::Token)?;
            let issued = Tokens::new(tokens.exchange(credential.expose(), &request).await?, now);
            let issued = issued.narrowed_to(&request.narrow.scopes);
            Tokens { issued_token_type: Some(issued_type), ..issued }
        }
    };
    json_not_cached(&issued)
}

/// Returns the refusal of a code or a refresh token.
fn invalid_grant(error: Error) -> Refusal {
    let name = error_name(&error, "invalid_grant");
    Refusal::from(error).in_oauth(name)
}

/// Adds the members of OAuth 2.0 to a refusal of this endpoint.
pub(super) fn refusal(refusal: Refusal) -> Refusal {
    // RFC 8693 section 2.2.2 has this value for a subject token that is not accepted.
    let name = error_name(refusal.error(), "invalid_request");
    refusal.rename_fields(parameter).in_oauth(name)
}

/// Returns the name that a parameter has in OAuth 2.0.
pub(crate) fn parameter(field: &str) -> String {
    match field {
        "aud" => "audience".to_owned(),
        "scopes" => "scope".to_owned(),
        field => field.chars().fold(String::new(), |mut name, c| {
            if c.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
            name
        }),
    }
}

/// Returns the value of `error` for an error: `rejected` for a credential that is not accepted.
pub(crate) fn error_name(error: &Error, rejected: &'static str) -> &'static str {
    let concerns = |fields: &[&str]| {
        let of = |field: &str| field.split(['.', '[']).next().is_some_and(|name| fields.contains(&name));
        error.violations().iter().all(|violation| of(&violation.field))
    };
    match error.code() {
        Code::InvalidArgument if error.violations().is_empty() => "invalid_request",
        Code::InvalidArgument if concerns(&["aud", "audience", "resource"]) => "invalid_target",
        Code::InvalidArgument if concerns(&["scope", "scopes", "cap"]) => "invalid_scope",
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => "invalid_request",
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition => rejected,
        Code::ResourceExhausted | Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled => {
            "temporarily_unavailable"
        }
        Code::Unknown | Code::Internal | Code::DataLoss => "server_error",
    }
}
