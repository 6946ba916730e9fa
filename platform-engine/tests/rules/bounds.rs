//! Default bounds of fields, for the kinds of the contract and for kinds that an embedder adds (`docs/api.md`, Bounds).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use platform_core::capabilities::cap;
use platform_engine::{
    BoxFuture,
    error::{Code, Error, Result},
    kind::{Domain, Field, Kind, Method, Parent, Resource, Type, Unique},
    offload::{Inline, Offload, Work},
    store::KeyValue,
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::common::{World, code, uid_of, violated_fields};

/// A kind of an embedder with default bounds and explicit ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Project {
    uid: Uid,
    name: String,
    title: String,
    notes: String,
    labels: Vec<String>,
    colors: Vec<String>,
    settings: BTreeMap<String, String>,
    tasks: Vec<Task>,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Task {
    name: String,
}

impl Resource for Project {
    const KIND: &'static Kind = &Kind::new("Project", "projects", "ProjectsService", Domain::new("work", "test.work"))
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("repo.list")]),
            Method::get(&[cap("repo.list")]),
            Method::create(&[cap("repo.create")]),
            Method::update(&[cap("repo.update")]),
        ])
        .fields(&[
            Field::UID,
            Field::string("name").required().max_len(4096),
            Field::string("title").sort(&["title"]).max_len(4096),
            Field::string("notes").multiline(),
            Field::strings("labels").max_items(100_000),
            Field::strings("colors").max_items(3).max_len(5).distinct(),
            Field::string_map("settings"),
            Field::new("tasks", Type::List(&Type::Message(&[Field::string("name").required()]))),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::new("project.name", "A project of this name", |body| {
            Some(KeyValue::text(&format!("{}\0{}", body.get("uid")?.as_str()?.len(), body.get("name")?)))
        })])
        .cascade();

    fn example() -> Self {
        Self { name: "a".to_owned(), ..Self::default() }
    }
}

fn world() -> World {
    World::with(|builder| builder.kind::<Project>())
}

fn entries(count: usize) -> Value {
    (0..count).map(|n| (n.to_string(), json!("v"))).collect::<Map<_, _>>().into()
}

fn tasks(count: usize) -> Value {
    vec![json!({ "name": "t" }); count].into()
}

#[test]
fn creates_and_updates_accept_values_at_each_bound_and_reject_values_above_it() {
    let world = world();
    let cases = [
        ("notes", json!("n".repeat(64 << 10)), json!("n".repeat((64 << 10) + 1)), "notes"),
        ("colors", json!(["red", "blue", "black"]), json!(["a", "b", "c", "d"]), "colors"),
        ("colors", json!(["black"]), json!(["a", "orange"]), "colors[1]"),
        // Bytes, not characters.
        ("colors", json!(["éé"]), json!(["ééé"]), "colors[0]"),
        ("colors", json!(["a", "b"]), json!(["a", "b", "a"]), "colors[2]"),
        ("labels", json!(["x".repeat(1024)]), json!(["x".repeat(1025)]), "labels[0]"),
        ("settings", entries(100), entries(101), "settings"),
        ("settings", json!({ "k": "v".repeat(1024) }), json!({ "k": "v".repeat(1025) }), "settings.k"),
        ("settings", json!({ "k".repeat(1024): "v" }), json!({ "k".repeat(1025): "v" }), "settings"),
        ("tasks", tasks(100), tasks(101), "tasks"),
        ("tasks", json!([{ "name": "t".repeat(1024) }]), json!([{ "name": "t".repeat(1025) }]), "tasks[0].name"),
        // The bound of the whole resource.
        ("labels", json!(vec!["x".repeat(1000); 200]), json!(vec!["x".repeat(1000); 300]), "project"),
        // An index key has its own bound, regardless of the table.
        ("title", json!("t".repeat(1024)), json!("t".repeat(1025)), "title"),
    ];
    for (field, good, bad, violation) in cases {
        let body = |value: &Value| json!({ "name": format!("{field} {}", world.serial()), field: value });
        let create = |value: &Value| world.create(&world.operator, "Project", &world.org, body(value));
        let made = create(&good).unwrap();
        assert_eq!(made[field], good, "{field}");
        assert_eq!(violated_fields(create(&bad)), [violation], "{field}");
        let update = json!({ field: bad });
        let updated = world.update(&world.operator, "Project", &uid_of(&made), update, None);
        assert_eq!(violated_fields(updated), [violation], "{field}");
        assert_eq!(world.get(&world.operator, "Project", &uid_of(&made)).unwrap(), made);
    }
}

#[test]
fn a_unique_value_may_have_any_length() {
    let world = world();
    let create = |name: &str| world.create(&world.operator, "Project", &world.org, json!({ "name": name }));
    let long = "n".repeat(4000);
    create(&long).unwrap();
    create(&format!("{}x", &long[1..])).unwrap();
    assert_eq!(code(create(&long)), Code::AlreadyExists);
}

#[test]
fn bounds_apply_to_the_requests_of_lists_and_actions() {
    let world = world();
    let ids = |count: usize| vec![("uidp.ids", world.org.as_str()); count];
    world.list(&world.operator, "Repo", &ids(1000)).unwrap();
    assert_eq!(violated_fields(world.list(&world.operator, "Repo", &ids(1001))), ["uidp.ids"]);
    let name = "n".repeat(1025);
    assert_eq!(violated_fields(world.list(&world.operator, "Repo", &[("name", &name)])), ["name"]);
    let issuer = json!({ "issuer": "i".repeat(1025), "subject": "s" });
    assert_eq!(violated_fields(world.run(Some(&world.operator), "LookupIdentity", issuer)), ["issuer"]);
}

#[test]
fn an_identity_has_at_most_16_claim_patterns() {
    let world = World::new();
    let patterns = |count: usize| (0..count).map(|n| (n.to_string(), json!(".{60}"))).collect::<Map<_, _>>();
    let create = |count| {
        let claims = json!({ "issuer": "https://i.test", "subject": "s", "claimPatterns": patterns(count) });
        world.create(&world.operator, "Identity", &world.org, json!({ "name": "a", "claimMatch": claims }))
    };
    create(16).unwrap();
    assert_eq!(violated_fields(create(17)), ["claimMatch.claimPatterns"]);
}

#[test]
fn sets_of_the_contract_reject_duplicates() {
    let world = World::new();
    let repo = world.repo(&world.org);
    for (field, value) in [("bundles", "base"), ("aliases", "nginx:1"), ("activeTags", "latest")] {
        let body = json!({ field: [value, value] });
        let rejected = violated_fields(world.update(&world.operator, "Repo", &repo, body, None));
        assert_eq!(rejected, [format!("{field}[1]")]);
    }
    // The same capability by name and by number.
    let body = json!({ "name": "r", "capabilities": ["CAP_IAM_GROUPS_LIST", 103] });
    let rejected = violated_fields(world.create(&world.operator, "Role", &world.org, body));
    assert_eq!(rejected, ["capabilities[1]"]);
}

/// Runs a limited number of jobs and rejects the rest with RESOURCE_EXHAUSTED.
#[derive(Debug, Clone, Default)]
struct LimitedOffload(Arc<Mutex<(usize, Vec<String>)>>);

impl Offload for LimitedOffload {
    fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        let (left, shares) = &mut *self.0.lock();
        let Some(fewer) = left.checked_sub(1) else { return Box::pin(async { Err(Error::exhausted()) }) };
        *left = fewer;
        shares.push(share.to_owned());
        work();
        Box::pin(async { Ok(()) })
    }

    fn pause(&self) -> BoxFuture<'static, ()> {
        Inline.pause()
    }
}

#[test]
fn only_costly_checks_are_offloaded_and_they_are_charged_to_their_organization() {
    let offload = LimitedOffload::default();
    let world = World::with(|builder| builder.offload(offload.clone()));
    offload.0.lock().0 = 3;
    let repo = world.repo(&world.org);
    let other = world.organization();
    let operator = &world.operator;
    let identity = |group: &str, claims: Value| {
        world.create(operator, "Identity", group, json!({ "name": "a", "claimMatch": claims }))
    };
    let literal = json!({ "issuer": "https://i.test", "subject": "s" });
    let pattern = json!({ "issuer": "https://i.test", "subject_pattern": "s.*" });
    identity(&world.org, literal).unwrap();
    identity(&other, pattern.clone()).unwrap();
    world.update(operator, "RepoReadme", &repo, json!({ "content": "# a" }), None).unwrap();
    let rejected = violated_fields(world.update(operator, "RepoReadme", &repo, json!({ "content": "<script>" }), None));
    assert_eq!(rejected, ["content"]);
    assert_eq!(offload.0.lock().1, [other.to_string(), world.org.to_string(), world.org.to_string()]);
    // The budget is used up: only writes with costly checks are rejected, and they write nothing.
    assert_eq!(code(identity(&world.org, pattern)), Code::ResourceExhausted);
    let update = world.update(operator, "RepoReadme", &repo, json!({ "content": "# b" }), None);
    assert_eq!(code(update), Code::ResourceExhausted);
    assert_eq!(world.get(operator, "RepoReadme", &repo).unwrap()["content"], "# a");
    world.update(operator, "Repo", &repo, json!({ "description": "d" }), None).unwrap();
}
