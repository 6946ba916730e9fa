//! The common rules of the endpoints under `/operator/`: only operators may call them, and their errors have the format
//! of the API.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
    platform::Platform,
};
use platform_http::{
    mount::{parameter, reject_parameters},
    operator, read_body, status,
};
use serde::{Serialize, de::DeserializeOwned};

/// Time limit for the body of a request to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Authenticates the callers of endpoints. Clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct Operators {
    pub(crate) platform: Arc<Platform>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
}

impl Operators {
    /// Answers a request with the result of `handle`, which is called only for operators, with the value of the endpoint's
    /// parameter and the body. Any other parameter is an error.
    pub(crate) async fn answer<F, T>(
        self,
        request: Request,
        name: Option<&'static str>,
        handle: impl FnOnce(Caller, Option<String>, Body) -> F,
    ) -> Response
    where
        F: Future<Output = Result<T>>,
        T: IntoResponse,
    {
        let (head, body) = request.into_parts();
        let given = async {
            let caller = operator(&self.platform, &*self.authenticator, &head).await?;
            let query = head.uri.query().unwrap_or_default();
            let value = match name {
                Some(name) => parameter(name, query)?,
                None => reject_parameters(query).map(|()| None)?,
            };
            Ok((caller, value))
        };
        let answer = match given.await {
            Ok((caller, value)) => handle(caller, value, body).await,
            Err(error) => Err(error),
        };
        answer.map_or_else(|error| self.refusal(&error), IntoResponse::into_response)
    }

    fn refusal(&self, error: &Error) -> Response {
        if let Code::Internal | Code::Unknown = error.code() {
            tracing::error!(?error, "an endpoint of operators failed");
        }
        (status::of(error.code()), Json(error.status(&self.platform.settings().service_domain))).into_response()
    }
}

/// A body with JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (json, serde_json::to_vec(&self.0).unwrap_or_default()).into_response()
    }
}

/// Reads the body of a request, JSON of at most `most` bytes.
pub(crate) async fn read_json<T: DeserializeOwned>(body: Body, most: usize) -> Result<T> {
    let invalid = |rule: String| Error::invalid_field("body", rule);
    let body = read_body(body, most, BODY_TIME).await;
    let body = body.map_err(|_| invalid(format!("must have at most {most} bytes")))?;
    serde_json::from_slice(&body).map_err(|rule| invalid(rule.to_string()))
}
