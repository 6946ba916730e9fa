//! TLS on the listener: HTTP/2 and HTTP/1.1 by ALPN, certificate reload, and peers that do not complete the handshake.

use std::{fs, future::pending, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use platform_http::{Limits, Listener, Tls, TlsError, serve};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support;

/// Writes a new certificate for this name and its key.
fn write(folder: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn tls(folder: &TempDir) -> Result<Tls, TlsError> {
    Tls::from_files(folder.path().join("cert.pem"), folder.path().join("key.pem"))
}

async fn listening(tls: Arc<Tls>, limits: Limits) -> SocketAddr {
    let rest = support::rest(limits.clone()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Listener::from(listener).with_tls(&tls);
    tokio::spawn(async move { serve(listener, rest, &limits, pending()).await });
    address
}

/// Connects with these ALPN protocols, trusting the certificate in the folder.
async fn connect(
    address: SocketAddr,
    folder: &TempDir,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let pem = fs::read(folder.path().join("cert.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

#[tokio::test]
async fn a_connection_uses_the_http_version_negotiated_by_alpn() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "localhost");
    let address = listening(Arc::new(tls(&folder).unwrap()), Limits::default()).await;
    let request = |uri: &str| Request::get(uri).body(Empty::<Bytes>::new()).unwrap();

    let stream = connect(address, &folder, "localhost", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let response = client.send_request(request("https://localhost/ping/v2/ping")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));

    for alpn in [&["http/1.1"][..], &[]] {
        let stream = connect(address, &folder, "localhost", alpn).await.unwrap();
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = client.send_request(request("/ping/v2/ping")).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_11));
    }
}

#[tokio::test]
async fn a_replaced_certificate_is_used_for_new_connections_unless_it_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "old.example");
    let tls = Arc::new(tls(&folder).unwrap());
    let address = listening(Arc::clone(&tls), Limits::default()).await;
    let mut open = connect(address, &folder, "old.example", &[]).await.unwrap();
    assert!(!tls.reload().unwrap());

    write(folder.path(), "new.example");
    assert!(tls.reload().unwrap());
    connect(address, &folder, "new.example", &[]).await.unwrap();
    assert!(connect(address, &folder, "old.example", &[]).await.is_err());

    // Only one of the two files is replaced yet.
    let key = KeyPair::generate().unwrap().serialize_pem();
    fs::write(folder.path().join("key.pem"), key).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Refused(_))));
    connect(address, &folder, "new.example", &[]).await.unwrap();

    // A pipe in place of the file is an error, and reading it does not block.
    fs::remove_file(folder.path().join("cert.pem")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("cert.pem")).status().unwrap();
    assert!(made.success());
    assert!(matches!(tls.reload(), Err(TlsError::File(..))));
    fs::remove_file(folder.path().join("cert.pem")).unwrap();
    write(folder.path(), "newest.example");
    assert!(tls.reload().unwrap());

    // The connection that was open before still works.
    tokio::io::AsyncWriteExt::write_all(&mut open, b"GET /ping/v2/ping HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    open.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[test]
fn an_error_names_the_invalid_file() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(tls(&folder), Err(TlsError::File(..))));
    write(folder.path(), "localhost");
    fs::write(folder.path().join("cert.pem"), "nothing").unwrap();
    assert!(tls(&folder).unwrap_err().to_string().contains("cert.pem is not a PEM file with certificates"));
    write(folder.path(), "localhost");
    fs::write(folder.path().join("key.pem"), "").unwrap();
    assert!(tls(&folder).unwrap_err().to_string().contains("key.pem is not a PEM file with a private key"));
}

#[tokio::test]
async fn a_peer_that_does_not_complete_the_handshake_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "localhost");
    let limits = Limits { head_time: Duration::from_millis(200), ..Limits::default() };
    let address = listening(Arc::new(tls(&folder).unwrap()), limits).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut nothing = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(5), silent.read_to_end(&mut nothing)).await;
    assert_eq!(closed.expect("the connection is kept open").unwrap_or_default(), 0);
    // A peer that does not speak TLS is disconnected too.
    let mut plain = TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(5), plain.read_to_end(&mut nothing)).await;
    closed.expect("the connection is kept open").unwrap_or_default();
}
