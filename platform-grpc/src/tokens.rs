//! The token services of the contract, which are not kinds (`docs/api.md`, Token exchange).

use platform_core::{
    error::{Code, Error, Result},
    tokens::{CredentialOf, Exchange, Refresh, Register, TokenService},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A method of `SecurityTokenService` or `Auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenMethod {
    Exchange,
    Refresh,
    Validate,
    Register,
    HeadlessSession,
    Delete,
}

impl TokenMethod {
    /// Returns the method with these names in the contract.
    pub(crate) fn find(service: &str, method: &str) -> Option<Self> {
        match (service, method) {
            ("chainguard.platform.oidc.SecurityTokenService", "Exchange") => Some(Self::Exchange),
            ("chainguard.platform.oidc.SecurityTokenService", "ExchangeRefreshToken") => Some(Self::Refresh),
            ("chainguard.platform.auth.Auth", "Validate") => Some(Self::Validate),
            ("chainguard.platform.auth.Auth", "Register") => Some(Self::Register),
            ("chainguard.platform.auth.Auth", "GetHeadlessSession") => Some(Self::HeadlessSession),
            ("chainguard.platform.auth.Auth", "Delete") => Some(Self::Delete),
            _ => None,
        }
    }

    /// Returns the type of credential that the method requires.
    pub(crate) const fn credential(self) -> CredentialOf {
        match self {
            Self::Refresh => CredentialOf::Refresh,
            _ => CredentialOf::Token,
        }
    }

    /// Runs the method and returns its reply; empty for methods without one.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a credential, UNIMPLEMENTED for headless sessions, and the errors of the service.
    pub(crate) async fn call(
        self,
        service: &dyn TokenService,
        credential: Option<&str>,
        request: Map<String, Value>,
    ) -> Result<Value> {
        if self == Self::HeadlessSession {
            let message = "Browser sign-in is not supported, so headless sessions are not available";
            return Err(Error::new(Code::Unimplemented, message));
        }
        let credential = credential.ok_or_else(|| Error::unauthenticated("A bearer token is needed"))?;
        match self {
            Self::Exchange => to_value(&service.exchange(credential, &Exchange::read(request)?).await?),
            Self::Refresh => to_value(&service.refresh(credential, &Refresh::read(request)?).await?),
            Self::Register => to_value(&service.register(credential, &Register::read(request)?).await?),
            Self::Validate => Ok(names_as_messages(to_value(&service.who_am_i(credential).await?)?)),
            Self::Delete | Self::HeadlessSession => {
                let id = request.get("id").and_then(Value::as_str).unwrap_or_default();
                service.unregister(credential, id).await?;
                Ok(Value::Object(Map::new()))
            }
        }
    }
}

fn to_value(reply: &impl Serialize) -> Result<Value> {
    serde_json::to_value(reply).map_err(Error::internal)
}

/// Converts the capabilities of the caller to the contract's form, in which a group and a role are messages instead of
/// names.
fn names_as_messages(mut identity: Value) -> Value {
    for grant in identity.get_mut("capabilities").and_then(Value::as_array_mut).into_iter().flatten() {
        for (name, key) in [("group", "id"), ("role", "name")] {
            if let Some(value) = grant.get_mut(name) {
                *value = json!({ key: value.take() });
            }
        }
    }
    identity
}
