//! Deployments. Every repo has one, which is empty at first.

use platform_core::capabilities::cap;
use platform_engine::{
    context::Context,
    conversion::{Conversion, shown},
    error::Result,
    kind::{Action, Authorization, Domain, Field, Resource, Type},
};
use serde_json::{Map, Value};

use super::{REGISTRY, tags};
use crate::resources::Deployment;

const PATH: &str = "repos/{repoId=**}/deployment";

pub(super) const CREATE: Action = Action::create_as::<Created>("CreateDeployment", "repos/{parentId=**}/deployment");
pub(super) const UPDATE: Action = Action::replace_as::<Message>("UpdateDeployment", PATH);
pub(super) const GET: Action = Action::get("GetDeployment", PATH, |cx, request| Box::pin(get(cx, request)))
    .request(&[Field::string("repoId").about("The repo.")])
    .response(Message::FIELDS)
    .authorization(Authorization::At("repoId", &[cap("registry.deployments.list")]));

const CHARTS: Field = Deployment::KIND.show("charts").ty(Type::List(&Type::Message(&[
    Field::string("source").about("The address of the chart's source.").optional(),
    Field::string("repo").about("The repository that has the chart."),
    Field::string("chart").about("The name of the chart, if it is not that of the repository.").optional(),
])));

struct Message;

impl Conversion for Message {
    type Resource = Deployment;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "repos";
    const MESSAGE: &'static str = "Deployment";
    const FIELDS: &'static [Field] = &[Deployment::KIND.show("uid").named("id"), CHARTS];
    const REQUEST: &'static [Field] = &[Deployment::KIND.show("uid").named("repoId"), CHARTS];
}

/// A deployment in the request of a create, which names the repo as the parent.
struct Created;

impl Conversion for Created {
    type Resource = Deployment;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = Message::PATH;
    const MESSAGE: &'static str = Message::MESSAGE;
    const FIELDS: &'static [Field] = Message::FIELDS;
    const REQUEST: &'static [Field] = &[Deployment::KIND.show("uid").named("parentId"), CHARTS];
}

/// Returns the deployment of a repo, an empty one if it was never created.
async fn get(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = tags::repo(cx, &request).await?;
    let deployment = cx.read::<Deployment>(&uid).await?;
    let deployment = deployment.unwrap_or_else(|| Deployment { uid, ..Deployment::default() });
    shown::<Message>(cx, &deployment).map(Value::Object)
}
