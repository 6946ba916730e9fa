//! The token services over gRPC (`docs/api.md`, Token exchange).

use async_trait::async_trait;
use platform_core::{
    resources::domain,
    tokens::{CredentialOf, Exchange, Refresh, Register, TokenService},
};
use platform_engine::error::{Error, Result};
use platform_grpc::Mount;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Tokens;

const STS: &str = "chainguard.platform.oidc.SecurityTokenService";
const AUTH: &str = "chainguard.platform.auth.Auth";

#[async_trait]
impl Mount for Tokens {
    fn find(&self, service: &str, method: &str) -> Option<usize> {
        Method::ALL.iter().position(|known| (known.0, known.1) == (service, method))
    }

    fn domain(&self) -> &'static str {
        domain::IAM.name
    }

    fn is_read_only(&self, method: usize) -> bool {
        matches!(Method::of(method), Ok(Method::Validate))
    }

    fn check_token(&self, method: usize, token: Option<&str>) -> Result<()> {
        match Method::of(method)? {
            Method::HeadlessSession => Ok(()),
            method => {
                let token = token.ok_or_else(Error::missing_token)?;
                self.service().check_form(token, method.credential())
            }
        }
    }

    async fn call(&self, method: usize, token: Option<&str>, request: Map<String, Value>) -> Result<Value> {
        Method::of(method)?.call(self.service(), token, request).await
    }
}

/// A method of `SecurityTokenService` or `Auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Exchange,
    Refresh,
    Validate,
    Register,
    HeadlessSession,
    Delete,
}

impl Method {
    /// All methods, with the names of the service and the method.
    const ALL: [(&'static str, &'static str, Self); 6] = [
        (STS, "Exchange", Self::Exchange),
        (STS, "ExchangeRefreshToken", Self::Refresh),
        (AUTH, "Validate", Self::Validate),
        (AUTH, "Register", Self::Register),
        (AUTH, "GetHeadlessSession", Self::HeadlessSession),
        (AUTH, "Delete", Self::Delete),
    ];

    fn of(number: usize) -> Result<Self> {
        let found = Self::ALL.get(number).map(|(_, _, method)| *method);
        found.ok_or_else(|| Error::internal("a method that the token services do not have"))
    }

    /// Returns the type of credential that the method requires.
    const fn credential(self) -> CredentialOf {
        match self {
            Self::Refresh => CredentialOf::Refresh,
            _ => CredentialOf::Token,
        }
    }

    /// Runs the method and returns its reply; empty for methods without one.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a credential, and the errors of the service.
    async fn call(
        self,
        service: &dyn TokenService,
        credential: Option<&str>,
        request: Map<String, Value>,
    ) -> Result<Value> {
        if self == Self::HeadlessSession {
            let code = request.get("code").and_then(Value::as_str).unwrap_or_default();
            return to_value(&service.headless_session(code).await?);
        }
        let credential = credential.ok_or_else(Error::missing_token)?;
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
