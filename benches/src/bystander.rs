//! The latency of a control request while other clients keep the server busy, and the cost of their requests.
//!
//! The clients of the load and the client of the control request have a thread of their own each, so that the control
//! request does not wait for the load's replies to be read.

pub mod cases;
pub mod data;
pub mod directory;
pub mod emulator;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use http::uri::PathAndQuery;
use platform_grpc::AsBytes;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    runtime::Builder,
    time::{sleep, timeout},
};
use tonic::{
    Code, Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::servers::Server;

/// The time between two control requests.
const INTERVAL: Duration = Duration::from_millis(2);
/// The time for which the server may go on after its clients have left.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request of the load.
#[derive(Debug, Clone)]
pub enum Sent {
    /// The bytes of an HTTP/1.1 request.
    Http(Arc<[u8]>),
    /// A unary call of gRPC with its message and the value of the header `authorization`.
    Grpc(PathAndQuery, Bytes, Option<MetadataValue<Ascii>>),
}

/// The result of a load.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The status of a reply: of HTTP, or of gRPC as a negative number. 0 if there was none.
    pub status: i32,
    /// The bytes of a reply.
    pub bytes: u64,
    /// The number of replies.
    pub replies: u64,
    /// The processor time of the server in milliseconds for each request that was begun.
    pub cpu: f64,
    /// The time of each control request in milliseconds, ascending.
    pub waits: Vec<f64>,
}

impl Found {
    /// Adds another turn of the same load: its replies and waits. The rest is that of the last turn.
    pub fn add(&mut self, turn: Self) {
        self.waits.extend(&turn.waits);
        self.waits.sort_by(f64::total_cmp);
        *self = Self { replies: self.replies + turn.replies, waits: std::mem::take(&mut self.waits), ..turn };
    }

    /// Returns the wait of this part of the control requests.
    pub fn wait(&self, part: f64) -> f64 {
        let at = ((self.waits.len() as f64 * part) as usize).min(self.waits.len().saturating_sub(1));
        self.waits.get(at).copied().unwrap_or_default()
    }
}

/// Sends a request in this number of loops for this time, and control requests at the same time.
pub fn measure(server: &Server, sent: &Sent, loops: usize, time: Duration) -> Found {
    let stop = AtomicBool::new(false);
    let counts = Counts::default();
    let before = cpu_nanos(server);
    let waits = thread::scope(|scope| {
        let control = scope.spawn(|| control(server, &stop));
        scope.spawn(|| load(server, sent, loops, time, &counts)).join().unwrap();
        stop.store(true, Ordering::Relaxed);
        control.join().unwrap()
    });
    settle(server);
    let cpu = cpu_nanos(server).saturating_sub(before) as f64 / 1e6;
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let status = count(&counts.status).cast_signed() as i32;
    let (bytes, replies) = (count(&counts.bytes), count(&counts.replies));
    Found { status, bytes, replies, cpu: cpu / count(&counts.begun).max(1) as f64, waits }
}

/// Sends a request once, without a limit of its time, and control requests at the same time.
pub fn once(server: &Server, sent: &Sent) -> Found {
    measure(server, sent, 1, Duration::ZERO)
}

#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    replies: AtomicU64,
    bytes: AtomicU64,
    status: AtomicU64,
}

impl Counts {
    fn add(&self, status: i32, bytes: u64) {
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.status.store(i64::from(status).cast_unsigned(), Ordering::Relaxed);
    }
}

/// Sends control requests until `stop` is set, and returns their sorted times in milliseconds.
fn control(server: &Server, stop: &AtomicBool) -> Vec<f64> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let request = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let mut waits = Vec::new();
    runtime.block_on(async {
        let mut stream = connect(server).await;
        while !stop.load(Ordering::Relaxed) {
            let begin = Instant::now();
            exchange(&mut stream, request.as_bytes()).await.unwrap();
            waits.push(begin.elapsed().as_secs_f64() * 1e3);
            sleep(INTERVAL).await;
        }
    });
    waits.sort_by(f64::total_cmp);
    waits
}

fn load(server: &Server, sent: &Sent, loops: usize, time: Duration, counts: &Counts) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let begin = Instant::now();
    let one = async || match sent {
        Sent::Http(request) => {
            let mut stream = None;
            loop {
                counts.begun.fetch_add(1, Ordering::Relaxed);
                let mut open = match stream.take() {
                    Some(open) => open,
                    None => connect(server).await,
                };
                // The server may close a connection with its reply.
                if let Some((status, bytes, is_open)) = exchange(&mut open, request).await {
                    counts.add(status, bytes);
                    stream = is_open.then_some(open);
                }
                if begin.elapsed() >= time {
                    return;
                }
            }
        }
        Sent::Grpc(path, message, token) => {
            let channel = Channel::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy();
            let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
            loop {
                counts.begun.fetch_add(1, Ordering::Relaxed);
                client.ready().await.unwrap();
                let mut request = Request::new(message.clone());
                token.iter().for_each(|token| drop(request.metadata_mut().insert("authorization", token.clone())));
                match client.unary(request, path.clone(), AsBytes).await {
                    Ok(reply) => counts.add(0, reply.get_ref().len() as u64),
                    Err(status) if status.code() == Code::Unknown => {}
                    Err(status) => counts.add(-(status.code() as i32), 0),
                }
                if begin.elapsed() >= time {
                    return;
                }
            }
        }
    };
    runtime.block_on(async {
        let all = join_all((0..loops).map(|_| one()));
        if time.is_zero() {
            drop(all.await);
        } else {
            // Clients leave in the middle of a request.
            drop(timeout(time, all).await);
        }
    });
}

async fn connect(server: &Server) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(&server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::with_capacity(64 << 10, stream)
}

/// Sends a request, and reads and drops the reply. Returns its status, the length of its body, and whether the
/// connection stays open.
async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> Option<(i32, u64, bool)> {
    stream.get_mut().write_all(request).await.ok()?;
    let (mut status, mut length, mut is_chunked, mut is_open) = (0, 0, false, true);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let text = line.trim_end().to_ascii_lowercase();
        match text.split_once(": ") {
            _ if text.is_empty() => break,
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("transfer-encoding", value)) => is_chunked = value == "chunked",
            Some(("connection", value)) => is_open = value != "close",
            None if status == 0 => status = text.split(' ').nth(1)?.parse().ok()?,
            _ => {}
        }
    }
    if !is_chunked {
        // A reply to HEAD, and a 304, have no body.
        skip(stream, length).await?;
        return Some((status, length, is_open));
    }
    let mut all = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let chunk = u64::from_str_radix(line.trim_end(), 16).ok()?;
        skip(stream, chunk + 2).await?;
        all += chunk;
        if chunk == 0 {
            return Some((status, all, is_open));
        }
    }
}

async fn skip(stream: &mut BufReader<TcpStream>, mut bytes: u64) -> Option<()> {
    while bytes > 0 {
        let some = stream.fill_buf().await.ok()?.len();
        if some == 0 {
            return None;
        }
        let some = some.min(usize::try_from(bytes).unwrap_or(usize::MAX));
        stream.consume(some);
        bytes -= some as u64;
    }
    Some(())
}

/// Waits until the server has nothing to do.
fn settle(server: &Server) {
    let begin = Instant::now();
    let mut before = cpu_nanos(server);
    while begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
        let now = cpu_nanos(server);
        if now.saturating_sub(before) < 1_000_000 {
            return;
        }
        before = now;
    }
}

/// Returns the processor time of the server's threads in nanoseconds.
fn cpu_nanos(server: &Server) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let of_task = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of_task(task.ok()?)).sum()
}
