//! Every time by which something ends is tried at both ends of its window, and with a clock that has stepped back by an
//! hour and by a year. The times of tokens and sign-ins are in the tests of platform-oidc.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use platform_core::iam::Iam;
use platform_engine::{
    access::Credential,
    aip::page_token::VALIDITY_MILLIS,
    error::Code,
    idempotency::{IdempotencyKey, KEPT_MILLIS},
    options::RequestOptions,
};
use serde_json::json;

use crate::common::{BEGIN, World, block_on, built_in, object, text, uid_of};

const MINUTE: i64 = 60 * 1000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A time by which something ends.
struct Window {
    name: &'static str,
    /// The last moment at which it is in force, in milliseconds after the beginning.
    last: i64,
    /// Whether it is in force when the clock has stepped back by an hour and by a year.
    after_steps_back: [bool; 2],
    /// Begins it, waits, and returns whether it is in force then.
    is_in_force: fn(&World, &dyn Fn()) -> bool,
}

const WINDOWS: &[Window] = &[
    Window {
        name: "a page token",
        last: VALIDITY_MILLIS,
        // A token that is older than the validity in either direction restarts the list.
        after_steps_back: [true, false],
        is_in_force: |world, wait| {
            let repos = [world.repo(&world.org), world.repo(&world.org)];
            let page = |token: &str| {
                world
                    .list(&world.operator, "Repo", &[("page_size", "1"), ("order_by", "name"), ("page_token", token)])
                    .unwrap()
            };
            let token = page("").next.unwrap();
            wait();
            let found = page(&token).uids();
            assert!(found == [repos[0].as_str()] || found == [repos[1].as_str()], "{found:?}");
            found == [repos[1].as_str()]
        },
    },
    Window {
        name: "an invite",
        last: HOUR - 1,
        // It has a time at which it ends, and none at which it begins.
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let body = json!({ "roleUid": built_in("viewer"), "ttl": "3600s" });
            let invite = world.create(&world.operator, "GroupInvite", &world.org, body).unwrap();
            let ada = world.person("ada", None);
            wait();
            block_on(Iam::of(&world.platform).redeem_invite(&ada.identity, text(&invite, "code"))).is_ok()
        },
    },
    Window {
        name: "a SCIM token",
        last: HOUR - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let request = json!({
                "identityProviderUid": world.provider(&world.org), "expireTime": BEGIN.plus_millis(HOUR),
            });
            let issued = world.run(Some(&world.operator), "GenerateScimToken", request).unwrap();
            wait();
            block_on(Iam::of(&world.platform).verify_scim_token(text(&issued, "token"))).is_ok()
        },
    },
    Window {
        name: "a SCIM token that was replaced",
        last: 2 * HOUR - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| replaced_token_is_valid(world, json!(BEGIN.plus_millis(YEAR)), wait),
    },
    Window {
        name: "a SCIM token that was replaced and expires before the end of the overlap",
        last: HOUR - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| replaced_token_is_valid(world, json!(BEGIN.plus_millis(HOUR)), wait),
    },
    Window {
        name: "an idempotency key",
        last: KEPT_MILLIS - 1,
        // Otherwise, a repeated write would be applied twice.
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let create = || {
                let key = IdempotencyKey::parse(b"key").ok();
                let (body, options) = (object(json!({ "name": "a" })), RequestOptions::default().idempotency_key(key));
                block_on(world.platform.create_erased(&world.operator, world.kind("Repo"), &world.org, &body, &options))
            };
            let first = create().unwrap();
            wait();
            // Where the key is forgotten, the name is taken.
            match create() {
                Ok(again) => again.body == first.body,
                Err(error) => {
                    assert_eq!(error.code(), Code::AlreadyExists);
                    false
                }
            }
        },
    },
    Window {
        name: "the interval between requests for access",
        last: DAY - 1,
        // Nobody is locked out for a year.
        after_steps_back: [true, false],
        is_in_force: |world, wait| {
            let verified = json!({ "name": "a.test", "verified": true, "kind": "ORG_KIND_DEV" });
            world.update(&world.operator, "Group", &world.org, verified, None).unwrap();
            let ada = world.person("ada", Some("ada@a.test"));
            let ask = || world.run(Some(&ada), "RequestGroupAccess", json!({ "groupUid": world.org }));
            ask().unwrap();
            wait();
            ask().is_err_and(|error| error.code() == Code::ResourceExhausted)
        },
    },
    Window {
        name: "the revocation of a token, which expires within 30 days",
        last: 30 * DAY + 2 * MINUTE - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let ci = world.member("viewer", &world.org);
            let revoke = |id: &str| {
                let request = json!({ "identityUid": ci.identity, "tokenId": id });
                world.run(Some(&world.operator), "RevokeTokens", request).unwrap();
            };
            let (revoked, other) = ("1".repeat(32), "2".repeat(32));
            revoke(&revoked);
            wait();
            // Another revocation forgets those of tokens that have expired.
            revoke(&other);
            let credential = Credential { id: Some(revoked), issued: BEGIN, generation: Some(0) };
            world.get(&ci.with_credential(credential), "Group", &world.org).is_err()
        },
    },
    Window {
        name: "the end of a session of a browser, whose cookie expires within an hour",
        last: HOUR + 2 * MINUTE - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let ci = world.member("viewer", &world.org);
            let end = |id: &str, until| {
                block_on(Iam::of(&world.platform).end_session(&ci.identity, id, until)).unwrap();
            };
            end("a", BEGIN.plus_millis(HOUR));
            wait();
            // Another end forgets those of cookies that have expired.
            end("b", BEGIN.plus_millis(YEAR));
            !block_on(world.platform.current_grants(&ci)).unwrap().revocations().admit_session("a", 0)
        },
    },
    Window {
        name: "an identity with static keys as the owner of an organization",
        last: DAY - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let organization = world.organization();
            let first = world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap();
            let keys = json!({
                "issuer": "https://issuer.test", "subject": "s", "expirationTime": BEGIN.plus_millis(DAY),
                "issuerKeys": r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#,
            });
            let robot = json!({ "name": "robot", "staticKeys": keys });
            let robot = uid_of(&world.create(&world.operator, "Identity", &organization, robot).unwrap());
            world.bind(&platform_engine::access::Caller::new(robot), &built_in("owner"), &organization);
            wait();
            // The last owner who can sign in cannot be removed.
            world.delete(&world.operator, "RoleBinding", &uid_of(&first.items[0])).is_ok()
        },
    },
    Window {
        name: "a follower of a repo",
        last: 14 * DAY - 1,
        after_steps_back: [true, true],
        is_in_force: |world, wait| {
            let source = world.repo(&world.org);
            let body = json!({ "name": "copy", "syncConfig": { "source": source } });
            let copy = uid_of(&world.create(&world.operator, "Repo", &world.organization(), body).unwrap());
            wait();
            world.update(&world.operator, "Repo", &source, json!({ "activeTags": ["new"] }), None).unwrap();
            world.get(&world.operator, "Repo", &copy).unwrap()["activeTags"] == json!(["new"])
        },
    },
];

/// Returns whether the token that was replaced after the beginning, with an overlap of two hours, is valid after a wait.
fn replaced_token_is_valid(world: &World, expire_time: serde_json::Value, wait: &dyn Fn()) -> bool {
    let provider = world.provider(&world.org);
    let request = json!({ "identityProviderUid": provider, "expireTime": expire_time });
    let issued = world.run(Some(&world.operator), "GenerateScimToken", request).unwrap();
    let request = json!({ "identityProviderUid": provider, "overlap": "7200s", "etag": issued["etag"] });
    world.run(Some(&world.operator), "RegenerateScimToken", request).unwrap();
    wait();
    block_on(Iam::of(&world.platform).verify_scim_token(text(&issued, "token"))).is_ok()
}

#[test]
fn every_window_of_time_ends_at_its_last_moment() {
    for Window { name, last, after_steps_back, is_in_force } in WINDOWS {
        let [hour, year] = *after_steps_back;
        for (after, expected) in [(0, true), (*last, true), (last + 1, false), (-HOUR, hour), (-YEAR, year)] {
            let world = World::new();
            let wait = || world.clock.set(BEGIN.plus_millis(after));
            assert_eq!(is_in_force(&world, &wait), expected, "{name} {after} ms later");
        }
    }
}

/// The files that compare a time with the clock, and where both ends of the window are tried.
const COMPARISONS: &[(&str, &str)] = &[
    ("platform-blobs/src/lib.rs", "uploads that were given up; its own tests"),
    ("platform-console/src/links.rs", "its own tests"),
    ("platform-console/src/session.rs", "platform-console/src/session/tests.rs"),
    ("platform-core/src/iam/sign_ins.rs", "last_seen_time, which decides nothing"),
    ("platform-core/src/outbox.rs", "leases of deliveries: platform-events/tests"),
    ("platform-core/src/resources/iam/group_access_request.rs", "WINDOWS"),
    ("platform-core/src/resources/iam/group_invite.rs", "WINDOWS"),
    ("platform-core/src/resources/iam/identity.rs", "WINDOWS"),
    ("platform-core/src/resources/iam/identity/revocation.rs", "a time that must not be in the future: revocations.rs"),
    ("platform-core/src/resources/iam/identity_provider/scim.rs", "WINDOWS"),
    ("platform-core/src/resources/iam/sign_in.rs", "platform-oidc/tests/sts/times.rs"),
    (
        "platform-core/src/resources/registry/repo.rs",
        "a time that must be in the future: platform-core/tests/kinds/followers.rs",
    ),
    ("platform-core/src/resources/registry/repo_follower.rs", "WINDOWS"),
    ("platform-engine/src/access/revocations.rs", "WINDOWS"),
    ("platform-engine/src/aip/page_token.rs", "WINDOWS"),
    ("platform-engine/src/platform/response_cache.rs", "epochs, which are no times"),
    ("platform-engine/src/watch/lease.rs", "leases of watches: watches.rs"),
    ("platform-oidc/src/claims.rs", "platform-oidc/tests/sts/times.rs"),
    ("platform-oidc/src/discovery.rs", "the age of keys: platform-oidc/tests/discovery.rs"),
    ("platform-oidc/src/fetch_limits.rs", "the pace of fetches: platform-oidc/tests/discovery.rs"),
    ("platform-oidc/src/shorten.rs", "its own tests"),
    ("platform-oidc/src/sts/aws.rs", "platform-oidc/tests/sts/times.rs"),
    ("platform-oidc/src/sts/pending.rs", "platform-oidc/tests/sts/times.rs"),
    ("platform-oidc/src/sts/proof.rs", "platform-oidc/tests/sts/times.rs"),
    ("platform-oidc/src/verifier.rs", "platform-oidc/tests/sts/times.rs"),
];

/// The crates whose times decide about access.
const CRATES: &[&str] =
    &["platform-blobs", "platform-console", "platform-core", "platform-engine", "platform-oidc", "platform-services"];

#[test]
fn every_file_that_compares_a_time_with_the_clock_has_a_test_of_both_ends() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for source in CRATES.iter().flat_map(|name| sources(&root.join(name).join("src"))) {
        let text = fs::read_to_string(&source).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        if lines.any(compares_with_now) && !source.ends_with("tests.rs") {
            found.insert(source.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        }
    }
    let known: BTreeSet<_> = COMPARISONS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, known);
}

/// Returns whether a line compares something with a value named `now`.
fn compares_with_now(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_now = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '.' && c != '_');
        let word = word.split("()").next().unwrap_or_default().split(".plus_millis").next().unwrap_or_default();
        word.rsplit('.').next() == Some("now") || word.ends_with(".now") || word == "now"
    };
    let compares = |pair: &[&str]| ["<", "<=", ">", ">="].contains(&pair[1]) && (is_now(pair[0]) || is_now(pair[2]));
    words.windows(3).any(compares) || line.contains("contains(&now)") || line.contains("abs_diff")
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}
