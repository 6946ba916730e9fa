//! `platform-server events`: over a running server's API, or in a stopped one's store.

use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use platform_core::{platform::Platform, uid::Uid};
use platform_events::overview;
use serde_json::{Value, json};

use crate::{
    cli::{Events, EventsCommand},
    config::{Config, Store},
    import::bearer,
    installation::{Installation, known_url},
};

/// How many lines are asked for at once.
const PAGE: usize = 1000;

pub(super) fn run(config: &Config, events: &Events) -> Result<ExitCode> {
    let api = events.at.api.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty());
    match api {
        Some(url) => {
            let token = bearer(config, events.at.token.as_ref())?;
            remote(&Remote::new(url, token), &events.what)?;
        }
        None => direct(config, &events.what)?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Remote {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Remote {
    fn new(url: &str, token: String) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(60)));
        Self { agent: config.build().into(), url: url.to_owned(), token }
    }

    /// Hands on each line of an answer, and returns how many there were and the last.
    fn each_line(&self, method: &str, path: &str, mut take: impl FnMut(&str) -> Result<()>) -> Result<String> {
        let url = format!("{}/operator/events/{path}", self.url);
        let authorization = format!("Bearer {}", self.token);
        let sent = match method {
            "POST" => self.agent.post(&url).header("authorization", &authorization).send_empty(),
            _ => self.agent.get(&url).header("authorization", &authorization).call(),
        };
        let answer = sent.with_context(|| format!("{} does not answer", self.url))?;
        let status = answer.status();
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        let mut last = String::new();
        for line in lines {
            let line = line.context("the server went away")?;
            if !status.is_success() {
                let error: Value = serde_json::from_str(&line).unwrap_or_default();
                bail!(
                    "{} answers {}: {}",
                    self.url,
                    status.as_u16(),
                    error.get("message").and_then(Value::as_str).unwrap_or(&line)
                );
            }
            take(&line)?;
            last = line;
        }
        if status.is_success() { Ok(last) } else { bail!("{} answers {}", self.url, status.as_u16()) }
    }
}

fn remote(server: &Remote, what: &EventsCommand) -> Result<()> {
    let print = |line: &str| Ok(writeln!(stdout(), "{line}")?);
    let (path, key) = match what {
        EventsCommand::Tail => return server.each_line("GET", "tail", print).map(drop),
        EventsCommand::Redeliver { below } => {
            let below = below.as_ref().map(|uid| format!("?below={uid}")).unwrap_or_default();
            return server.each_line("POST", &format!("redeliver{below}"), print).map(drop);
        }
        EventsCommand::Pending => ("pending", "subscription"),
        EventsCommand::Dead => ("dead", "uid"),
    };
    let mut after = String::new();
    loop {
        let last = server.each_line("GET", &format!("{path}{after}"), print)?;
        let last: Value = serde_json::from_str(&last).unwrap_or_default();
        match last.get(key).and_then(Value::as_str) {
            Some(uid) => after = format!("?after={uid}"),
            None => return Ok(()),
        }
    }
}

fn direct(config: &Config, what: &EventsCommand) -> Result<()> {
    let url = known_url(config);
    if config.store == Store::Memory {
        bail!("a memory store ends with its server: ask the running one with --api {url}");
    }
    if let EventsCommand::Tail = what {
        bail!("nothing changes in a stopped server's store: ask the running one with --api {url}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let installation = Installation::open_existing(config)?;
        let platform = installation.platform(config, &url).await;
        let platform = platform.with_context(|| format!("if a server has the store open, ask it with --api {url}"))?;
        print(&platform, what).await
    })
}

async fn print(platform: &Platform, what: &EventsCommand) -> Result<()> {
    let mut after: Option<Uid> = None;
    loop {
        let last = match what {
            EventsCommand::Pending => {
                let some = overview::pending(platform, after.as_ref(), PAGE).await?;
                some.iter().try_for_each(line)?;
                some.last().map(|one| one.subscription.clone())
            }
            EventsCommand::Dead => {
                let some = overview::dead(platform, after.as_ref(), PAGE).await?;
                some.iter().try_for_each(line)?;
                some.last().map(|one| one.uid.clone())
            }
            EventsCommand::Redeliver { below } => {
                let count = overview::redeliver(platform, below.as_ref()).await?;
                return line(&json!({ "redelivered": count }));
            }
            EventsCommand::Tail => return Ok(()),
        };
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

fn line(item: &impl serde::Serialize) -> Result<()> {
    Ok(writeln!(stdout(), "{}", serde_json::to_string(item)?)?)
}
