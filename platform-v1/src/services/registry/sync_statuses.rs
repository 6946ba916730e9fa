//! The statuses of copies of repos from their sources.

use platform_core::capabilities::cap;
use platform_engine::{
    access::Capability,
    context::Context,
    conversion::{Conversion, ListConversion, shown, shown_all},
    error::Result,
    kind::{Action, Authorization, Domain, Field, Resource, Type},
};
use serde_json::{Map, Value};

use super::{REGISTRY, tags};
use crate::resources::SyncStatus;

pub(super) const GET: Action =
    Action::get("GetSyncStatus", "repos/{repoId=**}:syncstatus", |cx, request| Box::pin(get(cx, request)))
        .request(&[Field::string("repoId").about("The repo.")])
        .response(Status::FIELDS)
        .authorization(Authorization::At("repoId", READ));
pub(super) const LIST: Action = Action::list_as::<Filtered>("ListSyncStatuses", "syncstatuses")
    .authorization(Authorization::At("registryId", READ));

const READ: &[Capability] = &[cap("repo.list")];

struct Status;

impl Conversion for Status {
    type Resource = SyncStatus;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "syncstatuses";
    const MESSAGE: &'static str = "SyncStatus";
    const FIELDS: &'static [Field] =
        &[SyncStatus::KIND.show("state").named("status"), SyncStatus::KIND.show("requestTime").named("createTime")];
}

struct OfRepo;

impl Conversion for OfRepo {
    type Resource = SyncStatus;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "syncstatuses";
    const MESSAGE: &'static str = "RepoSyncStatus";
    const FIELDS: &'static [Field] = &[
        SyncStatus::KIND.show("uid").named("repoId"),
        Field::message("repoStatus", Status::FIELDS).of("").about("The status of the repo."),
    ];

    fn complete<'a>(
        cx: &'a Context<'a>,
        messages: &'a mut [Map<String, Value>],
    ) -> platform_engine::BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let uids = messages.iter().filter_map(|message| message.get("repoId")?.as_str());
            let statuses = shown_all::<Status>(cx, uids.map(platform_engine::uid::Uid::opaque)).await?;
            let unknown = shown::<Status>(cx, &SyncStatus::default())?;
            for (message, status) in messages.iter_mut().zip(statuses) {
                message.insert("repoStatus".to_owned(), status.unwrap_or_else(|| unknown.clone()).into());
            }
            Ok(())
        })
    }
}

struct Filtered;

impl ListConversion for Filtered {
    type Item = OfRepo;
    const REQUEST: &'static [Field] =
        &[Field::string("registryId").of("uidp.descendantsOf").about("The organization or folder that has the repos.")];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(OfRepo::FIELDS)))
        .about("The statuses that were imported, in the order of the repos' uids.")];
}

/// Returns the status of a repo, which is unknown if none was imported.
async fn get(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = tags::repo(cx, &request).await?;
    let status = cx.read::<SyncStatus>(&uid).await?.unwrap_or_default();
    shown::<Status>(cx, &status).map(Value::Object)
}
