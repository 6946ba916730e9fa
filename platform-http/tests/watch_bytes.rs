//! The memory of an idle watch, in addition to that of its connection.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]
#![allow(clippy::print_stdout, reason = "the figure is read")]

mod support;

use peak_alloc::PeakAlloc;
use platform_http::Limits;
use support::{Listening, OPERATOR, ORG};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Counts the memory of this process. The only test of this file is the only one of the process.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const WATCHES: usize = 400;

/// 5,000 watches need at most 100 MB more.
const MOST: usize = 100_000_000 / 5_000;

async fn open(server: &Listening, watch: &str, end: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /registry/v2/repos?uidp.descendantsOf={ORG}{watch} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {OPERATOR}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.unwrap());
    }
    stream
}

#[tokio::test]
async fn an_idle_watch_needs_at_most_20_kb_more_than_its_connection() {
    let server = Listening::new(Limits::default()).await;
    let mut streams = Vec::new();
    let mut measure = async |watch: &str, end: &[u8]| {
        // What is made once for all.
        streams.push(open(&server, watch, end).await);
        let before = MEMORY.current_usage();
        for _ in 0..WATCHES {
            streams.push(open(&server, watch, end).await);
        }
        MEMORY.current_usage().saturating_sub(before) / WATCHES
    };
    let idle = measure("", b"\"skipped\":0}").await;
    let bytes = measure("&watch=true", b"\n\n\r\n").await;
    println!("{bytes} bytes for an idle watch, of which {idle} are an idle connection");
    assert!(bytes.saturating_sub(idle) <= MOST, "{bytes}");
}
