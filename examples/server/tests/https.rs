//! The commands of an operator to a server with https, whose certificate is of an authority of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use std::fs;

use common::{Server, run};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::tempdir;

#[test]
fn every_command_reaches_a_server_with_https_and_verifies_its_certificate() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    fs::write(path("ca.pem"), params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(path("server.pem"), certificate.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(path("server.key"), key.serialize_pem()).unwrap();
    fs::write(path("empty.pem"), "").unwrap();
    fs::write(path("osv.json"), r#"{"id":"CVE-2026-0001","modified":"2026-01-02T03:04:05Z"}"#).unwrap();
    let server = Server::start(dir.path(), &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let api = &*server.url;
    let bootstrap = fs::read(path("platform-data/bootstrap.json")).unwrap();
    let bootstrap: serde_json::Value = serde_json::from_slice(&bootstrap).unwrap();
    let organization = bootstrap["organization"].as_str().unwrap();
    for command in [
        &["check", "--api", api][..],
        &["quota", "list", organization, "--api", api],
        &["events", "pending", "--api", api],
        &["backup", "--to", "remote.tar", "--api", api],
        &["backup", "--to", "running.tar"],
        &["console"],
        &["import", "osv", "osv.json", "--api", api],
    ] {
        // An import repeats its requests for a minute.
        if command.first() != Some(&"import") {
            let error = run(dir.path(), command).failed();
            assert!(error.contains("no response from") || error.contains("UnknownIssuer"), "{command:?}: {error}");
        }
        let error = run(dir.path(), &[command, &["--ca-file", "empty.pem"]].concat()).failed();
        assert!(error.contains("has no certificate"), "{command:?}: {error}");
        run(dir.path(), &[command, &["--ca-file", "ca.pem"]].concat()).ok();
    }
}
