//! The commands of an operator to a server with https, whose certificate is of an authority of its own.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::tempdir;

use crate::common::{Api, Server, api, program, run};

/// Writes the certificate `server.pem` for 127.0.0.1 with its key `server.key`, and that of its authority, `ca.pem`.
fn write_certificates(dir: &Path) {
    let path = |name: &str| dir.join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    fs::write(path("ca.pem"), params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(path("server.pem"), certificate.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(path("server.key"), key.serialize_pem()).unwrap();
}

#[test]
fn every_command_reaches_a_server_with_https_and_verifies_its_certificate() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_certificates(dir.path());
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
        let error = run(dir.path(), command).failed();
        assert!(error.contains("no response from") || error.contains("UnknownIssuer"), "{command:?}: {error}");
        let error = run(dir.path(), &[command, &["--ca-file", "empty.pem"]].concat()).failed();
        assert!(error.contains("has no certificate"), "{command:?}: {error}");
        run(dir.path(), &[command, &["--ca-file", "ca.pem"]].concat()).ok();
    }
}

/// One server is the issuer that the other trusts.
#[test]
fn an_issuer_with_a_certificate_of_an_own_authority_is_trusted_with_its_authority() {
    let (dir, other) = (tempdir().unwrap(), tempdir().unwrap());
    write_certificates(dir.path());
    let issuer = Server::start(dir.path(), &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    let token = &*api(dir.path(), &[]).0.token;
    let ca = dir.path().join("ca.pem").to_str().unwrap().to_owned();
    let start = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(other.path(), &["serve", "--listen", "127.0.0.1:0", "--store", "memory"]);
        command.args(["--trusted-issuer", &issuer.url, "--audience", &issuer.url]).args(options);
        Server::of(command.envs(variables.iter().copied()))
    };
    // The caller is not registered, if the token is verified.
    for (options, variables, status) in [
        (&["--outbound-ca", &*ca][..], &[][..], 404),
        (&[], &[("SSL_CERT_FILE", &*ca)], 404),
        (&["--outbound-ca", &*ca], &[("HTTPS_PROXY", "127.0.0.1:1"), ("NO_PROXY", "127.0.0.1")], 404),
        (&["--outbound-ca", &*ca], &[("HTTPS_PROXY", "127.0.0.1:1")], 503),
        (&[], &[], 400),
    ] {
        let server = start(options, variables).unwrap();
        let reply = Api::new(&server.url, token).get(&format!("/sts/exchange?aud={}", issuer.url));
        assert_eq!(reply.status, status, "{options:?} {variables:?}: {reply:?}");
    }
    let refused = |options: &[&str], variables: &[(&str, &str)]| start(options, variables).unwrap_err().failed();
    let missing = dir.path().join("missing.pem").to_str().unwrap().to_owned();
    assert!(refused(&["--outbound-ca", &missing], &[]).contains("--outbound-ca"));
    assert!(refused(&[], &[("SSL_CERT_FILE", &missing)]).contains("SSL_CERT_FILE"));
    let key = dir.path().join("server.key").to_str().unwrap().to_owned();
    assert!(refused(&["--outbound-ca", &key], &[]).contains("has no certificate"));
    assert!(refused(&[], &[("HTTPS_PROXY", "socks5://127.0.0.1:1")]).contains("the proxy must be a URL such as"));
}
