//! Server whose limits apply to its tests, and clients that do not behave.

use std::{
    convert::Infallible,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, header::EXPECT};
use http_body::{Body, Frame};
use platform_http::{Layers, Limits, Listener, Rate, Rest, Shares, serve};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tower::ServiceExt;

/// Timeout of a test; nothing is measured with it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Server whose limits apply to loopback addresses, with access to its budgets.
pub struct Server {
    pub address: SocketAddr,
    pub shares: Arc<Shares>,
    pub rest: Rest,
    pub stop: oneshot::Sender<()>,
    pub done: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub async fn new(limits: Limits) -> Self {
        Self::serving(limits, |rest| rest).await
    }

    /// Serves the API with the additions of `mount`.
    pub async fn serving(limits: Limits, mount: impl FnOnce(Rest) -> Rest) -> Self {
        let limits = Limits { limit_loopback: true, ..limits };
        let rest = mount(super::rest(limits.clone()).await);
        let shares = Shares::new(&limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let listener = Listener::from(listener).with_shares(Arc::clone(&shares));
        let service = Layers::default().around(rest.clone());
        let done = tokio::spawn(async move { serve(listener, service, &limits, async { drop(stopped.await) }).await });
        Self { address, shares, rest, stop, done }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request on a new connection and returns the head and the body of the response.
    pub fn send(&self, line: &str, headers: &str) -> String {
        let mut stream = self.connect();
        let _ =
            stream.write_all(format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n").as_bytes());
        read_to_end(&mut stream)
    }

    /// Begins three requests whose bodies have 15,000 bytes, and sends this many bytes of each: the first two are held,
    /// and the third is rejected, because it exceeds the share of a holder.
    pub async fn assert_bodies_are_charged(&self, line: &str, token: &str, sent: usize, held: (usize, usize)) {
        let begin = || {
            let mut stream = self.connect();
            let head = format!("Host: a\r\nConnection: close\r\nAuthorization: {token}\r\nContent-Length: 15000");
            stream.write_all(format!("{line} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).unwrap();
            stream.write_all(&vec![b' '; sent]).unwrap();
            stream
        };
        // Only received bytes are charged, not the announced length.
        let bodies = [begin(), begin()];
        self.until("two bodies are held", |shares| shares.held_bodies() == held).await;
        let refused = read_to_end(&mut begin());
        assert_eq!(status(&refused), "429", "{refused}");
        assert!(refused.contains("\r\nretry-after: 1\r\n") && refused.contains("google.rpc.RetryInfo"), "{refused}");
        assert_eq!(self.ping(), "200");
        assert_eq!(self.shares.held_bodies(), held);
        drop(bodies);
        self.until("nothing is held", |shares| shares.held_bodies() == (0, 0)).await;
    }

    pub fn ping(&self) -> String {
        status(&self.send("GET /ping/v2/ping", "")).to_owned()
    }

    /// Waits until the budgets fulfil a condition.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Shares) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.shares) {
            assert!(begun.elapsed() < TIMEOUT, "{what}: {:?}", self.shares);
            tokio::task::yield_now().await;
        }
    }
}

pub fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the server keeps the connection open: {error}"),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

pub const fn hourly(burst: u32) -> Option<Rate> {
    match NonZeroU32::new(burst) {
        Some(burst) => Some(Rate { every: Duration::from_secs(3600), burst }),
        None => None,
    }
}

/// Empty body that records whether it was read.
pub struct UnreadBody(Arc<AtomicBool>);

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.store(true, Ordering::Relaxed);
        Poll::Ready(None)
    }
}

/// Sends a request. Returns the status, and whether the body was read.
pub async fn send_unread(rest: &Rest, token: Option<&str>, method: &str, path: &str) -> (u16, bool) {
    let read = Arc::new(AtomicBool::new(false));
    let mut request = Request::builder().method(method).uri(path).header(EXPECT, "100-continue");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = rest.clone().oneshot(request.body(UnreadBody(Arc::clone(&read))).unwrap()).await.unwrap();
    (response.status().as_u16(), read.load(Ordering::Relaxed))
}
