//! Users as SCIM writes them (RFC 7643 section 4.1), read leniently and written plainly.
//!
//! Names of attributes are of either case. Attributes that this server does not keep are passed over: what it keeps is
//! in every answer.

use platform_core::{
    error::{Error, Result},
    resources::iam::DirectoryUser,
};
use serde_json::{Map, Value, json};

use super::Refused;

pub(super) const SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:User";

/// The most operations of one patch; our choice.
const MAX_OPERATIONS: usize = 100;

/// Returns a user as SCIM writes it. `base` is the URL that the directory was given.
pub(super) fn written(user: &DirectoryUser, base: &str) -> Value {
    let said = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let name = object([("givenName", said(&user.given_name)), ("familyName", said(&user.family_name))]);
    let email = said(&user.email).map(|email| json!([{ "value": email, "type": "work", "primary": true }]));
    let meta = json!({
        "resourceType": "User",
        "created": user.create_time,
        "lastModified": user.update_time,
        "location": location(user, base),
    });
    let body = object([
        ("schemas", Some(json!([SCHEMA]))),
        ("id", Some(id(user).into())),
        ("externalId", said(&user.external_id)),
        ("userName", said(&user.user_name)),
        ("name", (!name.is_empty()).then(|| name.into())),
        ("displayName", said(&user.display_name)),
        ("active", Some(user.active.into())),
        ("emails", email),
        ("meta", Some(meta)),
    ]);
    body.into()
}

/// Returns an object of what there is.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the URL of a user.
pub(super) fn location(user: &DirectoryUser, base: &str) -> String {
    format!("{base}/Users/{}", id(user))
}

fn id(user: &DirectoryUser) -> &str {
    user.uid.rsplit('/').next().unwrap_or_default()
}

/// Reads a whole user. One that does not say is active.
pub(super) fn read(body: &Value) -> Result<DirectoryUser> {
    let mut user = DirectoryUser { active: true, ..DirectoryUser::default() };
    set_all(&mut user, body)?;
    if user.user_name.is_empty() {
        return Err(Error::invalid_field("userName", "is required"));
    }
    Ok(user)
}

/// One change of a patch: a path, empty for the user itself, and the value that it gets; none to take it away.
#[derive(Debug)]
pub(super) struct Operation {
    path: String,
    value: Option<Value>,
}

/// Reads the operations of a patch (RFC 7644 section 3.5.2).
pub(super) fn operations(body: &Value) -> std::result::Result<Vec<Operation>, Refused> {
    let syntax = |detail: &str| Refused::invalid("invalidSyntax", detail);
    let listed = attribute(body, "Operations").and_then(Value::as_array);
    let listed = listed.filter(|listed| !listed.is_empty() && listed.len() <= MAX_OPERATIONS);
    let listed = listed.ok_or_else(|| syntax("a patch must have 1 to 100 Operations"))?;
    let operations = listed.iter().map(|operation| {
        let op = attribute(operation, "op").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        let path = attribute(operation, "path").map(|path| path.as_str().ok_or_else(|| syntax("a path must be text")));
        let path = path.transpose()?.unwrap_or_default().to_owned();
        let value = attribute(operation, "value").cloned();
        match (op.as_str(), value) {
            ("add" | "replace", Some(value)) => Ok(Operation { path, value: Some(value) }),
            ("add" | "replace", None) => Err(syntax("an operation must have a value")),
            ("remove", _) if path.is_empty() => Err(Refused::invalid("noTarget", "a remove must have a path")),
            ("remove", _) => Ok(Operation { path, value: None }),
            _ => Err(syntax("an operation must be add, replace or remove")),
        }
    });
    operations.collect()
}

/// Returns the user as the operations make it, all of them.
pub(super) fn patched(mut user: DirectoryUser, operations: &[Operation]) -> Result<DirectoryUser> {
    for Operation { path, value } in operations {
        match (path.as_str(), value) {
            ("", Some(value)) => set_all(&mut user, value)?,
            (path, value) => set(&mut user, path, value.as_ref().unwrap_or(&Value::Null))?,
        }
    }
    Ok(user)
}

fn attribute<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    body.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn set_all(user: &mut DirectoryUser, body: &Value) -> Result<()> {
    let object = body.as_object().ok_or_else(|| Error::invalid_field("value", "must be an object"))?;
    object.iter().try_for_each(|(name, value)| set(user, name, value))
}

/// Sets an attribute; null takes it away.
fn set(user: &mut DirectoryUser, path: &str, value: &Value) -> Result<()> {
    let path = path.strip_prefix(SCHEMA).and_then(|path| path.strip_prefix(':')).unwrap_or(path);
    let folded = path.to_ascii_lowercase();
    match folded.as_str() {
        "username" => user.user_name = text(path, value)?,
        "externalid" => user.external_id = text(path, value)?,
        "displayname" => user.display_name = text(path, value)?,
        "name.givenname" => user.given_name = text(path, value)?,
        "name.familyname" => user.family_name = text(path, value)?,
        "active" => user.active = truth(path, value)?,
        "name" => {
            for (name, field) in [("givenName", &mut user.given_name), ("familyName", &mut user.family_name)] {
                match attribute(value, name) {
                    Some(part) => *field = text(name, part)?,
                    None if value.is_null() => field.clear(),
                    None => {}
                }
            }
        }
        "emails" => user.email = email(value)?,
        folded if folded.starts_with("emails[") && folded.ends_with("].value") => user.email = text(path, value)?,
        _ => {}
    }
    Ok(())
}

fn text(path: &str, value: &Value) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(Error::invalid_field(path, "must be text")),
    }
}

/// Reads a truth value, which some directories write as text.
fn truth(path: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Error::invalid_field(path, "must be true or false")),
    }
}

/// Returns the primary address, or the first.
fn email(value: &Value) -> Result<String> {
    let rule = || Error::invalid_field("emails", "must be a list of objects with a value");
    let one = std::slice::from_ref(value);
    let emails = match value {
        Value::Null => return Ok(String::new()),
        Value::Array(emails) => emails.as_slice(),
        _ => one,
    };
    let primary = emails.iter().find(|email| attribute(email, "primary") == Some(&Value::Bool(true)));
    match primary.or_else(|| emails.first()) {
        None => Ok(String::new()),
        Some(email) => text("emails.value", attribute(email, "value").ok_or_else(rule)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> DirectoryUser {
        read(&json!({
            "schemas": [SCHEMA], "userName": "ada", "externalId": "7", "displayName": "Ada L",
            "name": { "givenName": "Ada", "familyName": "L", "formatted": "Ada L" }, "title": "Countess",
            "emails": [{ "value": "b@example.com" }, { "value": "a@example.com", "primary": true }],
        }))
        .unwrap()
    }

    fn patch(operations_of: Value) -> DirectoryUser {
        patched(user(), &operations(&json!({ "Operations": operations_of })).unwrap()).unwrap()
    }

    #[test]
    fn a_user_is_read_with_what_is_kept_and_is_active_unless_said_otherwise() {
        let user = user();
        assert!(user.active && user.email == "a@example.com" && user.given_name == "Ada");
        assert!(!read(&json!({ "USERNAME": "a", "active": "False" })).unwrap().active);
        for bad in [
            json!({}),
            json!({ "userName": "" }),
            json!({ "userName": 1 }),
            json!({ "userName": "a", "active": 1 }),
            json!({ "userName": "a", "emails": [1] }),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_patch_is_read_as_directories_write_them() {
        assert!(!patch(json!([{ "op": "replace", "path": "active", "value": false }])).active);
        assert!(!patch(json!([{ "op": "Replace", "path": "active", "value": "False" }])).active);
        assert!(!patch(json!([{ "op": "replace", "value": { "active": false } }])).active);
        assert!(!patch(json!([{ "op": "replace", "path": format!("{SCHEMA}:active"), "value": false }])).active);
        let changed = patch(json!([
            { "op": "add", "path": "name.givenName", "value": "Augusta" },
            { "op": "replace", "path": "emails[type eq \"work\"].value", "value": "c@example.com" },
            { "op": "remove", "path": "displayName" },
            { "op": "replace", "path": "title", "value": "Lady" },
        ]));
        assert_eq!((changed.given_name.as_str(), changed.email.as_str()), ("Augusta", "c@example.com"));
        assert!(changed.display_name.is_empty() && changed.active && changed.user_name == "ada");
        for bad in [
            json!({}),
            json!({ "Operations": [] }),
            json!({ "Operations": [{ "op": "replace", "path": "active" }] }),
            json!({ "Operations": [{ "op": "remove" }] }),
            json!({ "Operations": [{ "op": "move", "path": "active", "value": 1 }] }),
            json!({ "Operations": [{ "op": "add", "path": 1, "value": 1 }] }),
        ] {
            assert!(operations(&bad).is_err(), "{bad}");
        }
    }
}
