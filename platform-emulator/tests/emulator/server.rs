//! An emulator on a port, and the delivery of events to sinks on this machine.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use platform_emulator::Server;
use serde_json::{Value, json};

/// Time limit for something that should happen at once.
const SOON: Duration = Duration::from_secs(60);

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let token = server.default_tenant().token().unwrap();
    let request = ureq::post(format!("{}{path}", server.url())).header("authorization", format!("Bearer {token}"));
    let text = request.send(body.to_string()).unwrap().body_mut().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Accepts requests, and answers them with these statuses, the last of them for all that follow. Returns the URL and
/// the bodies.
fn receiver(statuses: &'static [u16]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    thread::spawn(move || {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept() else { return };
            let status = statuses[number.min(statuses.len() - 1)];
            if sender.send(receive(stream, status)).is_err() {
                return;
            }
        }
    });
    (url, bodies)
}

fn receive(mut stream: TcpStream, status: u16) -> Value {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    serde_json::from_slice(&body).unwrap_or_default()
}

/// A test without a runtime starts and stops servers.
#[test]
fn servers_listen_on_ports_of_their_own_until_they_are_dropped() {
    let (one, other) = (Server::start().unwrap(), Server::start().unwrap());
    assert_ne!(one.url(), other.url());
    let organization = one.default_tenant().organization();
    let repo = post(&one, &format!("/registry/v2/repos/{organization}"), &json!({ "name": "a" }));
    assert_eq!(repo["name"], "a");
    let url = one.url().to_owned();
    drop(one);
    // The port is closed at once, or while the request is sent.
    while ureq::get(format!("{url}/livez")).call().is_ok() {}
    ureq::get(format!("{}/livez", other.url())).call().unwrap();
}

#[tokio::test]
async fn a_server_starts_within_a_runtime() {
    let server = Server::start().unwrap();
    let tenant = server.create_tenant("mine").await.unwrap();
    assert_eq!(tenant.seed("repos: [{name: a}]").await.unwrap().created, 1);
}

#[test]
fn an_advance_of_the_clock_retries_a_delivery() {
    let server = Server::start().unwrap();
    let tenant = server.default_tenant();
    let (sink, bodies) = receiver(&[503, 202]);
    let organization = tenant.organization();
    post(&server, &format!("/events/v2/subscriptions/{organization}"), &json!({ "sink": sink }));
    // From now on, nothing is due without an advance.
    tenant.freeze(true);
    post(&server, &format!("/registry/v2/repos/{organization}"), &json!({ "name": "a" }));
    let first = bodies.recv_timeout(SOON).unwrap();
    // The first advance may come before the result of the attempt is recorded.
    let advance_and_wait = || {
        tenant.advance(Duration::from_secs(600));
        bodies.recv_timeout(Duration::from_millis(500)).ok()
    };
    let second = (0..100).find_map(|_| advance_and_wait());
    assert_eq!(second, Some(first));
}
