//! A program that signs in with the crate openidconnect. Arguments and output: tests/clients/oauth.py.
//!
//! The crate has no grant type of its own choice, so this program does not exchange tokens (RFC 8693).

use std::{
    env,
    error::Error,
    io::{Read, Write, stdin},
    net::TcpStream,
};

use openidconnect::{
    AuthorizationCode, ClientId, CsrfToken, HttpRequest, HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope,
    core::{CoreAuthenticationFlow, CoreClient, CoreErrorResponseType, CoreProviderMetadata, CoreRequestTokenError},
    http::Response,
    url::Url,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sends a request over HTTP without TLS.
fn send(request: HttpRequest) -> std::result::Result<HttpResponse, std::io::Error> {
    let (head, body) = request.into_parts();
    let authority = head.uri.authority().map(ToString::to_string).unwrap_or_default();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut text =
        format!("{} {path} HTTP/1.0\r\nhost: {authority}\r\ncontent-length: {}\r\n", head.method, body.len());
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    let mut stream = TcpStream::connect(&authority)?;
    stream.write_all(format!("{text}\r\n").as_bytes())?;
    stream.write_all(&body)?;
    let mut read = String::new();
    stream.read_to_string(&mut read)?;
    let (head, body) = read.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let mut response = Response::builder().status(status);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    response.body(body.as_bytes().to_vec()).map_err(std::io::Error::other)
}

/// Returns the value of a parameter of the callback.
fn parameter(callback: &Url, name: &str) -> String {
    callback.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn check_fails<T>(
    expected: &CoreErrorResponseType,
    result: std::result::Result<T, CoreRequestTokenError<std::io::Error>>,
) {
    match result {
        Err(RequestTokenError::ServerResponse(found)) => {
            assert_eq!(found.error(), expected);
            assert!(found.error_description().is_some());
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no {expected:?}"),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().collect();
    let metadata = CoreProviderMetadata::discover(&IssuerUrl::new(arguments[1].clone())?, &send)?;
    let client = CoreClient::from_provider_metadata(metadata, ClientId::new("rust".to_owned()), None)
        .set_redirect_uri(RedirectUrl::new(arguments[2].clone())?);
    let sign_in = |answer: &str| -> Result<(Url, PkceCodeVerifier)> {
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let (url, state, _) = client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
            .add_scope(Scope::new("offline_access".to_owned()))
            .set_pkce_challenge(challenge)
            .url();
        println!("{answer} {url}");
        let mut line = String::new();
        stdin().read_line(&mut line)?;
        let callback = Url::parse(line.trim())?;
        assert_eq!(&parameter(&callback, "state"), state.secret());
        Ok((callback, verifier))
    };

    let (refused, _) = sign_in("refuse")?;
    assert_eq!(parameter(&refused, "error"), "access_denied");

    let (callback, verifier) = sign_in("allow")?;
    let redeem = || {
        let verifier = PkceCodeVerifier::new(verifier.secret().clone());
        let code = AuthorizationCode::new(parameter(&callback, "code"));
        client.exchange_code(code).map(|request| request.set_pkce_verifier(verifier).request(&send))
    };
    let tokens = redeem()??;
    println!("token {}", tokens.access_token().secret());
    assert!(tokens.expires_in().is_some_and(|time| time.as_secs() > 3500));
    check_fails(&CoreErrorResponseType::InvalidGrant, redeem()?);

    let token = tokens.refresh_token().ok_or("no refresh token")?;
    let refreshed = client.exchange_refresh_token(token)?.request(&send)?;
    println!("token {}", refreshed.access_token().secret());
    let unknown = RefreshToken::new("unknown".to_owned());
    check_fails(&CoreErrorResponseType::InvalidGrant, client.exchange_refresh_token(&unknown)?.request(&send));
    Ok(())
}
