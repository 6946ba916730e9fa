//! An HTTP/1.1 client that takes little CPU time, so that it does not distort the measurement of a server.

use std::{
    cell::RefCell,
    fs,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
};

use crate::{
    data,
    servers::{Load, Server},
};

/// Number of connections of [`run`].
pub const CONNECTIONS: usize = 64;

/// Returns the request with a number.
pub type Request<'a> = dyn Fn(usize) -> Arc<[u8]> + 'a;

/// Sends requests over [`CONNECTIONS`] connections for this time, one at a time on each.
pub fn run(server: &Server, time: Duration, request: &Request<'_>) -> Load {
    let cpu = server.cpu_micros();
    let (latencies, time) = send(&server.address, CONNECTIONS, time, request);
    Load::of(latencies, time, server.cpu_micros() - cpu)
}

/// Creates repos as [`run`] sends requests. `next` is the number of the next one, which is part of its name.
pub fn run_creates(server: &Server, time: Duration, next: &AtomicU64) -> Load {
    run(server, time, &|_| create(server, next.fetch_add(1, Ordering::Relaxed)))
}

/// Creates one repo. Returns the time at which the response was complete.
pub fn create_one(server: &Server, next: &AtomicU64) -> Instant {
    drop(send_one(server, &create(server, next.fetch_add(1, Ordering::Relaxed))));
    Instant::now()
}

/// Sends requests over this number of connections for this time, one at a time on each. Returns their latencies, in
/// microseconds, and the time until the last response.
fn send(address: &str, connections: usize, time: Duration, request: &Request<'_>) -> (Vec<f64>, Duration) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let latencies = RefCell::new(Vec::new());
    let start = Instant::now();
    let client = async |connection: usize| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut buffer, mut number) = (vec![0; 1 << 20], connection);
        // At least one, so that there is a result however slow the server is.
        loop {
            let started = Instant::now();
            stream.write_all(&request(number)).await.unwrap();
            let (status, body) = read_response(&mut stream, &mut buffer).await;
            assert!((200..300).contains(&status), "{status}: {}", String::from_utf8_lossy(&buffer[body]));
            latencies.borrow_mut().push(started.elapsed().as_nanos() as f64 / 1e3);
            number += connections;
            if start.elapsed() >= time {
                break;
            }
        }
    };
    runtime.block_on(join_all((0..connections).map(client)));
    (latencies.into_inner(), start.elapsed())
}

/// Sends the requests of a file in turn, and prints the rate and the latencies as JSON.
///
/// The file is JSON with `headers`, an object, and `requests`, each with method, path and body. `{n}` in path and body is
/// the number of the request, which begins with `first` and never repeats; `{n64}` are its twelve digits in base64.
pub fn run_file(address: &str, connections: usize, seconds: f64, file: &str, first: &[String]) {
    let file: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let headers = file["headers"].as_object().unwrap().iter();
    let headers: String = headers.map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap())).collect();
    let requests: Vec<(String, String)> = file["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| {
            let text = |at: usize| request[at].as_str().unwrap();
            (format!("{} {}", text(0), text(1)), text(2).to_owned())
        })
        .collect();
    let first: usize = first.first().map_or(0, |first| first.parse().unwrap());
    let whole = |head: &str, body: &str| -> Arc<[u8]> {
        let length = body.len();
        format!("{head} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n{body}")
            .into_bytes()
            .into()
    };
    let is_template = |text: &String| text.contains("{n}") || text.contains("{n64}");
    // Those that are the same each time are made once.
    let made: Vec<_> = requests
        .iter()
        .map(|(head, body)| (!is_template(head) && !is_template(body)).then(|| whole(head, body)))
        .collect();
    let request = |number: usize| {
        let at = number % requests.len();
        made[at].clone().unwrap_or_else(|| {
            let number = first + number;
            let digits = URL_SAFE_NO_PAD.encode(format!("{number:012}"));
            let filled = |text: &str| text.replace("{n}", &number.to_string()).replace("{n64}", &digits);
            let (head, body) = &requests[at];
            whole(&filled(head), &filled(body))
        })
    };
    let (mut latencies, time) = send(address, connections, Duration::from_secs_f64(seconds), &request);
    latencies.sort_by(f64::total_cmp);
    let (requests, seconds) = (latencies.len(), time.as_secs_f64());
    let at = |percent: usize| latencies[requests * percent / 100];
    println!("{}", serde_json::json!({ "requests": requests, "seconds": seconds, "p50": at(50), "p99": at(99) }));
}

/// Reads one response. Returns its status, and the range of its body in the buffer, with the lengths of its chunks if it
/// is sent in chunks.
async fn read_response(stream: &mut TcpStream, buffer: &mut [u8]) -> (u16, Range<usize>) {
    let mut read = 0;
    loop {
        let more = stream.read(&mut buffer[read..]).await.unwrap();
        assert!(more > 0, "the server closed the connection");
        read += more;
        let Some(head) = buffer[..read].windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&buffer[..head]).unwrap();
        let header = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let status = text[9..12].parse().unwrap();
        let is_chunked = header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let length = header("content-length").map(|length| length.parse::<usize>().unwrap());
        let body = head + 4;
        loop {
            let end = if is_chunked { end_of_chunks(&buffer[..read], body) } else { Some(body + length.unwrap_or(0)) };
            if let Some(end) = end.filter(|end| *end <= read) {
                return (status, body..end);
            }
            let more = stream.read(&mut buffer[read..]).await.unwrap();
            assert!(more > 0, "the server closed the connection");
            read += more;
        }
    }
}

/// Returns the end of a body in chunks that begins here, or `None` if it has not been received yet.
fn end_of_chunks(buffer: &[u8], mut start: usize) -> Option<usize> {
    loop {
        let line = buffer.get(start..)?.windows(2).position(|end| end == b"\r\n")?;
        let length = std::str::from_utf8(&buffer[start..start + line]).unwrap();
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default().trim(), 16).unwrap();
        start += line + 2 + length + 2;
        if length == 0 {
            return (start <= buffer.len()).then_some(start);
        }
    }
}

/// Sends one request, and returns the body of its response.
pub fn send_one(server: &Server, request: &[u8]) -> Vec<u8> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut buffer = vec![0; 256 * 1024];
        let (status, body) = read_response(&mut stream, &mut buffer).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&buffer[body]));
        buffer[body].to_vec()
    })
}

/// Returns a GET request of the operator.
pub fn get_of(server: &Server, path: &str) -> Arc<[u8]> {
    request(server, "GET", path, "")
}

/// Returns a request of the operator.
pub fn request(server: &Server, method: &str, path: &str, body: &str) -> Arc<[u8]> {
    request_with(server, &server.token, method, path, body)
}

/// Returns a request with an access token.
pub fn request_with(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Arc<[u8]> {
    let (address, length) = (&server.address, body.len());
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n");
    format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes().into()
}

fn create(server: &Server, number: u64) -> Arc<[u8]> {
    let name = format!("{:08x}-{number}", data::mix(number) >> 32);
    let body = format!("{{\"name\":\"{name}\",\"description\":\"An image\",\"activeTags\":[\"latest\"]}}");
    let path = format!("/registry/v2/repos/{}", data::organization(0));
    request(server, "POST", &path, &body)
}
