//! `login --browser`: signs a person in with a browser on the same machine (`docs/api.md`, Browser sign-in).
//!
//! The server leads the browser to a port of this program on a loopback address, with a code that is worthless without
//! the verifier (PKCE, RFC 7636), and with the `state` of this sign-in, so that no other page can end it.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use platform_core::tokens::SIGN_IN_SECONDS;
use platform_engine::kind::Http;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    api::{Api, Request},
    failure::{Exit, Failure, Result},
    session::say,
};

/// The time for which a connection may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest request of a browser that is read, in bytes.
const MAX_REQUEST: u64 = 16 << 10;

/// Signs a person in at the provider, or else that of the operator, and returns the access token: of the person, or of
/// the identity.
pub(super) fn sign_in(api: &Api, url: &str, provider: Option<&str>, identity: Option<&str>) -> Result<String> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("cannot listen for the browser: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (state, verifier) = (random()?, random()?);
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let redirect = format!("http://127.0.0.1:{port}/callback");
    let mut query = vec![
        ("redirect", redirect.as_str()),
        ("client_id", crate::cli::NAME),
        ("state", &state),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    query.extend(provider.map(|provider| ("idp_id", provider)));
    query.extend(identity.map(|identity| ("identity", identity)));
    let query: Vec<_> =
        query.iter().map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))).collect();
    let page = format!("{}/oauth?{}", url.trim_end_matches('/'), query.join("&"));
    say("open this page if your browser does not:");
    say(&page);
    open(&page);
    let code = wait_for_code(&listener, &state)?;
    let body = json!({ "grantType": "authorization_code", "code": code, "codeVerifier": verifier });
    let reply = api.send(&Request::new(Http::Post, "/oauth/token".to_owned()).body(body))?;
    let token = reply.get("token").and_then(Value::as_str).filter(|token| !token.is_empty());
    Ok(token.ok_or_else(|| Failure::new(Exit::Failed, "the server returned no token"))?.to_owned())
}

/// Returns 32 random bytes in base64url.
fn random() -> Result<String> {
    let mut bytes = [0; 32];
    let filled = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| Failure::new(Exit::Failed, "the system has no random numbers"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Opens a page in the browser of the desktop. Without one, the person opens it.
fn open(page: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet =
        Command::new(program).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    drop(quiet);
}

/// Waits for the request that ends the sign-in, and answers all others until then.
fn wait_for_code(listener: &TcpListener, state: &str) -> Result<String> {
    let until = Instant::now() + Duration::from_secs(SIGN_IN_SECONDS.unsigned_abs());
    while Instant::now() < until {
        match listener.accept() {
            // A browser that closes its connection early, or sends something else, does not end the sign-in.
            Ok((stream, _)) => {
                if let Some(ended) = answer(&stream, state).unwrap_or_default() {
                    return ended;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(50)),
            Err(error) => return Err(Failure::new(Exit::Failed, format!("cannot listen for the browser: {error}"))),
        }
    }
    Err(Failure::new(Exit::TimedOut, "nobody signed in within 10 minutes"))
}

/// Answers one request. Returns the code, or the failure, if the request ends the sign-in.
fn answer(mut stream: &TcpStream, state: &str) -> std::io::Result<Option<Result<String>>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(MAX_REQUEST)).lines();
    let line = lines.next().transpose()?.unwrap_or_default();
    // The rest of the head is read, so that the reply is not lost with a reset connection.
    for header in lines {
        if header?.is_empty() {
            break;
        }
    }
    let ended = ended(&line, state);
    let (status, text) = match &ended {
        Some(Ok(_)) => ("200 OK", "You are signed in. You can close this page."),
        Some(Err(_)) => ("200 OK", "The sign-in has failed. The program says why."),
        None => ("404 Not Found", "There is nothing here."),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(ended)
}

/// Returns the code or the failure in a request line, if it is of this sign-in.
fn ended(line: &str, state: &str) -> Option<Result<String>> {
    let query = line.strip_prefix("GET /callback?")?.split(' ').next()?;
    let pairs: HashMap<_, _> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let value = |name: &str| {
        let text = pairs.get(name)?.replace('+', " ");
        Some(percent_decode_str(&text).decode_utf8_lossy().into_owned())
    };
    if value("state")? != state {
        return None;
    }
    match (value("code"), value("error")) {
        (Some(code), None) => Some(Ok(code)),
        (_, Some(error)) => Some(Err(Failure::new(Exit::Denied, format!("the sign-in failed: {error}")))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_callback_with_the_state_of_this_sign_in_ends_it() {
        let code = |line: &str| ended(line, "mine").map(|ended| ended.map_err(|failure| failure.to_string()));
        assert_eq!(code("GET /callback?code=a%2Bb&state=mine HTTP/1.1"), Some(Ok("a+b".to_owned())));
        let refused = code("GET /callback?error=The+person+refused&status_code=403&state=mine HTTP/1.1");
        assert!(refused.is_some_and(|refused| refused.is_err_and(|text| text.contains("The person refused"))));
        for other in [
            "GET /callback?code=a&state=other HTTP/1.1",
            "GET /callback?code=a HTTP/1.1",
            "GET /callback?token=a&state=mine HTTP/1.1",
            "GET /favicon.ico HTTP/1.1",
            "POST /callback?code=a&state=mine HTTP/1.1",
            "",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }
}
