//! The kinds of an office, which reference each other.

use super::*;

pub(crate) const ORG: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
pub(crate) const OTHER: &str = "63921b2c44617e3f2603851537be0123af4a57d8";

pub(crate) const ANY: Capability = Capability::new(1_000_000, "CAP_OFFICE", "office");

pub(crate) const METHODS: &[Method] = &[
    Method::list(&[ANY]),
    Method::get(&[ANY]),
    Method::create(&[ANY]),
    Method::update(&[ANY]),
    Method::delete(&[ANY]),
];

pub(crate) const fn kind(name: &'static str, plural: &'static str, parent: Parent, fields: &'static [Field]) -> Kind {
    Kind::new(name, plural, "OfficeService", Domain::new("office", "test.office"))
        .parent(parent)
        .methods(METHODS)
        .fields(fields)
}

pub(crate) const NAMED: &[Field] = &[Field::UID, Field::string("name"), Field::CREATE_TIME, Field::UPDATE_TIME];

/// The struct of all kinds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Body {
    pub(crate) uid: Uid,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) assignee_uid: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) reviewer_uid: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) desk_uid: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) plate_uid: Value,
    pub(crate) create_time: Option<Timestamp>,
    pub(crate) update_time: Option<Timestamp>,
}

impl Body {
    /// Returns the example of a kind with these fields.
    fn example(fields: &[Field]) -> Self {
        let text = |name: &str| if fields.iter().any(|field| field.name == name) { json!("aaaa") } else { Value::Null };
        Self {
            assignee_uid: text("assigneeUid"),
            reviewer_uid: text("reviewerUid"),
            desk_uid: text("deskUid"),
            plate_uid: text("plateUid"),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            ..Self::default()
        }
    }
}

/// Declares kinds with this struct.
#[rustfmt::skip]
macro_rules! kinds {
    ($($name:ident: $table:expr;)*) => {$(
        #[derive(Debug, Clone, Default, Serialize, Deserialize)]
        pub(crate) struct $name(pub(crate) Body);
        impl Resource for $name {
            const KIND: &'static Kind = &$table;
            fn example() -> Self { Self(Body::example(Self::KIND.fields)) }
        }
    )*};
}

kinds! {
    Group: kind("Group", "groups", Parent::GroupOrNone, NAMED);
    // Restricts the delete of its group.
    Person: kind("Person", "persons", Parent::Group, NAMED);
    // Has the uid of its person: a plate that is deleted and created again has the same uid.
    Plate: kind("Plate", "plates", Parent::Sole(Person::KIND), NAMED).cascade();
    Desk: kind("Desk", "desks", Parent::Group, NAMED).cascade();
    Task: kind("Task", "tasks", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").references(Person::KIND, OnDelete::Clear),
        Field::string("reviewerUid").references(Person::KIND, OnDelete::Restrict),
        Field::string("deskUid").references(Desk::KIND, OnDelete::Clear),
        Field::string("plateUid").references(Plate::KIND, OnDelete::Clear),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
    Badge: kind("Badge", "badges", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").required().references(Person::KIND, OnDelete::Cascade),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
    Stamp: kind("Stamp", "stamps", Parent::Of(Badge::KIND), NAMED).cascade();
    // Deleted with the person, by three steps: the badge references the person, the stamp is a child of the badge, and
    // the visit references the stamp.
    Visit: kind("Visit", "visits", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").references(Stamp::KIND, OnDelete::Cascade),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]);
    Lock: kind("Lock", "locks", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("deskUid").references(Desk::KIND, OnDelete::Restrict),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]).cascade();
}

kinds! {
    Wrong: kind("Wrong", "wrongs", Parent::Group, &[
        Field::UID,
        Field::string("name"),
        Field::string("assigneeUid").required().references(Person::KIND, OnDelete::Clear),
        Field::string("reviewerUid").input_only().references(Person::KIND, OnDelete::Restrict),
        Field::new("deskUid", Type::Bytes).references(Person::KIND, OnDelete::Restrict),
        Field::CREATE_TIME,
        Field::UPDATE_TIME,
    ]);
}

pub(crate) const KINDS: &[Registered] = &[
    Registered::of::<Group>(),
    Registered::of::<Person>(),
    Registered::of::<Plate>(),
    Registered::of::<Desk>(),
    Registered::of::<Task>(),
    Registered::of::<Badge>(),
    Registered::of::<Stamp>(),
    Registered::of::<Visit>(),
    Registered::of::<Lock>(),
];
