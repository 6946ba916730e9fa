//! Projects: a kind of the service, with an action.

use platform_engine::{
    BoxFuture,
    access::Capability,
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Handler, Http, Kind, Method, Param, Parent, Resource, Unique},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// The domain of the service's kinds: paths begin with `/planner/v1/`.
pub const PLANNER: Domain = Domain::new("planner", "acme.planner").event_prefix("com.acme");

/// The capability to see projects and their tasks.
pub const READ: Capability =
    Capability::new(1_000_000, "CAP_PLANNER_READ", "planner.read").in_roles(&["owner", "editor", "viewer"]);
/// The capability to change projects and their tasks.
pub const WRITE: Capability =
    Capability::new(1_000_001, "CAP_PLANNER_WRITE", "planner.write").in_roles(&["owner", "editor"]);

/// A project of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Project {
    /// The uid of the group and one more segment.
    pub uid: Uid,
    /// The name, unique in the group.
    pub name: String,
    /// Whether the project accepts no more tasks.
    pub archived: bool,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for Project {
    const KIND: &'static Kind = &Kind::new("Project", "projects", "ProjectsService", PLANNER)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[READ]).order("name").params(&[Param::exact("name")]),
            Method::get(&[READ]),
            Method::create(&[WRITE]).event("planner.project.created.v1"),
            Method::update(&[WRITE]).event("planner.project.updated.v1"),
            Method::delete(&[WRITE]).event("planner.project.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("name").about("The name of the project.").required().max_len(200).sort(&["name"]),
            Field::bool("archived").about("Whether the project accepts no more tasks.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent("project.name", "A project of this name in the group", "name").by(&["name"])])
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::typed::<ArchiveProject>("ArchiveProject", Http::Post, "projects/{uid=**}:archive")
            .previewed()
            .authorization(Authorization::At("uid", &[WRITE]))
            .event("planner.project.archived.v1")];

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "garden".to_owned(),
            archived: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The request to archive a project.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveProject {
    /// The uid of the project.
    pub uid: Uid,
}

impl Handler for ArchiveProject {
    const REQUEST: &'static [Field] = &[Field::string("uid").about("The uid of the project.").required()];
    const RESPONSE: &'static [Field] = Project::KIND.fields;
    type Request = Self;
    type Response = Project;

    fn run<'a>(cx: &'a Context<'a>, request: Self) -> BoxFuture<'a, Result<Project>> {
        Box::pin(async move {
            cx.modify::<Project>("ArchiveProject", &request.uid, |project| {
                if project.archived {
                    return Err(Error::blocked("PROJECT_ARCHIVED", "the project is already archived"));
                }
                project.archived = true;
                Ok(())
            })
            .await
        })
    }
}
