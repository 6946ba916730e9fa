//! SCIM tokens of identity providers: issuing, rotation, revocation and verification (`docs/api.md`, Identity
//! providers).

use platform_core::{
    iam::Iam,
    resources::iam::{IdentityProvider, ScimAccess},
};
use platform_engine::{
    error::{Code, Result},
    store::Key,
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    common::{BEGIN, World, block_on, built_in, code, text, violated_fields},
    external_group_role_mappings::provider,
};

const HOUR: i64 = 3_600_000;
const YEAR: i64 = 365 * 24 * HOUR;

/// A provider, with shorthands for the actions on its tokens.
struct Directory {
    world: World,
    provider: Uid,
}

impl Directory {
    fn new() -> Self {
        Self::of(World::with_settings(|settings| settings.public_url = "https://api.test/".to_owned()))
    }

    fn of(world: World) -> Self {
        let provider = provider(&world, &world.org);
        Self { world, provider }
    }

    fn run(&self, action: &str, more: Value) -> Result<Value> {
        let mut request = more;
        request["identityProviderUid"] = json!(self.provider);
        self.world.run(Some(&self.world.operator), action, request)
    }

    fn generate(&self) -> Value {
        self.run("GenerateScimToken", json!({})).unwrap()
    }

    fn regenerate(&self, more: Value) -> Value {
        let mut request = more;
        request["etag"] = self.shown()["etag"].clone();
        self.run("RegenerateScimToken", request).unwrap()
    }

    fn enable(&self, enabled: bool) -> Result<Value> {
        self.run("SetScimEnabled", json!({ "enabled": enabled, "etag": self.shown()["etag"] }))
    }

    fn shown(&self) -> Value {
        self.world.get(&self.world.operator, "IdentityProvider", &self.provider).unwrap()["scim"].clone()
    }

    fn state(&self) -> String {
        text(&self.shown(), "credentialState").trim_start_matches("CREDENTIAL_STATE_").to_owned()
    }

    fn verify(&self, reply: &Value) -> Result<ScimAccess> {
        block_on(Iam::of(&self.world.platform).verify_scim_token(text(reply, "token")))
    }

    fn is_valid(&self, reply: &Value) -> bool {
        match self.verify(reply) {
            Ok(access) => access.provider == self.provider,
            Err(error) => {
                assert_eq!(error.code(), Code::Unauthenticated);
                false
            }
        }
    }
}

#[test]
fn a_token_of_an_earlier_release_which_does_not_name_its_organization_is_valid() {
    let directory = Directory::new();
    let issued = directory.generate();
    let old = format!("cgscim_{}", &text(&issued, "token")[47..]);
    assert_eq!(old.len(), 71);
    let old_reply = json!({ "token": old });
    assert!(!directory.is_valid(&old_reply));
    let hash = hex::encode(Sha256::digest(&old));
    directory
        .world
        .change_private::<IdentityProvider>(&directory.provider, |private| private["tokenHash"] = json!(hash));
    assert!(directory.is_valid(&old_reply));
    assert!(!directory.is_valid(&issued));
    directory.run("RevokeScimToken", json!({})).unwrap();
    assert!(!directory.is_valid(&old_reply));
}

#[test]
fn a_token_is_returned_once_and_stored_as_a_hash() {
    let directory = Directory::new();
    assert_eq!(directory.shown(), json!({ "enabled": false, "credentialState": "CREDENTIAL_STATE_NOT_ISSUED" }));
    let issued = directory.generate();
    let token = text(&issued, "token");
    let digits = token.strip_prefix("cgscim_").unwrap();
    assert!(digits.len() == 104 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{token}");
    let endpoint = format!("https://api.test/scim/v2/{}", directory.provider);
    assert_eq!(
        (text(&issued, "endpointUrl"), text(&issued, "identityProviderUid")),
        (&*endpoint, &*directory.provider)
    );
    assert_eq!(text(&issued, "expireTime"), BEGIN.plus_millis(YEAR).to_string());
    assert_eq!(
        directory.shown(),
        json!({
            "enabled": false, "endpointUrl": endpoint, "tokenExpireTime": issued["expireTime"],
            "credentialState": "CREDENTIAL_STATE_LIVE", "etag": issued["etag"],
        })
    );
    let key = Key::new("IdentityProvider", directory.provider.clone());
    let record = block_on(directory.world.platform.store().get(&[key], &[])).unwrap().records.pop().flatten().unwrap();
    let stored = [&record.body, &record.private].map(|part| String::from_utf8_lossy(part).into_owned()).concat();
    assert!(!stored.contains(&digits[56..]) && !stored.contains("cgscim_"), "{stored}");
    assert_eq!(directory.verify(&issued).unwrap(), ScimAccess { provider: directory.provider.clone(), enabled: false });
    let again = directory.run("GenerateScimToken", json!({}));
    assert_eq!(code(again), Code::FailedPrecondition);
}

#[test]
fn lists_omit_the_state_of_the_credential_and_updates_leave_it_unchanged() {
    let directory = Directory::new();
    let (world, issued) = (&directory.world, directory.generate());
    let before = directory.shown();
    let listed = world.list(&world.operator, "IdentityProvider", &[]).unwrap().items;
    assert!(listed.len() == 1 && listed[0].get("scim").is_none() && listed[0].get("oidc").is_some());
    let body = json!({ "name": "renamed", "scim": { "enabled": true, "etag": "mine" } });
    let updated = world.update(&world.operator, "IdentityProvider", &directory.provider, body, None).unwrap();
    assert_eq!((&updated["scim"], directory.shown()), (&before, before.clone()));
    assert!(directory.is_valid(&issued));
}

#[test]
fn a_token_is_valid_until_its_expiry_within_two_years_or_without_expiry() {
    let directory = Directory::new();
    let at = |millis: i64| BEGIN.plus_millis(millis).to_string();
    for request in [
        json!({ "expireTime": at(0) }),
        json!({ "expireTime": at(2 * YEAR + 1) }),
        json!({ "expireTime": at(YEAR), "neverExpires": true }),
    ] {
        assert_eq!(violated_fields(directory.run("GenerateScimToken", request)), ["expireTime"]);
    }
    let issued = directory.run("GenerateScimToken", json!({ "expireTime": at(2 * YEAR) })).unwrap();
    directory.world.clock.advance(2 * YEAR - 1);
    assert_eq!((directory.is_valid(&issued), directory.state()), (true, "LIVE".to_owned()));
    directory.world.clock.advance(1);
    assert_eq!((directory.is_valid(&issued), directory.state()), (false, "EXPIRED".to_owned()));
    let never = directory.regenerate(json!({ "neverExpires": true }));
    assert!(never.get("expireTime").is_none() && never.get("previousTokenExpireTime").is_none(), "{never}");
    directory.world.clock.advance(100 * YEAR);
    assert_eq!(
        (directory.is_valid(&never), directory.is_valid(&issued), directory.state()),
        (true, false, "LIVE".to_owned())
    );
}

#[test]
fn the_previous_token_is_valid_only_for_the_overlap() {
    let directory = Directory::new();
    let first = directory.generate();
    let second = directory.regenerate(json!({}));
    let until = BEGIN.plus_millis(HOUR).to_string();
    assert_eq!((text(&second, "previousTokenExpireTime"), text(&second, "requestedOverlap")), (&*until, "3600s"));
    assert_eq!(
        (directory.state(), text(&directory.shown(), "previousTokenExpireTime")),
        ("ROTATING".to_owned(), &*until)
    );
    directory.world.clock.advance(HOUR - 1);
    assert!(directory.is_valid(&first) && directory.is_valid(&second));
    directory.world.clock.advance(1);
    assert!(!directory.is_valid(&first) && directory.is_valid(&second));
    assert_eq!((directory.state(), directory.shown().get("previousTokenExpireTime")), ("LIVE".to_owned(), None));

    let third = directory.regenerate(json!({ "overlap": "86400s" }));
    let fourth = directory.regenerate(json!({ "overlap": "60s" }));
    assert!(
        !directory.is_valid(&second) && directory.is_valid(&third) && directory.is_valid(&fourth),
        "one previous token, not two"
    );
    let fifth = directory.regenerate(json!({ "overlap": "0s" }));
    assert!(!directory.is_valid(&third) && !directory.is_valid(&fourth) && directory.is_valid(&fifth));
    assert_eq!(text(&fifth, "requestedOverlap"), "0s");
    for overlap in ["-1s", "86400.001s", "1h"] {
        let request = json!({ "overlap": overlap, "etag": directory.shown()["etag"] });
        assert_eq!(violated_fields(directory.run("RegenerateScimToken", request)), ["overlap"]);
    }
}

#[test]
fn the_previous_token_never_outlives_its_own_expiry() {
    let directory = Directory::new();
    let soon = BEGIN.plus_millis(1000).to_string();
    let first = directory.run("GenerateScimToken", json!({ "expireTime": soon })).unwrap();
    let second = directory.regenerate(json!({}));
    assert_eq!(text(&second, "previousTokenExpireTime"), soon);
    directory.world.clock.advance(1000);
    assert!(!directory.is_valid(&first) && directory.is_valid(&second));
}

#[test]
fn a_revocation_ends_both_tokens_immediately_and_is_idempotent() {
    let directory = Directory::new();
    let revoke = || directory.run("RevokeScimToken", json!({})).unwrap();
    assert_eq!(revoke(), json!({ "identityProviderUid": directory.provider, "enabled": false }), "there is no token");
    let first = directory.generate();
    let second = directory.regenerate(json!({}));
    directory.enable(false).unwrap();
    let revoked = revoke();
    assert!(!directory.is_valid(&first) && !directory.is_valid(&second));
    assert_eq!((text(&revoked, "revokeTime"), &revoked["enabled"]), (&*BEGIN.to_string(), &json!(false)));
    assert_eq!((directory.state(), &directory.shown()["etag"]), ("REVOKED".to_owned(), &revoked["etag"]));
    directory.world.clock.advance(1000);
    assert_eq!(revoke(), revoked);
    let third = directory.regenerate(json!({ "overlap": "3600s" }));
    assert!(third.get("previousTokenExpireTime").is_none(), "a revoked token does not become the previous one");
    assert!(!directory.is_valid(&second) && directory.is_valid(&third));
}

#[test]
fn regenerating_and_enabling_require_the_current_etag() {
    let directory = Directory::new();
    let enable = |etag: &str| directory.run("SetScimEnabled", json!({ "enabled": false, "etag": etag }));
    let error = directory.run("SetScimEnabled", json!({ "enabled": true })).unwrap_err();
    assert_eq!(error.message(), "Invalid argument: etag: etag is required");
    assert_eq!(violated_fields(directory.run("RegenerateScimToken", json!({}))), ["etag"]);
    assert_eq!(code(directory.run("RegenerateScimToken", json!({ "etag": "e" }))), Code::NotFound);
    assert_eq!(code(enable("e")), Code::FailedPrecondition);
    let first = text(&directory.generate(), "etag").to_owned();
    let second = text(&directory.regenerate(json!({})), "etag").to_owned();
    assert_ne!(first, second);
    for stale in [&first, "e"] {
        assert_eq!(code(enable(stale)), Code::Aborted);
        assert_eq!(code(directory.run("RegenerateScimToken", json!({ "etag": stale }))), Code::Aborted);
    }
    enable(&second).unwrap();
    assert_eq!(violated_fields(directory.run("SetScimEnabled", json!({ "etag": second }))), ["enabled"]);
}

#[test]
fn exactly_one_of_many_concurrent_regenerations_with_one_etag_succeeds() {
    let directory = Directory::new();
    let etag = directory.generate()["etag"].clone();
    let done: Vec<_> = std::thread::scope(|scope| {
        let regenerate = || directory.run("RegenerateScimToken", json!({ "etag": etag, "overlap": "0s" }));
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(regenerate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let good: Vec<_> = done.iter().flatten().filter(|reply| directory.is_valid(reply)).collect();
    assert_eq!((done.iter().flatten().count(), good.len()), (1, 1));
    assert!(done.into_iter().filter_map(Result::err).all(|error| error.code() == Code::Aborted));
}

#[test]
fn enabling_a_directory_requires_two_owners_bound_to_the_organization() {
    let directory = Directory::new();
    let (world, issued) = (&directory.world, directory.generate());
    // The operator is one owner; an owner of a folder and an editor do not count.
    world.member("owner", &world.group(&world.org));
    world.member("editor", &world.org);
    let error = directory.enable(true).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    world.bind(&world.person("ada", None), &built_in("owner"), &world.org);
    let before = directory.shown();
    let enabled = directory.enable(true).unwrap();
    assert_eq!(enabled["enabled"], true);
    assert_ne!(enabled["etag"], before["etag"]);
    assert!(directory.verify(&issued).unwrap().enabled);
    assert_eq!(directory.enable(true).unwrap()["etag"], enabled["etag"], "nothing changed");
    let disabled = directory.enable(false).unwrap();
    assert_eq!((&disabled["enabled"], directory.verify(&issued).unwrap().enabled), (&json!(false), false));
    // A new token and a revocation do not change `enabled`.
    directory.enable(true).unwrap();
    let next = directory.regenerate(json!({}));
    assert!(directory.verify(&next).unwrap().enabled);
    assert_eq!(directory.run("RevokeScimToken", json!({})).unwrap()["enabled"], true);
}

#[test]
fn an_owner_removed_while_a_directory_is_being_enabled_does_not_count() {
    let (store, gate) = GatedStore::in_memory();
    let directory = Directory::of(World::over(store));
    let world = &directory.world;
    directory.generate();
    let ada = world.bind(&world.person("ada", None), &built_in("owner"), &world.org);
    let remove = || world.delete(&world.operator, "RoleBinding", &ada).unwrap();
    let done = gate.interleave(Call::Commit, || directory.enable(true), remove);
    assert_eq!(code(done), Code::FailedPrecondition);
    assert_eq!(directory.shown()["enabled"], false);
}

#[test]
fn a_token_belongs_to_its_provider_and_forged_or_malformed_tokens_are_rejected() {
    let directory = Directory::new();
    let world = &directory.world;
    let other = provider(world, &world.organization());
    let mine = directory.generate();
    let request = json!({ "identityProviderUid": other });
    let theirs = world.run(Some(&world.operator), "GenerateScimToken", request).unwrap();
    assert_eq!(directory.verify(&mine).unwrap().provider, directory.provider);
    assert_eq!(directory.verify(&theirs).unwrap().provider, other);
    let token = text(&mine, "token");
    let crossed = format!("{}{}", &token[..63], &text(&theirs, "token")[63..]);
    let forged: String = token
        .chars()
        .rev()
        .enumerate()
        .map(|(at, c)| if at == 0 { if c == '0' { '1' } else { '0' } } else { c })
        .collect();
    let forged: String = forged.chars().rev().collect();
    for wrong in [
        "",
        "cgscim_",
        &crossed,
        &forged,
        &token[..70],
        &token[..71],
        &token[..110],
        &token.to_uppercase(),
        &format!("{token}0"),
        &"é".repeat(40),
        &"é".repeat(52),
    ] {
        assert!(!directory.is_valid(&json!({ "token": wrong })), "{wrong}");
    }
    world.delete(&world.operator, "IdentityProvider", &other).unwrap();
    assert!(!directory.is_valid(&theirs));
    assert!(directory.is_valid(&mine));
}
