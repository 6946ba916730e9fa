//! The memory that a long list of version 1 needs: it is sent page by page.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![allow(clippy::expect_used, reason = "in the support files")]

mod support;

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use peak_alloc::PeakAlloc;
use platform_core::resources::registry::Repo;
use platform_engine::{access::Caller, store::memory::MemoryStore, uid::Uid};
use platform_http::{Limits, Reply, Rest};
use support::{OPERATOR, ORG, UidIsToken, setting::platform_of};
use tower::Service;

/// Counts the memory of this process. The only test of this file is the only one of the process.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const REPOS: usize = 20_000;

#[tokio::test]
async fn a_list_of_20000_repos_needs_less_than_12_mib_of_memory() {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[]).await;
    let (operator, organization) = (Caller::new(Uid::parse(OPERATOR).unwrap()), Uid::parse(ORG).unwrap());
    for number in 0..REPOS {
        let repo = Repo { name: format!("repo-{number}"), ..Repo::default() };
        platform.create(&operator, &organization, &repo).await.unwrap();
    }
    let mut api = Rest::new(Arc::new(platform), Arc::new(UidIsToken), Limits::default()).unwrap();
    let request = Request::get("/registry/v1/repos").header("authorization", format!("Bearer {OPERATOR}"));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let reply: Result<Reply, Infallible> = api.call(request).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
    let (mut body, mut repos, mut bytes) = (reply.into_body(), 0, 0);
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        repos += String::from_utf8_lossy(&data).matches(r#""id":"#).count();
        bytes += data.len();
    }
    assert_eq!(repos, REPOS);
    let extra = MEMORY.peak_usage().saturating_sub(before);
    println!("{bytes} bytes in {extra} bytes of memory");
    assert!(extra < 12 << 20, "{extra} bytes of memory for a list of {bytes} bytes");
}
