//! An HTTP client of the API that sends JSON and returns status and body.

use std::time::Duration;

use serde_json::Value;
use ureq::http::{Method, Request};

/// Timeout of a request. A server that needs longer is considered hung.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client with the URL of a server and a token for it. Pools connections, and clones share the pool.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    agent: ureq::Agent,
    pub(crate) url: String,
    pub(crate) token: String,
}

/// A response of the server.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// Whether it is the reply of an earlier request with the same idempotency key.
    pub(crate) is_replayed: bool,
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT)).proxy(None);
        Self { agent: config.build().into(), url: url.to_owned(), token: token.to_owned() }
    }

    /// Sends a request. Returns `None` if there is no response because the server does not run or was killed.
    ///
    /// # Panics
    /// Panics if the request times out.
    pub(crate) fn try_send(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Response> {
        self.try_send_text(method, path, body.map(ToString::to_string).as_deref())
    }

    /// Like [`Api::try_send`], with any text as the body.
    pub(crate) fn try_send_text(&self, method: &str, path: &str, body: Option<&str>) -> Option<Response> {
        self.try_send_with(method, path, body, &[])
    }

    /// Like [`Api::try_send`], with an idempotency key.
    pub(crate) fn try_send_keyed(&self, method: &str, path: &str, body: &Value, key: &str) -> Option<Response> {
        self.try_send_with(method, path, Some(&body.to_string()), &[("idempotency-key", key)])
    }

    fn try_send_with(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        headers: &[(&str, &str)],
    ) -> Option<Response> {
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let done = match body {
            Some(body) => self.agent.run(request.body(body.to_owned()).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let read = |mut response: ureq::http::Response<ureq::Body>| {
            let is_replayed = response.headers().contains_key("idempotency-replayed");
            let text = response.body_mut().read_to_string()?;
            Ok(Response { status: response.status().as_u16(), text, is_replayed })
        };
        match done.and_then(read) {
            Ok(response) => Some(response),
            Err(ureq::Error::Timeout(_)) => panic!("no response to {method} {path} within {TIMEOUT:?}"),
            Err(_) => None,
        }
    }

    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        self.try_send(method, path, body).unwrap_or_else(|| panic!("{method} {path}: no response"))
    }

    /// Returns the same client with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// Sends a form.
    #[track_caller]
    pub(crate) fn form(&self, path: &str, form: &str) -> Response {
        self.try_send_text("POST", path, Some(form)).unwrap_or_else(|| panic!("{path}: no response"))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, None)
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Response {
        self.send("PATCH", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Response {
        self.send("DELETE", path, None)
    }
}

impl Response {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the body of a successful response.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Returns the body of an error response, which must have this status and the AIP-193 form.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json();
        assert!(error["code"].is_u64() && error["message"].is_string(), "{self:?}");
        assert_eq!(error["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{self:?}");
        error
    }
}
