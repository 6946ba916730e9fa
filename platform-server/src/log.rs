//! The log: its format, and its filter, which can be changed while the server runs.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{IsTerminal, stderr},
};

use anyhow::{Context, Result, anyhow};
use axum::{Router, extract::Request, routing::get};
use platform_engine::error::{Error, Result as ApiResult};
use platform_http::SlowRequests;
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::{
    config::{Config, LogFormat, duration},
    operator::{Json, Operators, read_json},
};

/// Maximum length of a filter in bytes. Our choice.
const MAX_FILTER: usize = 4 << 10;
/// Maximum size of a request that changes the log, in bytes. Our choice.
const MAX_BODY: usize = 16 << 10;

/// Handle of the log's filter; `None` if the program that embeds the server writes its own log. Clones share the same
/// state.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter(Option<reload::Handle<EnvFilter, Registry>>);

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

    /// Replaces the filter, if the log is ours.
    pub(crate) fn set(&self, filter: EnvFilter) -> Result<()> {
        self.0.iter().try_for_each(|handle| handle.reload(filter.clone())).context("the log has ended")
    }

    fn text(&self) -> Option<String> {
        self.0.as_ref()?.with_current(ToString::to_string).ok()
    }
}

/// Starts to write the log of the process to standard error, unless the process has a log already.
pub(crate) fn to_stderr(config: &Config) -> Result<LogFilter> {
    let filter = LogFilter::parse(&config.log).map_err(|rule| anyhow!("invalid log filter: {rule}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let started = match config.log_format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    if started.is_err() {
        return Ok(LogFilter(None));
    }
    // Logs panics like other errors, so that the operator sees those that are caught and do not end the process.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!(%backtrace, "{panic}"),
            _ => tracing::error!("{panic}"),
        }
    }));
    Ok(LogFilter(Some(handle)))
}

/// What `/operator/log` shows and changes.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) filter: LogFilter,
    /// The time above which requests are logged as slow.
    pub(crate) slow: SlowRequests,
}

/// The body of requests and responses.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// A duration; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_request: Option<String>,
}

/// Returns the route: GET returns the settings of the log, PATCH changes those that are given.
pub(crate) fn routes(operators: &Operators, log: &Log) -> Router {
    let (read, change) = (operators.clone(), operators.clone());
    let (shown, changed) = (log.clone(), log.clone());
    let show = move |request: Request| read.answer(request, None, async move |_, _, _| Ok(Json(shown.settings())));
    let change = move |request: Request| {
        change.answer(request, None, async move |_, _, body| {
            changed.change(&read_json(body, MAX_BODY).await?)?;
            Ok(Json(changed.settings()))
        })
    };
    Router::new().route("/operator/log", get(show).patch(change))
}

impl Log {
    fn settings(&self) -> Settings {
        let slow = self.slow.get().map(|time| humantime::format_duration(time).to_string());
        Settings { filter: self.filter.text(), slow_request: Some(slow.unwrap_or_default()) }
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
            if self.filter.0.is_none() {
                return Err(Error::blocked("LOG_NOT_OURS", "the program writes its own log: change its filter there"));
            }
            self.filter.set(filter).map_err(|error| Error::internal(error.to_string()))?;
        }
        if let Some(slow) = slow {
            self.slow.set(slow);
        }
        tracing::info!(filter = wanted.filter, slow_request = wanted.slow_request, "an operator changed the log");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_at_most_as_long_as_its_limit() {
        let filter = |len: usize| LogFilter::parse(&format!("info,{}", "a".repeat(len - 5)));
        assert!(filter(MAX_FILTER).is_ok());
        assert!(filter(MAX_FILTER + 1).unwrap_err().starts_with("is longer than"));
    }

    #[test]
    fn the_log_of_an_embedding_program_keeps_its_filter() {
        let log = Log { filter: LogFilter(None), slow: SlowRequests::default() };
        let wanted =
            |filter: Option<&str>| Settings { filter: filter.map(str::to_owned), slow_request: Some("2s".to_owned()) };
        assert!(log.change(&wanted(Some("debug"))).is_err());
        assert_eq!(log.settings().slow_request.unwrap(), "", "nothing is changed");
        log.change(&wanted(None)).unwrap();
        assert_eq!((log.settings().filter, log.settings().slow_request.unwrap()), (None, "2s".to_owned()));
    }
}
