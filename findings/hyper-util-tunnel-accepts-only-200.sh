#!/bin/sh
# hyper-util 0.1.21: `client::legacy::connect::proxy::Tunnel` takes a proxy's 204 (or any status but 200) for a refusal.
#
# RFC 9110, section 9.3.6: any 2xx (Successful) response to CONNECT means that the proxy has switched to tunnel mode. The
# error is "tunnel error: unsuccessful", without the status. Needs cargo and crates.io.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat > "$work/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"
[dependencies]
hyper-util = { version = "=0.1.21", features = ["client-legacy", "client-proxy", "http1", "tokio"] }
tokio = { version = "1", features = ["io-util", "macros", "net", "rt"] }
tower-service = "0.3"
TOML
cat > "$work/src/main.rs" <<'RUST'
use hyper_util::client::legacy::connect::{HttpConnector, proxy::Tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_service::Service;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for status in ["200 Connection established", "204 No Content"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.unwrap();
        });
        let mut tunnel = Tunnel::new(proxy, HttpConnector::new());
        std::future::poll_fn(|cx| tunnel.poll_ready(cx)).await.unwrap();
        match tunnel.call("https://host.example".parse().unwrap()).await {
            Ok(_) => println!("{status}: tunnel"),
            Err(error) => println!("{status}: {error}"),
        }
    }
}
RUST
cd "$work"
found=$(cargo run -q)
expected='200 Connection established: tunnel
204 No Content: tunnel error: unsuccessful'
echo "$found"
[ "$found" = "$expected" ]
