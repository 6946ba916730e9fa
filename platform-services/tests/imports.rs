//! Imports with hostile bodies: lines with too many values, streams without progress, too many imports at once.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/mod.rs"]
mod support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Method, Request, header::AUTHORIZATION};
use http_body::Frame;
use http_body_util::StreamBody;
use platform_core::resources::{libraries::Artifact, registry::Repo};
use platform_engine::{access::Caller, uid::Uid};
use platform_http::Limits;
use platform_services::Import;
use serde_json::Value;
use support::{Answer, OPERATOR, ORG, UidIsToken, platform};
use tokio::sync::mpsc;
use tower::ServiceExt;

const LINE: &str = "{\"ecosystem\":\"ECOSYSTEM_PYTHON\",\"name\":\"one\"}\n";

async fn import() -> Import {
    Import::new(Arc::new(platform().await), Arc::new(UidIsToken), Limits::default()).kind::<Artifact>()
}

async fn send(import: &Import, method: Method, body: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    send_to(import, method, "artifacts", body).await
}

async fn send_to(
    import: &Import,
    method: Method,
    path: &str,
    body: impl Stream<Item = Bytes> + Send + 'static,
) -> Answer {
    let frames = body.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let request = Request::builder().method(method).uri(format!("/import/{path}"));
    let request = request.header(AUTHORIZATION, format!("Bearer {OPERATOR}"));
    Answer::of(import.clone().oneshot(request.body(StreamBody::new(frames)).unwrap()).await.unwrap()).await
}

fn once(body: impl Into<Bytes>) -> impl Stream<Item = Bytes> {
    stream::iter([body.into()])
}

/// Repeats a frame forever, with a pause before each, and counts the frames.
fn endless(frame: &'static str, pause: Duration, count: &Arc<AtomicUsize>) -> impl Stream<Item = Bytes> + use<> {
    stream::unfold(Arc::clone(count), move |count| async move {
        tokio::time::sleep(pause).await;
        count.fetch_add(1, Ordering::SeqCst);
        Some((Bytes::from_static(frame.as_bytes()), count))
    })
}

/// Returns the message of the first rejected line from each line of the response.
fn refusals(answer: Answer) -> Vec<String> {
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    text.lines()
        .map(|text| line(text)["refused"][0]["error"]["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn a_line_of_too_many_values_is_rejected_before_it_is_deserialized() {
    let import = import().await;
    let many = "{},".repeat(5_000_000);
    let line = format!("{{\"name\":\"x\",\"versions\":[{many}{{}}]}}\n{LINE}");
    let refused = refusals(send(&import, Method::POST, once(line)).await);
    assert!(refused[0].contains("versions") && refused[0].contains("field"), "{refused:?}");
    let line = format!("{{\"name\":\"x\",\"cudaVersions\":[{}\"\"]}}\n", "\"\",".repeat(100_000));
    let refused = refusals(send(&import, Method::POST, once(line)).await);
    assert!(refused[0].contains("more than 100000 values"), "{refused:?}");
}

#[tokio::test]
async fn an_endless_stream_of_newlines_is_rejected() {
    let frame: &'static str = Box::leak("\n".repeat(64 << 10).into_boxed_str());
    let count = Arc::default();
    let answer = send(&import().await, Method::POST, endless(frame, Duration::ZERO, &count)).await;
    let (status, _, message) = answer.refusal();
    assert!(status == 400 && message.contains("empty lines"), "{message}");
    assert_eq!(count.load(Ordering::SeqCst), 17, "one frame over a mebibyte");
}

#[tokio::test(start_paused = true)]
async fn empty_lines_and_partial_lines_do_not_count_as_progress() {
    let import = import().await;
    for frame in ["\n", " \r\n", "{"] {
        let count = Arc::default();
        let answer = send(&import, Method::POST, endless(frame, Duration::from_secs(4), &count)).await;
        assert_eq!(answer.refusal().0, 504, "{frame:?}");
        assert_eq!(count.load(Ordering::SeqCst), 3, "{frame:?}");
    }
}

#[tokio::test]
async fn options_names_the_methods_of_an_import() {
    let answer = send(&import().await, Method::OPTIONS, stream::empty()).await;
    assert_eq!((answer.status.as_u16(), answer.headers["allow"].to_str().unwrap()), (200, "DELETE, POST, OPTIONS"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_import_whose_lines_arrive_in_time_succeeds() {
    let slow = endless(LINE, Duration::from_secs(12), &Arc::default()).take(20);
    let answer = send(&import().await, Method::POST, slow).await;
    let batch: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&batch["through"], &batch["created"]), (&20.into(), &1.into()), "{batch}");
}

#[tokio::test]
async fn imports_over_the_limit_are_rejected_with_a_retry_delay() {
    let import = import().await;
    let mut running = Vec::new();
    for _ in 0..4 {
        let (sender, receiver) = mpsc::channel::<Bytes>(1);
        let body =
            stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|next| (next, receiver)) });
        let (import, started) = (import.clone(), sender.clone());
        let task = tokio::spawn(async move { send(&import, Method::POST, body).await });
        // The buffer takes the second only after the first was read, which happens after authentication.
        started.send(Bytes::from_static(b"\n")).await.unwrap();
        started.send(Bytes::from_static(b"\n")).await.unwrap();
        started.send(Bytes::from_static(b"\n")).await.unwrap();
        running.push((sender, task));
    }
    for method in [Method::POST, Method::DELETE] {
        let answer = send(&import, method, once(LINE)).await;
        let (status, code, _) = answer.refusal();
        assert_eq!((status, code, &answer.headers["retry-after"]), (429, 8, &"1".parse().unwrap()));
    }
    let (sender, task) = running.pop().unwrap();
    drop(sender);
    assert_eq!(task.await.unwrap().status, 200);
    assert_eq!(send(&import, Method::POST, once(LINE)).await.status, 200);
    for (sender, task) in running {
        drop(sender);
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_blob_is_stored_only_if_it_matches_its_digest() {
    let platform = Arc::new(platform().await);
    let operator = Caller::new(Uid::parse(OPERATOR).unwrap());
    let repo = Repo { name: "nginx".to_owned(), ..Repo::default() };
    let repo = platform.create(&operator, ORG, &repo).await.unwrap().uid;
    let import = Import::all(Arc::clone(&platform), Arc::new(UidIsToken), Limits::default());
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let lines = [
        format!(r#"{{"digest":"{digest}","content":"aGVsbG8="}}"#),
        format!(r#"{{"digest":"{digest}","content":"aGVsbG9v"}}"#),
        format!(r#"{{"digest":"../{digest}","content":"aGVsbG8="}}"#),
        format!(r#"{{"digest":"{digest}","content":"a b"}}"#),
        format!(r#"{{"digest":"{digest}","content":"","path":"x"}}"#),
        "[]".to_owned(),
    ];
    let path = format!("blobs?parent={repo}");
    let answer = send_to(&import, Method::POST, &path, once(lines.join("\n"))).await.ok();
    assert_eq!((&answer["through"], &answer["created"]), (&6.into(), &1.into()), "{answer}");
    let refused: Vec<_> =
        answer["refused"].as_array().unwrap().iter().map(|one| one["line"].as_u64().unwrap()).collect();
    assert_eq!(refused, [2, 3, 4, 5, 6], "{answer}");
    let nowhere = format!("blobs?parent={ORG}/0000000000000000");
    let missing = send_to(&import, Method::POST, &nowhere, once(lines[0].clone())).await;
    assert_eq!(missing.refusal().0, 404);
    let again = send_to(&import, Method::POST, &path, once(lines[0].clone())).await.ok();
    assert_eq!((&again["created"], &again["unchanged"]), (&0.into(), &1.into()), "{again}");
    let collected = send_to(&import, Method::DELETE, "blobs", once("")).await.ok();
    assert_eq!(collected["removed"], 0, "the blob is not a day old");
    assert_eq!(send_to(&import, Method::DELETE, &path, once("")).await.refusal().0, 400);
}
