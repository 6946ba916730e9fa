//! The sizes of an image by architecture, in one reply (`docs/api.md`, Images).

use platform_engine::{
    context::Context,
    error::Result,
    kind::{Action, Authorization, Field, Handler, Http, Kind, Resource, Type},
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::{
    domain, field,
    registry::{
        Digest, Image,
        image::{DIGEST, READ, REPO},
    },
};

/// The size of an image for one architecture. Our own kind, of which there are no resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSize {
    /// The architecture.
    pub architecture: String,
    /// The digest of the image for this architecture.
    pub digest: Digest,
    /// The size of the layers and the configuration in bytes.
    #[serde(with = "platform_engine::json::int64")]
    pub size: i64,
}

const FIELDS: &[Field] = &[
    Field::string("architecture").about("The architecture.").output_only(),
    field::digest("digest").about("The digest of the image for this architecture.").output_only(),
    Field::new("size", Type::Int64).about("The size of the layers and the configuration in bytes.").output_only(),
];

impl Resource for ImageSize {
    const KIND: &'static Kind =
        &Kind::new("ImageSize", "imageSizes", "ImageSizesService", domain::INSIGHTS).fields(FIELDS).cascade();

    const ACTIONS: &'static [Action] = &[Action::typed::<List>("ListImageSizes", Http::Get, "imageSizes")
        .authorization(Authorization::At("repoUid", READ))];

    fn example() -> Self {
        let digest = Digest::opaque(format!("sha256:{}", "0123456789abcdef".repeat(4)));
        Self { architecture: "amd64".to_owned(), digest, size: 10_485_760 }
    }
}

/// `ListImageSizes`.
struct List;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    repo_uid: Uid,
    digest: Digest,
}

impl Handler for List {
    const REQUEST: &'static [Field] = &[REPO, DIGEST];
    const RESPONSE: &'static [Field] = &[Field::new("sizes", Type::List(&Type::Message(FIELDS)))
        .about("The sizes in the order of the index; one for an image without an index.")];
    type Request = Request;
    type Response = Value;

    fn run<'a>(cx: &'a Context<'a>, request: Request) -> platform_engine::BoxFuture<'a, Result<Value>> {
        Box::pin(async move {
            let image = Image::find(cx, &request.repo_uid, &request.digest).await?;
            let sizes = image.platforms.into_iter().map(|platform| ImageSize {
                architecture: platform.architecture,
                digest: platform.digest,
                size: platform.size,
            });
            Ok(json!({ "sizes": sizes.collect::<Vec<_>>() }))
        })
    }
}
