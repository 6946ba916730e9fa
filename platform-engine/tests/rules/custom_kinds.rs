//! Kinds of an embedder with parent relationships that the kinds of the contract do not have.

use platform_core::capabilities::cap;
use platform_engine::{
    error::Code,
    kind::{Domain, Field, Kind, Method, OnParentDelete, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::common::{World, code, uid_of};

const FIELDS: &[Field] = &[Field::UID, Field::string("name"), Field::CREATE_TIME, Field::UPDATE_TIME];

const METHODS: &[Method] = &[
    Method::list(&[cap("repo.list")]),
    Method::get(&[cap("repo.list")]),
    Method::create(&[cap("repo.create")]),
    Method::delete(&[cap("repo.delete")]),
];

const fn kind(name: &'static str, plural: &'static str, parent: Parent, on_parent_delete: OnParentDelete) -> Kind {
    let kind = Kind::new(name, plural, "LibraryService", Domain::new("library", "test.library"))
        .parent(parent)
        .methods(METHODS)
        .fields(FIELDS);
    match on_parent_delete {
        OnParentDelete::Cascade => kind.cascade(),
        _ => kind,
    }
}

/// A child of a group that is deleted with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shelf {
    uid: Uid,
    name: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Resource for Shelf {
    const KIND: &'static Kind = &kind("Shelf", "shelves", Parent::Group, OnParentDelete::Cascade);

    fn example() -> Self {
        Self::default()
    }
}

/// A child of a shelf that is deleted with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Book {
    uid: Uid,
    name: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Resource for Book {
    const KIND: &'static Kind = &kind("Book", "books", Parent::Of(Shelf::KIND), OnParentDelete::Cascade);

    fn example() -> Self {
        Self::default()
    }
}

/// A child of a book that restricts the book's delete.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Loan {
    uid: Uid,
    name: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Resource for Loan {
    const KIND: &'static Kind = &kind("Loan", "loans", Parent::Of(Book::KIND), OnParentDelete::Restrict);

    fn example() -> Self {
        Self::default()
    }
}

/// The only cover of a book, with the book's uid.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cover {
    uid: Uid,
    name: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Resource for Cover {
    const KIND: &'static Kind = &kind("Cover", "covers", Parent::Sole(Book::KIND), OnParentDelete::Cascade);

    fn example() -> Self {
        Self::default()
    }
}

fn library() -> World {
    World::with(|builder| builder.kind::<Shelf>().kind::<Book>().kind::<Loan>().kind::<Cover>())
}

fn make(world: &World, kind: &str, parent: &str) -> Uid {
    uid_of(&world.create(&world.operator, kind, parent, json!({ "name": "a" })).unwrap())
}

#[test]
fn a_delete_cascades_at_every_depth() {
    for deleted in ["Group", "Shelf", "Book"] {
        let world = library();
        let group = world.group(&world.org);
        let shelf = make(&world, "Shelf", &group);
        let book = make(&world, "Book", &shelf);
        let cover = make(&world, "Cover", &book);
        assert_eq!(cover, book);
        let uid =
            [("Group", &group), ("Shelf", &shelf), ("Book", &book)].into_iter().find(|(kind, _)| *kind == deleted);
        world.delete(&world.operator, deleted, uid.unwrap().1).unwrap();
        for (kind, uid) in [("Book", &book), ("Cover", &cover)] {
            assert_eq!(code(world.get(&world.operator, kind, uid)), Code::NotFound, "{kind} with {deleted}");
        }
    }
}

#[test]
fn a_restricting_descendant_prevents_the_delete_at_every_depth() {
    for deleted in ["Group", "Shelf", "Book"] {
        let world = library();
        let group = world.group(&world.org);
        let shelf = make(&world, "Shelf", &group);
        let book = make(&world, "Book", &shelf);
        let loan = make(&world, "Loan", &book);
        let uid =
            [("Group", &group), ("Shelf", &shelf), ("Book", &book)].into_iter().find(|(kind, _)| *kind == deleted);
        let delete = || world.delete(&world.operator, deleted, uid.unwrap().1);
        let error = delete().unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{deleted}");
        assert!(error.message().ends_with("with child loans"), "{}", error.message());
        world.get(&world.operator, "Loan", &loan).unwrap();
        world.delete(&world.operator, "Loan", &loan).unwrap();
        delete().unwrap();
    }
}

#[test]
fn a_parent_has_at_most_one_child_that_shares_its_uid() {
    let world = library();
    let book = make(&world, "Book", &make(&world, "Shelf", &world.org));
    let create = || world.create(&world.operator, "Cover", &book, json!({ "name": "a" }));
    create().unwrap();
    assert_eq!(code(create()), Code::AlreadyExists);
    world.delete(&world.operator, "Cover", &book).unwrap();
    create().unwrap();
    world.get(&world.operator, "Book", &book).unwrap();
}
