//! A kind of an embedder with features that the kinds of the contract do not use, so that the tests of all kinds cover
//! every column of the tables.

use platform_core::capabilities::cap;
use platform_engine::{
    BoxFuture,
    context::Context,
    error::Result,
    kind::{By, Change, Domain, Field, Kind, Method, Param, Parent, Resource, Type, Unique},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// A kind with a field of every type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Sample {
    pub(crate) uid: Uid,
    pub(crate) name: String,
    pub(crate) code: String,
    pub(crate) secret: String,
    /// The length of the secret, which is not stored itself.
    pub(crate) secret_length: i32,
    pub(crate) labels: Vec<String>,
    pub(crate) size: String,
    pub(crate) weight: i32,
    pub(crate) enabled: bool,
    pub(crate) due: Option<Timestamp>,
    pub(crate) create_time: Option<Timestamp>,
    pub(crate) update_time: Option<Timestamp>,
}

impl Resource for Sample {
    const KIND: &'static Kind = &Kind::new("Sample", "samples", "SamplesService", Domain::new("things", "test.things"))
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("repo.list")]).order("createTime desc").params(&[
                Param::exact("name"),
                Param::new(Field::strings("labels"), By::Value("labels")),
                Param::new(Field::bool("enabled"), By::Value("enabled")),
                Param::new(Field::new("size", Type::Int64), By::Value("size")),
                Param::new(Field::timestamp("dueAfter"), By::Above("due")),
            ]),
            Method::get(&[cap("repo.list")]),
            Method::create(&[cap("repo.create"), cap("tag.create")]),
            Method::update(&[cap("repo.update"), cap("tag.update")]),
            Method::delete(&[cap("repo.delete")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("name").required().sort(&["name", "title"]),
            Field::string("code").immutable(),
            Field::string("secret").input_only(),
            Field::new("secretLength", Type::Int32).output_only(),
            Field::strings("labels"),
            Field::new("size", Type::Int64).sort(&["size"]),
            Field::new("weight", Type::Int32).sort(&["weight"]),
            Field::bool("enabled").sort(&["enabled"]),
            Field::timestamp("due").sort(&["due"]),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::new("sample.code", "A sample of this code", |body| {
            body.get("code")?.as_str().map(KeyValue::text)
        })]);

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "sample".to_owned(),
            code: "code".to_owned(),
            secret: String::new(),
            secret_length: 0,
            labels: vec!["red".to_owned(), "blue".to_owned()],
            size: "10".to_owned(),
            weight: -3,
            enabled: true,
            due: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn prepare<'a>(_: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if let Some(sample) = change.new.as_mut().filter(|sample| !sample.secret.is_empty()) {
                sample.secret_length = i32::try_from(sample.secret.len()).unwrap();
            }
            Ok(())
        })
    }
}
