//! JSON representation of users in SCIM (RFC 7643 section 4.1): lenient when read, canonical when written.
//!
//! Attribute names are case-insensitive. Attributes and addresses that this server does not store are ignored, in a
//! patch as in a whole user, so that they never prevent a change of the others, above all of `active`. Every reply shows
//! the attributes that are stored.

use std::collections::HashSet;

use platform_core::resources::iam::DirectoryUser;
use serde_json::{Map, Value, json};

use super::{
    attributes::{MAX_OPERATIONS, SCHEMA, boolean_of},
    filter::Condition,
    path::Target,
    reply::ScimError,
    selection::Selection,
};

/// Maximum number of keys of a body, in all its objects; our choice.
const MAX_KEYS: usize = 1000;

/// Returns a user as SCIM JSON. `base` is the base URL of the directory.
pub(super) fn to_json(user: &DirectoryUser, base: &str) -> Value {
    let present = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let name = object([("givenName", present(&user.given_name)), ("familyName", present(&user.family_name))]);
    let email = (!user.email.is_empty()).then(|| json!([email(user)]));
    let meta = json!({
        "resourceType": "User",
        "created": user.create_time,
        "lastModified": user.update_time,
        "location": location(user, base),
    });
    let body = object([
        ("schemas", Some(json!([SCHEMA]))),
        ("id", Some(id(user).into())),
        ("externalId", present(&user.external_id)),
        ("userName", present(&user.user_name)),
        ("name", (!name.is_empty()).then(|| name.into())),
        ("displayName", present(&user.display_name)),
        ("active", Some(user.active.into())),
        ("emails", email),
        ("meta", Some(meta)),
    ]);
    body.into()
}

/// Returns a user as SCIM JSON with the selected attributes.
pub(super) fn selected(user: &DirectoryUser, base: &str, selection: &Selection) -> Value {
    let mut user = to_json(user, base);
    if let Some(user) = user.as_object_mut() {
        selection.apply(user);
    }
    user
}

/// Returns the stored address. Its type is `work`, and it is the primary address.
fn email(user: &DirectoryUser) -> Value {
    json!({ "value": user.email, "type": "work", "primary": true })
}

/// Returns an object of the members that have a value.
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

/// Reads a whole user, which may replace a stored one. Omitted attributes are cleared, except `active`: it is true for
/// a new user and unchanged for a stored one.
///
/// # Errors
/// `invalidValue`, and `invalidSyntax` for an attribute that is specified more than once.
pub(super) fn read(body: &Value, stored: Option<&DirectoryUser>) -> Parsed<DirectoryUser> {
    let active = stored.is_none_or(|stored| stored.active);
    let mut user = DirectoryUser { active, ..DirectoryUser::default() };
    if let Some(stored) = stored {
        user.uid.clone_from(&stored.uid);
        (user.create_time, user.update_time) = (stored.create_time, stored.update_time);
    }
    set_all(&mut user, body, Source::Whole)?;
    if user.user_name.is_empty() {
        return Err(invalid("userName", "is required"));
    }
    Ok(user)
}

/// Rejects a body in which an object has two keys that differ only in case, because it is ambiguous which one counts,
/// and a body with too many keys.
///
/// # Errors
/// `invalidSyntax`.
pub(super) fn check_keys(body: &Value) -> Parsed<()> {
    let mut keys = 0;
    let mut left = vec![body];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                keys += object.len();
                if keys > MAX_KEYS {
                    let rule = format!("a body must have at most {MAX_KEYS} keys");
                    return Err(ScimError::invalid("invalidSyntax", rule));
                }
                let mut names = HashSet::new();
                if let Some(twice) = object.keys().find(|name| !names.insert(name.to_ascii_lowercase())) {
                    return Err(ScimError::invalid("invalidSyntax", format!("{twice} is specified more than once")));
                }
                left.extend(object.values());
            }
            Value::Array(values) => left.extend(values),
            _ => {}
        }
    }
    Ok(())
}

/// Result of reading a request.
type Parsed<T> = std::result::Result<T, ScimError>;

/// One operation of a patch.
#[derive(Debug)]
pub(super) struct Operation {
    op: Op,
    target: Target,
    /// Null for a remove.
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Add,
    Replace,
    Remove,
}

/// Reads the operations of a patch (RFC 7644 section 3.5.2).
///
/// # Errors
/// `invalidSyntax`, those of [`Target::parse`]; `noTarget` for a remove without a path; `mutability` for a read-only
/// attribute and for the removal of a required one.
pub(super) fn operations(body: &Value) -> Parsed<Vec<Operation>> {
    let syntax = |detail: &str| ScimError::invalid("invalidSyntax", detail);
    let listed = attribute(body, "Operations").and_then(Value::as_array);
    let listed = listed.filter(|listed| !listed.is_empty() && listed.len() <= MAX_OPERATIONS);
    let listed = listed.ok_or_else(|| syntax("a patch must have 1 to 100 Operations"))?;
    let operations = listed.iter().map(|operation| {
        let op = attribute(operation, "op").and_then(Value::as_str).unwrap_or_default();
        let op = match op.to_ascii_lowercase().as_str() {
            "add" => Op::Add,
            "replace" => Op::Replace,
            "remove" => Op::Remove,
            _ => return Err(syntax("op must be add, replace or remove")),
        };
        let target = match attribute(operation, "path") {
            None | Some(Value::Null) => Target::User,
            Some(Value::String(path)) => Target::parse(path)?,
            Some(_) => return Err(syntax("path must be a string")),
        };
        let value = match (op, attribute(operation, "value")) {
            (Op::Remove, _) => Value::Null,
            (_, Some(value)) => value.clone(),
            (_, None) if target == Target::NotStored => Value::Null,
            (_, None) => return Err(syntax("an add or a replace must have a value; remove the attribute to clear it")),
        };
        match (op, &target) {
            (Op::Remove, Target::User) => Err(ScimError::invalid("noTarget", "a remove must have a path")),
            (_, Target::ReadOnly) => Err(ScimError::invalid("mutability", "id and meta are read-only; leave them out")),
            (Op::Remove, Target::UserName) => {
                Err(ScimError::invalid("mutability", "userName is required; replace it instead"))
            }
            _ => Ok(Operation { op, target, value }),
        }
    });
    operations.collect()
}

/// Returns the user after all operations, which are applied in order.
///
/// # Errors
/// `invalidValue`, and those of [`Target::parse`] for a path in a value.
pub(super) fn patched(mut user: DirectoryUser, operations: &[Operation]) -> Parsed<DirectoryUser> {
    for Operation { op, target, value } in operations {
        match target {
            Target::User => set_all(&mut user, value, Source::Patch(*op))?,
            target => set(&mut user, *op, target, value)?,
        }
    }
    Ok(user)
}

pub(super) fn attribute<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    body.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn invalid(name: &str, rule: &str) -> ScimError {
    ScimError::invalid("invalidValue", format!("{name}: {rule}"))
}

/// Kind of object that attributes are read from.
#[derive(Clone, Copy)]
enum Source {
    /// A whole user, whose null attributes are ignored.
    Whole,
    /// The value of an operation without a path.
    Patch(Op),
}

/// Sets the attributes of an object, whose keys may be paths. Read-only attributes are ignored.
fn set_all(user: &mut DirectoryUser, body: &Value, source: Source) -> Parsed<()> {
    let object = body.as_object().ok_or_else(|| invalid("value", "must be an object of attributes"))?;
    let mut seen: Vec<Target> = Vec::new();
    for (name, value) in object {
        let target = match Target::parse(name) {
            Ok(target) => target,
            // A malformed filter may be meant for a stored address. Any other key names nothing that is stored.
            Err(error) if matches!(source, Source::Patch(_)) && name.contains('[') => return Err(error),
            Err(_) => continue,
        };
        let op = match source {
            Source::Whole if value.is_null() => continue,
            Source::Whole => Op::Replace,
            Source::Patch(op) => op,
        };
        if matches!(target, Target::ReadOnly | Target::NotStored) {
            continue;
        }
        if seen.contains(&target) {
            return Err(ScimError::invalid("invalidSyntax", format!("{name} is specified more than once")));
        }
        match &target {
            // Attributes nested under the name of their schema.
            Target::User => set_all(user, value, source)?,
            target => set(user, op, target, value)?,
        }
        seen.push(target);
    }
    Ok(())
}

/// Sets an attribute; null clears it.
fn set(user: &mut DirectoryUser, op: Op, target: &Target, value: &Value) -> Parsed<()> {
    match target {
        Target::UserName => user.user_name = text("userName", value)?,
        Target::ExternalId => user.external_id = text("externalId", value)?,
        Target::DisplayName => user.display_name = text("displayName", value)?,
        Target::GivenName => user.given_name = text("name.givenName", value)?,
        Target::FamilyName => user.family_name = text("name.familyName", value)?,
        // A user whose `active` is cleared cannot sign in.
        Target::Active => user.active = !value.is_null() && boolean("active", value)?,
        Target::Name if value.is_null() => {
            user.given_name.clear();
            user.family_name.clear();
        }
        Target::Name if value.is_object() => {
            for (name, field) in [("givenName", &mut user.given_name), ("familyName", &mut user.family_name)] {
                if let Some(part) = attribute(value, name) {
                    *field = text(name, part)?;
                }
            }
        }
        Target::Name => return Err(invalid("name", "must be an object")),
        Target::Emails(filter) | Target::EmailValue(filter) if !selects(user, filter.as_ref()) => {}
        Target::Emails(filter) => match emails(value)? {
            // An added address is ignored if it is not the primary one and an address is already stored.
            Some(added) if op == Op::Add && filter.is_none() && !added.primary && !user.email.is_empty() => {}
            given => user.email = given.map(|given| given.address).unwrap_or_default(),
        },
        Target::EmailValue(_) => user.email = text("emails.value", value)?,
        Target::User | Target::ReadOnly | Target::NotStored => {}
    }
    Ok(())
}

/// Returns whether an operation with a filter applies to the one address that is stored. If none is stored, it can be
/// set, as by a create; otherwise the filter may select another address, which a create would ignore.
fn selects(user: &DirectoryUser, filter: Option<&Condition>) -> bool {
    user.email.is_empty() || filter.is_none_or(|filter| filter.is_met_by(&email(user)))
}

/// Returns the value of a list of one, which may be an object with a `value`. Some directories send single values in
/// this form, such as Entra to applications that were added before it followed the RFC.
fn single(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([one]) => attribute(one, "value").unwrap_or(one),
        _ => value,
    }
}

fn text(name: &str, value: &Value) -> Parsed<String> {
    match single(value) {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(invalid(name, "must be a string")),
    }
}

/// Reads a boolean, which some directories send as a string.
fn boolean(name: &str, value: &Value) -> Parsed<bool> {
    let found = match single(value) {
        Value::Bool(boolean) => Some(*boolean),
        Value::String(text) => boolean_of(text),
        _ => None,
    };
    found.ok_or_else(|| invalid(name, "must be true or false"))
}

/// Email address in a request.
struct Email {
    address: String,
    primary: bool,
}

/// Returns the primary address, or else the first. Some directories send null for those that a user does not have.
fn emails(value: &Value) -> Parsed<Option<Email>> {
    let one = std::slice::from_ref(value);
    let emails = match value {
        Value::Null => return Ok(None),
        Value::Array(emails) => emails.as_slice(),
        _ => one,
    };
    let mut first = None;
    for email in emails {
        let address = attribute(email, "value").ok_or_else(|| invalid("emails", "must be objects with a value"))?;
        let address = text("emails.value", address)?;
        let primary = attribute(email, "primary").map(|primary| boolean("emails.primary", primary)).transpose()?;
        let email = Email { address, primary: primary.unwrap_or_default() };
        if email.primary {
            return Ok(Some(email));
        }
        if !email.address.is_empty() {
            first.get_or_insert(email);
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests;
