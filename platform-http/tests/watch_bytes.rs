//! The memory of an idle watch, with its connection.

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

/// 5,000 watches need at most 100 MB.
const MOST: usize = 100_000_000 / 5_000;

async fn open(server: &Listening) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /registry/v2/repos?uidp.descendantsOf={ORG}&watch=true HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {OPERATOR}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\n\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    assert!(String::from_utf8(read).unwrap().contains("event: bookmark"));
    stream
}

#[tokio::test]
async fn an_idle_watch_needs_at_most_20_kb_with_its_connection() {
    let server = Listening::new(Limits::default()).await;
    // What is made once for all.
    let mut streams = vec![open(&server).await];
    let before = MEMORY.current_usage();
    for _ in 0..WATCHES {
        streams.push(open(&server).await);
    }
    let bytes = MEMORY.current_usage().saturating_sub(before) / WATCHES;
    println!("{bytes} bytes for an idle watch");
    assert!(bytes <= MOST, "{bytes}");
    drop(streams);
}
