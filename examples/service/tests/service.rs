//! Tests of the planner over a store in memory, through its whole stack of services.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "that is how tests fail")]

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Request, StatusCode, Version},
};
use http_body_util::BodyExt;
use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{access::Caller, platform::Platform, store::memory::MemoryStore, uid::Uid};
use platform_system::{SystemClock, SystemEntropy};
use serde_json::{Value, json};
use service::{
    planner,
    project::{ArchiveProject, Project},
    task::{self, Task},
};
use tower::ServiceExt;

const ME: &str = "00000000000000000000000000000000000000aa";
const ORGANIZATION: &str = "00000000000000000000000000000000000000bb";

async fn platform() -> Arc<Platform> {
    let builder = platform_core::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy).ephemeral_keys();
    let platform = planner(builder).data(task::Limits { tasks_per_project: 3 }).build().unwrap();
    let first = Bootstrap {
        organization: Uid::parse(ORGANIZATION).unwrap(),
        organization_name: "mine".into(),
        operator: Uid::parse(ME).unwrap(),
    };
    Iam::of(&platform).bootstrap(&first).await.unwrap();
    Arc::new(platform)
}

/// Calls the service with the session of the operator, and returns the status and the body, which is JSON or a text.
async fn call(platform: &Arc<Platform>, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("cookie", format!("session={ME}"));
    let app = service::app(Arc::clone(platform)).unwrap();
    let response = app.oneshot(request.body(body).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

#[tokio::test]
async fn kinds_of_the_service_are_served_to_callers_of_its_sessions() {
    let platform = platform().await;
    let projects = format!("/planner/v1/projects/{ORGANIZATION}");
    let (status, garden) = call(&platform, "POST", &projects, json!({ "name": "garden" })).await;
    assert_eq!(status, StatusCode::OK, "{garden}");
    let (status, error) = call(&platform, "POST", &projects, json!({ "name": "garden" })).await;
    let message = json!("A project of this name in the group already exists");
    assert_eq!((status, &error["message"]), (StatusCode::CONFLICT, &message));
    let uid = garden["uid"].as_str().unwrap();
    let tasks = format!("/planner/v1/tasks/{uid}");
    for (title, done) in [("dig", true), ("sow", false), ("mow", false)] {
        let (status, body) = call(&platform, "POST", &tasks, json!({ "title": title, "done": done })).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    let (status, error) = call(&platform, "POST", &tasks, json!({ "title": "one too many" })).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
    assert!(error["message"].as_str().unwrap().contains("at most 3 tasks"), "{error}");
    assert_eq!(
        call(&platform, "GET", &format!("/projects/{uid}"), Value::Null).await.1,
        "garden: 1 of 3 tasks are done"
    );

    let archive = format!("/planner/v1/projects/{uid}:archive");
    assert_eq!(call(&platform, "POST", &archive, json!({})).await.1["archived"], true);
    let (status, error) = call(&platform, "POST", &archive, json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
    let app = service::app(Arc::clone(&platform)).unwrap();
    let anonymous = Request::get("/planner/v1/projects").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(anonymous).await.unwrap().status(), StatusCode::UNAUTHORIZED);

    let (_, document) = call(&platform, "GET", "/openapi.json", Value::Null).await;
    assert_eq!(document["info"]["title"], "Planner");
    let description = document["info"]["description"].as_str().unwrap();
    assert!(description.starts_with("Projects and their tasks.\n\n**Identifiers.**"), "{description}");
    assert!(document["paths"]["/planner/v1/projects/{uid}:archive"].is_object(), "{}", document["paths"]);
}

#[tokio::test]
async fn actions_are_typed_in_process_and_their_replies_are_canonical() {
    let platform = platform().await;
    let caller = Caller::new(Uid::parse(ME).unwrap());
    let project = Project { name: "garden".into(), ..Project::default() };
    let project = platform.create(&caller, ORGANIZATION, &project).await.unwrap();
    let request = ArchiveProject { uid: project.uid.clone() };
    let archived: Project = platform.run_named::<Project, _>(Some(&caller), "ArchiveProject", &request).await.unwrap();
    assert!(archived.archived && archived.update_time >= project.update_time);
    let task = Task { title: "dig".into(), ..Task::default() };
    let error = platform.create(&caller, &project.uid, &task).await.unwrap_err();
    assert!(error.message().contains("archived"), "{error}");
}

#[tokio::test]
async fn own_grpc_services_are_reached_next_to_those_of_the_platform() {
    let platform = platform().await;
    let app = service::app(platform).unwrap();
    // The message `google.protobuf.StringValue { value: "me" }` in the frame of gRPC.
    let message: &[u8] = &[0, 0, 0, 0, 4, 10, 2, b'm', b'e'];
    let call = |path: &str| {
        let request =
            Request::post(path.to_owned()).version(Version::HTTP_2).header("content-type", "application/grpc");
        app.clone().oneshot(request.header("te", "trailers").body(Body::from(message)).unwrap())
    };
    let reply = call("/acme.billing.v1.Billing/GetPlan").await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(reply.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(&reply.to_bytes()[7..], b"the plan of me");
    // Without a session and without a token.
    let refused = call("/chainguard.platform.iam.v2.GroupsService/ListGroups").await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "16");
}
