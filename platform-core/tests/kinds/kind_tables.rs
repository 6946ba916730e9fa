//! Consistency of the tables of all kinds.

use std::collections::BTreeSet;

use platform_core::resources::KINDS;
use platform_engine::{
    kind::{Access, Authorization, By, Field, Kind, Parent, Registered, Type, Verb},
    request::LIST_FIELDS,
};

use crate::surface::{Row, rows};

fn registered(kind: &Kind) -> &'static Registered {
    KINDS.iter().find(|registered| registered.kind.name == kind.name).unwrap()
}

fn rows_of(kind: &Kind) -> Vec<Row> {
    rows(registered(kind))
}

fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().map(|registered| registered.kind)
}

#[track_caller]
fn assert_unique<T: Ord + std::fmt::Debug>(values: impl IntoIterator<Item = T>) {
    let mut seen = BTreeSet::new();
    for value in values {
        let shown = format!("{value:?}");
        assert!(seen.insert(value), "{shown} is a duplicate");
    }
}

#[test]
fn names_plurals_rpcs_and_routes_are_unique() {
    assert_unique(kinds().map(|kind| kind.name));
    assert_unique(kinds().map(|kind| (kind.domain.name, kind.plural)));
    assert_unique(kinds().flat_map(rows_of).map(|row| row.rpc));
    assert_unique(kinds().flat_map(rows_of).map(|row| row.http));
}

#[test]
fn kind_names_are_pascal_case_and_field_names_are_camel_case() {
    let camel = |name: &str| name.chars().all(char::is_alphanumeric) && name.starts_with(char::is_lowercase);
    for kind in kinds() {
        assert!(kind.name.chars().all(char::is_alphanumeric) && kind.name.starts_with(char::is_uppercase));
        assert!(camel(kind.plural) && kind.service.ends_with("Service"), "{}", kind.name);
        for field in all_fields(kind) {
            assert!(camel(field.name), "{}.{}", kind.name, field.name);
        }
    }
}

/// Returns every field of a kind, its messages, its list parameters and its actions.
fn all_fields(kind: &'static Kind) -> Vec<&'static Field> {
    fn add(fields: &'static [Field], all: &mut Vec<&'static Field>) {
        assert_unique(fields.iter().map(|field| field.name));
        for field in fields {
            all.push(field);
            if let Some(inner) = message(&field.ty) {
                add(inner, all);
            }
        }
    }
    let mut all = Vec::new();
    add(kind.fields, &mut all);
    registered(kind)
        .actions
        .iter()
        .flat_map(|action| [action.request, action.response])
        .for_each(|fields| add(fields, &mut all));
    all.extend(kind.methods.iter().flat_map(|method| method.params).map(|param| &param.field));
    all
}

fn message(ty: &'static Type) -> Option<&'static [Field]> {
    match ty {
        Type::Message(fields) => Some(fields),
        Type::List(element) | Type::Map(element) => message(element),
        _ => None,
    }
}

#[test]
fn list_parameters_have_unique_names_and_existing_keys() {
    for kind in kinds() {
        for method in kind.methods {
            assert!(
                method.verb == Verb::List || (method.params.is_empty() && method.narrow.is_none()),
                "{}",
                kind.name
            );
            assert_unique(method.params.iter().map(|param| param.field.name).chain(LIST_FIELDS.iter().map(|f| f.name)));
            for param in method.params {
                match param.by {
                    By::Value(key) | By::Above(key) => {
                        let field = kind.field(key).is_some();
                        let derived = kind.keys.iter().any(|derived| derived.name == key);
                        assert!(field != derived, "{}?{} filters by {key}", kind.name, param.field.name);
                    }
                    _ => assert!(method.narrow.is_some(), "{}?{}", kind.name, param.field.name),
                }
            }
        }
    }
}

#[test]
fn keys_sort_names_methods_and_unique_spaces_are_unique() {
    for kind in kinds() {
        assert_unique(kind.fields.iter().flat_map(|field| field.sort));
        assert_unique(kind.fields.iter().map(|field| field.name).chain(kind.keys.iter().map(|key| key.name)));
        assert_unique(kind.methods.iter().map(|method| method.verb as u8));
    }
    assert_unique(kinds().flat_map(|kind| kind.unique).map(|unique| unique.space));
}

#[test]
fn a_listed_kind_can_be_ordered_by_uid_and_times_and_has_a_valid_default_order() {
    for kind in kinds() {
        let Some(list) = kind.served().find(|method| method.verb == Verb::List) else { continue };
        for name in ["uid", "createTime", "createdAt", "updateTime", "updatedAt"] {
            assert!(kind.fields.iter().any(|field| field.sort.contains(&name)), "{} by {name}", kind.name);
        }
        assert!(platform_engine::aip::order_by::parse(list.order, kind.fields).is_ok(), "{}", kind.name);
    }
}

#[test]
fn every_served_kind_has_an_output_only_uid_and_times() {
    for kind in kinds().filter(|kind| kind.served().next().is_some()) {
        for name in ["uid", "createTime", "updateTime"] {
            let field = kind.field(name).unwrap_or_else(|| panic!("{}.{name}", kind.name));
            assert_eq!(field.access, Access::OutputOnly, "{}.{name}", kind.name);
        }
    }
}

#[test]
fn every_method_that_is_not_open_requires_capabilities_and_none_that_is_served_is_internal() {
    for kind in kinds() {
        for method in kind.methods {
            assert_eq!(method.capabilities.is_empty(), method.open, "{} {:?}", kind.name, method.verb);
            let is_internal = method.capabilities.iter().any(|capability| capability.is_internal());
            assert!(!(method.served && is_internal), "{}", kind.name);
        }
        for action in registered(kind).actions {
            if let Authorization::At(field, _) = action.authorization {
                assert!(action.request.iter().any(|known| known.name == field), "{}", action.name);
            }
        }
    }
}

#[test]
fn a_parent_is_a_known_kind_and_a_child_without_a_delete_method_is_deleted_with_it() {
    for kind in kinds() {
        if let Some(parent) = kind.parent.kind() {
            assert!(kinds().any(|other| other.name == parent), "{} in {parent}", kind.name);
        }
        if matches!(kind.parent, Parent::Singleton(..)) {
            let own = [Verb::List, Verb::Create, Verb::Delete].iter().filter_map(|verb| kind.method(*verb)).count();
            assert_eq!(own, 0, "{} always exists", kind.name);
        }
        if kind.method(Verb::Delete).is_none() && kind.parent.kind().is_some() {
            let cascades = kind.on_parent_delete == platform_engine::kind::OnParentDelete::Cascade;
            // Imported data is removed by its importer.
            assert!(cascades || kind.name == "Advisory", "the parent of a {} could never be deleted", kind.name);
        }
    }
}

#[test]
fn every_change_has_an_event_that_is_named_after_its_domain() {
    for kind in kinds() {
        for method in kind.served() {
            match (method.verb, method.event) {
                (Verb::List | Verb::Get, event) => assert_eq!(event, None),
                (_, Some(event)) => assert!(event.ends_with(".v1") && event.contains(kind.domain.name), "{event}"),
                // Our kinds, which the published events do not have.
                (_, None) => assert!(["GroupAccessRequest", "RepoFollower"].contains(&kind.name), "{}", kind.name),
            }
        }
    }
}

#[test]
fn fields_with_uids_name_an_existing_kind() {
    for kind in kinds() {
        for field in all_fields(kind) {
            let of = field.uid_of;
            assert!(of.is_none_or(|of| kinds().any(|kind| kind.name == of)), "{}.{}: {of:?}", kind.name, field.name);
        }
    }
}
