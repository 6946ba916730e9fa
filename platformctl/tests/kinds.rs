//! Every command over every kind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod support;

use heck::ToKebabCase;
use platform_core::resources::KINDS;
use platform_engine::kind::{Access, Kind, Parent, Registered, Type, Verb};
use serde_json::{Value, json};
use support::{Ctl, Server, uid};

fn registered(name: &str) -> &'static Registered {
    KINDS.iter().find(|registered| registered.kind.name == name).unwrap()
}

/// Creates a resource of a kind from its example, with a parent and references of its own, and returns it.
fn create(ctl: &Ctl, kind: &'static Kind) -> Value {
    let mut body = (registered(kind.name).sent)();
    let fields = body.as_object_mut().unwrap();
    fields.retain(|name, _| kind.field(name).is_some_and(|field| field.access != Access::OutputOnly));
    // The values of the first two refer to resources that need more than a name, and a folder has none of the others.
    ["chainguard", "syncConfig", "verified", "kind"].iter().for_each(|name| drop(fields.remove(*name)));
    for field in kind.fields.iter().filter(|field| field.uid_of.is_some() && matches!(field.ty, Type::String)) {
        let value = match field.uid_of.unwrap() {
            "Role" => "viewer".to_owned(),
            "Group" => "acme".to_owned(),
            other => uid(&create(ctl, registered(other).kind)),
        };
        fields.insert(field.name.to_owned(), value.into());
    }
    let parent = match kind.parent {
        Parent::None => None,
        Parent::Group => Some("acme".to_owned()),
        Parent::GroupOrNone => Some("acme".to_owned()),
        Parent::Of(parent) | Parent::Sole(parent) | Parent::Singleton(parent, _) => match parent.name {
            "Group" => Some("acme".to_owned()),
            _ => Some(uid(&create(ctl, parent))),
        },
    };
    let body = body.to_string();
    let mut words = vec!["create".to_owned(), kind.plural.to_kebab_case(), "--json".to_owned(), body];
    words.extend(parent.into_iter().flat_map(|parent| ["--under".to_owned(), parent]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ctl.json(&words)
}

/// A resource of every kind with a create is created, read in every format, edited and deleted by its uid.
#[test]
fn every_kind_has_every_command_that_its_methods_allow() {
    let mut tried = 0;
    for registered in KINDS.iter().filter(|registered| registered.kind.serves(Verb::Create)) {
        let kind = registered.kind;
        // Each kind has a server of its own, so that unique names do not collide.
        let server = Server::start();
        let ctl = server.ctl();
        let created = create(&ctl, kind);
        let (uid, name) = (uid(&created), kind.plural.to_kebab_case());
        let with_uid = |command: &str| ctl.ok(&[command, &name, &uid]);
        if kind.serves(Verb::Get) {
            assert_eq!(ctl.json(&["get", &name, &uid])["uid"], uid, "{name}");
            assert!(with_uid("get").contains(&uid), "{name}");
            assert_eq!(ctl.ok(&["get", &name, &uid, "-o", "name"]).trim(), uid);
            assert_eq!(ctl.ok(&["get", &name, &uid, "-o", "jsonpath=$.uid"]).trim(), uid);
            with_uid("wait");
        }
        if kind.serves(Verb::List) {
            for format in ["table", "name", "json", "yaml", "jsonpath=$.uid"] {
                let listed = ctl.ok(&["get", &name, "--under", "acme", "--all", "-o", format]);
                assert!(listed.contains(&uid), "{name} {format}: {listed}");
            }
        }
        // What `get` prints, `apply` finds unchanged.
        if kind.serves(Verb::Get) && kind.serves(Verb::Update) {
            let file = ctl.file("one.yaml", &ctl.ok(&["get", &name, &uid, "-o", "yaml"]));
            let applied = ctl.run(&["apply", "-f", &file]);
            assert_eq!(
                (applied.code, applied.out.as_str()),
                (0, "0 created, 0 updated, 0 deleted, 1 unchanged\n"),
                "{name}"
            );
        }
        if kind.serves(Verb::Update) {
            let unchanged = Ctl::run(&editing(&server, "true"), &["edit", &name, &uid]);
            assert!(unchanged.code == 0 && unchanged.err.contains("nothing to change"), "{name}: {unchanged:?}");
            if kind.field("description").is_some_and(|field| field.access == Access::Mutable) {
                let edited = editing(&server, "sed -i s/^description:.*/description:\\ edited/");
                let edited = edited.run(&["edit", &name, &uid, "-o", "json"]);
                assert!(edited.err.contains("changed description\n"), "{name}: {edited:?}");
                assert_eq!(serde_json::from_str::<Value>(&edited.out).unwrap()["description"], "edited");
                ctl.ok(&["update", &name, &uid, "--description", "updated"]);
                assert_eq!(ctl.json(&["get", &name, &uid])["description"], "updated");
            }
        }
        if kind.serves(Verb::Delete) {
            with_uid("delete");
            ctl.fails(3, &["delete", &name, &uid]);
            ctl.ok(&["delete", &name, &uid, "--ignore-missing"]);
        }
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
}

/// Returns a command line with this editor.
fn editing(server: &Server, editor: &str) -> Ctl {
    server.ctl().env("EDITOR", editor)
}

#[test]
fn every_kind_is_explained_without_a_server() {
    let ctl = Ctl::new();
    for registered in KINDS.iter().filter(|registered| registered.kind.served().next().is_some()) {
        let kind = registered.kind;
        let explained = ctl.ok(&["explain", kind.plural]);
        for field in kind.fields {
            assert!(explained.contains(&format!("  {}: ", field.name)), "{}.{}", kind.name, field.name);
        }
    }
    assert!(ctl.ok(&["explain", "repos.syncConfig.source"]).starts_with("source: uid of Repo (required)\n"));
    assert!(ctl.fails(2, &["explain", "repos.colour"]).contains("no field colour"));
    assert!(ctl.fails(2, &["explain", "nothing"]).contains("there is no kind `nothing`"));
}

#[test]
fn a_singleton_is_read_and_changed_by_the_name_of_its_parent() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "nginx"]);
    let readme = ctl.file("README.md", "# nginx\n\nA web server.\n");
    ctl.ok(&["update", "repo-readmes", "acme/nginx", "--content", &format!("@{readme}")]);
    assert_eq!(ctl.json(&["get", "repo-readmes", "acme/nginx"])["content"], "# nginx\n\nA web server.\n");
}

#[test]
fn actions_are_run_with_names_and_options() {
    let server = Server::start();
    let ctl = server.ctl();
    let ping: Value = serde_json::from_str(&ctl.ok(&["run", "ping", "ping"])).unwrap();
    assert!(ping.is_object());
    let person = uid(&create(&ctl, registered("Identity").kind));
    let bindings = json!([{ "roleBinding": { "identityUid": person, "roleUid": "viewer" } }]).to_string();
    let method = ["run", "role-bindings", "batch-create-role-bindings", "--parent", "acme", "--requests", &bindings];
    let created = ctl.ok(&method);
    assert!(created.contains(&person), "{created}");
    let accepted = ctl.run(&["run", "terms-acceptances", "list-terms-acceptances", "--group", "acme"]);
    assert_eq!((accepted.code, accepted.err.as_str()), (0, ""), "{accepted:?}");
    assert!(ctl.fails(2, &["run", "role-bindings", "no-such-method"]).contains("no-such-method"));
}

#[test]
fn an_edit_does_not_overwrite_a_field_that_somebody_else_has_changed() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "nginx", "--description", "before"]);
    // An editor during which somebody else changes the repo.
    let edit = |theirs: &str| {
        let program = env!("CARGO_BIN_EXE_platformctl");
        let lines = format!(
            "{program} update repos acme/nginx {theirs} > /dev/null\nsed -i 's/^description:.*/description: mine/' $1\n"
        );
        let script = ctl.file("edit.sh", &lines);
        editing(&server, &format!("sh {script}")).run(&["edit", "repos", "acme/nginx", "-o", "json"])
    };
    let conflict = edit("--description theirs");
    assert_eq!(conflict.code, 7, "{conflict:?}");
    assert!(conflict.err.contains("somebody else has changed this repo\n"), "{conflict:?}");
    assert!(conflict.err.contains("description: \"theirs\" now, \"mine\" in your file\n"), "{conflict:?}");
    assert!(conflict.err.contains("the edited file is "), "{conflict:?}");
    assert_eq!(ctl.json(&["get", "repos", "acme/nginx"])["description"], "theirs");
    // Changes of different fields are both made.
    let merged = edit("--bundles base");
    assert_eq!(merged.code, 0, "{merged:?}");
    let repo = ctl.json(&["get", "repos", "acme/nginx"]);
    assert_eq!((&repo["description"], &repo["bundles"][0]), (&"mine".into(), &"base".into()));
    // Somebody else has made the same change.
    ctl.ok(&["update", "repos", "acme/nginx", "--description", "before"]);
    assert_eq!(edit("--description mine").code, 0);
}
