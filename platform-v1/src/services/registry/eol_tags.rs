//! Tags with the ends of their lives.

use platform_core::resources::registry::Tag;
use platform_engine::{
    BoxFuture,
    context::Context,
    conversion::{Conversion, ListConversion},
    error::{Error, Result},
    kind::{Action, Domain, Field, Resource, Type},
    request::PAGE_TOKEN,
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::{
    super::{REGISTRY, UIDP},
    package_versions::{ShownVersion, VERSION},
};
use crate::end_of_life::{self, Grace, Status};

pub(super) const LIST: Action = Action::page_as::<List>("ListEolTags", "eoltags");

struct EolTag;

impl Conversion for EolTag {
    type Resource = Tag;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "eoltags";
    const MESSAGE: &'static str = "EolTag";
    const FIELDS: &'static [Field] = &[
        Tag::KIND.show("uid").named("id"),
        Tag::KIND.show("name"),
        Field::string("mainPackageName").about("The main package of the tag's image; empty if it is not known."),
        Field::enumeration("tagStatus", &["TAG_ACTIVE", "TAG_IN_GRACE", "TAG_INACTIVE"])
            .about("Whether the tag is still updated."),
        Field::message("mainPackageVersion", VERSION)
            .about("The version of the main package; null if its versions were not imported."),
        Field::enumeration(
            "graceStatus",
            &["GRACE_NOT_ELIGIBLE", "GRACE_ELIGIBLE", "GRACE_ACTIVE", "GRACE_BROKEN", "GRACE_EXPIRED"],
        )
        .about("The state of the grace period after the end of the version's life."),
        Field::timestamp("gracePeriodExpiryDate").about("When the grace period ends or ended."),
    ];

    fn complete<'a>(cx: &'a Context<'a>, messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let uid = |message: &Map<String, Value>| {
                Uid::opaque(message.get("id").and_then(Value::as_str).unwrap_or_default().to_owned())
            };
            let tags = cx.read_all::<Tag>(messages.iter().map(uid)).await?;
            // A tag that was deleted since the list was read has no image any longer.
            let tags: Vec<_> = tags.into_iter().map(Option::unwrap_or_default).collect();
            for (message, found) in messages.iter_mut().zip(end_of_life::of_tags(cx, &tags).await?) {
                let version = found.version.as_ref().map(ShownVersion::from);
                let mut set = |name: &str, value: Value| drop(message.insert(name.to_owned(), value));
                set("mainPackageName", found.main_package.into());
                set("tagStatus", status(found.status).into());
                set("mainPackageVersion", serde_json::to_value(version).map_err(Error::internal)?);
                set("graceStatus", grace(found.grace).into());
                set("gracePeriodExpiryDate", json!(found.grace_ends));
            }
            Ok(())
        })
    }
}

const fn status(status: Status) -> &'static str {
    match status {
        Status::Active => "TAG_ACTIVE",
        Status::InGrace => "TAG_IN_GRACE",
        Status::Inactive => "TAG_INACTIVE",
    }
}

const fn grace(grace: Grace) -> &'static str {
    match grace {
        Grace::NotEligible => "GRACE_NOT_ELIGIBLE",
        Grace::Eligible => "GRACE_ELIGIBLE",
        Grace::Active => "GRACE_ACTIVE",
        Grace::Broken => "GRACE_BROKEN",
        Grace::Expired => "GRACE_EXPIRED",
    }
}

struct List;

impl ListConversion for List {
    type Item = EolTag;
    const REQUEST: &'static [Field] = &[
        UIDP,
        Field::string("name").about("Only tags with exactly this name."),
        PAGE_TOKEN,
        Field::new("pageSize", Type::Int64)
            .about("The number of tags on a page: 1 to 200; 0 means 50, and larger values mean 200."),
        Field::bool("excludeDates").of("").about("Whether to leave out tags that end in a date such as `…-20260102`."),
        Field::bool("excludeEpochs").of("").about("Whether to leave out tags that end in an epoch such as `…-r3`."),
    ];
    const RESPONSE: &'static [Field] = &[
        Field::new("items", Type::List(&Type::Message(EolTag::FIELDS))).about("The tags of the page."),
        Field::string("nextPageToken").about("Asks for the next page; empty on the last page."),
    ];

    fn to_parameters(request: &Map<String, Value>, parameters: &mut Map<String, Value>) {
        let excludes = |name: &str| request.get(name).and_then(Value::as_bool).unwrap_or_default();
        parameters.insert("includeDates".to_owned(), (!excludes("excludeDates")).into());
        parameters.insert("includeEpochs".to_owned(), (!excludes("excludeEpochs")).into());
        if let Some(Value::String(size)) = parameters.get("pageSize") {
            // More than 32 bits have the effect of the largest page.
            let size =
                size.parse::<i64>().map(|size| i32::try_from(size).unwrap_or(if size < 0 { -1 } else { i32::MAX }));
            if let Ok(size) = size {
                parameters.insert("pageSize".to_owned(), size.into());
            }
        }
    }
}
