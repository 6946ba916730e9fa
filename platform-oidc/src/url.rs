//! Validation of issuer URLs and of the URLs that they lead to.

use http::Uri;

/// The rule that an issuer URL breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an issuer must be {0}")]
pub struct InvalidIssuer(pub(crate) &'static str);

/// The maximum length of a URL, in bytes; our choice.
const MAX_URL: usize = 2048;

/// Validates an issuer URL: `https` (or `http`, where the operator allows it), a host, and no user, query or fragment
/// (OpenID Connect Discovery section 3).
pub(crate) fn check_issuer(url: &str, allow_http: bool) -> Result<(), InvalidIssuer> {
    if url.contains('?') {
        return Err(InvalidIssuer("a URL without a query"));
    }
    check(url, allow_http)
}

/// Validates a URL that keys or metadata are fetched from. The rules are those of [`check_issuer`], except that a query
/// is allowed.
pub(crate) fn check(url: &str, allow_http: bool) -> Result<(), InvalidIssuer> {
    const URL: InvalidIssuer = InvalidIssuer("an absolute URL of at most 2048 bytes");
    if url.len() > MAX_URL || !url.is_ascii() {
        return Err(URL);
    }
    let uri: Uri = url.parse().map_err(|_| URL)?;
    let authority = uri.authority().ok_or(URL)?;
    if authority.host().is_empty() {
        return Err(URL);
    }
    if authority.as_str().contains('@') || url.contains('#') {
        return Err(InvalidIssuer("a URL without a user or a fragment"));
    }
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if allow_http => Ok(()),
        _ => Err(InvalidIssuer("an https URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_must_be_a_plain_https_url() {
        for valid in ["https://a", "https://a.example", "https://a.example:8443/path/", "https://[::1]:8443"] {
            assert_eq!(check_issuer(valid, false), Ok(()), "{valid}");
        }
        for invalid in [
            "",
            "a.example",
            "//a.example",
            "/path",
            "https://",
            "https:///path",
            "https:a.example",
            "ftp://a.example",
            "file:///etc/passwd",
            "http://a.example",
            "https://user@a.example",
            "https://a.example@evil.example",
            "https://a.example/#fragment",
            "https://a.example/?query",
            "https://a.example\\@evil.example",
            "https://a.example/ ",
            " https://a.example",
            "https://a.example\n",
            "https://\u{ff41}.example",
            "https://a.example/\u{ff41}",
            "https://:8443",
            &format!("https://a.example/{}", "x".repeat(MAX_URL)),
        ] {
            assert!(check_issuer(invalid, false).is_err(), "{invalid:?}");
        }
        assert_eq!(check_issuer("http://127.0.0.1:8080", true), Ok(()));
        assert_eq!(check("https://a.example/keys?version=1", false), Ok(()));
    }
}
