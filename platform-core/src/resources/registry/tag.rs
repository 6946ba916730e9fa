//! Tags: names of images in a repo (`docs/api.md`, Tags).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::Result,
    event::Draft,
    kind::{By, Change, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Type, Unique},
    store::{Filter, KeyValue},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::{check, domain, field};
use super::{Digest, Repo, TagMove};
use crate::capabilities::cap;

/// A name of an image in a repo. Creating an existing tag moves it to another image and keeps its uid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tag {
    /// The uid of the repo and a segment.
    pub uid: Uid,
    /// The name; unique in its repo.
    pub name: String,
    /// The digest of the image: `sha256:` and 64 hexadecimal digits. Empty for a tag of no image, which version 1
    /// creates.
    pub digest: Digest,
    /// When the tag was first created.
    pub create_time: Option<Timestamp>,
    /// When the tag was last created or moved.
    pub update_time: Option<Timestamp>,
    /// Whether the tag is at the end of its life.
    pub deprecated: bool,
    /// The bundles that the tag is part of.
    pub bundles: Vec<String>,
}

impl Resource for Tag {
    const KIND: &'static Kind = &Kind::new("Tag", "tags", "TagsService", domain::REGISTRY)
        .parent(Parent::Of(Repo::KIND))
        .methods(&[
            Method::list(&[cap("tag.list")])
                .params(&[
                    Param::exact("name").about("Only tags with exactly this name, hidden ones included."),
                    Param::new(Field::timestamp("updatedSince").about("Only tags that were updated after this time."), By::Above("updateTime")),
                    Param::narrow(Field::bool("includeReferrers"))
                        .about("Whether to list tags such as `sha256-…`, too, which refer to an image's signatures and the like."),
                    Param::narrow(Field::bool("includeDates"))
                        .about("Whether to list tags that end in a date such as `…-20260102`, too."),
                    Param::narrow(Field::bool("includeEpochs"))
                        .about("Whether to list tags that end in an epoch such as `…-r3`, too."),
                    Param::exact("digest").about("Only tags of this digest."),
                ])
                .narrow(shown_families),
            Method::get(&[cap("tag.list")]),
            Method::create(&[cap("tag.create")]).event("platform.registry.tag.created.v1").upsert("name"),
            Method::update(&[cap("tag.update")]).event("platform.registry.tag.updated.v1").unserved(),
            Method::delete(&[cap("tag.delete")]).event("platform.registry.tag.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("name")
                .about("The tag's name, as `^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`.")
                .required()
                .sort(&["name"])
                .check(check::tag),
            Self::DIGEST,
            Field::CREATE_TIME.rest_only(),
            Field::UPDATE_TIME,
            Field::bool("deprecated").about("Whether the tag is at the end of its life."),
            Field::new("bundles", Type::List(&Type::String))
                .about("Keywords that the tag is offered under.")
                .distinct()
                .check(check::bundles),
        ])
        .keys(&[DerivedKey::new("families", |body| vec![key(families(name_of(body)))])])
        .unique(&[Unique::in_parent("tag.name", "A tag of this name in the repo", "name").by(&["name"])])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/fedcba9876543210"),
            name: "latest".to_owned(),
            digest: Digest::opaque(format!("sha256:{}", "0123456789abcdef".repeat(4))),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            deprecated: true,
            bundles: vec!["application".to_owned()],
        }
    }

    /// Records the image that the tag refers to from now on.
    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(tag) = &change.new else { return Ok(()) };
            let before = change.old.as_ref().map(|old| &old.digest);
            if before != Some(&tag.digest) && !tag.digest.is_empty() {
                TagMove::record(cx, &change.uid, tag.digest.clone(), &mut change.write)?;
            }
            Ok(())
        })
    }

    /// Addresses the event to the organization, as the contract requires.
    fn customize_event(event: &mut Draft) {
        event.group = Uid::opaque(event.subject.as_str()).root().to_owned();
    }
}

impl Tag {
    /// The field `digest`.
    pub const DIGEST: Field = field::digest("digest")
        .about("The digest of the image: `sha256:` and 64 hexadecimal digits.")
        .required()
        .always();
}

/// The parameters that include families of tags which lists hide by default, in the order of their bits in
/// [`families`].
const INCLUDE: [&str; 3] = ["includeReferrers", "includeDates", "includeEpochs"];

/// Returns the families that a name belongs to, as bits: `sha256-*`, `*-20yymmdd` and `*-r[0-9]+`.
fn families(name: &str) -> u8 {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let last = name.rsplit_once('-').map(|(_, last)| last);
    let referrer = name.starts_with("sha256-");
    let date = last.is_some_and(|last| last.len() == 8 && last.starts_with("20") && digits(last));
    let epoch = last.and_then(|last| last.strip_prefix('r')).is_some_and(digits);
    u8::from(referrer) | u8::from(date) << 1 | u8::from(epoch) << 2
}

/// Returns the filter for tags whose families are all included; none if the request names the tag.
fn shown_families(params: &Map<String, Value>) -> Vec<Filter> {
    let is_included = |name: &str| params.get(name).and_then(Value::as_bool).unwrap_or_default();
    let shown = INCLUDE.iter().enumerate().fold(0, |shown, (bit, name)| shown | u8::from(is_included(name)) << bit);
    if params.contains_key("name") || shown == 0b111 {
        return Vec::new();
    }
    let values = (0..0b111).filter(|families| families & !shown == 0).map(key).collect();
    vec![Filter::AnyOf { key: "families", values }]
}

fn key(families: u8) -> KeyValue {
    KeyValue::from_bytes([families])
}

fn name_of(body: &Value) -> &str {
    body.get("name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_the_families_whose_patterns_it_matches() {
        for (name, expected) in [
            ("latest", 0),
            ("1.2.3", 0),
            ("sha256-abc.sig", 0b001),
            ("sha256", 0),
            ("1.2-20260102", 0b010),
            ("20260102", 0),
            ("1.2-19991231", 0),
            ("1.2-202601021", 0),
            ("1.2.3-r0", 0b100),
            ("1.2.3-r", 0),
            ("r12", 0),
            ("sha256-20260102", 0b011),
            ("1.2-r1-20260102", 0b010),
        ] {
            assert_eq!(families(name), expected, "{name}");
        }
    }

    #[test]
    fn only_included_families_are_listed() {
        let shown = |params: Value| match shown_families(params.as_object().unwrap()).as_slice() {
            [] => (0..=0b111).map(key).collect(),
            [Filter::AnyOf { values, .. }] => values.clone(),
            _ => panic!("at most one filter"),
        };
        assert_eq!(shown(serde_json::json!({})), [key(0)]);
        assert_eq!(shown(serde_json::json!({ "includeDates": true })), [key(0), key(0b010)]);
        assert_eq!(shown(serde_json::json!({ "includeDates": true, "includeEpochs": true })).len(), 4);
        assert_eq!(shown(serde_json::json!({ "name": "sha256-a" })).len(), 8);
        let all = serde_json::json!({ "includeReferrers": true, "includeDates": true, "includeEpochs": true });
        assert_eq!(shown(all).len(), 8);
    }
}
