//! Identities: relationships, patterns, lookups and metadata (`docs/api.md`, Identities and Claim patterns).

use platform_core::resources::iam::{StaticKeyPolicy, person_uid};
use platform_engine::{access::Caller, error::Code};
use serde_json::{Value, json};

use crate::common::{BEGIN, ISSUER, World, built_in, code, text, uid_of, violated_fields};

const KEYS: &str = r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#;

const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;

fn create(world: &World, relationship: Value) -> platform_engine::error::Result<Value> {
    let mut body = json!({ "name": "ci" });
    body.as_object_mut().unwrap().extend(crate::common::object(relationship));
    world.create(&world.operator, "Identity", &world.org, body)
}

#[test]
fn an_identity_has_exactly_one_relationship() {
    let world = World::new();
    let claims = json!({ "issuer": "i", "subject": "s" });
    let aws = json!({ "awsAccount": "123456789012", "arn": "a", "userId": "u" });
    for good in [
        json!({ "claimMatch": claims }),
        json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": KEYS } }),
        json!({ "awsIdentity": aws }),
        json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
        json!({ "service_principal": 13 }),
    ] {
        create(&world, good).unwrap();
    }
    assert_eq!(violated_fields(create(&world, json!({}))), ["relationship"]);
    assert_eq!(violated_fields(create(&world, json!({ "servicePrincipal": 0 }))), ["relationship"]);
    assert_eq!(violated_fields(create(&world, json!({ "claimMatch": claims, "awsIdentity": aws }))), ["awsIdentity"]);
}

#[test]
fn the_operator_that_an_installation_starts_with_needs_no_relationship() {
    let world = World::new();
    let operator = &world.operator;
    let before = world.get(operator, "Identity", &operator.identity).unwrap();
    assert!(before.get("claimMatch").is_none(), "{before}");
    let renamed = world.update(operator, "Identity", &operator.identity, json!({ "name": "root" }), Some("name"));
    assert_eq!(renamed.unwrap()["name"], "root");
}

#[test]
fn a_relationship_requires_all_of_its_parts_and_one_alternative_of_each() {
    let world = World::new();
    for (relationship, fields) in [
        (json!({ "claimMatch": {} }), vec!["claimMatch.issuer", "claimMatch.subject"]),
        (json!({ "claimMatch": { "issuer": "i" } }), vec!["claimMatch.subject"]),
        (json!({ "claimMatch": { "subject": "s" } }), vec!["claimMatch.issuer"]),
        (
            json!({ "claimMatch": { "issuer": "i", "issuerPattern": "i", "subject": "s" } }),
            vec!["claimMatch.issuerPattern"],
        ),
        (
            json!({ "claimMatch": { "issuer": "i", "subject": "s", "audience": "a", "audiencePattern": "a" } }),
            vec!["claimMatch.audiencePattern"],
        ),
        (json!({ "staticKeys": {} }), vec!["staticKeys.issuer", "staticKeys.subject", "staticKeys.issuerKeys"]),
        (
            json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": KEYS, "audiences": ["a", "b"] } }),
            vec!["staticKeys.audiences"],
        ),
        (json!({ "awsIdentity": { "arn": "a", "userId": "u" } }), vec!["awsIdentity.awsAccount"]),
        (json!({ "awsIdentity": { "awsAccount": "123456789012" } }), vec!["awsIdentity.arn", "awsIdentity.userId"]),
        (
            json!({ "awsIdentity": { "awsAccount": "12345", "arn": "a", "userId": "u" } }),
            vec!["awsIdentity.awsAccount"],
        ),
        (json!({ "servicePrincipal": "INGESTER" }), vec!["servicePrincipal"]),
    ] {
        assert_eq!(violated_fields(create(&world, relationship.clone())), fields, "{relationship}");
    }
}

#[test]
fn invalid_patterns_are_rejected_by_field_name_when_they_are_written() {
    let world = World::new();
    let with = |field: &str, pattern: &str| {
        let mut claims = json!({ "issuer": "i", "subject": "s" });
        match field {
            "issuerPattern" => claims = json!({ "issuerPattern": pattern, "subject": "s" }),
            "subjectPattern" => claims = json!({ "issuer": "i", "subjectPattern": pattern }),
            "claimPatterns" => claims[field] = json!({ "ref": pattern }),
            _ => claims[field] = pattern.into(),
        }
        create(&world, json!({ "claimMatch": claims }))
    };
    let long = "a".repeat(513);
    for field in ["issuerPattern", "subjectPattern", "audiencePattern", "claimPatterns"] {
        with(field, "^repo:.*$").unwrap();
        for bad in ["(", "a)|(b", "[", "*", "\\", &long, r"\w{1000}", "(?=a)", r"(a)\1"] {
            assert_eq!(violated_fields(with(field, bad)), [format!("claimMatch.{field}")], "{bad}");
        }
    }
}

#[test]
fn static_keys_are_valid_for_at_most_365_days() {
    let world = World::new();
    let keys = |until: Option<i64>| {
        let mut keys = json!({ "issuer": "i", "subject": "s", "issuerKeys": KEYS });
        if let Some(until) = until {
            keys["expirationTime"] = BEGIN.plus_millis(until).to_string().into();
        }
        json!({ "staticKeys": keys })
    };
    let until = |identity: &Value| text(&identity["staticKeys"], "expirationTime").to_owned();
    let latest = BEGIN.plus_millis(YEAR).to_string();
    assert_eq!(until(&create(&world, keys(None)).unwrap()), latest);
    assert_eq!(until(&create(&world, keys(Some(YEAR))).unwrap()), latest);
    let short = create(&world, keys(Some(1_000))).unwrap();
    assert_eq!(until(&short), BEGIN.plus_millis(1_000).to_string());
    assert_eq!(violated_fields(create(&world, keys(Some(YEAR + 1)))), ["staticKeys.expirationTime"]);
    let later = |until, mask| world.update(&world.operator, "Identity", text(&short, "uid"), keys(Some(until)), mask);
    for mask in [None, Some("staticKeys"), Some("staticKeys.expirationTime")] {
        assert_eq!(violated_fields(later(YEAR + 1, mask)), ["staticKeys.expirationTime"], "{mask:?}");
    }
    // An update of another field does not change the keys, expired or not.
    world.clock.advance(YEAR);
    let renamed = world.update(&world.operator, "Identity", text(&short, "uid"), json!({ "name": "x" }), None).unwrap();
    assert_eq!(until(&renamed), until(&short));
    // Nor does one after the clock was set back, when the keys expire more than 365 days from now.
    let long = create(&world, keys(Some(2 * YEAR))).unwrap();
    world.clock.advance(-1);
    world.update(&world.operator, "Identity", text(&long, "uid"), json!({ "name": "x" }), None).unwrap();
}

#[test]
fn static_keys_must_be_public_keys() {
    let world = World::new();
    let keys =
        |keys: &str| create(&world, json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": keys } }));
    keys(r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#).unwrap();
    for bad in
        ["x", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, r#"{"keys":[{"kty":"RSA","d":"AA"}]}"#]
    {
        assert_eq!(violated_fields(keys(bad)), ["staticKeys.issuerKeys"], "{bad}");
    }
}

#[test]
fn static_keys_are_checked_by_the_policy_of_the_installation_whenever_they_change() {
    const BAD: &str = r#"{"keys":[{"kty":"RSA","kid":"bad"}]}"#;
    const OTHER: &str = r#"{"keys":[{"kty":"RSA","kid":"other"}]}"#;
    let check = |keys: &str| if keys.contains("bad") { Err("keys[0]: is bad".to_owned()) } else { Ok(()) };
    let world = World::with(|builder| builder.data(StaticKeyPolicy::default().check(check)));
    let keys = |keys: &str| json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": keys } });
    let refused = create(&world, keys(BAD)).unwrap_err();
    assert_eq!(refused.violations()[0].description, "keys[0]: is bad");
    assert_eq!(violated_fields(create(&world, keys(BAD))), ["staticKeys.issuerKeys"]);
    let uid = text(&create(&world, keys(OTHER)).unwrap(), "uid").to_owned();
    let update = |body: Value, mask| world.update(&world.operator, "Identity", &uid, body, mask);
    for mask in [None, Some("staticKeys"), Some("staticKeys.issuerKeys"), Some("*")] {
        let mut body = keys(BAD);
        body["name"] = json!("ci");
        assert_eq!(violated_fields(update(body, mask)), ["staticKeys.issuerKeys"], "{mask:?}");
    }
    update(keys(OTHER), Some("staticKeys")).unwrap();
    // An identity with another relationship gets static keys.
    let claims = json!({ "claimMatch": { "issuer": "i", "subject": "s" } });
    let uid = text(&create(&world, claims).unwrap(), "uid").to_owned();
    let changed = world.update(&world.operator, "Identity", &uid, keys(BAD), Some("staticKeys,claimMatch"));
    assert_eq!(violated_fields(changed), ["staticKeys.issuerKeys"]);
}

#[test]
fn last_seen_time_of_a_new_identity_is_its_create_time() {
    let world = World::new();
    let created = create(&world, json!({ "claimMatch": { "issuer": "i", "subject": "s" } })).unwrap();
    assert_eq!(created["lastSeenTime"], created["createTime"]);
    world.clock.advance(1_000);
    let updated =
        world.update(&world.operator, "Identity", text(&created, "uid"), json!({ "name": "x" }), None).unwrap();
    assert_eq!(updated["lastSeenTime"], created["lastSeenTime"]);
}

#[test]
fn two_identities_of_a_group_may_have_the_same_name() {
    let world = World::new();
    let relationship = || json!({ "claimMatch": { "issuer": "i", "subject": "s" } });
    create(&world, relationship()).unwrap();
    create(&world, relationship()).unwrap();
}

#[test]
fn identities_can_be_listed_by_relationship_type() {
    let world = World::new();
    let made = [
        ("RELATIONSHIP_TYPE_CLAIM_MATCH", json!({ "claimMatch": { "issuer": "i", "subject": "s" } })),
        ("RELATIONSHIP_TYPE_STATIC", json!({ "staticKeys": { "issuer": "i", "subject": "s", "issuerKeys": KEYS } })),
        ("RELATIONSHIP_TYPE_SERVICE_PRINCIPAL", json!({ "servicePrincipal": 1 })),
    ]
    .map(|(form, relationship)| (form, uid_of(&create(&world, relationship).unwrap())));
    let scope = ("uidp.children_of", &*world.org);
    let listed = |form: &str| world.list(&world.operator, "Identity", &[("relationship_type", form), scope]).unwrap();
    for (form, uid) in &made {
        assert_eq!(listed(form).uids(), [uid.to_string()]);
    }
    assert_eq!(listed("RELATIONSHIP_TYPE_AWS_IDENTITY").total, 0);
    assert_eq!(listed("2").uids(), [made[1].1.to_string()]);
    for all in ["RELATIONSHIP_TYPE_UNSPECIFIED", "0", ""] {
        assert_eq!(listed(all).total, 3, "{all:?}");
    }
    let bad = world.list(&world.operator, "Identity", &[("relationshipType", "STATIC")]);
    assert_eq!(violated_fields(bad), ["relationshipType"]);
}

#[test]
fn delete_of_an_identity_cascades_to_its_bindings_in_all_groups_and_to_its_metadata() {
    let world = World::new();
    let ada = world.person("ada", None);
    let other = world.organization();
    for group in [&world.org, &other, &world.group(&other)] {
        world.bind(&ada, &built_in("viewer"), group);
    }
    world.run(Some(&ada), "UpdateIdentityMetadata", json!({ "identityMetadata": { "company": "c" } })).unwrap();
    let bound = || world.walk(&world.operator, "RoleBinding", &[("identity", &ada.identity)]).len();
    assert_eq!(bound(), 3);
    world.delete(&world.operator, "Identity", &ada.identity).unwrap();
    assert_eq!(bound(), 0);
    assert_eq!(code(world.list(&ada, "Group", &[])), Code::Unauthenticated);
    // A person who registers again has no bindings and no metadata.
    let again = world.person("ada", None);
    assert_eq!(world.list(&again, "Group", &[]).unwrap().total, 0);
    let metadata = world.run(Some(&again), "UpdateIdentityMetadata", json!({ "identityMetadata": {} })).unwrap();
    assert_eq!(metadata.get("company"), None);
}

#[test]
fn a_lookup_returns_the_uid_of_a_person_whether_or_not_they_registered() {
    let world = World::new();
    let ada = world.person("ada", None);
    let lookup = |issuer: &str, subject: &str| {
        world.run(Some(&ada), "LookupIdentity", json!({ "issuer": issuer, "subject": subject }))
    };
    assert_eq!(lookup(ISSUER, "ada").unwrap(), json!({ "uid": ada.identity }));
    assert_eq!(lookup(ISSUER, "never").unwrap(), json!({ "uid": person_uid(ISSUER, "never") }));
    assert_eq!(violated_fields(lookup("", "")), ["issuer", "subject"]);
    world.delete(&world.operator, "Identity", &ada.identity).unwrap();
    assert_eq!(code(lookup(ISSUER, "ada")), Code::Unauthenticated);
}

#[test]
fn callers_update_only_the_masked_fields_of_their_own_metadata() {
    let world = World::new();
    let ada = world.person("ada", None);
    let say = |caller: &Caller, body: Value| world.run(Some(caller), "UpdateIdentityMetadata", body);
    let first = say(
        &ada,
        json!({ "identityMetadata": { "company": "c", "jobTitle": "j", "hubspotUtk": "x", "uid": "y", "name": "z" } }),
    );
    let first = first.unwrap();
    assert_eq!((text(&first, "company"), text(&first, "jobTitle"), text(&first, "uid")), ("c", "j", &*ada.identity));
    assert_eq!((first.get("hubspotUtk"), first.get("name")), (None, None));
    let masked =
        say(&ada, json!({ "identityMetadata": { "company": "d", "product": "p" }, "updateMask": "company,job_title" }));
    let masked = masked.unwrap();
    assert_eq!((text(&masked, "company"), masked.get("jobTitle"), masked.get("product")), ("d", None, None));
    let all = say(&ada, json!({ "identityMetadata": { "product": "p" }, "updateMask": "*" })).unwrap();
    assert_eq!((all.get("company"), text(&all, "product")), (None, "p"));
    assert_eq!(violated_fields(say(&ada, json!({ "identityMetadata": {}, "updateMask": "x" }))), ["update_mask"]);
    assert_eq!(violated_fields(say(&ada, json!({}))), ["identityMetadata"]);
    assert_eq!(violated_fields(say(&ada, json!({ "identityMetadata": { "x": 1 } }))), ["identityMetadata.x"]);
}
