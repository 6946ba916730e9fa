//! The suite of kinds, over kinds that belong to no contract.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

use std::{panic, sync::Arc};

use platform_engine::{
    access::{Caller, Capability},
    error::Violations,
    kind::{Domain, Field, Kind, Method, Param, Parent, Resource, Roots, Unique},
    platform::{Platform, Settings},
    store::{KeyValue, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{KindSuite, Pair, SeededEntropy, TestClock, TestGrants};
use pollster::block_on;
use serde::{Deserialize, Serialize};
use serde_json::json;

const DOMAIN: Domain = Domain::new("library", "test.library");
const READ: Capability = Capability::new(1_000_000, "CAP_LIBRARY_READ", "library.read");
const WRITE: Capability = Capability::new(1_000_001, "CAP_LIBRARY_WRITE", "library.write");

const METHODS: &[Method] = &[
    Method::list(&[READ]).params(&[Param::exact("name")]),
    Method::get(&[READ]),
    Method::create(&[READ, WRITE]),
    Method::update(&[READ, WRITE]),
    Method::delete(&[WRITE]),
];

const FIELDS: &[Field] = &[
    Field::UID,
    Field::string("name").required().sort(&["name"]),
    Field::string("shelfMark").sort(&["shelfMark"]),
    Field::CREATE_TIME,
    Field::UPDATE_TIME,
];

/// The fields of both kinds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    uid: Uid,
    name: String,
    shelf_mark: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Item {
    fn named(name: &str, shelf_mark: &str) -> Self {
        Self { name: name.to_owned(), shelf_mark: shelf_mark.to_owned(), ..Self::default() }
    }

    fn example() -> Self {
        Self {
            uid: Uid::from_digest([1; 20]),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            ..Self::named("name", "mark")
        }
    }
}

/// A kind at the top of the hierarchy, which only the operator uses.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shelf(Item);

impl Resource for Shelf {
    const KIND: &'static Kind =
        &Kind::new("Shelf", "shelves", "LibraryService", DOMAIN).roots(Roots::Personal).methods(METHODS).fields(FIELDS);

    fn example() -> Self {
        Self(Item::example())
    }
}

/// A kind in another, with unique names.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Book(Item);

impl Resource for Book {
    const KIND: &'static Kind = &Kind::new("Book", "books", "LibraryService", DOMAIN)
        .parent(Parent::Of(Shelf::KIND))
        .methods(METHODS)
        .fields(FIELDS)
        .unique(&[Unique::new("book.name", "A book of this name", |body| {
            body.get("name")?.as_str().map(KeyValue::text)
        })]);

    fn example() -> Self {
        Self(Item::example())
    }

    fn validate(&self, violations: &mut Violations) {
        if self.0.name == "forbidden" {
            violations.add("name", "must not be forbidden");
        }
    }
}

/// A platform with an operator, and a shelf.
struct Library {
    platform: Platform,
    clock: TestClock,
    grants: TestGrants,
    operator: Caller,
    shelf: Uid,
}

impl Library {
    fn new() -> Self {
        let (clock, grants) = (TestClock::at(Timestamp::EPOCH), TestGrants::new());
        let operator = Uid::from_digest([7; 20]);
        let platform = Platform::builder(Arc::new(MemoryStore::new()), clock.clone(), SeededEntropy::new(1))
            .kind::<Shelf>()
            .kind::<Book>()
            .authority(grants.clone())
            .settings(Settings { operators: [operator.clone()].into(), ..Settings::default() })
            .ephemeral_keys()
            .build()
            .unwrap();
        let operator = Caller::new(operator);
        let shelf = block_on(platform.create(&operator, "", &Shelf(Item::named("first", "A")))).unwrap().0.uid;
        Self { platform, clock, grants, operator, shelf }
    }

    fn shelves(&self) -> KindSuite<'_> {
        KindSuite::of::<Shelf>(&self.platform, &self.clock, self.operator.clone())
    }

    fn books(&self) -> KindSuite<'_> {
        let owner = self.grants.holder(&self.shelf, &[READ, WRITE]);
        KindSuite::of::<Book>(&self.platform, &self.clock, owner)
            .callers(|capabilities| self.grants.holder(&self.shelf, capabilities))
    }
}

#[test]
fn a_kind_at_the_top_passes() {
    let library = Library::new();
    let [a, b] = [Item::named("a", "1"), Item::named("b", "2")].map(Shelf);
    library.shelves().bodies(&Uid::default(), &a, &b).run();
}

#[test]
fn a_kind_with_unique_names_passes() {
    let library = Library::new();
    let [a, b] = [Item::named("a", "1"), Item::named("b", "2")].map(Book);
    library.books().bodies(&library.shelf, &a, &b).run();
}

#[test]
fn a_failure_names_the_kind_the_check_and_the_field() {
    let message = |a: Book, b: Book| {
        let library = Library::new();
        let suite = library.books().bodies(&library.shelf, &a, &b);
        let failure = panic::catch_unwind(panic::AssertUnwindSafe(|| suite.run())).unwrap_err();
        failure.downcast_ref::<String>().unwrap().clone()
    };
    let [a, b] = [Item::named("a", ""), Item::named("b", "")].map(Book);
    assert_eq!(message(a, b), "Book: bodies_set_each_field: shelfMark: must be set in a body");
    let [a, b] = [Item::named("a", "1"), Item::named("forbidden", "2")].map(Book);
    let found = message(a, b);
    assert!(found.starts_with("Book: create_returns_what_get_returns: create of"), "{found}");
    assert!(found.contains("must not be forbidden"), "{found}");
    let [a, b] = [Item::named("a", "1"), Item::named("b", "1")].map(Book);
    let expected = "Book: sort_keys_order_both_ways: shelfMark: must have different values to be sorted";
    assert_eq!(message(a, b), expected);
}

#[test]
fn a_mistake_in_the_facts_of_a_suite_is_found() {
    let library = Library::new();
    let pair =
        Pair::new(&library.shelf, json!({ "name": "a", "shelfMark": "1" }), json!({ "name": "b", "shelfMark": "2" }));
    let suite = library.books().pairs(move || vec![pair.clone()]).needed(&["shelfMark"]);
    suite.each_field_is_updated_alone();
    assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| suite.masked_fields_are_cleared())).is_err());
}
