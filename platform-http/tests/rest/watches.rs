//! Watches over HTTP (`docs/api.md`, Watches): the bytes of the stream, and refusals.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use platform_engine::{error::Code, store::StoreError, watch::MAX_ORGANIZATIONS};
use platform_http::{Called, Layers, Limits, Reply, ReplyBody, Rest};
use platform_testkit::{Call, CountingStore, FailingStore};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::Instant,
};
use tower::ServiceExt;

use crate::support::{self, Answer, Listening, OPERATOR, ORG, UidIsToken, delete, limited::hourly, patch, post};

async fn api() -> Rest {
    support::rest(Limits::default()).await
}

fn path(query: &str) -> String {
    format!("/registry/v2/repos?uidp.descendantsOf={ORG}&{query}")
}

async fn repo(api: &Rest, name: &str) -> String {
    let repo = post(api, &format!("/registry/v2/repos/{ORG}"), json!({ "name": name })).await.ok();
    repo["uid"].as_str().unwrap().to_owned()
}

async fn identity(api: &Rest, name: &str) -> String {
    let identity = json!({ "name": name, "claimMatch": { "issuer": "https://issuer.test", "subject": name } });
    let identity = post(api, &format!("/iam/v2/identities/{ORG}"), identity).await.ok();
    identity["uid"].as_str().unwrap().to_owned()
}

async fn request(api: &Rest, path: &str, last_event_id: Option<&str>) -> Reply {
    let request = Request::get(path).header("authorization", format!("Bearer {OPERATOR}"));
    let request = last_event_id.into_iter().fold(request, |request, id| request.header("last-event-id", id));
    api.clone().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap()
}

/// A stream of events, by its chunks.
struct Events(ReplyBody);

impl Events {
    async fn open(api: &Rest, query: &str, last_event_id: Option<&str>) -> Self {
        let reply = request(api, &path(query), last_event_id).await;
        assert_eq!(reply.status(), StatusCode::OK);
        Self(reply.into_body())
    }

    /// Returns the next chunk; `None` at the end.
    async fn chunk(&mut self) -> Option<String> {
        let frame = self.0.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    /// Returns the next event, which is the next chunk.
    async fn event(&mut self) -> Event {
        Event::of(&self.chunk().await.expect("an event"))
    }
}

/// An event, and the time before a reconnection that it sets.
#[derive(Debug)]
struct Event {
    retry: Option<u64>,
    name: String,
    data: Value,
    id: String,
}

impl Event {
    /// Parses an event, which is the whole text, and checks the rules of all events.
    fn of(text: &str) -> Self {
        let block = text.strip_suffix("\n\n").unwrap_or_else(|| panic!("not an event: {text:?}"));
        assert!(!block.contains("\n\n") && !block.contains('\r'), "not one event: {text:?}");
        let mut lines = block.lines();
        let id = lines.next_back().and_then(|line| line.strip_prefix("id: ")).expect("the id is the last line");
        assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id:?}");
        let mut lines = lines.peekable();
        let retry = lines.next_if(|line| line.starts_with("retry: "));
        let retry = retry.map(|line| line["retry: ".len()..].parse().unwrap());
        let name = lines.next().and_then(|line| line.strip_prefix("event: ")).expect("a name").to_owned();
        assert!(!["error", "open", "message"].contains(&name.as_str()), "{name}");
        let data: Value =
            serde_json::from_str(lines.next().and_then(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
        assert_eq!(data["type"], name.as_str());
        assert_eq!(lines.next(), None, "{text:?}");
        Self { retry, name, data, id: id.to_owned() }
    }
}

#[tokio::test]
async fn each_event_is_one_chunk_with_its_id_last() {
    let api = api().await;
    let mut events = Events::open(&api, "watch=true", None).await;
    let first = events.event().await;
    assert_eq!((first.name.as_str(), first.retry), ("bookmark", Some(1000)));
    let uid = repo(&api, "nginx").await;
    patch(&api, &format!("/registry/v2/repos/{uid}"), json!({ "description": "two words" })).await.ok();
    delete(&api, &format!("/registry/v2/repos/{uid}")).await;
    let [added, modified, deleted] = [events.event().await, events.event().await, events.event().await];
    assert_eq!((added.name.as_str(), &added.data["resource"]["name"]), ("added", &json!("nginx")));
    assert_eq!((modified.name.as_str(), &modified.data["resource"]["description"]), ("modified", &json!("two words")));
    assert_eq!((deleted.name.as_str(), &deleted.data["resource"]), ("deleted", &json!({ "uid": uid })));
    assert_eq!([added.retry, modified.retry, deleted.retry], [None; 3]);
    // After each id, exactly what follows.
    for (id, expected) in [(&first.id, "added"), (&added.id, "modified"), (&modified.id, "deleted")] {
        let mut again = Events::open(&api, "watch=true", Some(id)).await;
        let first = again.event().await;
        assert_eq!((first.name.as_str(), first.retry), ("bookmark", Some(1000)));
        assert_eq!(again.event().await.name, expected);
        let mut again = Events::open(&api, &format!("watch=true&resumeToken={id}"), None).await;
        again.event().await;
        assert_eq!(again.event().await.name, expected);
    }
}

#[tokio::test]
async fn the_etag_of_an_event_is_that_of_the_resource() {
    let api = api().await;
    let mut events = Events::open(&api, "watch=names", None).await;
    events.event().await;
    let uid = repo(&api, "nginx").await;
    let added = events.event().await;
    assert_eq!(added.data["resource"], json!({ "uid": uid }));
    let got = support::get(&api, &format!("/registry/v2/repos/{uid}")).await;
    assert_eq!(got.headers["etag"], added.data["etag"].as_str().unwrap());
}

#[tokio::test]
async fn the_state_comes_first_if_asked() {
    let api = api().await;
    let uid = repo(&api, "nginx").await;
    let mut events = Events::open(&api, "watch=true&initial_state=true", None).await;
    let (added, end) = (events.event().await, events.event().await);
    assert_eq!((added.name.as_str(), added.retry, &added.data["resource"]["uid"]), ("added", Some(1000), &json!(uid)));
    assert_eq!((end.name.as_str(), end.retry), ("bookmark", None));
    assert_eq!(end.data["endsState"], true);
}

#[tokio::test(start_paused = true)]
async fn a_comment_of_two_bytes_keeps_an_idle_stream_alive_every_three_seconds() {
    let api = api().await;
    let mut events = Events::open(&api, "watch=true", None).await;
    let first = events.event().await;
    for _ in 0..19 {
        let before = Instant::now();
        assert_eq!(events.chunk().await.as_deref(), Some(":\n"));
        assert_eq!(before.elapsed().as_millis().div_ceil(10), 300);
    }
    // An idle watch gets newer tokens.
    let bookmark = events.event().await;
    assert_eq!((bookmark.name.as_str(), bookmark.retry), ("bookmark", None));
    assert_eq!(bookmark.id, first.id);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_its_maximum_age_with_an_event_that_resumes() {
    let api = api().await;
    let mut events = Events::open(&api, "watch=true", None).await;
    let before = Instant::now();
    let closing = loop {
        match events.chunk().await.unwrap() {
            comment if comment == ":\n" => {}
            event if event.contains("event: bookmark") => {}
            event => break Event::of(&event),
        }
    };
    assert_eq!(before.elapsed().as_secs(), 3600);
    assert_eq!((closing.name.as_str(), &closing.data["retryable"]), ("closing", &json!(true)));
    assert!(closing.retry.is_some());
    assert_eq!(events.chunk().await, None);
    Events::open(&api, "watch=true", Some(&closing.id)).await;
}

#[tokio::test]
async fn a_revoked_grant_ends_the_stream_with_an_event_that_slows_the_client() {
    let api = api().await;
    let role = support::get(&api, "/iam/v2/roles?name=viewer").await.ok()["roles"][0]["uid"].clone();
    let reader = identity(&api, "reader").await;
    let binding = json!({ "identityUid": reader, "roleUid": role });
    let binding = post(&api, &format!("/iam/v2/roleBindings/{ORG}"), binding).await.ok();
    let get = Request::get(path("watch=true")).header("authorization", format!("Bearer {reader}"));
    let reply: Reply = api.clone().oneshot(get.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
    let mut events = Events(reply.into_body());
    events.event().await;
    delete(&api, &format!("/iam/v2/roleBindings/{}", binding["uid"].as_str().unwrap())).await;
    let closing = events.event().await;
    assert_eq!((closing.name.as_str(), closing.retry), ("closing", Some(60_000)));
    assert_eq!((&closing.data["code"], &closing.data["retryable"]), (&json!("PERMISSION_DENIED"), &json!(false)));
    assert_eq!(events.chunk().await, None);
    let get = support::call_as(&api, Some(&reader), Method::GET, &path("watch=true"), "").await;
    assert_eq!(get.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_token_that_is_too_old_is_an_event_for_reconnecting_clients_and_410_for_others() {
    let api = api().await;
    let mut events = Events::open(&api, "watch=true", None).await;
    let id = events.event().await.id;
    // Of another list.
    let other = format!("/registry/v2/repos?uidp.childrenOf={ORG}&watch=true");
    let gone = Answer::of(request(&api, &format!("{other}&resumeToken={id}"), None).await).await;
    assert_eq!((gone.status, gone.refusal().1), (StatusCode::GONE, 11));
    let reply = request(&api, &other, Some(&id)).await;
    assert_eq!(reply.status(), StatusCode::OK);
    let mut events = Events(reply.into_body());
    let expired = events.event().await;
    assert_eq!((expired.name.as_str(), expired.retry), ("expired", Some(1000)));
    repo(&api, "nginx").await;
    assert_eq!(events.event().await.name, "added");
    let mut again = Events(request(&api, &other, Some(&expired.id)).await.into_body());
    assert_eq!([again.event().await.name, again.event().await.name], ["bookmark", "added"]);
}

#[tokio::test]
async fn a_request_that_cannot_be_watched_is_refused_as_one() {
    let api = api().await;
    for (query, fields) in [
        (path("watch=maybe"), "watch"),
        (path("watch=true&pageToken=x"), "pageToken"),
        (path("watch=true&resumeToken=x"), "resumeToken"),
        (path("resumeToken=x"), "resumeToken"),
        // Built-in roles are in no organization.
        ("/iam/v2/roles?watch=true".to_owned(), "uidp.descendants_of"),
    ] {
        let answer = support::get(&api, &query).await;
        assert_eq!((answer.status, answer.fields()), (StatusCode::BAD_REQUEST, vec![fields.to_owned()]), "{query}");
    }
    let answer = support::call_as(&api, None, Method::GET, &path("watch=true"), "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_caller_has_an_eighth_of_all_watches() {
    let api = support::rest(Limits { watches: 16, ..Limits::default() }).await;
    let open = [Events::open(&api, "watch=true", None).await, Events::open(&api, "watch=names", None).await];
    let refused = Answer::of(request(&api, &path("watch=true"), None).await).await;
    assert_eq!((refused.status, refused.refusal().1), (StatusCode::TOO_MANY_REQUESTS, 8));
    drop(open);
    Events::open(&api, "watch=true", None).await;
}

#[tokio::test]
async fn a_watch_is_refused_before_any_work_for_it() {
    let (store, calls) = CountingStore::in_memory();
    let platform = Arc::new(support::setting::platform_over(store).await);
    let limits = Limits { watches: 8, ..Limits::default() };
    let api = Rest::new(platform, Arc::new(UidIsToken), limits).unwrap();
    let nobody = identity(&api, "nobody").await;
    for _ in 0..MAX_ORGANIZATIONS {
        post(&api, "/iam/v2/groups", json!({ "name": "other" })).await.ok();
    }
    let open = Events::open(&api, "watch=true", None).await;
    let before = (calls.reads(), calls.commits());
    // Without a read: no token, no such parameter, too many.
    for (token, query, status) in
        [(None, "watch=true", 401), (Some(OPERATOR), "watch=no", 400), (Some(OPERATOR), "watch=true", 429)]
    {
        let refused = support::call_as(&api, token, Method::GET, &path(query), "").await;
        assert_eq!(refused.refusal().0, status, "{query}");
    }
    assert_eq!((calls.reads(), calls.commits()), before);
    drop(open);
    // Without a commit, which would begin a log that all writers of the organization write: no access, no token of a
    // watch, too many organizations.
    let everything = "/registry/v2/repos?watch=true".to_owned();
    let before = calls.commits();
    for (token, path, refusal) in [
        (nobody.as_str(), path("watch=true"), (403, 7)),
        (OPERATOR, path("watch=true&resumeToken=x"), (400, 3)),
        (OPERATOR, everything, (400, 3)),
    ] {
        let refused = support::call_as(&api, Some(token), Method::GET, &path, "").await.refusal();
        assert_eq!((refused.0, refused.1), refusal, "{path}");
    }
    assert_eq!(calls.commits(), before);
}

#[tokio::test]
async fn a_client_that_no_status_stops_is_limited_by_the_rate_of_its_caller() {
    let api = support::rest(Limits { identity_rate: hourly(3), ..Limits::default() }).await;
    let nobody = identity(&api, "nobody").await;
    for expected in [403, 403, 403, 429, 429] {
        let refused = support::call_as(&api, Some(&nobody), Method::GET, &path("watch=true"), "").await;
        assert_eq!(refused.refusal().0, expected);
        assert_eq!(refused.headers.contains_key("retry-after"), expected == 429);
    }
    Events::open(&api, "watch=true", None).await;
}

#[tokio::test]
async fn a_client_that_reconnects_is_put_off_with_an_event_because_503_and_429_would_stop_it() {
    let (store, failures) = FailingStore::in_memory();
    let platform = Arc::new(support::setting::platform_over(store).await);
    let api = Rest::new(platform, Arc::new(UidIsToken), Limits { watches: 8, ..Limits::default() }).unwrap();
    let mut open = Events::open(&api, "watch=true", None).await;
    let id = open.event().await.id;
    let put_off = async |code: &str| {
        let reply = request(&api, &path("watch=true"), Some(&id)).await;
        assert_eq!(reply.status(), StatusCode::OK);
        let recorded = Called::of(&reply).1.map(Code::reason);
        assert_eq!(recorded, Some(code), "metrics and the audit log have the failure");
        let mut events = Events(reply.into_body());
        let closing = events.event().await;
        assert_eq!((closing.name.as_str(), &closing.data["retryable"]), ("closing", &json!(true)));
        assert_eq!((closing.data["code"].as_str(), &closing.id), (Some(code), &id), "it resumes where it was");
        assert!((10_000..12_000).contains(&closing.retry.unwrap()), "{closing:?}");
        assert_eq!(events.chunk().await, None);
    };
    put_off("RESOURCE_EXHAUSTED").await;
    let refused = Answer::of(request(&api, &path("watch=true"), None).await).await;
    assert_eq!((refused.status, refused.refusal().1), (StatusCode::TOO_MANY_REQUESTS, 8), "a client that is new");
    // The status of a list does not depend on the header.
    assert_eq!(request(&api, &path("pageSize=1"), Some(&id)).await.status(), StatusCode::OK);
    drop(open);
    repo(&api, "nginx").await;
    let unavailable = || StoreError::Unavailable("the database is gone".into());
    failures.add(Call::Get, 0, unavailable());
    put_off("UNAVAILABLE").await;
    failures.add(Call::Get, 0, unavailable());
    let refused = Answer::of(request(&api, &path("watch=true"), None).await).await;
    assert_eq!((refused.status, refused.refusal().1), (StatusCode::SERVICE_UNAVAILABLE, 14));
    let mut again = Events::open(&api, "watch=true", Some(&id)).await;
    assert_eq!([again.event().await.name, again.event().await.name], ["bookmark", "added"]);
}

#[tokio::test]
async fn a_stream_is_not_compressed_and_says_what_it_is() {
    let service = Layers::default().around(api().await);
    let get = Request::get(path("watch=true")).header("authorization", format!("Bearer {OPERATOR}"));
    let get = get.header("accept-encoding", "gzip, br, zstd").body(Full::new(Bytes::new())).unwrap();
    let reply: Response<_> = service.oneshot(get).await.unwrap();
    let headers = reply.headers();
    assert_eq!(headers["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["x-accel-buffering"], "no");
    for name in ["content-encoding", "content-length", "connection"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    let mut body = Box::pin(reply.into_body());
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"retry: 1000\nevent: bookmark\n"), "{first:?}");
}

#[tokio::test]
async fn a_server_that_stops_closes_its_port_and_ends_its_streams_with_an_event() {
    let listening = Listening::new(Limits::default()).await;
    let address = listening.address;
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    let head = format!("GET {} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {OPERATOR}\r\n\r\n", path("watch=true"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
    }
    let first = chunk(&mut stream).await.unwrap();
    assert_eq!(Event::of(&first).name, "bookmark");
    let stopped = listening.stop();
    let closing = Event::of(&chunk(&mut stream).await.unwrap());
    assert_eq!((closing.name.as_str(), &closing.data["code"]), ("closing", &json!("UNAVAILABLE")));
    assert!((1_000..3_000).contains(&closing.retry.unwrap()));
    // Clients retry a refused connection, and many give up at a status.
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(chunk(&mut stream).await, None);
    tokio::time::timeout(Duration::from_secs(10), stopped).await.expect("the server ends").unwrap().unwrap();
}

/// Returns a chunk of the chunked transfer coding; `None` for the last one.
async fn chunk(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes).await.unwrap();
    (length > 0).then(|| String::from_utf8(bytes[..length].to_vec()).unwrap())
}
