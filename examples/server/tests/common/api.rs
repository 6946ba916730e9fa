//! A client of the API: sends JSON, returns status and body.

use std::time::Duration;

use serde_json::Value;
use ureq::http::{Method, Request};

/// How long the slowest answer may take; a server that needs longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and a token for it. Connections are kept, and clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    agent: ureq::Agent,
    pub(crate) url: String,
    pub(crate) token: String,
}

/// What the server answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).proxy(None);
        Self { agent: config.build().into(), url: url.to_owned(), token: token.to_owned() }
    }

    /// Sends a request; none when no answer came, because there is no such server or no longer.
    ///
    /// # Panics
    /// When the server hangs.
    pub(crate) fn try_send(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        self.try_send_text(method, path, body.map(ToString::to_string).as_deref())
    }

    /// As [`Api::try_send`], with any text as the body.
    pub(crate) fn try_send_text(&self, method: &str, path: &str, body: Option<&str>) -> Option<Answer> {
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token));
        let done = match body {
            Some(body) => self.agent.run(request.body(body.to_owned()).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let read = |mut answer: ureq::http::Response<ureq::Body>| {
            let text = answer.body_mut().read_to_string()?;
            Ok(Answer { status: answer.status().as_u16(), text })
        };
        match done.and_then(read) {
            Ok(answer) => Some(answer),
            Err(ureq::Error::Timeout(_)) => panic!("{method} {path} had no answer for {PATIENCE:?}"),
            Err(_) => None,
        }
    }

    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.try_send(method, path, body).unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    /// Returns the same client with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// Sends a form.
    #[track_caller]
    pub(crate) fn form(&self, path: &str, form: &str) -> Answer {
        self.try_send_text("POST", path, Some(form)).unwrap_or_else(|| panic!("{path}: no answer"))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, None)
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the body of a request that was done.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Returns the error, which must have this status and be structured.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json();
        assert!(error["code"].is_u64() && error["message"].is_string(), "{self:?}");
        assert_eq!(error["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{self:?}");
        error
    }
}
