//! The conversion of stored bodies to the table of their kind: fields that were renamed, removed, or have a default.
//!
//! Every stored body passes through it, and none says which table it was written with. The conversion therefore gives
//! the same result if it is applied again, and for a body that the current table wrote, its own.

use serde_json::{Map, Value};

use super::prune::is_empty;
use crate::kind::{Field, Kind, Type};

/// Converts a stored body to the table of its kind.
pub(crate) fn evolve(kind: &Kind, body: &mut Map<String, Value>) {
    if kind.has_history {
        kind.removed.iter().for_each(|path| remove(body, path));
        evolve_fields(kind.fields, body);
    }
}

fn evolve_fields(fields: &[Field], object: &mut Map<String, Value>) {
    for field in fields {
        for former in field.former_names() {
            // Written by a release that has the former name, and another one that has the present name.
            if let (Some(value), false) = (object.shift_remove(former), object.contains_key(field.name)) {
                object.insert(field.name.to_owned(), value);
            }
        }
        match object.get_mut(field.name) {
            Some(value) if !is_empty(&field.ty, value) => evolve_value(&field.ty, value),
            _ => {
                if let Some(default) = field.default {
                    object.insert(field.name.to_owned(), default());
                }
            }
        }
    }
}

fn evolve_value(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Message(fields), Value::Object(object)) => evolve_fields(fields, object),
        (Type::List(element), Value::Array(values)) => {
            values.iter_mut().for_each(|value| evolve_value(element, value));
        }
        (Type::Map(element), Value::Object(values)) => {
            values.values_mut().for_each(|value| evolve_value(element, value));
        }
        _ => {}
    }
}

/// Removes the value at a dotted path, in each element of the lists on the way.
fn remove(object: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        None => drop(object.shift_remove(path)),
        Some((first, rest)) => match object.get_mut(first) {
            Some(Value::Object(inner)) => remove(inner, rest),
            Some(Value::Array(values)) => {
                values.iter_mut().filter_map(Value::as_object_mut).for_each(|inner| remove(inner, rest));
            }
            _ => {}
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Domain;

    const OWNER: &[Field] = &[Field::string("name").was("fullName"), Field::string("role").default(|| "driver".into())];
    const VEHICLE: &Kind = &Kind::new("Vehicle", "vehicles", "VehiclesService", Domain::new("fleet", "test.fleet"))
        .fields(&[
            Field::UID,
            Field::new("places", Type::Int32).was("chairs").was("seats"),
            Field::strings("tags").default(|| json!(["new"])),
            Field::bool("active").default(|| true.into()),
            Field::message("owner", OWNER),
            Field::new("drivers", Type::List(&Type::Message(OWNER))),
        ])
        .removed(&["wheels", "owner.phone", "drivers.phone"]);

    fn evolved(mut body: Value) -> Value {
        let once = |body: &mut Value| evolve(VEHICLE, body.as_object_mut().unwrap());
        once(&mut body);
        let result = body.clone();
        once(&mut body);
        assert_eq!(body, result, "the conversion gives the same result again");
        result
    }

    #[test]
    fn a_value_is_found_under_each_former_name_and_the_present_one_wins() {
        for (body, places) in [
            (json!({ "seats": 1 }), 1),
            (json!({ "chairs": 2 }), 2),
            (json!({ "chairs": 2, "seats": 1 }), 2),
            (json!({ "places": 3, "seats": 1 }), 3),
        ] {
            assert_eq!(evolved(body.clone()), json!({ "places": places, "tags": ["new"], "active": true }), "{body}");
        }
    }

    #[test]
    fn an_empty_value_gets_the_default_and_false_is_a_value() {
        let body = json!({ "tags": [], "active": false });
        assert_eq!(evolved(body), json!({ "tags": ["new"], "active": false }));
    }

    #[test]
    fn removed_fields_are_removed_and_messages_are_converted_at_every_depth() {
        let old = json!({ "fullName": "ann", "phone": "1" });
        let new = json!({ "name": "ann", "role": "driver" });
        assert_eq!(
            evolved(json!({ "tags": ["a"], "active": true, "wheels": 4, "owner": old, "drivers": [old, old] })),
            json!({ "tags": ["a"], "active": true, "owner": new, "drivers": [new, new] })
        );
    }

    #[test]
    fn a_body_of_a_kind_without_history_is_left_as_it_is() {
        const PLAIN: &Kind = &Kind::new("Plain", "plains", "PlainsService", Domain::new("fleet", "test.fleet"))
            .fields(&[Field::UID, Field::string("name")]);
        let mut body = json!({ "uid": "u", "other": 1 });
        evolve(PLAIN, body.as_object_mut().unwrap());
        assert_eq!(body, json!({ "uid": "u", "other": 1 }));
        assert!(!PLAIN.has_history && VEHICLE.has_history);
    }
}
