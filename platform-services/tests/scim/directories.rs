//! The requests of directories, each with the user afterwards. Attributes that the server does not store never prevent
//! the change of the others.

use http::Method;
use serde_json::{Value, json};

use super::{Directory, ENTERPRISE, USER, at, work};

/// Operations of a patch, and what they change of a user: an attribute, or the work address as `email`.
type Row = (&'static str, Value, Value);

/// A user with all attributes that are stored, and others.
fn ada() -> Value {
    json!({
        "schemas": [USER, ENTERPRISE], "userName": "ada@example.com", "externalId": "0a21f0f2", "active": true,
        "displayName": "Ada L", "name": { "formatted": "Ada L", "givenName": "Ada", "familyName": "L" }, "roles": [],
        "emails": [
            { "primary": true, "type": "work", "value": "ada@example.com" },
            { "type": "other", "value": "other@example.com" },
        ],
        "meta": { "resourceType": "User" }, "locale": "en-US", "groups": [], "password": "x",
        ENTERPRISE: { "department": "d", "manager": { "value": "m" } },
    })
}

fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "Replace", "path": path, "value": value.into() })
}

fn add(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "Add", "path": path, "value": value.into() })
}

fn rows() -> Vec<Row> {
    let off = || replace("active", "False");
    let inactive = || json!({ "active": false });
    let custom = "urn:ietf:params:scim:schemas:extension:ExampleCorp:2.0:User";
    vec![
        ("Entra: disabled", json!([off()]), inactive()),
        (
            "Entra before it followed the RFC: lists of one",
            json!([
                replace("active", json!([{ "$ref": null, "value": "False" }])),
                add("displayName", json!([{ "$ref": null, "value": "A" }]))
            ]),
            json!({ "active": false, "displayName": "A" }),
        ),
        (
            "Entra: another address is mapped",
            json!([off(), add("emails[type eq \"other\"].value", "o@example.com")]),
            inactive(),
        ),
        (
            "Entra: another address is replaced",
            json!([replace("emails[type eq \"home\"].value", "h@example.com"), off()]),
            inactive(),
        ),
        (
            "Entra: another address is removed",
            json!([{ "op": "Remove", "path": "emails[type eq \"other\"].value" }, off()]),
            inactive(),
        ),
        (
            "Entra: the parts of an address",
            json!([
                replace("emails[type eq \"work\"].value", "w@example.com"),
                replace("emails[type eq \"work\"].primary", true),
                add("emails[type eq \"work\"].display", "W"),
                off(),
            ]),
            json!({ "active": false, "email": "w@example.com" }),
        ),
        (
            "the validator of Microsoft",
            json!([
                replace("emails[type eq \"work\"].value", "w@example.com"),
                replace("emails[type eq \"home\"].value", "h@example.com"),
                replace("emails[type eq \"other\"].value", "o@example.com"),
                add("phoneNumbers[type eq \"mobile\"].value", "1"),
                add("addresses[type eq \"work\"].formatted", "s"),
                add("ims[type eq \"aim\"].value", "i"),
                add("roles[primary eq \"True\"].value", "r"),
                replace("name.middleName", "M"),
                replace("name.familyName", "F"),
                add(&format!("{ENTERPRISE}:department"), "d"),
                replace(&format!("{ENTERPRISE}:manager"), "m"),
                off(),
            ]),
            json!({ "active": false, "email": "w@example.com", "name": { "givenName": "Ada", "familyName": "F" } }),
        ),
        ("an attribute of another schema", json!([off(), add(&format!("{custom}:costCode"), "7")]), inactive()),
        ("another schema", json!([off(), add(custom, json!({ "costCode": "7" }))]), inactive()),
        ("attributes without their schema", json!([add("department", "d"), add("manager", "m"), off()]), inactive()),
        (
            "the reference of a manager",
            json!([add(&format!("{ENTERPRISE}:manager.$ref"), "../Users/1"), off()]),
            inactive(),
        ),
        ("groups", json!([add("groups", json!([{ "value": "g" }])), off()]), inactive()),
        ("Okta: deactivated", json!([{ "op": "replace", "value": { "active": false } }]), inactive()),
        ("Okta: the password", json!([{ "op": "replace", "value": { "password": "p", "active": false } }]), inactive()),
        ("Okta: a value in a list", json!([{ "op": "replace", "path": "active", "value": [false] }]), inactive()),
        ("OneLogin: a path", json!([{ "op": "replace", "path": "active", "value": false }]), inactive()),
        (
            "OneLogin: null for what has no value",
            json!([{ "op": "replace", "value": { "active": false, "nickName": null, "displayName": null } }]),
            json!({ "active": false, "displayName": null }),
        ),
        (
            "JumpCloud: what has changed, with an attribute of its own",
            json!([{ "op": "replace", "value": {
                "active": false, "name": { "givenName": "A", "familyName": "B" },
                "emails": [{ "value": "w@example.com", "type": "work" }],
                "costCode": "7", custom: { "costCode": "7" }, "phoneNumbers": [{ "type": "work", "value": "1" }],
            } }]),
            json!({ "active": false, "email": "w@example.com", "name": { "givenName": "A", "familyName": "B" } }),
        ),
        (
            "Ping: the whole user",
            json!([{ "op": "replace", "value": {
                "schemas": [USER], "id": "x", "meta": { "resourceType": "User" }, "userName": "ada@example.com",
                "active": "false", "title": "t",
                "emails": [{ "value": "ada@example.com", "type": "work", "primary": "true" }],
            } }]),
            inactive(),
        ),
        (
            "keys that are paths",
            json!([{ "op": "Add", "value": {
                "name.givenName": "given",
                "emails[type eq \"work\"].value": "w@example.com", "emails[type eq \"other\"].value": "o",
                format!("{ENTERPRISE}:employeeNumber"): "7", format!("{USER}:active"): false,
                "manager.$ref": "r", "cost code": 1,
            } }]),
            json!({ "active": false, "email": "w@example.com", "name": { "givenName": "given", "familyName": "L" } }),
        ),
        ("the schemas", json!([add("schemas", json!([custom])), off()]), inactive()),
        ("a path with spaces around it", json!([replace(" active ", false)]), inactive()),
    ]
}

#[tokio::test]
async fn each_patch_of_a_directory_changes_what_the_server_stores_and_nothing_else() {
    let directory = Directory::new().await;
    for (name, operations, changes) in rows() {
        let user = directory.create(&ada()).await;
        let patched = directory.patch(&user, operations).await;
        let mut expected = user.clone();
        expected["meta"]["lastModified"] = patched["meta"]["lastModified"].clone();
        for (attribute, value) in changes.as_object().unwrap() {
            match attribute.as_str() {
                "email" => expected["emails"][0]["value"] = value.clone(),
                gone if value.is_null() => drop(expected.as_object_mut().unwrap().remove(gone)),
                other => expected[other] = value.clone(),
            }
        }
        assert_eq!(patched, expected, "{name}");
        directory.call(Method::DELETE, &at(&user), &Value::Null).await;
    }
}

#[tokio::test]
async fn an_add_to_a_user_without_an_address_creates_it() {
    let directory = Directory::new().await;
    for (n, path) in
        ["emails[type eq \"work\"].value", "emails[type eq \"other\"].value", "emails.value"].iter().enumerate()
    {
        for (m, op) in ["Add", "Replace"].iter().enumerate() {
            let user = directory.create(&json!({ "userName": format!("user{n}{m}") })).await;
            let patched = directory.patch(&user, json!([{ "op": op, "path": path, "value": "a@example.com" }])).await;
            assert_eq!(work(&patched), "a@example.com", "{op} {path}");
        }
    }
}

#[tokio::test]
async fn directories_find_users_and_replace_them() {
    let directory = Directory::new().await;
    let created = directory.create(&ada()).await;
    for find in [
        // Okta, and Entra by each attribute that it may match by.
        "filter=userName%20eq%20%22ada%40example.com%22&startIndex=1&count=100",
        "filter=externalId+eq+%220a21f0f2%22",
        "filter=emails%5btype%20eq%20%22work%22%5d.value%20eq%20%22ada@example.com%22",
        "filter=userName++eq++%22ada@example.com%22&attributes=id,userName",
        "filter=userName%20eq%20%22ada@example.com%22%20and%20active%20eq%20true",
    ] {
        let found = directory.call(Method::GET, &format!("/Users?{find}"), &Value::Null).await.ok();
        assert_eq!((&found["totalResults"], &found["Resources"][0]["id"]), (&json!(1), &created["id"]), "{find}");
    }
    // The whole user, with attributes that are not stored, and null for those without a value.
    let mut whole = ada();
    whole["id"] = created["id"].clone();
    whole["name"]["familyName"] = "Lovelace".into();
    whole["active"] = json!("False");
    whole["nickName"] = Value::Null;
    let replaced = directory.call(Method::PUT, &at(&created), &whole).await.ok();
    assert_eq!((&replaced["name"]["familyName"], &replaced["active"]), (&json!("Lovelace"), &json!(false)));
    assert_eq!(work(&replaced), "ada@example.com");
}
