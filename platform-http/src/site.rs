//! The site whose page sent a request, as far as the browser says so.

use http::{
    header::{HOST, ORIGIN},
    request::Parts,
};

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A page of this server: its origin is that of the server's URL, or has the host and port that the request was sent to.
    OwnPage,
    /// A page of another site, or one without an origin.
    OtherPage,
    /// A program, or a browser that does not name a page.
    Unnamed,
}

/// Returns the sender of a request by its headers `Origin` and `Sec-Fetch-Site`, which pages cannot set. `url` is the one by
/// which browsers reach the server: a proxy may send another `Host`, or none of its port.
///
/// A page whose name resolves to the address of this server is [`Sender::OwnPage`]: a server that relies on names
/// checks [`host`], too.
pub fn sender(head: &Parts, url: &str) -> Sender {
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_other = !matches!(header("sec-fetch-site"), None | Some("same-origin" | "none"));
    match header(ORIGIN.as_str()) {
        _ if is_other => Sender::OtherPage,
        None => Sender::Unnamed,
        Some(origin) => match origin_of(origin) {
            Some(page) if Some(&page) == origin_of(url).as_ref() => Sender::OwnPage,
            Some(page) if host(head).is_some_and(|host| page == of_host(page.0, host)) => Sender::OwnPage,
            _ => Sender::OtherPage,
        },
    }
}

/// Returns the scheme, host and port of a URL.
fn origin_of(url: &str) -> Option<(&str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    Some(of_host(scheme, rest.split('/').next()?))
}

/// Returns a host and port as browsers write them: in lower case, and without the port of the scheme.
fn of_host<'a>(scheme: &'a str, host: &str) -> (&'a str, String) {
    let port = if scheme == "https" { ":443" } else { ":80" };
    (scheme, host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase())
}

/// Returns the path below which a server is reached by a URL, without a slash at its end: empty for most servers.
pub fn base_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().trim_end_matches('/')
}

/// Returns the host and port that a request was sent to: those of its target, or else the header `Host`. `None` for a
/// request without them, which no browser sends; the empty string for a header that is not ASCII.
pub fn host(head: &Parts) -> Option<&str> {
    let header = || head.headers.get(HOST).map(|value| value.to_str().unwrap_or_default());
    head.uri.authority().map(http::uri::Authority::as_str).or_else(header)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const URL: &str = "http://127.0.0.1:8080";

    fn head(target: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::builder().uri(target), |request, (name, value)| request.header(*name, value.as_bytes()));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_page_of_this_server_has_the_origin_that_it_sends_to() {
        for (headers, expected) in [
            (&[][..], Sender::Unnamed),
            (&[("origin", "http://a:1")], Sender::OwnPage),
            (&[("origin", "http://a:1"), ("sec-fetch-site", "same-origin")], Sender::OwnPage),
            (&[("origin", "http://a:1"), ("sec-fetch-site", "same-site")], Sender::OtherPage),
            (&[("origin", "http://a:1"), ("sec-fetch-site", "cross-site")], Sender::OtherPage),
            (&[("origin", "http://a:1"), ("sec-fetch-site", "é")], Sender::OtherPage),
            (&[("sec-fetch-site", "none")], Sender::Unnamed),
            (&[("origin", "http://a:2")], Sender::OtherPage),
            (&[("origin", "http://b")], Sender::OtherPage),
            (&[("origin", "null")], Sender::OtherPage),
            (&[("origin", "")], Sender::OtherPage),
            (&[("origin", "é")], Sender::OtherPage),
        ] {
            let with_host = [&[("host", "a:1")], headers].concat();
            assert_eq!(sender(&head("/", &with_host), URL), expected, "{headers:?}");
            assert_eq!(sender(&head("http://a:1/", headers), URL), expected, "{headers:?} over HTTP/2");
        }
        assert_eq!(sender(&head("/", &[("origin", "http://a")]), URL), Sender::OtherPage, "without a host");
    }

    #[test]
    fn a_page_of_the_url_of_the_server_is_its_own_whatever_host_a_proxy_sends() {
        for (host, url, origin, expected) in [
            ("backend:8080", "https://api.example", "https://api.example", Sender::OwnPage),
            ("backend:8080", "https://api.example:443/platform", "https://api.example", Sender::OwnPage),
            ("api.example", "https://api.example:8443", "https://api.example:8443", Sender::OwnPage),
            ("api.example:443", "http://127.0.0.1:8080", "https://api.example", Sender::OwnPage),
            ("API.example", "http://127.0.0.1:8080", "https://api.example", Sender::OwnPage),
            ("[::1]:80", "http://127.0.0.1:8080", "http://[::1]", Sender::OwnPage),
            ("api.example:80", "http://127.0.0.1:8080", "https://api.example", Sender::OtherPage),
            ("backend:8080", "https://api.example", "http://api.example", Sender::OtherPage),
            ("backend:8080", "https://api.example", "https://api.example.other", Sender::OtherPage),
            ("backend:8080", "https://api.example", "null", Sender::OtherPage),
            ("backend:8080", "", "", Sender::OtherPage),
        ] {
            let head = head("/", &[("host", host), ("origin", origin)]);
            assert_eq!(sender(&head, url), expected, "{host} {url} {origin}");
        }
    }

    #[test]
    fn the_base_path_is_that_of_the_url() {
        for (url, path) in
            [("https://a", ""), ("https://a/", ""), ("https://a/platform", "/platform"), ("https://a:1/x/y/", "/x/y")]
        {
            assert_eq!(base_path(url), path);
        }
    }

    #[test]
    fn the_host_is_that_of_the_target_or_of_the_header() {
        assert_eq!(host(&head("http://a:1/", &[("host", "b")])), Some("a:1"));
        assert_eq!(host(&head("/", &[("host", "b")])), Some("b"));
        assert_eq!(host(&head("/", &[("host", "é")])), Some(""));
        assert_eq!(host(&head("/", &[])), None);
    }
}
