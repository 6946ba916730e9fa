//! Tests that a platform is not built from a table that contradicts itself, its struct or the other tables.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "that is how tests fail")]

use std::sync::Arc;

use platform_engine::{
    access::Capability,
    kind::{
        Action, Authorization, By, Column, DerivedKey, Domain, Field, Kind, Method, Param, Parent, Registered,
        Resource, Type, Unique, Verb,
    },
    platform::{BuildError, Builder, Platform},
    store::memory::MemoryStore,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{SeededEntropy, TestClock};
use serde::{Deserialize, Serialize};

const LIST: Capability = Capability::new(1_000_000, "CAP_PARTS_LIST", "parts.list");
const DOMAIN: Domain = Domain::new("parts", "test.parts");
const FIELDS: &[Field] = &[Field::UID, Field::string("name").required().sort(&["name"])];

const fn part(fields: &'static [Field]) -> Kind {
    Kind::new("Part", "parts", "PartsService", DOMAIN).fields(fields)
}

const fn listed(method: &'static [Method]) -> Kind {
    part(FIELDS).methods(method)
}

/// Another kind, which the platform is not given.
const MACHINE: &Kind = &Kind::new("Machine", "machines", "MachinesService", DOMAIN);

/// A table with a mistake, the actions of its kind, and the item and rule that the error names.
type Mistake = (Kind, &'static [Action], &'static str);

const MISTAKES: [Mistake; 40] = [
    (part(&[Field::UID, Field::string("name"), Field::string("name")]), &[], "fields.name: must be listed once"),
    (part(&[Field::UID, Field::string("Name")]), &[], "fields.Name: must be named in camelCase"),
    (part(&[Field::UID, Field::string("homeURL")]), &[], "fields.homeURL: must be named in camelCase"),
    (part(&[Field::UID, Field::string("color")]), &[], "fields.color: must be a field of the struct"),
    (
        part(&[Field::UID, Field::new("size", Type::Int64)]),
        &[],
        "fields.size: must have the JSON form of its type Int64",
    ),
    (part(&[Field::UID, Field::strings("tags").sort(&["tags"])]), &[], "fields.tags: cannot be sorted by"),
    (part(&[Field::UID, Field::string("name").input_only().findable()]), &[], "fields.name: cannot be found"),
    (part(FIELDS).parent(Parent::Of(MACHINE)), &[], "parent: must be a kind of the platform, which has no Machine"),
    (part(FIELDS).parent(Parent::Group), &[], "parent: must be a kind of the platform, which has no Group"),
    (listed(&[Method::get(&[LIST]), Method::get(&[LIST])]), &[], "methods.Get: must be listed once"),
    (listed(&[Method::list(&[LIST]).order("size")]), &[], "methods.List: orders by size, which must be one of"),
    (listed(&[Method::list(&[LIST]).of("machine", MACHINE)]), &[], "methods.List: lists by Machine"),
    (
        listed(&[Method::list(&[LIST]).params(&[Param::exact("color")])]),
        &[],
        "methods.List.params.color: filters by color, which must be a field or a derived key",
    ),
    (
        listed(&[Method::list(&[LIST]).params(&[Param::new(Field::bool("new"), By::Narrow)])]),
        &[],
        "methods.List.params.new: requires that the method has a `narrow`",
    ),
    (
        listed(&[Method::list(&[LIST]).params(&[Param::exact("pageSize")])]),
        &[],
        "methods.List.params.pageSize: must be listed once",
    ),
    (
        part(FIELDS).unique(&[Unique::in_parent("part.name", "A part", "name").by(&["name"])]),
        &[],
        "unique.part.name: names the key name",
    ),
    (
        part(FIELDS),
        &[Action::get("Paint", "parts/{uid=**}:paint", |_, request| Box::pin(async { Ok(request.into()) }))],
        "ACTIONS.Paint: has uid in its path, which must be a field of its request",
    ),
    (
        part(FIELDS).keys(&[DerivedKey::new("first", |_| Vec::new())]),
        &[Action::post("Sell", "parts:sell", |_, request| Box::pin(async { Ok(request.into()) }))
            .authorization(Authorization::At("uid", &[LIST]))],
        "ACTIONS.Sell: is authorized at uid, which must be a field of its request",
    ),
    (
        part(&[Field::UID, Field::string("name").pattern("[")]),
        &[],
        "fields.name: has the pattern [, which must end each class with `]`",
    ),
    (
        part(&[Field::UID, Field::new("size", Type::Int64).pattern("^[0-9]*$")]),
        &[],
        "fields.size: has a pattern, which only a text, or a list or map of texts, can have",
    ),
    (
        part(&[Field::UID, Field::string("name").pattern("^[A-Z]*$")]),
        &[],
        "example.name: must match the pattern ^[A-Z]*$",
    ),
    (part(&[Field::UID, Field::strings("tags").required()]), &[], "example.tags: is required"),
    (
        part(FIELDS),
        &[],
        "fields.size: is a field of the struct, and must have a row in the table, or the attribute `#[serde(skip)]`",
    ),
    (
        listed(&[Method::list(&[])]),
        &[],
        "methods.List: requires no capability, so that every caller may call it: name one, or declare it \
         `for_all_callers`",
    ),
    (
        listed(&[Method::get(&[LIST]).for_all_callers()]),
        &[],
        "methods.Get: is `for_all_callers`, and must not require capabilities too",
    ),
    (
        part(FIELDS),
        &[Action::post("Sell", "parts:sell", |_, request| Box::pin(async { Ok(request.into()) }))
            .authorization(Authorization::Anywhere(&[]))],
        "ACTIONS.Sell: requires no capability, so that every caller may call it: name one, or declare it \
         `Authorization::Authenticated`",
    ),
    (
        part(FIELDS),
        &[Action::post("Sell", "parts:sell", |_, request| Box::pin(async { Ok(request.into()) }))
            .request(FIELDS)
            .authorization(Authorization::As(MACHINE, Verb::Get, "uid"))],
        "ACTIONS.Sell: is authorized as Get of Machine, which must be a method of the platform",
    ),
    (
        part(FIELDS).unique(&[Unique::in_parent("part.name", "A part", "titel")]),
        &[],
        "unique.part.name: makes unique the field titel, which must be one of uid, name",
    ),
    (
        part(FIELDS).keys(&[DerivedKey::of_field("first", "naem")]),
        &[],
        "keys.first: has the text of the field naem, which must be one of uid, name",
    ),
    (part(&[Field::UID, Field::string("name").was("uid")]), &[], "fields.name: was uid, which must not be a field too"),
    (
        part(&[Field::UID, Field::string("name").was("title"), Field::strings("tags").was("title")]),
        &[],
        "fields.tags: was title, as was name: only one field can have its values",
    ),
    (
        part(&[Field::UID, Field::string("name").default(|| 4.into())]),
        &[],
        "fields.name: has the default 4, which must be a value of its type String",
    ),
    (
        part(&[Field::UID, Field::string("name").default(|| "".into())]),
        &[],
        "fields.name: has the default \"\", which must be a value of its type String",
    ),
    (
        part(&[Field::UID, Field::string("name").max_len(2).default(|| "long".into())]),
        &[],
        "fields.name: has a default that breaks a rule of its own: must be at most 2 bytes long",
    ),
    (
        part(&[Field::UID, Field::string("name").oneof("either").default(|| "a".into())]),
        &[],
        "fields.name: must have no default: it references a resource, is in a oneof or is never stored",
    ),
    (part(FIELDS).removed(&["name"]), &[], "removed.name: must not be a field, because its values would be removed"),
    (
        part(&[Field::UID, Field::string("name").was("title")]).removed(&["title"]),
        &[],
        "removed.title: is a former name of name, whose values would be removed",
    ),
    (
        part(FIELDS).removed(&["owner.phone"]),
        &[],
        "removed.owner.phone: lies in owner, which must be a message, or a list of messages",
    ),
    (part(FIELDS).removed(&["phone", "phone"]), &[], "removed.phone: must be listed once"),
    (
        part(FIELDS).columns(&[Column::field("name"), Column::field("owner.name")]),
        &[],
        "columns.owner.name: must be the path of a field, or computed",
    ),
];

/// A kind with one of the mistakes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Body", into = "Body")]
struct Part<const N: usize>(Body);

impl<const N: usize> From<Body> for Part<N> {
    fn from(body: Body) -> Self {
        Self(body)
    }
}

impl<const N: usize> From<Part<N>> for Body {
    fn from(part: Part<N>) -> Self {
        part.0
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Body {
    uid: Uid,
    name: String,
    #[serde(rename = "Name")]
    upper: String,
    /// A table must have the serde form of a string for 64 bits.
    size: i64,
    tags: Vec<String>,
}

impl<const N: usize> Resource for Part<N> {
    const KIND: &'static Kind = &MISTAKES[N].0;
    const ACTIONS: &'static [Action] = MISTAKES[N].1;

    fn example() -> Self {
        Self(Body { name: "bolt".to_owned(), ..Body::default() })
    }
}

fn clock() -> TestClock {
    TestClock::at(Timestamp::EPOCH)
}

fn builder() -> Builder {
    Platform::builder(Arc::new(MemoryStore::new()), clock(), SeededEntropy::new(1)).ephemeral_keys()
}

/// Returns the errors of a platform with each of these kinds, one platform for each kind.
fn errors(kinds: &[Registered]) -> Vec<String> {
    kinds.iter().map(|kind| builder().kinds(std::slice::from_ref(kind)).build().unwrap_err().to_string()).collect()
}

#[test]
fn each_mistake_in_a_table_is_refused_with_the_kind_the_item_and_the_rule() {
    let kinds = [
        Registered::of::<Part<0>>(),
        Registered::of::<Part<1>>(),
        Registered::of::<Part<2>>(),
        Registered::of::<Part<3>>(),
        Registered::of::<Part<4>>(),
        Registered::of::<Part<5>>(),
        Registered::of::<Part<6>>(),
        Registered::of::<Part<7>>(),
        Registered::of::<Part<8>>(),
        Registered::of::<Part<9>>(),
        Registered::of::<Part<10>>(),
        Registered::of::<Part<11>>(),
        Registered::of::<Part<12>>(),
        Registered::of::<Part<13>>(),
        Registered::of::<Part<14>>(),
        Registered::of::<Part<15>>(),
        Registered::of::<Part<16>>(),
        Registered::of::<Part<17>>(),
        Registered::of::<Part<18>>(),
        Registered::of::<Part<19>>(),
        Registered::of::<Part<20>>(),
        Registered::of::<Part<21>>(),
        Registered::of::<Part<22>>(),
        Registered::of::<Part<23>>(),
        Registered::of::<Part<24>>(),
        Registered::of::<Part<25>>(),
        Registered::of::<Part<26>>(),
        Registered::of::<Part<27>>(),
        Registered::of::<Part<28>>(),
        Registered::of::<Part<29>>(),
        Registered::of::<Part<30>>(),
        Registered::of::<Part<31>>(),
        Registered::of::<Part<32>>(),
        Registered::of::<Part<33>>(),
        Registered::of::<Part<34>>(),
        Registered::of::<Part<35>>(),
        Registered::of::<Part<36>>(),
        Registered::of::<Part<37>>(),
        Registered::of::<Part<38>>(),
        Registered::of::<Part<39>>(),
    ];
    for (error, (_, _, expected)) in errors(&kinds).iter().zip(&MISTAKES) {
        let expected = format!(" Part: {expected}");
        assert!(error.starts_with("invalid tables of kinds: ") && error.contains(&expected), "{error}\n{expected}");
    }
    assert_eq!(kinds.len(), MISTAKES.len());
}

/// A valid kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Valid {
    uid: Uid,
    name: String,
}

impl Resource for Valid {
    const KIND: &'static Kind =
        &part(FIELDS).methods(&[Method::list(&[LIST]).order("name").params(&[Param::exact("name")])]);

    fn example() -> Self {
        Self { name: "a".to_owned(), ..Self::default() }
    }
}

#[test]
fn a_capability_is_only_in_built_in_roles() {
    const READ: Capability = Capability::new(1_000_001, "CAP_PARTS_READ", "parts.read").in_roles(&["owner", "ownr"]);
    let built = |roles: &[&'static str]| builder().capabilities([READ]).roles(roles.to_vec()).build();
    let error = built(&["owner", "viewer"]).unwrap_err();
    assert!(matches!(&error, BuildError::Roles { unknown, .. } if unknown[..] == [(READ, "ownr")]), "{error}");
    assert_eq!(
        error.to_string(),
        "capabilities are in unknown roles: parts.read in `ownr`; the built-in roles are owner, viewer"
    );
    built(&["owner", "ownr"]).unwrap();
    builder().capabilities([READ]).build().unwrap();
}

#[test]
fn descriptors_are_an_encoded_set_of_files() {
    let valid = platform_core::proto::FILE_DESCRIPTOR_SET;
    builder().descriptors(valid).build().unwrap();
    for garbage in
        [&b""[..], b"garbage", b"\x0a", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\xff", &valid[..valid.len() - 1]]
    {
        let error = builder().descriptors(valid).descriptors(garbage.to_vec()).build().unwrap_err();
        assert!(matches!(error, BuildError::Descriptors(1)), "{error}");
        assert!(error.to_string().starts_with("the 2. set of descriptors is not an encoded"), "{error}");
    }
}

#[test]
fn a_name_is_given_to_one_kind() {
    assert!(builder().kind::<Valid>().build().is_ok());
    let error = builder().kind::<Valid>().kind::<Valid>().build().unwrap_err().to_string();
    assert_eq!(error, "invalid tables of kinds: Part: name: must differ from the names of the other kinds");
}

#[test]
fn clashing_capabilities_are_refused_with_both() {
    let other = Capability::new(1_000_000, "CAP_OTHER", "other");
    let error = builder().kind::<Valid>().capabilities([other]).build().unwrap_err();
    assert!(matches!(error, BuildError::Capabilities(one, two) if [one, two] == [other, LIST]), "{error}");
    assert!(error.to_string().contains("other (number 1000000, CAP_OTHER)"), "{error}");
    // The capabilities that methods require need not be added.
    let platform = builder().kind::<Valid>().build().unwrap();
    assert_eq!(platform.capabilities().by_name("parts.list"), Some(LIST));
}

#[test]
fn keys_for_secrets_are_given_or_declared_ephemeral() {
    let error = Platform::builder(Arc::new(MemoryStore::new()), clock(), SeededEntropy::new(1)).build().unwrap_err();
    assert!(matches!(error, BuildError::NoSealKeys), "{error}");
}
