//! Revocation of tokens: who may revoke which, and what each revocation ends (`docs/api.md`, Revocation of tokens).
//! That it takes effect at once, for requests in flight too, is tested with the other revocations in `live_grants.rs`.

use platform_core::capabilities;
use platform_engine::{
    access::{Caller, Credential, Narrowing, Revocations},
    error::{Code, Result},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::CountingStore;
use serde_json::{Value, json};

use crate::common::{BEGIN, World, built_in, code, text};

fn token_id(number: usize) -> String {
    format!("{number:032x}")
}

/// Returns a caller with a token of this id, which was issued this many seconds after the beginning.
fn with_token(caller: &Caller, number: usize, seconds: i64) -> Caller {
    let issued = BEGIN.plus_millis(seconds * 1000);
    let credential = Credential { id: Some(token_id(number)), issued, generation: Some(0) };
    caller.clone().with_credential(credential)
}

fn revoke(world: &World, caller: &Caller, identity: &Uid, mut request: Value) -> Result<Value> {
    request["identityUid"] = json!(identity);
    world.run(Some(caller), "RevokeTokens", request)
}

#[test]
fn the_revocation_of_one_token_leaves_the_others() {
    let world = World::new();
    let ci = world.member("viewer", &world.org);
    let [stolen, other] = [1, 2].map(|number| with_token(&ci, number, 0));
    let reply = revoke(&world, &world.operator, &ci.identity, json!({ "tokenId": token_id(1) })).unwrap();
    assert_eq!((text(&reply, "revokeTime"), &reply["endedSignIns"]), (&*BEGIN.to_string(), &json!(0)));
    let see = |caller: &Caller| world.get(caller, "Group", &world.org);
    assert_eq!(code(see(&stolen)), Code::Unauthenticated);
    see(&other).unwrap();
    see(&ci).unwrap();
    // The identity's other properties are unchanged, and an update of it does not end the revocation.
    let before = world.get(&world.operator, "Identity", &ci.identity).unwrap();
    assert_eq!(before["updateTime"], before["createTime"]);
    world.update(&world.operator, "Identity", &ci.identity, json!({ "description": "d" }), None).unwrap();
    assert_eq!(code(see(&stolen)), Code::Unauthenticated);
}

#[test]
fn the_revocation_of_all_tokens_and_of_those_before_a_time_apply_to_the_identity_alone() {
    let world = World::new();
    let (ci, other) = (world.member("viewer", &world.org), world.member("viewer", &world.org));
    let see = |caller: &Caller| world.get(caller, "Group", &world.org);
    world.clock.advance(60_000);
    let before = BEGIN.plus_millis(30_000);
    revoke(&world, &world.operator, &ci.identity, json!({ "beforeTime": before })).unwrap();
    assert_eq!(code(see(&with_token(&ci, 1, 30))), Code::Unauthenticated);
    see(&with_token(&ci, 2, 31)).unwrap();
    revoke(&world, &world.operator, &ci.identity, json!({})).unwrap();
    assert_eq!(code(see(&with_token(&ci, 2, 31))), Code::Unauthenticated);
    assert_eq!(code(see(&with_token(&ci, 3, 999))), Code::Unauthenticated, "whatever the clock of its issuer was");
    // Without a number of revocations, the time decides.
    let at = |seconds: i64| Credential::issued_at(Some(BEGIN.plus_millis(seconds * 1000)));
    assert_eq!(code(see(&ci.clone().with_credential(at(60)))), Code::Unauthenticated);
    see(&ci.clone().with_credential(at(61))).unwrap();
    see(&with_token(&other, 1, 0)).unwrap();
}

#[test]
fn the_caller_itself_the_operator_and_those_who_may_update_an_identity_may_revoke_its_tokens() {
    let world = World::new();
    let (ci, person) = (world.member("viewer", &world.org), world.person("ada", None));
    let (owner, stranger) = (world.member("owner", &world.org), world.member("owner", &world.organization()));
    let only = |names: &[&str]| names.iter().map(|name| capabilities::by_name(name).unwrap()).collect();
    let narrowed =
        |caller: &Caller, names: &[&str]| caller.clone().narrowed(Narrowing::new([(world.org.clone(), only(names))]));
    let try_as = |caller: &Caller, identity: &Uid| revoke(&world, caller, identity, json!({ "tokenId": token_id(9) }));
    for caller in [&ci, &owner, &world.operator, &narrowed(&owner, &["identity.update"])] {
        try_as(caller, &ci.identity).unwrap();
    }
    for caller in [&person, &stranger, &world.member("viewer", &world.org), &narrowed(&owner, &["identity.list"])] {
        assert_eq!(code(try_as(caller, &ci.identity)), Code::PermissionDenied);
    }
    assert_eq!(code(try_as(&narrowed(&ci, &["groups.list"]), &ci.identity)), Code::PermissionDenied);
    // A person belongs to no group, also not to one where the person has a role.
    world.bind(&person, &built_in("viewer"), &world.org);
    for caller in [&person, &world.operator] {
        try_as(caller, &person.identity).unwrap();
    }
    assert_eq!(code(try_as(&owner, &person.identity)), Code::PermissionDenied);
    // The error does not depend on whether the identity exists.
    let missing = Uid::opaque(format!("{}/0000000000000000", world.org));
    assert_eq!(code(try_as(&stranger, &missing)), Code::PermissionDenied);
    assert_eq!(code(try_as(&owner, &missing)), Code::NotFound);
}

#[test]
fn invalid_requests_name_the_field_and_change_nothing() {
    let world = World::new();
    let ci = world.member("viewer", &world.org);
    for (request, field) in [
        (json!({ "tokenId": "x" }), "tokenId"),
        (json!({ "tokenId": token_id(10).to_uppercase() }), "tokenId"),
        (json!({ "beforeTime": BEGIN.plus_millis(1) }), "beforeTime"),
        (json!({ "beforeTime": "yesterday" }), "beforeTime"),
        (json!({ "id": token_id(1) }), "id"),
    ] {
        let error = revoke(&world, &world.operator, &ci.identity, request).unwrap_err();
        assert_eq!((error.code(), error.violations()[0].field.as_str()), (Code::InvalidArgument, field));
    }
    let both = json!({ "tokenId": token_id(1), "beforeTime": BEGIN });
    assert_eq!(code(revoke(&world, &world.operator, &ci.identity, both)), Code::InvalidArgument);
    world.get(&with_token(&ci, 1, 0), "Group", &world.org).unwrap();
}

#[test]
fn ids_of_revoked_tokens_are_bounded_and_forgotten_when_the_tokens_have_expired() {
    let world = World::new();
    let ci = world.member("viewer", &world.org);
    let revoke_one =
        |number: usize| revoke(&world, &world.operator, &ci.identity, json!({ "tokenId": token_id(number) }));
    for number in 0..Revocations::MAX_TOKENS {
        revoke_one(number).unwrap();
    }
    revoke_one(0).unwrap();
    let full = revoke_one(1000).unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("revoke all of them"), "{}", full.message());
    let revoked = with_token(&ci, 7, 0);
    assert_eq!(code(world.get(&revoked, "Group", &world.org)), Code::Unauthenticated);
    // A token is valid for at most 30 days, and for another minute by a server whose clock is behind.
    world.clock.advance((30 * 24 * 60 + 1) * 60 * 1000);
    assert_eq!(code(revoke_one(1000)), Code::ResourceExhausted);
    world.clock.advance(60 * 1000);
    revoke_one(1000).unwrap();
    world.get(&revoked, "Group", &world.org).unwrap();
    assert_eq!(code(world.get(&with_token(&ci, 1000, 0), "Group", &world.org)), Code::Unauthenticated);
    // A revocation of all tokens makes room.
    revoke(&world, &world.operator, &ci.identity, json!({})).unwrap();
    for number in 0..Revocations::MAX_TOKENS {
        revoke_one(number).unwrap();
    }
}

#[test]
fn a_get_and_a_list_read_no_more_for_a_token_that_can_be_revoked() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    let (repo, ci) = (world.repo(&world.org), world.member("viewer", &world.org));
    revoke(&world, &world.operator, &ci.identity, json!({ "tokenId": token_id(1) })).unwrap();
    let reads_of = |caller: &Caller| {
        let cached = [0, 1].map(|_| {
            let before = calls.reads();
            world.get(caller, "Repo", &repo).unwrap();
            world.list(caller, "Repo", &[]).unwrap();
            calls.reads() - before
        });
        cached[1]
    };
    assert_eq!(reads_of(&ci), 2, "one for the get and one for the list");
    assert_eq!(reads_of(&with_token(&ci, 2, 0)), 2);
}

#[test]
fn a_token_that_was_issued_after_the_cached_grants_were_read_is_accepted() {
    let world = World::new();
    let ci = world.member("viewer", &world.org);
    world.get(&with_token(&ci, 1, 0), "Group", &world.org).unwrap();
    revoke(&world, &world.operator, &ci.identity, json!({})).unwrap();
    // Nothing has used the identity's grants since the revocation.
    let credential = Credential { id: None, issued: BEGIN, generation: Some(1) };
    world.get(&ci.clone().with_credential(credential), "Group", &world.org).unwrap();
    assert_eq!(code(world.get(&with_token(&ci, 1, 0), "Group", &world.org)), Code::Unauthenticated);
    assert_eq!(Credential::issued_at(None).issued, Timestamp::MIN);
}
