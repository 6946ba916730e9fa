//! Tests of reading and patching users.

use super::{super::attributes, *};

fn user() -> DirectoryUser {
    let body = json!({
        "schemas": [SCHEMA], "userName": "ada", "externalId": "7", "displayName": "Ada L",
        "name": { "givenName": "Ada", "familyName": "L", "formatted": "Ada L" }, "title": "Countess",
        "emails": [{ "value": "b@example.com" }, { "value": "a@example.com", "primary": true }],
    });
    read(&body, None).unwrap()
}

fn patch(operations_of: &Value) -> Parsed<DirectoryUser> {
    patched(user(), &operations(&json!({ "Operations": operations_of }))?)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(read: Parsed<T>) -> &'static str {
    read.expect_err("a refusal").kind
}

#[test]
fn a_user_is_read_with_its_stored_attributes_and_is_active_by_default() {
    let ada = user();
    assert!(ada.active && ada.email == "a@example.com" && ada.given_name == "Ada");
    assert!(!read(&json!({ "USERNAME": "a", "active": "False" }), None).unwrap().active);
    assert!(!read(&json!({ "userName": "a", SCHEMA: { "active": false } }), None).unwrap().active);
    for bad in [
        json!({}),
        json!({ "userName": "" }),
        json!({ "userName": 1 }),
        json!({ "userName": "a", "active": 1 }),
        json!({ "userName": "a", "emails": [1] }),
        json!({ "userName": "a", "name": "Ada" }),
    ] {
        assert_eq!(refused(read(&bad, None)), "invalidValue", "{bad}");
    }
    let twice = json!({ "userName": "a", "active": false, format!("{SCHEMA}:active"): true });
    assert_eq!(refused(read(&twice, None)), "invalidSyntax");
}

#[test]
fn the_attributes_of_the_table_are_those_that_are_read_and_written() {
    let sent = attributes::tests::object(attributes::USER);
    let written = to_json(&read(&sent, None).unwrap(), "https://api.test");
    attributes::tests::assert_has(&written, attributes::USER);
    for attribute in attributes::defined() {
        assert_eq!(written[attribute.name], sent[attribute.name]);
        let target = Target::parse(attribute.name).unwrap();
        assert!(!matches!(target, Target::ReadOnly | Target::NotStored), "{}", attribute.name);
        for part in attribute.parts() {
            let target = Target::parse(&format!("{}.{}", attribute.name, part.name)).unwrap();
            assert_eq!(target == Target::NotStored, part.read_only, "{} {}", attribute.name, part.name);
        }
    }

    let operation = json!({ "op": "add", "path": "displayName", "value": "A" });
    let patch = json!({ "schemas": [], "Operations": [operation] });
    attributes::tests::assert_has(&patch, attributes::PATCH);
    for attribute in attributes::PATCH {
        let mut without = patch.clone();
        without.as_object_mut().unwrap().remove(attribute.name);
        assert_eq!(operations(&without).is_err(), attribute.required, "{}", attribute.name);
    }
    for attribute in attributes::OPERATION.iter().filter(|attribute| attribute.required) {
        let mut without = patch.clone();
        without["Operations"][0].as_object_mut().unwrap().remove(attribute.name);
        operations(&without).unwrap_err();
    }
}

#[test]
fn a_replacement_without_active_does_not_change_it() {
    let deactivated = DirectoryUser { active: false, ..user() };
    for left_out in [json!({ "userName": "ada" }), json!({ "userName": "ada", "active": null })] {
        let replaced = read(&left_out, Some(&deactivated)).unwrap();
        assert!(!replaced.active && replaced.display_name.is_empty() && replaced.email.is_empty());
        assert!(read(&left_out, Some(&user())).unwrap().active);
    }
    assert!(read(&json!({ "userName": "ada", "active": true }), Some(&deactivated)).unwrap().active);
}

#[test]
fn keys_that_differ_only_in_case_are_rejected_at_every_depth() {
    for twice in [
        json!({ "active": false, "ACTIVE": true }),
        json!({ "Operations": [{ "op": "add", "Op": "remove" }] }),
        json!({ "name": { "givenName": "a", "givenname": "b" } }),
    ] {
        assert_eq!(refused(check_keys(&twice)), "invalidSyntax", "{twice}");
    }
    check_keys(&json!({ "a": [{ "b": 1 }, { "b": 2 }], "b": null })).unwrap();
    let many: Map<String, Value> = (0..=MAX_KEYS).map(|n| (n.to_string(), Value::Null)).collect();
    assert_eq!(refused(check_keys(&many.into())), "invalidSyntax");
}

#[test]
fn a_deactivation_is_accepted_in_every_notation() {
    for operation in [
        json!({ "op": "replace", "path": "active", "value": false }),
        json!({ "op": "Replace", "path": "active", "value": "False" }),
        json!({ "op": "REPLACE", "path": "ACTIVE", "value": false }),
        json!({ "op": "replace", "value": { "active": false } }),
        json!({ "op": "add", "value": { "Active": false } }),
        json!({ "op": "replace", "path": format!("{SCHEMA}:active"), "value": false }),
        json!({ "op": "replace", "path": format!("{}:active", SCHEMA.to_lowercase()), "value": false }),
        json!({ "op": "replace", "path": SCHEMA, "value": { "active": false } }),
        json!({ "op": "replace", "value": { SCHEMA: { "active": false } } }),
        json!({ "op": "replace", "value": { format!("{SCHEMA}:active"): false } }),
        json!({ "op": "remove", "path": "active" }),
        json!({ "op": "replace", "path": "active", "value": null }),
        json!({ "op": "replace", "path": "active", "value": [false] }),
        json!({ "op": "Replace", "path": "active", "value": [{ "$ref": null, "value": "False" }] }),
    ] {
        assert!(!patch(&json!([operation])).unwrap().active, "{operation}");
    }
    for (operation, kind) in [
        (json!({ "op": "replace", "path": "active.x", "value": false }), "invalidPath"),
        (json!({ "op": "replace", "value": { "emails[type eq work].value": "a" } }), "invalidPath"),
        (json!({ "op": "replace", "path": "active[value eq true]", "value": false }), "invalidPath"),
        (json!({ "op": "replace", "path": "active", "value": 0 }), "invalidValue"),
        (json!({ "op": "replace", "path": "active", "value": [false, false] }), "invalidValue"),
        (json!({ "op": "replace", "value": false }), "invalidValue"),
        (json!({ "op": "replace", "path": "id", "value": "x" }), "mutability"),
        (json!({ "op": "remove", "path": "userName" }), "mutability"),
        (json!({ "op": "remove" }), "noTarget"),
        (json!({ "op": "replace", "path": "active" }), "invalidSyntax"),
        (json!({ "op": "move", "path": "active", "value": 1 }), "invalidSyntax"),
        (json!({ "op": "add", "path": 1, "value": 1 }), "invalidSyntax"),
    ] {
        assert_eq!(refused(patch(&json!([operation]))), kind, "{operation}");
    }
    for bad in [json!({}), json!({ "Operations": [] }), json!({ "Operations": {} })] {
        assert_eq!(refused(operations(&bad)), "invalidSyntax");
    }
}

#[test]
fn filters_on_addresses_are_honored() {
    let work = "emails[type eq \"work\"].value";
    let home = "emails[type eq \"home\"].value";
    let one = |op: &str, path: &str, value: Value| patch(&json!([{ "op": op, "path": path, "value": value }]));
    assert_eq!(one("replace", work, json!("c@example.com")).unwrap().email, "c@example.com");
    assert_eq!(one("Add", work, json!("c@example.com")).unwrap().email, "c@example.com");
    assert!(one("remove", work, Value::Null).unwrap().email.is_empty());
    assert!(one("remove", "emails[type eq \"work\"]", Value::Null).unwrap().email.is_empty());
    // Another address is ignored, as it is in a whole user.
    for op in ["add", "replace", "remove"] {
        for path in [home, "emails[type eq \"home\"]", "emails[kind eq \"work\"].value", "emails[value eq \"x\"].value"]
        {
            assert_eq!(one(op, path, json!("c@example.com")).unwrap().email, "a@example.com", "{op} {path}");
        }
    }
    let element = json!({ "value": "c@example.com", "type": "work" });
    assert_eq!(one("replace", "emails[value eq \"A@example.com\"]", element).unwrap().email, "c@example.com");
    let added = |email: Value| one("add", "emails", json!([email])).unwrap().email;
    assert_eq!(
        added(json!({ "value": "h@example.com", "type": "home" })),
        "a@example.com",
        "an address that is not primary"
    );
    assert_eq!(added(json!({ "value": "h@example.com", "primary": true })), "h@example.com");
    assert_eq!(one("replace", "emails", json!([{ "value": "h@example.com" }])).unwrap().email, "h@example.com");
    assert!(one("replace", "emails", json!([])).unwrap().email.is_empty());
    assert!(one("replace", "emails", json!([{ "value": null }])).unwrap().email.is_empty());
    let sparse = json!([{ "value": null, "type": "home" }, { "value": "w@example.com", "type": "work" }]);
    assert_eq!(one("replace", "emails", sparse).unwrap().email, "w@example.com");
    // When no address is stored, an add and a replace set it.
    let none = |op: &str, path: &str| {
        patch(&json!([{ "op": "remove", "path": "emails" }, { "op": op, "path": path, "value": "n@example.com" }]))
    };
    assert_eq!(none("add", work).unwrap().email, "n@example.com");
    assert_eq!(none("replace", work).unwrap().email, "n@example.com");
    // Any address is the first one, as in a create, until the work address replaces it.
    assert_eq!(none("add", home).unwrap().email, "n@example.com");
    assert_eq!(none("replace", home).unwrap().email, "n@example.com");
    assert!(none("remove", work).unwrap().email.is_empty());
    let both = patch(&json!([
        { "op": "remove", "path": "emails" },
        { "op": "add", "path": home, "value": "h@example.com" },
        { "op": "add", "path": work, "value": "w@example.com" },
    ]));
    assert_eq!(both.unwrap().email, "w@example.com");
}

#[test]
fn operations_are_applied_in_order_and_attributes_that_are_not_stored_are_ignored() {
    let changed = patch(&json!([
        { "op": "add", "path": "groups", "value": [{ "value": "g" }] },
        { "op": "add", "path": "costCode", "value": 7 },
        { "op": "remove", "path": "urn:example:1.0:User:costCode" },
        { "op": "add", "path": "members[value eq \"x\"]" },
        { "op": "add", "value": { "costCode": "7", "urn:example:1.0:User": { "a": 1 }, "not a name": 1, "": 1 } },
        { "op": "add", "path": "name.givenName", "value": "Augusta" },
        { "op": "remove", "path": "displayName" },
        { "op": "replace", "path": "title", "value": "Lady" },
        { "op": "Add", "path": "phoneNumbers[type eq \"work\"].value", "value": "1" },
        { "op": "replace", "value": { "id": "x", "meta": {}, "name.familyName": "King", "nickName": "A" } },
    ]));
    let changed = changed.unwrap();
    assert_eq!((changed.given_name.as_str(), changed.family_name.as_str()), ("Augusta", "King"));
    assert!(changed.display_name.is_empty() && changed.active && changed.user_name == "ada");
    let cleared = patch(&json!([{ "op": "remove", "path": "name" }])).unwrap();
    assert!(cleared.given_name.is_empty() && cleared.family_name.is_empty());
}
