//! Requests to the server, repeated as `docs/api.md` (Retries) allows.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::Path,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use platform_engine::{
    entropy::Entropy,
    idempotency::HEADER,
    kind::{Domain, Http, Kind, Method, Verb},
    request::MAX_PAGE_SIZE,
};
use platform_system::SystemEntropy;
use serde_json::Value;
use ureq::{
    http,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem},
};

use crate::failure::{Exit, Failure, Result};

/// The pause before the first repetition, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The time for one attempt, in which a page of 4 MiB arrives over any usable connection.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time for which a request is repeated.
pub(crate) const REPEAT_FOR: Duration = Duration::from_secs(15);

/// The longest reply that is read: a page of 4 MiB or one resource, with room for replies of actions.
const MAX_REPLY: u64 = 64 << 20;

/// Bytes that a segment of a path keeps (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same, and the slashes of uids.
const UID: &AsciiSet = &SEGMENT.remove(b'/');

/// A server and the token for it.
pub(crate) struct Api {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
    repeat_for: Duration,
}

/// The token is a secret.
impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("url", &self.url).finish_non_exhaustive()
    }
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Http,
    /// The path after the server's URL, percent-encoded.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
    /// The tag that the resource must still have.
    pub(crate) if_match: Option<String>,
    /// The key with which the server carries out one of its attempts.
    idempotency_key: Option<String>,
    /// Whether it may be sent again when it is unknown whether an attempt was carried out.
    pub(crate) is_repeatable: bool,
}

impl Request {
    /// Returns a request without query and body. Reads are repeatable.
    pub(crate) fn new(method: Http, path: String) -> Self {
        let is_repeatable = method.is_safe();
        Self { method, path, query: Vec::new(), body: None, if_match: None, idempotency_key: None, is_repeatable }
    }

    /// Makes a write repeatable, by a key of its own.
    pub(crate) fn keyed(self) -> Self {
        let mut key = [0; 16];
        SystemEntropy.fill(&mut key);
        Self { idempotency_key: Some(hex::encode(key)), is_repeatable: true, ..self }
    }

    /// Returns a request of a standard method of a kind, with the value of the path's variable: the uid, or for a create
    /// the uid of the parent, which is empty where there is none.
    pub(crate) fn of(kind: &Kind, verb: Verb, uid: &str) -> Result<Self> {
        let method = kind.method(verb).filter(|method| method.served).ok_or_else(|| {
            Failure::usage(format!(
                "{} have no method {}",
                crate::kinds::command_name(kind),
                verb.name().to_lowercase()
            ))
        })?;
        let template = match (verb, uid) {
            (Verb::Create, "") => kind.plural.to_owned(),
            _ => kind.path(method),
        };
        let request = Self::new(verb.http(), path(&kind.domain, &template, |_| Some(uid.to_owned()))?);
        Ok(if request.method.is_safe() { request } else { request.keyed() })
    }

    pub(crate) fn query(mut self, query: Vec<(String, String)>) -> Self {
        self.query = query;
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn if_match(mut self, etag: Option<&str>) -> Self {
        self.if_match = etag.map(str::to_owned);
        self
    }
}

/// Returns a path with the values of its variables.
///
/// # Errors
/// If a variable has no value.
pub(crate) fn path(domain: &Domain, template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut path = format!("/{}/{}", domain.name, domain.version());
    for segment in template.split('/') {
        path.push('/');
        let Some((variable, rest)) = segment.strip_prefix('{').and_then(|segment| segment.split_once('}')) else {
            path.push_str(segment);
            continue;
        };
        let (name, pattern) = variable.split_once('=').unwrap_or((variable, "*"));
        let value = value(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| Failure::usage(format!("{name} is required")))?;
        let keep = if pattern == "**" { UID } else { SEGMENT };
        path.push_str(&utf8_percent_encode(&value, keep).to_string());
        path.push_str(rest);
    }
    Ok(path)
}

/// Returns the names of the variables of a path.
pub(crate) fn variables(template: &str) -> impl Iterator<Item = &str> {
    let inner = template.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    inner.map(|variable| variable.split('=').next().unwrap_or(variable))
}

impl Api {
    /// Returns a client for a server. Its certificate is verified by the public authorities, or by those of a PEM file
    /// only.
    ///
    /// # Errors
    /// If the URL does not begin with `http://` or `https://`, or if the file cannot be read.
    pub(crate) fn new(url: &str, token: Option<String>, ca: Option<&Path>, repeat_for: Duration) -> Result<Self> {
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            let failure =
                Failure::usage(format!("the URL of the server does not begin with http:// or https://: {url}"));
            return Err(failure);
        }
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .root_certs(ca.map_or(Ok(RootCerts::WebPki), authorities)?);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls.build())
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(TIMEOUT));
        Ok(Self { agent: config.build().into(), url: url.trim_end_matches('/').to_owned(), token, repeat_for })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request and returns the JSON of the reply, null for an empty one.
    ///
    /// # Errors
    /// The server's error, or that there was no reply.
    pub(crate) fn send(&self, request: &Request) -> Result<Value> {
        self.exchange(request).map(|reply| reply.body)
    }

    /// Begins a stream of events of a list with these parameters, after the event with this id.
    ///
    /// # Errors
    /// The server's error, or that there was no reply.
    pub(crate) fn stream(
        &self,
        kind: &'static Kind,
        query: Vec<(String, String)>,
        last_event_id: Option<&str>,
    ) -> Result<impl std::io::Read + Send + use<>> {
        let (path, query) = list_of(kind, query)?;
        let request = Request::new(Http::Get, path).query(query);
        let mut head = self.head(&request).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            head = head.header("last-event-id", id);
        }
        let begin = || {
            let request = self.agent.configure_request(head.body(())?).timeout_global(None);
            self.agent.run(request.timeout_recv_response(Some(TIMEOUT)).build())
        };
        let mut response = begin().map_err(|error| no_reply(&self.url, &error))?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response.into_body().into_reader());
        }
        let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let text = response.body_mut().with_config().limit(MAX_REPLY).read_to_string().unwrap_or_default();
        Err(Failure::of_answer(status, &serde_json::from_str(&text).unwrap_or_default(), &id))
    }

    /// Returns the time for which a request is repeated.
    pub(crate) fn repeat_for(&self) -> Duration {
        self.repeat_for
    }

    fn exchange(&self, request: &Request) -> Result<Reply> {
        let (started, mut pause) = (Instant::now(), PAUSE.0);
        loop {
            let (failure, wait, is_unknown) = match self.attempt(request) {
                Ok(reply) if (200..300).contains(&reply.status) => return Ok(reply),
                Ok(reply) => {
                    let Reply { status, body, request_id, .. } = reply;
                    let failure = Failure::of_answer(status, &body, &request_id);
                    match retry_after(&body) {
                        // Nothing has changed, so any request may be repeated.
                        Some(wait) if failure.is("ABORTED") || failure.is("RESOURCE_EXHAUSTED") => {
                            (failure, wait, false)
                        }
                        _ if matches!(status, 502..=504) => (failure, pause, true),
                        _ => return Err(failure),
                    }
                }
                Err(error) => {
                    let failure = no_reply(&self.url, &error);
                    match delivery(&error) {
                        Delivery::Impossible => return Err(failure),
                        Delivery::Unsent => (failure, pause, false),
                        Delivery::Unknown => (failure, pause, true),
                    }
                }
            };
            if is_unknown && !request.is_repeatable {
                return Err(failure.note("it is unknown whether the server has done it: look before you repeat it"));
            }
            if started.elapsed() + wait > self.repeat_for {
                return Err(failure);
            }
            sleep(wait);
            pause = PAUSE.1.min(pause * 2);
        }
    }

    fn attempt(&self, request: &Request) -> Result<Reply, ureq::Error> {
        // Deletes then answer `{}` with a type.
        let mut head = self.head(request).header("accept", "application/json");
        if let Some(etag) = &request.if_match {
            head = head.header("if-match", etag);
        }
        if let Some(key) = &request.idempotency_key {
            head = head.header(HEADER, key);
        }
        let mut response = match &request.body {
            Some(body) => self.agent.run(head.header("content-type", "application/json").body(body.to_string())?)?,
            None => self.agent.run(head.body(())?)?,
        };
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (status, etag) = (response.status().as_u16(), header("etag"));
        let request_id = header("x-request-id").unwrap_or_default();
        let text = response.body_mut().with_config().limit(MAX_REPLY).read_to_string()?;
        Ok(Reply { status, body: serde_json::from_str(&text).unwrap_or_default(), request_id, etag })
    }

    /// Returns the head of a request: its method, its URL and the token.
    fn head(&self, request: &Request) -> http::request::Builder {
        let mut url = format!("{}{}", self.url, request.path);
        for (index, (name, value)) in request.query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(&format!("{name}={}", utf8_percent_encode(value, SEGMENT)));
        }
        let head = http::Request::builder().method(request.method.name()).uri(url);
        match &self.token {
            Some(token) => head.header("authorization", format!("Bearer {token}")),
            None => head,
        }
    }

    /// Returns a resource.
    pub(crate) fn get(&self, kind: &Kind, uid: &str) -> Result<Value> {
        self.read(kind, uid).map(|(resource, _)| resource)
    }

    /// Returns a resource and its entity tag.
    pub(crate) fn read(&self, kind: &Kind, uid: &str) -> Result<(Value, Option<String>)> {
        self.exchange(&Request::of(kind, Verb::Get, uid)?).map(|reply| (reply.body, reply.etag))
    }

    /// Creates a resource below a parent, whose uid is empty where there is none, and returns it.
    pub(crate) fn create(&self, kind: &Kind, parent: &str, body: Value) -> Result<Value> {
        self.send(&Request::of(kind, Verb::Create, parent)?.body(body))
    }

    /// Sets the fields of a mask, if the resource still has the tag `etag`, and returns the resource.
    pub(crate) fn update(
        &self,
        kind: &Kind,
        uid: &str,
        mask: &[String],
        body: Value,
        etag: Option<&str>,
    ) -> Result<Value> {
        let mask = vec![("updateMask".to_owned(), mask.join(","))];
        self.send(&Request::of(kind, Verb::Update, uid)?.query(mask).body(body).if_match(etag))
    }

    /// Deletes a resource, if it still has the tag `etag`.
    pub(crate) fn delete(&self, kind: &Kind, uid: &str, etag: Option<&str>) -> Result<()> {
        self.send(&Request::of(kind, Verb::Delete, uid)?.if_match(etag)).map(drop)
    }

    /// Returns the pages of a list with these parameters, from the first to the last.
    pub(crate) fn pages(&self, kind: &'static Kind, query: Vec<(String, String)>) -> Result<Pages<'_>> {
        let (path, query) = list_of(kind, query)?;
        Ok(Pages { api: self, kind, path, query, next: Some(String::new()) })
    }
}

/// The path of a list, and its parameters.
type Target = (String, Vec<(String, String)>);

/// Returns the path of a list with these parameters, and those that are not in it.
fn list_of(kind: &'static Kind, query: Vec<(String, String)>) -> Result<Target> {
    let Some(method) = kind.method(Verb::List).filter(|method| method.served) else {
        return Err(Failure::usage(format!("{} have no list", crate::kinds::command_name(kind))));
    };
    let (in_path, query): (Vec<_>, Vec<_>) = query.into_iter().partition(|(name, _)| is_in_path(kind, method, name));
    let value = |name: &str| in_path.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    Ok((path(&kind.domain, &kind.path(method), value)?, query))
}

/// Returns whether a parameter of a list is a variable of its path.
pub(crate) fn is_in_path(kind: &Kind, method: &Method, name: &str) -> bool {
    variables(&kind.path(method)).any(|variable| variable == name)
}

struct Reply {
    status: u16,
    body: Value,
    request_id: String,
    etag: Option<String>,
}

/// The pages of a list.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    api: &'a Api,
    kind: &'static Kind,
    path: String,
    query: Vec<(String, String)>,
    /// The token of the next page: empty for the first, none after the last.
    next: Option<String>,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// The number of resources on all pages.
    pub(crate) total: u64,
    /// Whether more pages follow.
    pub(crate) is_last: bool,
}

impl Pages<'_> {
    /// Returns the next page with at most this many resources; `None` after the last page.
    pub(crate) fn next(&mut self, size: usize) -> Result<Option<Page>> {
        let Some(token) = self.next.take() else { return Ok(None) };
        let mut query = self.query.clone();
        query.push(("page_size".to_owned(), size.clamp(1, MAX_PAGE_SIZE).to_string()));
        if !token.is_empty() {
            // Skipped resources are counted from the token.
            query.retain(|(name, _)| name != "skip");
            query.push(("page_token".to_owned(), token));
        }
        let mut reply = self.api.send(&Request::new(Http::Get, self.path.clone()).query(query))?;
        let token = reply.get("nextPageToken").and_then(Value::as_str).unwrap_or_default();
        self.next = Some(token.to_owned()).filter(|token| !token.is_empty());
        let total = reply.get("totalCount").and_then(Value::as_str).and_then(|count| count.parse().ok());
        let items = match reply.get_mut(self.kind.plural).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        Ok(Some(Page { total: total.unwrap_or(items.len() as u64), items, is_last: self.next.is_none() }))
    }
}

/// Returns the certificates of a PEM file.
fn authorities(path: &Path) -> Result<RootCerts> {
    let pem = fs::read(path).map_err(|error| Failure::file(path.display(), error))?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        match item.map_err(|error| Failure::file(path.display(), error))? {
            PemItem::Certificate(certificate) => certificates.push(certificate),
            _ => continue,
        }
    }
    if certificates.is_empty() {
        Err(Failure::file(path.display(), "contains no certificate"))
    } else {
        Ok(RootCerts::new_with_certs(&certificates))
    }
}

/// Returns the delay of an error's RetryInfo.
fn retry_after(body: &Value) -> Option<Duration> {
    let details = body.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// The facts about a request without a reply.
enum Delivery {
    /// It can never be sent.
    Impossible,
    /// It was not sent.
    Unsent,
    /// The server may have carried it out.
    Unknown,
}

fn delivery(error: &ureq::Error) -> Delivery {
    use ureq::{Error, Timeout};
    match error {
        Error::ConnectionFailed | Error::HostNotFound => Delivery::Unsent,
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => Delivery::Unsent,
        Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => Delivery::Unsent,
        // Found before the request is sent, and the same at the next attempt.
        Error::Io(error) if is_invalid_certificate(error) => Delivery::Impossible,
        Error::Io(_) | Error::Timeout(_) | Error::Protocol(_) => Delivery::Unknown,
        _ => Delivery::Impossible,
    }
}

fn is_invalid_certificate(error: &std::io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

fn no_reply(url: &str, error: &ureq::Error) -> Failure {
    Failure::new(Exit::Unavailable, format!("no reply from {url}: {error}"))
}

#[cfg(test)]
mod tests {
    use platform_core::resources::{iam::Group, registry::Repo};
    use platform_engine::kind::Resource;

    use super::*;

    /// As ureq reports it. Each attempt would fail like the first, and none reaches the server.
    #[test]
    fn a_request_is_not_repeated_after_an_invalid_certificate() {
        let invalid = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let refused = std::io::Error::new(ErrorKind::InvalidData, invalid);
        assert!(matches!(delivery(&ureq::Error::Io(refused)), Delivery::Impossible));
        let cut = std::io::Error::from(ErrorKind::ConnectionReset);
        assert!(matches!(delivery(&ureq::Error::Io(cut)), Delivery::Unknown));
    }

    #[test]
    fn a_path_keeps_the_slashes_of_a_uid_and_encodes_everything_else() {
        let request = Request::of(Repo::KIND, Verb::Get, "a/b:c%d e").unwrap();
        assert_eq!(request.path, "/registry/v2/repos/a/b%3Ac%25d%20e");
        let path = path(&Repo::KIND.domain, "repos/{repoUid=**}/digests/{digest}/size", |name| match name {
            "repoUid" => Some("a/b".to_owned()),
            _ => Some("sha256:0/1".to_owned()),
        });
        assert_eq!(path.unwrap(), "/registry/v2/repos/a/b/digests/sha256%3A0%2F1/size");
    }

    #[test]
    fn a_create_without_a_parent_goes_to_the_collection_and_a_get_needs_a_uid() {
        assert_eq!(Request::of(Group::KIND, Verb::Create, "").unwrap().path, "/iam/v2/groups");
        assert!(Request::of(Group::KIND, Verb::Get, "").is_err());
    }

    #[test]
    fn a_verb_at_the_end_of_a_path_is_kept() {
        let path = path(&Group::KIND.domain, "groups/{uid=**}:close", |_| Some("a".to_owned()));
        assert_eq!(path.unwrap(), "/iam/v2/groups/a:close");
    }
}
