//! The log: its format, and its filter, which can be changed while the server runs.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{IsTerminal, stderr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
    routing::MethodRouter,
};
use platform_core::{
    access::Authenticator,
    error::{Error, Result as ApiResult},
    platform::Platform,
};
use platform_http::{SlowRequests, operator, read_body, status};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::config::{Config, LogFormat, duration};

/// Maximum length of a filter in bytes. Our choice.
const MAX_FILTER: usize = 4 << 10;
/// Maximum size of a request that changes the log, in bytes. Our choice.
const MAX_BODY: usize = 16 << 10;
/// Time limit for such a request to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Handle of the log's filter. Clones share the same state.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter(reload::Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Parses a filter.
    ///
    /// # Errors
    /// The violated rule, as a phrase.
    pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
        if text.len() > MAX_FILTER {
            return Err(format!("is longer than {MAX_FILTER} bytes"));
        }
        EnvFilter::try_new(text).map_err(|error| format!("must be a filter such as info,platform_http=debug: {error}"))
    }

    /// Replaces the filter.
    pub(crate) fn set(&self, filter: EnvFilter) -> Result<()> {
        self.0.reload(filter).context("the log has ended")
    }

    fn text(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }
}

/// Starts to write the log of the process to standard error.
pub(crate) fn to_stderr(config: &Config) -> Result<LogFilter> {
    let filter = LogFilter::parse(&config.log).map_err(|rule| anyhow!("invalid log filter: {rule}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    match config.log_format {
        LogFormat::Text => registry.with(lines).init(),
        LogFormat::Json => registry.with(lines.json()).init(),
    }
    // Logs panics like other errors, so that the operator sees those that are caught and do not end the process.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!(%backtrace, "{panic}"),
            _ => tracing::error!("{panic}"),
        }
    }));
    Ok(LogFilter(handle))
}

/// `/operator/log`: the filter of the log and the time above which requests are logged as slow.
#[derive(Clone)]
pub(crate) struct LogRoutes {
    pub(crate) platform: Arc<Platform>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) filter: LogFilter,
    pub(crate) slow: SlowRequests,
}

/// Settings of the log, as the endpoint returns and takes them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// A duration; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_request: Option<String>,
}

impl LogRoutes {
    /// Returns the route, which only operators may call: GET, and PATCH with the settings to change.
    pub(crate) fn into_router(self) -> Router {
        let (read, change) = (self.clone(), self);
        let methods = MethodRouter::new()
            .get(async move |request: Request| read.respond(request, false).await)
            .patch(async move |request: Request| change.respond(request, true).await);
        Router::new().route("/operator/log", methods)
    }

    async fn respond(self, request: Request, is_change: bool) -> Response {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        match self.handle(request, is_change).await {
            Ok(body) => (json, body).into_response(),
            Err(error) => {
                let body = serde_json::to_vec(&error.status(&self.platform.settings().service_domain));
                (status::of(error.code()), json, body.unwrap_or_default()).into_response()
            }
        }
    }

    async fn handle(&self, request: Request, is_change: bool) -> ApiResult<Vec<u8>> {
        let (head, body) = request.into_parts();
        let head: Parts = head;
        operator(&self.platform, &*self.authenticator, &head).await?;
        if is_change {
            let body = read_body(body, MAX_BODY, BODY_TIME).await;
            let body = body.map_err(|_| Error::invalid_field("body", format!("must be at most {MAX_BODY} bytes")))?;
            let wanted: Settings =
                serde_json::from_slice(&body).map_err(|error| Error::invalid_field("body", error.to_string()))?;
            self.change(&wanted)?;
        }
        let slow = self.slow.get().map(|time| humantime::format_duration(time).to_string());
        let now = Settings { filter: Some(self.filter.text()), slow_request: Some(slow.unwrap_or_default()) };
        serde_json::to_vec(&now).map_err(Error::internal)
    }

    /// Changes the settings; all of them or, on an error, none.
    fn change(&self, wanted: &Settings) -> ApiResult<()> {
        let slow = match wanted.slow_request.as_deref() {
            None => None,
            Some("") => Some(None),
            Some(time) => Some(Some(duration(time).map_err(|rule| Error::invalid_field("slowRequest", rule))?)),
        };
        if let Some(text) = &wanted.filter {
            let filter = LogFilter::parse(text).map_err(|rule| Error::invalid_field("filter", rule))?;
            self.filter.set(filter).map_err(|error| Error::internal(error.to_string()))?;
        }
        if let Some(slow) = slow {
            self.slow.set(slow);
        }
        tracing::info!(filter = wanted.filter, slow_request = wanted.slow_request, "an operator changed the log");
        Ok(())
    }
}
