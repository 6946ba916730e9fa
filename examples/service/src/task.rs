//! Tasks: the children of projects, with a rule that reads state of the service.

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    kind::{Change, Field, Kind, Method, Param, Parent, Resource, Verb},
    store::{Key, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

use crate::project::{PLANNER, Project, READ, WRITE};

/// The limits of the service, which the builder of the platform passes to the kinds.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of tasks of a project.
    pub tasks_per_project: u64,
}

/// A task of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Task {
    /// The uid of the project and one more segment.
    pub uid: Uid,
    /// What is to be done.
    pub title: String,
    /// Whether it is done.
    pub done: bool,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for Task {
    const KIND: &'static Kind = &Kind::new("Task", "tasks", "TasksService", PLANNER)
        .parent(Parent::Of(Project::KIND))
        .methods(&[
            Method::list(&[READ]).order("title").params(&[Param::exact("title")]),
            Method::get(&[READ]),
            Method::create(&[WRITE]).event("planner.task.created.v1"),
            Method::update(&[WRITE]).event("planner.task.updated.v1"),
            Method::delete(&[WRITE]).event("planner.task.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            Field::string("title").about("What is to be done.").required().max_len(500).sort(&["title"]),
            Field::bool("done").about("Whether it is done."),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef/0123456789abcdef"),
            title: "water the plants".to_owned(),
            done: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    /// Rejects a new task of an archived project, or of a project that already has the maximum number of tasks.
    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (Verb::Create, Some(project)) = (change.verb, change.uid.parent()) else { return Ok(()) };
            let Some(record) = cx.record(Project::KIND, &project).await? else { return Ok(()) };
            // If the project is archived before the commit, the create is retried.
            change
                .write
                .require_or_retry(Require::Revision(Key::new(Project::KIND.name, project.clone()), record.revision));
            if cx.read::<Project>(&project).await?.is_some_and(|project| project.archived) {
                return Err(Error::blocked("PROJECT_ARCHIVED", "an archived project accepts no tasks"));
            }
            let limits = cx.platform().data::<Limits>().ok_or_else(|| Error::internal("no limits of the service"))?;
            let children = Query { count: true, limit: 1, ..Query::new(Self::KIND.name, Scope::Children(project)) };
            if cx.page(children).await?.total.unwrap_or_default() >= limits.tasks_per_project {
                let rule = format!("a project has at most {} tasks", limits.tasks_per_project);
                return Err(Error::blocked("TOO_MANY_TASKS", rule));
            }
            Ok(())
        })
    }
}
