//! `platform-server events`: uses the API of a running server or the store of a stopped one.

use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use platform_engine::{platform::Platform, uid::Uid};
use platform_events::overview;
use serde_json::{Value, json};

use crate::{
    cli::{At, Events, EventsCommand},
    config::{Config, Store},
    installation::{Installation, block_on, known_url},
    running::{TIMEOUT, bearer, client},
    shared::send_last,
    stores::Purpose,
};

/// Page size, in items.
const PAGE: usize = 1000;

pub(super) fn run(config: &Config, events: &Events) -> Result<ExitCode> {
    let api = events.at.url();
    match api {
        Some(url) => {
            let token = bearer(config, events.at.token.as_ref())?;
            remote(&Remote::new(url, &events.at, token)?, &events.command)?;
        }
        None => direct(config, &events.command)?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Remote {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Remote {
    fn new(url: &str, at: &At, token: String) -> Result<Self> {
        let agent = client(at)?.timeout_recv_response(Some(TIMEOUT)).build().into();
        Ok(Self { agent, url: url.to_owned(), token })
    }

    /// Passes each line of the response to a function, and returns the last line, which is empty if there is none.
    fn each_line(&self, method: &str, path: &str, mut handle: impl FnMut(&str) -> Result<()>) -> Result<String> {
        let url = format!("{}/operator/events/{path}", self.url);
        let authorization = format!("Bearer {}", self.token);
        let sent = match method {
            "POST" => self.agent.post(&url).header("authorization", &authorization).send_empty(),
            _ => self.agent.get(&url).header("authorization", &authorization).call(),
        };
        let response = sent.with_context(|| format!("no response from {}", self.url))?;
        let status = response.status();
        let lines = BufReader::new(response.into_body().into_reader()).lines();
        let mut last = String::new();
        for line in lines {
            let line = line.context("lost the connection to the server")?;
            if !status.is_success() {
                let error: Value = serde_json::from_str(&line).unwrap_or_default();
                bail!(
                    "{} returned {}: {}",
                    self.url,
                    status.as_u16(),
                    error.get("message").and_then(Value::as_str).unwrap_or(&line)
                );
            }
            handle(&line)?;
            last = line;
        }
        if status.is_success() { Ok(last) } else { bail!("{} returned {}", self.url, status.as_u16()) }
    }
}

fn remote(server: &Remote, command: &EventsCommand) -> Result<()> {
    let print = |line: &str| Ok(writeln!(stdout(), "{line}")?);
    let (path, key) = match command {
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

fn direct(config: &Config, command: &EventsCommand) -> Result<()> {
    let url = known_url(config);
    if config.store == Store::Memory {
        bail!("a memory store exists only inside its server process: use --api {url}");
    }
    if let EventsCommand::Tail = command {
        bail!("`events tail` needs a running server: use --api {url}");
    }
    block_on(async {
        let installation = Installation::open_existing(config).await?;
        let platform = installation.platform(config, &installation.known_url(config), Purpose::Serve).await;
        let platform = platform.with_context(|| format!("if a running server has the store open, use --api {url}"))?;
        let printed = print(&platform, command).await;
        if let Some(shared) = &installation.shared {
            send_last(&*shared.store, &shared.wakeups).await;
        }
        printed
    })
}

async fn print(platform: &Platform, command: &EventsCommand) -> Result<()> {
    let mut after: Option<Uid> = None;
    loop {
        let last = match command {
            EventsCommand::Pending => {
                let page = overview::pending(platform, after.as_ref(), PAGE).await?;
                page.iter().try_for_each(line)?;
                page.last().map(|item| item.subscription.clone())
            }
            EventsCommand::Dead => {
                let page = overview::dead(platform, after.as_ref(), PAGE).await?;
                page.iter().try_for_each(line)?;
                page.last().map(|item| item.uid.clone())
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
