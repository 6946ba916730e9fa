//! The contract's token services, which are no kinds (`docs/api.md`, Token exchange).

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
    /// Finds a method by its names in the contract.
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

    /// Returns what its credential is used for.
    pub(crate) const fn credential(self) -> CredentialOf {
        match self {
            Self::Refresh => CredentialOf::Refresh,
            _ => CredentialOf::Token,
        }
    }

    /// Answers a request. None where there is nothing to say.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a credential, UNIMPLEMENTED for sign-ins without a browser, and those of the service.
    pub(crate) async fn answer(
        self,
        service: &dyn TokenService,
        credential: Option<&str>,
        request: Map<String, Value>,
    ) -> Result<Value> {
        if self == Self::HeadlessSession {
            let why = "There is no page to sign in at, so there are no sign-ins without a browser to wait for";
            return Err(Error::new(Code::Unimplemented, why));
        }
        let credential = credential.ok_or_else(|| Error::unauthenticated("A bearer token is needed"))?;
        match self {
            Self::Exchange => written(&service.exchange(credential, &Exchange::read(request)?).await?),
            Self::Refresh => written(&service.refresh(credential, &Refresh::read(request)?).await?),
            Self::Register => written(&service.register(credential, &Register::read(request)?).await?),
            Self::Validate => Ok(as_messages(written(&service.who_am_i(credential).await?)?)),
            Self::Delete | Self::HeadlessSession => {
                let id = request.get("id").and_then(Value::as_str).unwrap_or_default();
                service.unregister(credential, id).await?;
                Ok(Value::Object(Map::new()))
            }
        }
    }
}

fn written(reply: &impl Serialize) -> Result<Value> {
    serde_json::to_value(reply).map_err(Error::internal)
}

/// Puts what is held at a group into the contract's form, in which group and role are messages and not names.
fn as_messages(mut who: Value) -> Value {
    for held in who.get_mut("capabilities").and_then(Value::as_array_mut).into_iter().flatten() {
        for (name, key) in [("group", "id"), ("role", "name")] {
            if let Some(value) = held.get_mut(name) {
                *value = json!({ key: value.take() });
            }
        }
    }
    who
}
