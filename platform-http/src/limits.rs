//! What a peer may send and hold.

use std::time::Duration;

/// Bounds on requests and connections. All are our choice; each can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request's body. 1 MiB. More: 413.
    pub body: usize,
    /// The most bytes of a path. 4 KiB, which is a uid of 240 levels. More: 414.
    pub path: usize,
    /// The most bytes of a query string. 32 KiB, which is some 500 uids. More: 414.
    pub query: usize,
    /// How deep a JSON body may nest. 32.
    pub depth: usize,
    /// How long a body may take to arrive. 15 s. Longer: 504.
    pub body_time: Duration,
    /// How long an answer may take, arrival of the body included. 30 s. Longer: 504. What was begun may have been
    /// done.
    pub request_time: Duration,

    /// How many connections are open at once. 4,096. Further ones wait to be accepted.
    pub connections: u32,
    /// How long a new connection may take until its first request's head is there. 10 s.
    pub head_time: Duration,
    /// How long a connection stays open without a request, or with a head half sent after its first one. 60 s.
    pub idle_time: Duration,
    /// How long open connections have to finish when the server stops or closes them. 20 s.
    pub drain_time: Duration,
    /// The most bytes of a request's head, at least 8 KiB. 64 KiB. More: 431, which the HTTP library answers, as it
    /// does whatever is no HTTP, without a body.
    pub head: usize,
    /// The most header lines of a request over HTTP/1.1. 100. More: 431 likewise.
    pub headers: usize,
    /// How many requests one HTTP/2 connection has at once. 200.
    pub streams: u32,
    /// How often an HTTP/2 peer is asked whether it is still there, and how long it has to answer. 20 s.
    pub ping_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            path: 4 << 10,
            query: 32 << 10,
            depth: 32,
            body_time: Duration::from_secs(15),
            request_time: Duration::from_secs(30),
            connections: 4096,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            drain_time: Duration::from_secs(20),
            head: 64 << 10,
            headers: 100,
            streams: 200,
            ping_time: Duration::from_secs(20),
        }
    }
}
