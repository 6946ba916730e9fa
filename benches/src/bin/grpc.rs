//! Loads a server over gRPC and prints its call rate: `grpc [figure...]`, by default all.
//!
//! `A` is `platform-server` of the same profile; `B` is a tonic server of this program with prost types, in a separate
//! process, over rows of the same repos. Both run at the same time and are loaded in alternating turns, by 64 streams
//! on 4 connections. The goal is about the calls per second.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measuring program"
)]

use std::{
    cell::RefCell,
    env,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use platform_benches::{
    data::{self, Data},
    figures::{Figure, count, large},
    hand_grpc::{self, GetRepoRequest, ListReposRequest, ListReposResponse, Repo, Repos, UidpFilter},
    measure::{Goal, Line},
    servers::{self, Load, Server, rates, turns},
};
use platform_grpc::AsBytes;
use prost::Message;
use tokio::{net::TcpListener, runtime::Builder};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

const CONNECTIONS: usize = 4;
const STREAMS: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [child, _, path] = &*arguments
        && child == "child"
    {
        Builder::new_multi_thread().enable_all().build().unwrap().block_on(serve(PathBuf::from(path)));
        return ExitCode::SUCCESS;
    }
    let figures: [Figure; 2] = [("list", lists), ("get", gets)];
    println!("{}", Line::header());
    for (name, lines) in figures {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            lines().iter().for_each(|line| println!("{line}"));
        }
    }
    ExitCode::SUCCESS
}

fn lists() -> Vec<Line> {
    let uidp = Some(UidpFilter { descendants_of: data::organization(0).to_string() });
    let request = ListReposRequest { uidp, order_by: "name".to_owned(), ..Default::default() }.encode_to_vec();
    let method = Method::new("ListRepos", vec![request.into()]);
    let same = |a: &[u8], b: &[u8]| {
        let (a, b) = (ListReposResponse::decode(a).unwrap(), ListReposResponse::decode(b).unwrap());
        assert!(
            a.repos == b.repos
                && a.repos.len() == 50
                && a.total_count == b.total_count
                && !a.next_page_token.is_empty()
        );
    };
    let name = format!("grpc list: SQLite of {} / tonic, prost, rusqlite", count(large()));
    compare_with_tonic(&name, method, same, Goal::AtLeast(1.3, 2.0))
}

fn gets() -> Vec<Line> {
    let uids = (0..1_000).map(|number| Data::One(large()).repo(data::mix(number) % large()).uid.to_string());
    let requests = uids.map(|uid| GetRepoRequest { uid }.encode_to_vec().into()).collect();
    let same = |a: &[u8], b: &[u8]| assert_eq!(Repo::decode(a).unwrap(), Repo::decode(b).unwrap());
    let name = format!("grpc get: SQLite of {} / tonic, prost, rusqlite", count(large()));
    compare_with_tonic(&name, Method::new("GetRepo", requests), same, Goal::AtLeast(1.1, 1.2))
}

/// A method with its requests, which are sent in turn to both sides with the same token.
struct Method {
    name: &'static str,
    requests: Vec<Bytes>,
    token: MetadataValue<Ascii>,
}

impl Method {
    fn new(name: &'static str, requests: Vec<Bytes>) -> Self {
        Self { name, requests, token: MetadataValue::from_static("none") }
    }
}

fn compare_with_tonic(name: &str, method: Method, same: impl Fn(&[u8], &[u8]), goal: Goal) -> Vec<Line> {
    let platform = Server::platform(&format!("sqlite:{}", Data::One(large()).sqlite().display()));
    let hand = Server::child(&["repos", &hand_grpc::file(Data::One(large())).display().to_string()]);
    let method = Method { token: format!("Bearer {}", platform.token).parse().unwrap(), ..method };
    let method = &method;
    same(&call_once(&platform, method), &call_once(&hand, method));
    let turns = turns(|| run(&platform, servers::turn(), method), || run(&hand, servers::turn(), method));
    rates(name, &turns, goal)
}

fn path(method: &Method) -> http::uri::PathAndQuery {
    format!("/chainguard.platform.registry.v2.ReposService/{}", method.name).parse().unwrap()
}

async fn call(channel: Channel, method: &Method, number: usize) -> Bytes {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(method.requests[number % method.requests.len()].clone());
    request.metadata_mut().insert("authorization", method.token.clone());
    client.unary(request, path(method), AsBytes).await.unwrap().into_inner()
}

fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy()
}

fn call_once(server: &Server, method: &Method) -> Bytes {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { call(channel(server), method, 0).await })
}

/// Calls the method on all streams for this time, one call at a time on each.
fn run(server: &Server, time: Duration, method: &Method) -> Load {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let latencies = RefCell::new(Vec::new());
    runtime.block_on(async {
        let channels: Vec<_> = (0..CONNECTIONS).map(|_| channel(server)).collect();
        join_all(channels.iter().map(|channel| call(channel.clone(), method, 0))).await;
        let (start, cpu) = (Instant::now(), server.cpu_micros());
        let stream = async |stream: usize| {
            let mut number = stream;
            while start.elapsed() < time {
                let started = Instant::now();
                call(channels[stream % CONNECTIONS].clone(), method, number).await;
                latencies.borrow_mut().push(started.elapsed().as_nanos() as f64 / 1e3);
                number += STREAMS;
            }
        };
        join_all((0..STREAMS).map(stream)).await;
        Load::of(latencies.take(), start.elapsed(), server.cpu_micros() - cpu)
    })
}

/// Serves the other side.
async fn serve(path: PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("Listening on http://{}", listener.local_addr().unwrap());
    let incoming = TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(Repos(path.into()));
    server.serve_with_incoming(incoming).await.unwrap();
}
