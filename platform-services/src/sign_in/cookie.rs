//! The cookie that binds a sign-in to a browser.

use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};
use platform_core::tokens::SIGN_IN_SECONDS;
use platform_engine::{
    error::{Error, Result},
    seal::Secret,
};
use platform_http::Reply;

/// The cookie. A later sign-in in the same browser replaces it, so a browser has one sign-in at a time.
#[derive(Debug)]
pub(super) struct Cookie {
    name: &'static str,
    attributes: &'static str,
}

impl Cookie {
    /// Returns the cookie. With TLS it has the prefix `__Host-`, so that no other host, not even a subdomain, can set
    /// it. `Lax` lets the browser send it when the provider redirects here, and not in requests of other sites' forms.
    pub(super) const fn new(secure: bool) -> Self {
        if secure {
            Self { name: "__Host-platform-sign-in", attributes: "Path=/; HttpOnly; SameSite=Lax; Secure" }
        } else {
            Self { name: "platform-sign-in", attributes: "Path=/; HttpOnly; SameSite=Lax" }
        }
    }

    /// Returns the value of the cookie, or an empty text without one.
    pub(super) fn read<'h>(&self, headers: &'h HeaderMap) -> &'h str {
        let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| value).unwrap_or_default()
    }

    pub(super) fn set(&self, reply: &mut Reply, secret: &Secret) -> Result<()> {
        self.put(reply, secret.expose(), SIGN_IN_SECONDS)
    }

    pub(super) fn remove(&self, reply: &mut Reply) -> Result<()> {
        self.put(reply, "", 0)
    }

    fn put(&self, reply: &mut Reply, value: &str, seconds: i64) -> Result<()> {
        let text = format!("{}={value}; Max-Age={seconds}; {}", self.name, self.attributes);
        let mut value = HeaderValue::try_from(text).map_err(Error::internal)?;
        value.set_sensitive(true);
        reply.headers_mut().insert(SET_COOKIE, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let cookie = Cookie::new(false);
        let headers = |values: &[&'static str]| {
            values.iter().map(|value| (COOKIE, HeaderValue::from_static(value))).collect::<HeaderMap>()
        };
        for (values, found) in [
            (&[][..], ""),
            (&["a=b"], ""),
            (&["platform-sign-in=x"], "x"),
            (&["a=b; platform-sign-in=x; c=d"], "x"),
            (&["a=b", "platform-sign-in=x"], "x"),
            (&["__Host-platform-sign-in=x"], ""),
            (&["platform-sign-in"], ""),
        ] {
            assert_eq!(cookie.read(&headers(values)), found, "{values:?}");
        }
        assert_eq!(Cookie::new(true).read(&headers(&["platform-sign-in=y; __Host-platform-sign-in=x"])), "x");
    }
}
