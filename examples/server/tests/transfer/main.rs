//! `backup` and `restore`, `export` and `import store` between stores, and connections to a database by TLS.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;

mod backup;
mod layouts;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

use common::{Api, Ran, Server, api, program, run};
use platform_testkit::postgres::Cluster;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::tempdir;

/// The key-encryption key of the tests: the Base64 of 32 bytes.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The URL of all servers, which no test resolves.
const PUBLIC: &str = "http://platform.test";

fn uid(made: &Value) -> String {
    made["uid"].as_str().unwrap().to_owned()
}

/// Fills the store of a new installation in this directory.
fn fill(dir: &Path) {
    let server = Server::start(dir, &["--public-url", PUBLIC]);
    let (mut api, organization) = api(dir, &[]);
    api.url = server.url.clone();
    let group = uid(&api.post(&format!("/iam/v2/groups/{organization}"), &json!({ "name": "team" })).ok());
    for number in 0..30 {
        let parent = if number % 3 == 0 { &organization } else { &group };
        let repo = api.post(&format!("/registry/v2/repos/{parent}"), &json!({ "name": format!("repo {number}") }));
        let repo = uid(&repo.ok());
        if number % 5 == 0 {
            api.patch(&format!("/registry/v2/repos/{repo}"), &json!({ "description": "changed" })).ok();
        }
    }
    let viewer = uid(&api.get("/iam/v2/roles?name=viewer").ok()["roles"][0]);
    let oidc = json!({ "issuer": "https://idp.invalid", "clientId": "c", "clientSecret": "hush hush" });
    api.post(
        &format!("/iam/v2/identityProviders/{organization}"),
        &json!({ "name": "idp", "defaultRole": viewer, "oidc": oidc }),
    )
    .ok();
    api.post(&format!("/iam/v2/groupInvites/{group}"), &json!({ "roleUid": viewer, "ttl": "3600s" })).ok();
    for _ in 0..2 {
        let sink = json!({ "sink": "https://receiver.invalid/" });
        api.post(&format!("/events/v2/subscriptions/{organization}"), &sink).ok();
    }
    // The data of a long event is stored once for both.
    for long in [1, 60] {
        let aliases: Vec<_> = (0..long).map(|n| format!("library/{n}{}:latest", "a".repeat(100))).collect();
        let body = json!({ "name": format!("with {long}"), "aliases": aliases });
        api.post(&format!("/registry/v2/repos/{group}"), &body).ok();
    }
    server.terminate();
    server.wait();
}

#[track_caller]
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_store_moves_from_sqlite_to_sled_to_postgresql_and_back_unchanged() {
    let (sqlite, sled, back) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    fill(sqlite.path());
    let files = tempdir().unwrap();
    let path = |name: &str| files.path().join(name).display().to_string();
    let export = |dir: &Path, arguments: &[&str], to: &str| {
        run(dir, &[&["export", "--with-private", "--to", to], arguments].concat()).ok();
        fs::read_to_string(to).unwrap()
    };
    let exported = export(sqlite.path(), &[], &path("sqlite"));
    assert_eq!(mode(Path::new(&path("sqlite"))), 0o600);
    assert!(run(sqlite.path(), &["export", "--to", &path("sqlite")]).failed().contains("cannot create"));
    run(sqlite.path(), &["keys", "export", "--to", &path("keys")]).ok();
    assert_eq!(mode(Path::new(&path("keys"))), 0o600);
    assert_eq!(run(sqlite.path(), &["keys", "export", "--to", "-"]).ok(), fs::read_to_string(path("keys")).unwrap());
    // The file has no secret in the clear, and without --with-private not even a sealed one.
    assert!(!exported.contains("hush hush") && exported.contains("\"private\":true"));
    let without = run(sqlite.path(), &["export"]);
    assert!(without.stderr.contains("1 of the kind IdentityProvider need new secrets"), "{without:?}");
    assert!(without.stderr.contains("of the kind GroupInvite have no code"), "{without:?}");
    assert!(without.ok().contains("\"needsSecrets\":true"));

    // Sealed secrets need their keys, and a store that is not empty is refused.
    let into_sled = ["import", "store", &path("sqlite"), "--store", "sled"];
    assert!(run(sled.path(), &into_sled).failed().contains("keys import"));
    fs::write(path("no keys"), r#"{"version":1,"signing":[],"pageTokens":[]}"#).unwrap();
    assert!(run(sled.path(), &["keys", "import", &path("no keys")]).failed().contains("it has no signing key"));
    assert!(run(sled.path(), &["keys", "import", &path("missing")]).failed().contains("cannot read"));
    run(sled.path(), &["keys", "import", &path("keys")]).ok();
    assert!(run(sled.path(), &["keys", "import", &path("keys")]).failed().contains("exists"));
    run(sled.path(), &into_sled).ok();
    assert!(run(sled.path(), &into_sled).failed().contains("the store is not empty"));
    assert!(run(sled.path(), &["check", "--store", "sled"]).ok().is_empty());
    assert_eq!(export(sled.path(), &["--store", "sled"], &path("sled")), exported);

    let Some(cluster) = Cluster::shared() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let schema = format!("server_transfer_{}", std::process::id());
    let url = runtime.block_on(cluster.schema(&schema)).unwrap();
    let dir = tempdir().unwrap();
    let database = |arguments: &[&str]| {
        let mut command = program(dir.path(), arguments);
        command.args(["--store", &url]).env("PLATFORM_KEY_ENCRYPTION_KEY", KEY);
        command
    };
    let done = |arguments: &[&str]| Ran::of(database(arguments).output().unwrap());
    done(&["migrate"]).ok();
    done(&["keys", "import", &path("keys")]).ok();
    done(&["import", "store", &path("sled")]).ok();
    done(&["export", "--with-private", "--to", &path("postgres")]).ok();
    assert_eq!(fs::read_to_string(path("postgres")).unwrap(), exported);
    assert!(done(&["check"]).ok().is_empty());

    // A server on the copy gives the same replies, and goes on.
    let before = Server::start(sqlite.path(), &["--public-url", PUBLIC]);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--public-url", PUBLIC];
    let after = Server::of(&mut database(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let (mut first, organization) = api(sqlite.path(), &[]);
    first.url = before.url.clone();
    let second = Api::new(&after.url, &first.token);
    for path in ["iam/v2/groups", "iam/v2/identities", "iam/v2/roles?page_size=200", "iam/v2/identityProviders"] {
        assert_eq!(second.get(&format!("/{path}")).ok(), first.get(&format!("/{path}")).ok(), "{path}");
    }
    for order in ["name", "name desc"] {
        let path = format!(
            "/registry/v2/repos?uidp.descendants_of={organization}&page_size=200&order_by={}",
            order.replace(' ', "%20")
        );
        assert_eq!(second.get(&path).ok(), first.get(&path).ok(), "{order}");
    }
    second.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "new" })).ok();
    drop((before, after));
    // And back.
    run(back.path(), &["keys", "import", &path("keys")]).ok();
    run(back.path(), &["import", "store", &path("postgres")]).ok();
    assert_eq!(export(back.path(), &[], &path("back")), exported);
}

#[test]
fn no_server_starts_on_a_part_of_a_store_and_a_truncated_file_writes_nothing() {
    let (source, target) = (tempdir().unwrap(), tempdir().unwrap());
    fill(source.path());
    let exported = run(source.path(), &["export"]).ok();
    let file = target.path().join("file");
    fs::write(&file, &exported[..exported.len() / 2]).unwrap();
    let error = run(target.path(), &["import", "store", "file"]).failed();
    assert!(error.contains("file, line ") && error.contains("truncated"), "{error}");
    assert!(!target.path().join("platform-data").exists(), "nothing was written");
    fs::write(&file, &exported).unwrap();
    run(target.path(), &["import", "store", "file"]).ok();

    // As if the import had been interrupted before its last step.
    let document = target.path().join("platform-data/import.json");
    let complete = fs::read_to_string(&document).unwrap();
    fs::write(&document, complete.replace("true", "false")).unwrap();
    for command in ["serve", "export"] {
        let error = run(target.path(), &[command]).failed();
        assert!(error.contains("run `platform-server import store` with the same file again"), "{error}");
    }
    let mut piped = program(target.path(), &["import", "store", "-"]);
    let piped = piped.stdin(fs::File::open(&file).unwrap()).output().unwrap();
    assert!(Ran::of(piped).ok().starts_with("imported "));
    let server = Server::start(target.path(), &[]);
    let (mut api, _) = api(target.path(), &[]);
    api.url = server.url.clone();
    assert_eq!(api.get("/iam/v2/groups").ok()["groups"].as_array().unwrap().len(), 2);
    // The store of a running server is not exported.
    assert!(run(target.path(), &["export"]).failed().contains("in use"));
}

/// Returns the user and the group of `postgres`, which owns the files of a server that root starts.
fn postgres_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    fields.next().flatten().zip(fields.next().flatten())
}

#[test]
fn a_database_with_a_certificate_of_its_own_authority_is_reached_by_tls() {
    if Cluster::shared().is_none() {
        return;
    }
    let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(path("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(path("server.pem"), certificate.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(path("server.key"), key.serialize_pem()).unwrap();
    fs::set_permissions(path("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = postgres_user() {
        // Fails for a user who is not root, who starts the database as its own.
        drop(chown(path("server.key"), Some(user), Some(group)));
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "listen_addresses='127.0.0.1'\nport={port}\nssl=on\nssl_cert_file='{0}/server.pem'\nssl_key_file='{0}/server.key'",
        dir.path().display()
    );
    let _cluster = Cluster::start_private(&settings).unwrap();
    let migrate = |host: &str, mode: &str, arguments: &[&str]| {
        let url = format!("postgres://postgres@{host}:{port}/postgres{mode}");
        Ran::of(program(dir.path(), &[&["migrate", "--store", &url], arguments].concat()).output().unwrap())
    };
    let ca = path("ca.pem").display().to_string();
    for mode in ["?sslmode=verify-full", "?sslmode=require"] {
        let error = migrate("localhost", mode, &[]).failed();
        assert!(error.contains("--store-ca"), "{error}");
        migrate("localhost", mode, &["--store-ca", &ca]).ok();
        // The certificate is not that of this name.
        migrate("127.0.0.1", mode, &["--store-ca", &ca]).failed();
    }
    let error = migrate("localhost", "?sslmode=require", &["--store-ca", "missing.pem"]).failed();
    assert!(error.contains("missing.pem of --store-ca"), "{error}");
    let key = path("server.key").display().to_string();
    let error = migrate("localhost", "?sslmode=require", &["--store-ca", &key]).failed();
    assert!(error.contains("of --store-ca") && error.contains("PEM"), "{error}");
    let mut other = Command::new(env!("CARGO_BIN_EXE_platform-server"));
    let other = other.current_dir(dir.path()).args(["check", "--store-ca", &ca]).output().unwrap();
    assert!(Ran::of(other).failed().contains("--store-ca is for a database"));
}

/// The database of layout 1 that an earlier build has written, with the keys of the tests. To make the file again, delete
/// it and run `UPDATE_EXPECT=1 cargo test -p server --test transfer layout`.
const LAYOUT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dumps/layout-1.sql");

#[test]
fn a_database_of_the_first_layout_is_migrated_and_served() {
    if Cluster::shared().is_none() {
        return;
    }
    let (dir, cluster) = (tempdir().unwrap(), Cluster::start_private("").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let command = |arguments: &[&str]| {
        let mut command = program(dir.path(), arguments);
        command.args(["--store", cluster.url()]).env("PLATFORM_KEY_ENCRYPTION_KEY", KEY);
        command
    };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--public-url", PUBLIC];
    let start = || {
        let server = Server::of(&mut command(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
        let lines = Ran::of(command(&["env"]).output().unwrap()).ok();
        let value = |name: &str| {
            let prefix = format!("export {name}=");
            lines.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
        };
        (Api::new(&server.url, &value("TOKEN")), value("ORG_ID"), server)
    };
    let migrate = || Ran::of(command(&["migrate"]).output().unwrap());
    if !Path::new(LAYOUT_1).exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
        migrate().ok();
        let (api, organization, server) = start();
        let group = uid(&api.post(&format!("/iam/v2/groups/{organization}"), &json!({ "name": "team" })).ok());
        for name in ["nginx", "redis"] {
            api.post(&format!("/registry/v2/repos/{group}"), &json!({ "name": name })).ok();
        }
        server.terminate();
        server.wait();
        fs::create_dir_all(Path::new(LAYOUT_1).parent().unwrap()).unwrap();
        fs::write(LAYOUT_1, cluster.dump().unwrap()).unwrap();
        return;
    }
    let dump = fs::read_to_string(LAYOUT_1).unwrap();
    assert!(dump.len() < 100_000, "{} bytes", dump.len());
    runtime.block_on(cluster.execute(cluster.url(), &dump)).unwrap();
    migrate().ok();
    let check = || Ran::of(command(&["check"]).output().unwrap()).ok();
    assert_eq!(check(), "");
    let (api, organization, server) = start();
    let repos = format!("/registry/v2/repos?uidp.descendants_of={organization}&order_by=name");
    let names = |reply: Value| -> Vec<String> {
        reply["repos"].as_array().unwrap().iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(api.get(&repos).ok()), ["nginx", "redis"]);
    let group = api.get("/iam/v2/groups?name=team").ok();
    let group = uid(&group["groups"][0]);
    api.post(&format!("/registry/v2/repos/{group}"), &json!({ "name": "postgres" })).ok();
    assert_eq!(names(api.get(&repos).ok()), ["nginx", "postgres", "redis"]);
    server.terminate();
    server.wait();
    assert_eq!(check(), "");

    // A later release has migrated the database.
    runtime.block_on(cluster.execute(cluster.url(), "UPDATE layout SET version = version + 1")).unwrap();
    let refused = Server::of(&mut command(&serve)).expect_err("the server does not start").failed();
    for error in [refused, migrate().failed()] {
        assert!(error.contains("this release knows at most") && error.contains("use a later release"), "{error}");
    }
}
