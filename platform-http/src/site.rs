//! The site whose page sent a request, as far as the browser says so.

use http::{
    header::{HOST, ORIGIN},
    request::Parts,
};

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A page of this server: its origin has the host and port that the request was sent to.
    OwnPage,
    /// A page of another site, or one without an origin.
    OtherPage,
    /// A program, or a browser that does not name a page.
    Unnamed,
}

/// Returns the sender of a request by its headers `Origin` and `Sec-Fetch-Site`, which pages cannot set.
///
/// A page whose name resolves to the address of this server is [`Sender::OwnPage`]: a server that relies on names
/// checks [`host`], too.
pub fn sender(head: &Parts) -> Sender {
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_other = !matches!(header("sec-fetch-site"), None | Some("same-origin" | "none"));
    match header(ORIGIN.as_str()) {
        _ if is_other => Sender::OtherPage,
        None => Sender::Unnamed,
        Some(origin) => match origin.split_once("://") {
            Some((_, page)) if Some(page) == host(head) => Sender::OwnPage,
            _ => Sender::OtherPage,
        },
    }
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
            assert_eq!(sender(&head("/", &with_host)), expected, "{headers:?}");
            assert_eq!(sender(&head("http://a:1/", headers)), expected, "{headers:?} over HTTP/2");
        }
        assert_eq!(sender(&head("/", &[("origin", "http://a")])), Sender::OtherPage, "without a host");
    }

    #[test]
    fn the_host_is_that_of_the_target_or_of_the_header() {
        assert_eq!(host(&head("http://a:1/", &[("host", "b")])), Some("a:1"));
        assert_eq!(host(&head("/", &[("host", "b")])), Some("b"));
        assert_eq!(host(&head("/", &[("host", "é")])), Some(""));
        assert_eq!(host(&head("/", &[])), None);
    }
}
