//! The pages of a sign-in.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        X_FRAME_OPTIONS,
    },
};
use platform_core::tokens::{Confirmation, Target};
use platform_engine::error::{Error, Result};
use platform_http::{Reply, ReplyBody, log_fault, mount::base_path, status};

use super::html::Html;

/// The policy of pages without a form.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Returns the style sheet of all pages.
pub(super) fn style() -> Reply {
    let mut reply = Reply::new(ReplyBody::from(Bytes::from_static(include_bytes!("style.css"))));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    reply
}

/// Forbids caches to store a reply, and browsers to send its URL to other sites.
pub(super) fn not_cached(reply: &mut Reply) {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply.headers_mut().insert(HeaderName::from_static("pragma"), HeaderValue::from_static("no-cache"));
    reply.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Returns a redirect, which the browser follows with GET.
///
/// # Errors
/// INTERNAL for a URL that no header can have.
pub(super) fn redirect(url: &str) -> Result<Reply> {
    let mut location = HeaderValue::try_from(url).map_err(Error::internal)?;
    location.set_sensitive(true);
    let mut reply = Reply::new(ReplyBody::default());
    *reply.status_mut() = StatusCode::SEE_OTHER;
    reply.headers_mut().insert(LOCATION, location);
    not_cached(&mut reply);
    Ok(reply)
}

/// The pages of a server, which is reached by this URL.
#[derive(Debug)]
pub(super) struct Pages {
    url: String,
}

impl Pages {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    /// Returns the path of the confirmation, as browsers have it.
    pub(super) fn confirm_path(&self) -> String {
        format!("{}/oauth/confirm", base_path(&self.url))
    }

    /// Returns a page with one paragraph.
    pub(super) fn message(&self, status: StatusCode, title: &'static str, text: &str) -> Reply {
        let body = Html::default().markup("<p>").text(text).markup("</p>");
        self.render(status, title, &body, HeaderValue::from_static(POLICY))
    }

    /// Returns the page for an error, and logs a server fault.
    pub(super) fn error(&self, error: &Error) -> Reply {
        log_fault(error);
        let mut body = Html::default().markup("<p>").text(error.message()).markup("</p>");
        if !error.violations().is_empty() {
            body = body.markup("<ul>");
            for violation in error.violations() {
                body =
                    body.markup("<li>").code(&violation.field).text(": ").text(&violation.description).markup("</li>");
            }
            body = body.markup("</ul>");
        }
        let body = body.markup("<p>No program got a token.</p>");
        self.render(status::of(error.code()), "Sign-in failed", &body, HeaderValue::from_static(POLICY))
    }

    /// Returns the page where a person confirms that a program gets tokens.
    ///
    /// # Errors
    /// INTERNAL for a policy that no header can have.
    pub(super) fn confirmation(&self, asked: &Confirmation) -> Result<Reply> {
        let request = &asked.request;
        // Browsers apply the policy to the redirect that answers the form, too, so it names the program's callback. It
        // cannot name an IPv6 address.
        let callback = match &request.target {
            Target::Loopback(callback) if callback.is_ipv6() => "http:".to_owned(),
            Target::Loopback(callback) => callback.origin(),
            Target::Headless(_) => String::new(),
        };
        let policy = POLICY.replace("form-action 'none'", format!("form-action 'self' {callback}").trim_end());
        let policy = HeaderValue::try_from(policy).map_err(Error::internal)?;
        let code = |text: &str| Html::default().code(text);
        let mut rows = Html::default()
            .row(
                "Program",
                &if request.client.is_empty() { Html::default().text("without a name") } else { code(&request.client) },
            )
            .row("Server", &code(&self.url))
            .row("You", &Html::default().markup("<bdi>").text(&asked.name).markup("</bdi><br>").code(&asked.person))
            .row("Signed in by", &code(&asked.issuer));
        if let Some(identity) = &request.identity {
            rows = rows.row("Acts as", &code(identity));
        }
        for audience in &asked.audiences {
            rows = rows.row("Token for", &code(audience));
        }
        for scope in &request.narrow.scopes {
            rows = rows.row("Only in", &code(scope));
        }
        let rows = rows.row("Token goes to", &target(&request.target));
        let registration = match (asked.registered, request.skip_registration) {
            (true, _) => "",
            (false, true) => "<p>You are not registered here, so the program gets an error.</p>",
            (false, false) => "<p>You are not registered here yet. If you allow this, you are.</p>",
        };
        let invite = match &request.invite {
            Some(_) => "<p>If you allow this, an invite is redeemed for you.</p>",
            None => "",
        };
        let body = Html::default()
            .markup("<p>A program asks for a token that acts with your rights.</p>\n<dl>\n")
            .html(&rows)
            .markup("</dl>\n")
            .markup(registration)
            .markup(invite)
            .markup("<p class=\"warning\">Allow this only if you have just started the sign-in yourself.</p>\n")
            .markup("<form method=\"post\" action=\"")
            .text(&self.confirm_path())
            .markup("\"><input type=\"hidden\" name=\"token\" value=\"")
            .text(asked.form_token.expose())
            .markup("\"><button name=\"answer\" value=\"allow\">Allow</button>")
            .markup("<button class=\"second\" name=\"answer\" value=\"refuse\">Refuse</button></form>");
        Ok(self.render(StatusCode::OK, "Confirm the sign-in", &body, policy))
    }

    fn render(&self, status: StatusCode, title: &'static str, body: &Html, policy: HeaderValue) -> Reply {
        let page = Html::default()
            .markup("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")
            .markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>")
            .markup(title)
            .markup("</title><link rel=\"stylesheet\" href=\"")
            .text(base_path(&self.url))
            .markup("/oauth/style.css\"></head>\n<body><main><h1>")
            .markup(title)
            .markup("</h1>\n")
            .html(body)
            .markup("\n</main></body></html>\n");
        let mut reply = Reply::new(ReplyBody::from(Bytes::from(page.into_string())));
        *reply.status_mut() = status;
        not_cached(&mut reply);
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        reply
    }
}

fn target(target: &Target) -> Html {
    match target {
        Target::Loopback(callback) => Html::default()
            .markup("port <b>")
            .text(&callback.port().to_string())
            .markup("</b> of this computer<br>")
            .code(&callback.url()),
        Target::Headless(code) => Html::default()
            .markup("a program that may be on another computer. Compare its code<br>")
            .code(code.as_str())
            .markup("<br>or the fingerprint of the code<br><code class=\"fingerprint\">")
            .text(&code.fingerprint())
            .markup("</code>"),
    }
}
