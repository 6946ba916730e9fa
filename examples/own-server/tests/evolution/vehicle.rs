//! A kind in each of its versions: what a release has made of the table of the one before.

use std::sync::LazyLock;

use platform_engine::{
    access::Capability,
    kind::{Domain, Field, Kind, Method, Param, Registered, Resource, Roots, Type, Unique},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_grpc::proto::{self, Protos};
use platform_server::Kinds;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const FLEET: Domain = Domain::new("fleet", "test.fleet");
const ALL: Capability = Capability::new(1_000_000, "CAP_VEHICLES_ALL", "vehicles.all").in_roles(&["owner"]);

const METHODS: &[Method] = &[
    Method::list(&[ALL]).params(&[Param::exact("plate")]),
    Method::get(&[ALL]),
    Method::create(&[ALL]),
    Method::update(&[ALL]),
    Method::delete(&[ALL]),
];

const fn vehicle(fields: &'static [Field]) -> Kind {
    Kind::new("Vehicle", "vehicles", "VehiclesService", FLEET).roots(Roots::Shared).methods(METHODS).fields(fields)
}

const PLATE: Field = Field::string("plate").required().sort(&["plate"]);
const COLOR: Field = Field::string("color");
const SEATS: Field = Field::new("seats", Type::Int32);
const WHEELS: Field = Field::new("wheels", Type::Int32);
const PLACES: Field = Field::new("places", Type::Int32).was("seats");
const STATUS: Field = Field::string("status").default(|| "parked".into());
const OWNER: Field = Field::string("owner").required().default(|| "nobody".into());
const RENAMED: &[Field] = &[Field::UID, PLATE, PLACES, COLOR, WHEELS, Field::CREATE_TIME, Field::UPDATE_TIME];
const REMOVED: &[Field] = &[Field::UID, PLATE, PLACES, COLOR, STATUS, OWNER, Field::CREATE_TIME, Field::UPDATE_TIME];

/// A time that is set by the server.
type Time = Option<Timestamp>;

fn uid() -> Uid {
    Uid::from_digest([7; 20])
}

/// Declares the struct of a version and its table.
macro_rules! version {
    ($name:ident { $($field:ident: $ty:ty = $value:expr),* } $kind:expr) => {
        #[derive(Debug, Clone, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(crate) struct $name { uid: Uid, plate: String, $($field: $ty,)* create_time: Time, update_time: Time }
        impl Resource for $name {
            const KIND: &'static Kind = &$kind;
            fn example() -> Self { Self { uid: uid(), plate: "A1".into(), $($field: $value,)* ..Self::default() } }
        }
    };
}

version!(V1 { seats: i32 = 4, color: String = "red".to_owned(), wheels: i32 = 4 }
    vehicle(&[Field::UID, PLATE, SEATS, COLOR, WHEELS, Field::CREATE_TIME, Field::UPDATE_TIME]));
// A field was renamed.
version!(V2 { places: i32 = 4, color: String = "red".to_owned(), wheels: i32 = 4 } vehicle(RENAMED));
// A field with a default was added.
version!(V3 { places: i32 = 4, color: String = "red".to_owned(), wheels: i32 = 4, status: String = "sold".to_owned() }
    vehicle(&[Field::UID, PLATE, PLACES, COLOR, WHEELS, STATUS, Field::CREATE_TIME, Field::UPDATE_TIME]));
// A required field was added.
version!(V4 {
        places: i32 = 4, color: String = "red".to_owned(), wheels: i32 = 4, status: String = "sold".to_owned(),
        owner: String = "ann".to_owned()
    }
    vehicle(&[Field::UID, PLATE, PLACES, COLOR, WHEELS, STATUS, OWNER, Field::CREATE_TIME, Field::UPDATE_TIME]));
// A field was removed.
version!(V5 { places: i32 = 4, color: String = "red".to_owned(), status: String = "sold".to_owned(), owner: String = "ann".to_owned() }
    vehicle(REMOVED).removed(&["wheels"]));
// Orders, filters and a uniqueness rule were added.
version!(V6 { places: i32 = 4, color: String = "red".to_owned(), status: String = "sold".to_owned(), owner: String = "ann".to_owned() }
    vehicle(INDEXED).methods(FILTERED).removed(&["wheels"]).unique(&[PLATES]));
// The history was deleted after the rewrite.
version!(V7 { places: i32 = 4, color: String = "red".to_owned(), status: String = "sold".to_owned(), owner: String = "ann".to_owned() }
    vehicle(&[
        Field::UID, PLATE, Field::new("places", Type::Int32).sort(&["places"]), COLOR, STATUS.sort(&["status"]),
        Field::string("owner").required(), Field::CREATE_TIME, Field::UPDATE_TIME,
    ]).methods(FILTERED).unique(&[PLATES]));
// A field was renamed without a word, and has another type; another was removed without a word.
version!(Careless { spots: i32 = 4, color: i32 = 1, owner: String = "ann".to_owned() }
vehicle(&[
    Field::UID, PLATE, Field::new("spots", Type::Int32), Field::new("color", Type::Int32),
    Field::string("owner").required(), Field::CREATE_TIME, Field::UPDATE_TIME,
]));

const INDEXED: &[Field] = &[
    Field::UID,
    PLATE,
    PLACES.sort(&["places"]),
    COLOR,
    STATUS.sort(&["status"]),
    OWNER,
    Field::CREATE_TIME,
    Field::UPDATE_TIME,
];
const FILTERED: &[Method] = &[
    Method::list(&[ALL]).order("places").params(&[
        Param::exact("plate"),
        Param::exact("color"),
        Param::exact("status"),
    ]),
    Method::get(&[ALL]),
    Method::create(&[ALL]),
    Method::update(&[ALL]),
    Method::delete(&[ALL]),
];
const PLATES: Unique = Unique::new("vehicle.plate", "A vehicle of this plate", plate);

fn plate(body: &Value) -> Option<KeyValue> {
    Some(KeyValue::text(body.get("plate")?.as_str()?))
}

/// The versions, in their order.
pub(crate) const VERSIONS: [&[Registered]; 7] = [
    &[Registered::of::<V1>()],
    &[Registered::of::<V2>()],
    &[Registered::of::<V3>()],
    &[Registered::of::<V4>()],
    &[Registered::of::<V5>()],
    &[Registered::of::<V6>()],
    &[Registered::of::<V7>()],
];

/// Returns the table of a version, counted from 1.
pub(crate) fn version(number: usize) -> &'static Registered {
    &VERSIONS[number - 1][0]
}

/// The descriptors of each version, of which each was written over the files of the one before.
static DESCRIPTORS: LazyLock<Vec<Protos>> = LazyLock::new(|| {
    let mut all: Vec<Protos> = Vec::new();
    for kinds in VERSIONS {
        let before = |name: &str| Ok(all.last().and_then(|before: &Protos| before.files.get(name).cloned()));
        let protos = proto::generate(kinds, before).unwrap();
        all.push(protos);
    }
    all
});

/// Returns the `.proto` file of a version.
pub(crate) fn proto_file(number: usize) -> &'static str {
    DESCRIPTORS[number - 1].files.values().next().unwrap()
}

/// Returns the descriptors of a version.
pub(crate) fn descriptors(number: usize) -> &'static [u8] {
    &DESCRIPTORS[number - 1].descriptors
}

/// Returns the kinds of a server of a version.
pub(crate) fn kinds(number: usize) -> Kinds {
    Kinds::with(VERSIONS[number - 1]).descriptors(descriptors(number))
}
