//! `login`, `logout` and `contexts`.

use std::io::{IsTerminal, Write, stdin};

use clap::ArgMatches;
use console::Term;
use platform_engine::kind::Http;
use serde_json::{Value, json};

use super::browser;
use crate::{
    api::{Api, Request},
    config::{self, Config, Context},
    failure::{Failure, Result},
    session::{say, text},
};

pub(super) fn login(matches: &ArgMatches) -> Result<()> {
    let file = config::file(matches)?;
    let mut contexts = Config::read(&file)?;
    let name = text(matches, "context").filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
    let given = |name: &str| text(matches, name).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let known = contexts.contexts.get(&name).map(|context| context.api.clone());
    let url = given("api").or(known).ok_or_else(|| Failure::usage("--api is required"))?;
    if !url.starts_with("https://") && !is_loopback(&url) {
        say(format!("warning: the token is sent to {url} without encryption"));
    }
    let ca_file = match config::ca_file(matches) {
        Some(path) => Some(path.canonicalize().map_err(|error| Failure::file(path.display(), error))?),
        None => None,
    };
    let api =
        |token: Option<&str>| Api::new(&url, token.map(str::to_owned), ca_file.as_deref(), config::repeat_for(matches));
    let token = if matches.get_flag("browser") {
        browser::sign_in(&api(None)?, &url, text(matches, "provider"), text(matches, "identity"))?
    } else {
        given("token").map_or_else(read_token, Ok)?
    };
    let token = if matches.get_flag("exchange") {
        let mut body = json!({ "aud": [url.trim_end_matches('/')] });
        if let (Some(identity), Some(body)) = (text(matches, "identity"), body.as_object_mut()) {
            body.insert("identity".to_owned(), identity.into());
        }
        let mut request = Request::new(Http::Post, "/sts/exchange".to_owned()).body(body);
        // It creates nothing.
        request.is_repeatable = true;
        let reply = api(Some(&token))?.send(&request)?;
        reply.get("token").and_then(Value::as_str).unwrap_or_default().to_owned()
    } else {
        token
    };
    let known = api(Some(&token))?.send(&Request::new(Http::Get, "/auth/v1/ok".to_owned()))?;
    let field = |name: &str| known.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let expiry = field("expiry");
    say(format!("signed in to {url} as {} until {expiry}", field("subject")));
    contexts.contexts.insert(name.clone(), Context { api: url, token, expiry, ca_file });
    contexts.current = name;
    contexts.write(&file)
}

fn is_loopback(url: &str) -> bool {
    let host = url.strip_prefix("http://").unwrap_or(url);
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|loopback| host.strip_prefix(loopback).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/'])))
}

/// Reads a token from standard input, without showing it on a terminal.
fn read_token() -> Result<String> {
    let mut token = String::new();
    if stdin().is_terminal() {
        say("Token:");
        token = Term::stderr().read_secure_line()?;
    } else {
        stdin().read_line(&mut token)?;
    }
    match token.trim() {
        "" => Err(Failure::usage("there is no token in standard input")),
        token => Ok(token.to_owned()),
    }
}

pub(super) fn logout(matches: &ArgMatches) -> Result<()> {
    let file = config::file(matches)?;
    let mut config = Config::read(&file)?;
    let name = config.name(matches);
    if config.contexts.remove(&name).is_none() {
        return Err(Failure::usage(format!("there is no context `{name}`")));
    }
    if config.current == name {
        config.current = String::new();
    }
    config.write(&file)?;
    say(format!("removed the context {name}"));
    Ok(())
}

pub(super) fn contexts(matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let file = config::file(matches)?;
    let mut config = Config::read(&file)?;
    if let Some(name) = text(matches, "name") {
        if !config.contexts.contains_key(name) {
            return Err(Failure::usage(format!("there is no context `{name}`")));
        }
        config.current = name.to_owned();
        return config.write(&file);
    }
    for (name, context) in &config.contexts {
        let mark = if *name == config.current { '*' } else { ' ' };
        writeln!(out, "{mark} {name}  {}  {}", context.api, context.expiry)?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machine_itself_is_loopback() {
        for (url, expected) in [
            ("http://127.0.0.1:8080", true),
            ("http://localhost/", true),
            ("http://[::1]:80", true),
            ("http://localhost.example.com", false),
            ("http://127.0.0.1.example.com", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}
