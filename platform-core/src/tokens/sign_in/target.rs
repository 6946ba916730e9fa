//! Where the tokens of a sign-in go: the callback of a program on the person's machine, or a headless client.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// The callback of a program on the person's machine, at a port of a loopback host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loopback {
    pub(super) host: &'static str,
    pub(super) port: u16,
    /// Empty or from its slash on, without a query.
    pub(super) path: String,
    /// Whether the request was an authorization request of OAuth 2.0.
    pub(super) is_standard: bool,
    pub(super) state: String,
    pub(super) challenge: Option<CodeChallenge>,
}

impl Loopback {
    /// The hosts of a callback.
    const HOSTS: [&'static str; 3] = ["localhost", "127.0.0.1", "[::1]"];

    /// Parses a callback: `http`, a loopback host, any port, exactly the path `/callback`. The query may only be
    /// `token=true&error=true`, a placeholder that clients send and that is dropped. Returns `None` for anything else.
    pub fn parse(url: &str) -> Option<Self> {
        let callback = Self::parse_uri(url.strip_suffix("?token=true&error=true").unwrap_or(url))?;
        (callback.path == "/callback").then_some(callback)
    }

    /// Parses a redirect URI of OAuth 2.0 for programs on the person's machine (RFC 8252 section 7.3): `http`, a loopback
    /// host, any port and any path, without a query. Returns `None` for anything else.
    pub fn parse_uri(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The characters of a path (RFC 3986 section 3.3). Browsers take a backslash for a slash, so it must not be there.
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&byte);
        if !path.bytes().all(is_of_path) {
            return None;
        }
        let with_host = |host: &&'static str| Some((*host, authority.strip_prefix(*host)?));
        let (host, port) = Self::HOSTS.iter().find_map(with_host)?;
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => 80,
            // One spelling only: no sign, no leading zero.
            Some(digits) if digits.starts_with(|first: char| ('1'..='9').contains(&first)) => digits.parse().ok()?,
            _ => return None,
        };
        Some(Self { host, port, path: path.to_owned(), ..Self::default() })
    }

    /// Returns whether a redirect URI is this callback.
    pub(super) fn is_at(&self, uri: &str) -> bool {
        Self::parse_uri(uri).is_some_and(|other| other.url() == self.url())
    }

    /// Returns whether the callback gets the response of OAuth 2.0 (RFC 6749 section 4.1.2), because the sign-in was begun
    /// by an authorization request of OAuth 2.0.
    pub const fn is_standard(&self) -> bool {
        self.is_standard
    }

    /// Returns the port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the origin, such as `http://localhost:8123`.
    pub fn origin(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// Returns the URL, such as `http://localhost:8123/callback`.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    /// Returns the text that the program recognizes its own sign-in by, which the callback gets back; empty if it sent
    /// none.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Returns the challenge of PKCE, with which the callback gets a code instead of the tokens.
    pub const fn challenge(&self) -> Option<&CodeChallenge> {
        self.challenge.as_ref()
    }

    /// Returns whether the host is an IPv6 address, which a content security policy cannot name.
    pub fn is_ipv6(&self) -> bool {
        self.host.starts_with('[')
    }
}

/// A code challenge of PKCE (RFC 7636) with the method S256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeChallenge([u8; 32]);

impl CodeChallenge {
    /// Parses a challenge: 32 bytes in base64url without padding.
    pub(super) fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Returns whether this is the challenge of a verifier. A verifier of the required form has too many possible values
    /// to be guessed from the time that this takes.
    pub fn is_of(&self, verifier: &str) -> bool {
        let is_long = (43..=128).contains(&verifier.len());
        is_long && self.0 == <[u8; 32]>::from(Sha256::digest(verifier))
    }
}

/// The X25519 public key of a headless client, in base64url without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadlessCode {
    text: String,
    key: [u8; 32],
}

impl HeadlessCode {
    /// Parses a code; returns `None` for anything but 32 bytes in base64url, in the only spelling that they have.
    pub fn parse(text: &str) -> Option<Self> {
        let key = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        Some(Self { text: text.to_owned(), key })
    }

    /// Returns the code as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the public key.
    pub const fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Returns the fingerprint that a person compares: the first 80 bits of the SHA-256 of the code as text, in hex, in
    /// groups of four digits.
    pub fn fingerprint(&self) -> String {
        let digest = hex::encode(Sha256::digest(&self.text));
        let digits: Vec<char> = digest.chars().take(20).collect();
        digits.chunks(4).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_the_callback_path_of_a_loopback_host() {
        for (url, origin) in [
            ("http://localhost/callback", "http://localhost:80"),
            ("http://localhost:8123/callback", "http://localhost:8123"),
            ("http://127.0.0.1:1/callback", "http://127.0.0.1:1"),
            ("http://[::1]:65535/callback", "http://[::1]:65535"),
            ("http://localhost:8123/callback?token=true&error=true", "http://localhost:8123"),
        ] {
            assert_eq!(Loopback::parse(url).unwrap().origin(), origin, "{url}");
        }
        for url in [
            "",
            "/callback",
            "https://localhost/callback",
            "HTTP://localhost/callback",
            "http:localhost/callback",
            "http://localhost",
            "http://localhost/",
            "http://localhost/callback/",
            "http://localhost/callback/../x",
            "http://localhost/callback?x=1",
            "http://localhost/callback?token=true&error=true&x=1",
            "http://localhost/callback#x",
            "http://localhost:/callback",
            "http://localhost:0/callback",
            "http://localhost:080/callback",
            "http://localhost:+80/callback",
            "http://localhost:65536/callback",
            "http://localhost:80:80/callback",
            "http://localhost.evil.example/callback",
            "http://localhost@evil.example/callback",
            "http://evil.example/callback",
            "http://evil.example:80@localhost/callback",
            "http://localhost:80@evil.example/callback",
            "http://localhost\\@evil.example/callback",
            "http://127.0.0.1.evil.example/callback",
            "http://127.1/callback",
            "http://0.0.0.0/callback",
            "http://[::]/callback",
            "http://[::1]evil.example/callback",
            "http://[::ffff:127.0.0.1]/callback",
            "http://LOCALHOST/callback",
            " http://localhost/callback",
            "http://localhost/callback\r\nx: y",
            "javascript:alert(1)//localhost/callback",
        ] {
            assert_eq!(Loopback::parse(url), None, "{url:?}");
        }
    }

    #[test]
    fn a_redirect_uri_has_any_path_of_a_loopback_host_and_nothing_more() {
        for (uri, url) in [
            ("http://127.0.0.1:8123/any/path", "http://127.0.0.1:8123/any/path"),
            ("http://127.0.0.1/", "http://127.0.0.1:80/"),
            ("http://[::1]:1", "http://[::1]:1"),
            ("http://localhost:1//evil.example/@%2e;a=b", "http://localhost:1//evil.example/@%2e;a=b"),
        ] {
            let callback = Loopback::parse_uri(uri).unwrap();
            assert_eq!(callback.url(), url, "{uri}");
            assert!(callback.is_at(uri) && !callback.is_at("http://127.0.0.1:8123/any"), "{uri}");
        }
        for uri in [
            "https://127.0.0.1/",
            "http://127.0.0.1:1/?x=1",
            "http://127.0.0.1:1?x=1",
            "http://127.0.0.1:1/#x",
            "http://127.0.0.1:1#/",
            "http://127.0.0.1:1\\@evil.example/",
            "http://127.0.0.1:1/\\evil.example",
            "http://127.0.0.1:1@evil.example/",
            "http://127.0.0.1.evil.example/",
            "http://evil.example/http://127.0.0.1/",
            "http://127.0.0.1:1/a b",
            "http://127.0.0.1:1/\r\nx: y",
            "http://127.0.0.1:1/\"<",
            "http://127.0.0.1:01/",
            "http:///",
            "http://",
            "com.example.app:/callback",
        ] {
            assert_eq!(Loopback::parse_uri(uri), None, "{uri:?}");
        }
    }

    #[test]
    fn a_code_is_32_bytes_in_base64url_and_has_a_fingerprint() {
        let text = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
        let code = HeadlessCode::parse(text).unwrap();
        assert_eq!((code.as_str(), code.key()), (text, &[1; 32]));
        // printf %s AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE | sha256sum | cut -c -20
        assert_eq!(code.fingerprint(), "56d5 fa73 33f6 d747 db42");
        for bad in [
            "",
            "AQEB",
            &format!("{text}="),
            &format!("{text}AAAA"),
            &text.replace('E', "+"),
            &text.replace("QE", "QF"),
        ] {
            assert_eq!(HeadlessCode::parse(bad), None, "{bad}");
        }
    }
}
