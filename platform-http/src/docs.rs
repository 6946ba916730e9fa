//! Documentation page: Swagger UI for the OpenAPI document. Its files are embedded in the binary, so the page does not
//! load anything from other servers.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::LazyLock,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use tower::Service;

use crate::reply::{self, Reply};

mod archive;

/// Content security policy: the page can load its own files and call this server. Swagger UI uses `data:` URLs for its
/// icons.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Files of Swagger UI that the page needs, with their content types; others are not served. All of them are
/// decompressed when one is requested for the first time.
static FILES: LazyLock<[(&str, &str, Option<Bytes>); 3]> = LazyLock::new(|| {
    [
        ("swagger-ui.css", "text/css; charset=utf-8"),
        ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
        ("favicon-32x32.png", "image/png"),
    ]
    .map(|(name, content_type)| (name, content_type, archive::file(name)))
});

/// Serves the page at a path and its files below it. Mount it with axum's `nest_service`.
///
/// Readers paste a token into the page to call the API, or are signed in to the console. The page keeps tokens in memory
/// only, until it is closed.
#[derive(Debug, Clone)]
pub struct Docs {
    page: String,
    document: String,
    start: Bytes,
}

impl Docs {
    /// Returns the page for the path `at`, such as `/docs`, with a title. It shows the document at the path `document`,
    /// such as `/openapi.json`, of the same server. Both are the paths that browsers have.
    pub fn new(title: &str, at: &str, document: &str) -> Self {
        let page = include_str!("docs/index.html").replace("{at}", at).replace("{title}", &escaped(title));
        let docs = Self { page, document: document.to_owned(), start: start(document, "") };
        docs.link("OpenAPI document", document)
    }

    /// Adds a link to the head of the page, such as to a guide.
    #[must_use]
    pub fn link(mut self, text: &str, href: &str) -> Self {
        let item = format!("<li><a href=\"{}\">{}</a></li>{LINKS_END}", escaped(href), escaped(text));
        self.page = self.page.replacen(LINKS_END, &item, 1);
        self
    }

    /// Calls the API with the session of the console whose path for sessions, such as `/console/session`, is this. It
    /// must be that of browsers, on the same server.
    #[must_use]
    pub fn session(self, path: &str) -> Self {
        Self { start: start(&self.document, path), ..self }
    }

    fn answer(&self, method: &Method, path: &str) -> Reply {
        if ![Method::GET, Method::HEAD].contains(method) {
            return status(StatusCode::METHOD_NOT_ALLOWED, &[(ALLOW, "GET, HEAD")]);
        }
        let name = path.trim_start_matches('/');
        let (content_type, body) = match name {
            "" => ("text/html; charset=utf-8", self.page.clone().into()),
            "page.css" => ("text/css; charset=utf-8", Bytes::from_static(include_bytes!("docs/page.css"))),
            "start.js" => ("text/javascript; charset=utf-8", self.start.clone()),
            name => match file(name) {
                Some((content_type, body)) => (content_type, body),
                None => return status(StatusCode::NOT_FOUND, &[]),
            },
        };
        let mut reply = Reply::new(body.into());
        set(&mut reply, CONTENT_TYPE, content_type);
        set(&mut reply, CACHE_CONTROL, "no-cache");
        set(&mut reply, CONTENT_SECURITY_POLICY, POLICY);
        set(&mut reply, X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(&mut reply, REFERRER_POLICY, "no-referrer");
        if *method == Method::HEAD { reply::without_body(reply) } else { reply }
    }
}

/// The place in the page before which links are added.
const LINKS_END: &str = "</ul>";

/// Returns a text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Returns the script that starts Swagger UI. `session` is empty without a console.
fn start(document: &str, session: &str) -> Bytes {
    include_str!("docs/start.js").replace("{document}", document).replace("{session}", session).into()
}

/// Returns a file of Swagger UI with its content type.
fn file(name: &str) -> Option<(&'static str, Bytes)> {
    let (_, content_type, body) = FILES.iter().find(|(file, ..)| *file == name)?;
    Some((content_type, body.clone()?))
}

fn status(status: StatusCode, headers: &[(HeaderName, &'static str)]) -> Reply {
    let mut reply = reply::empty();
    *reply.status_mut() = status;
    headers.iter().for_each(|(name, value)| set(&mut reply, name.clone(), value));
    reply
}

fn set(reply: &mut Reply, name: HeaderName, value: &'static str) {
    reply.headers_mut().insert(name, HeaderValue::from_static(value));
}

impl<B> Service<Request<B>> for Docs {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(request.method(), request.uri().path())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_swagger_ui_are_complete() {
        let ends = |name, end: &[u8]| {
            let (_, body) = file(name).unwrap();
            assert!(body.ends_with(end), "{name}: {:?}", body.get(body.len().saturating_sub(40)..));
        };
        ends("swagger-ui.css", b"sourceMappingURL=swagger-ui.css.map*/");
        ends("swagger-ui-bundle.js", b"SwaggerUI})(),i=i.default})()));");
        ends("favicon-32x32.png", b"IEND\xaeB`\x82");
    }

    #[test]
    fn only_the_page_and_its_files_are_served() {
        let docs = Docs::new("Tickets & <more>", "/docs", "/openapi.json");
        assert!(docs.page.contains("<title>Tickets &amp; &lt;more></title>"));
        let docs = docs.link("Guides & \"more\"", "/guides?a&b");
        let links = "<ul><li><a href=\"/openapi.json\">OpenAPI document</a></li>\
                     <li><a href=\"/guides?a&amp;b\">Guides &amp; &quot;more&quot;</a></li></ul>";
        assert!(docs.page.contains(links), "{}", docs.page);
        assert!(String::from_utf8_lossy(&docs.start).contains("const session = \"\";"));
        let docs = docs.session("/console/session");
        assert!(String::from_utf8_lossy(&docs.start).contains("const session = \"/console/session\";"));
        for (path, kind) in [
            ("/", "text/html; charset=utf-8"),
            ("/start.js", "text/javascript; charset=utf-8"),
            ("/swagger-ui.css", "text/css; charset=utf-8"),
            ("/page.css", "text/css; charset=utf-8"),
            ("/swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
            ("/favicon-32x32.png", "image/png"),
        ] {
            let reply = docs.answer(&Method::GET, path);
            assert_eq!((reply.status(), &reply.headers()[CONTENT_TYPE]), (StatusCode::OK, &kind.parse().unwrap()));
            assert!(reply.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'"));
        }
        for path in ["/swagger-ui.js", "/index.html", "/../Cargo.toml", "/%2e%2e"] {
            assert_eq!(docs.answer(&Method::GET, path).status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(docs.answer(&Method::POST, "/").status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
