//! Imports (`docs/api.md`, Imported data): upserts, and the capabilities that they require.

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    registry::{self, Image, image::ImagePlatform},
    vulnerabilities::{Advisory, AdvisoryEvent, advisory::ReviewState},
};
use platform_engine::{error::Code, kind::Imported, platform::PutReply, timestamp::Timestamp, uid::Uid};

use crate::common::{BEGIN, World, block_on, code, digest, text};

fn advisory(name: &str, id: &str) -> Advisory {
    Advisory { artifact_name: name.to_owned(), advisory_id: id.to_owned(), ..Advisory::default() }
}

fn counts(reply: &PutReply) -> (u64, u64, u64, usize) {
    (reply.created, reply.updated, reply.unchanged, reply.refused.len())
}

fn put(world: &World, advisories: &[Advisory]) -> PutReply {
    block_on(world.platform.put(&world.operator, &world.org, advisories.to_vec())).unwrap()
}

fn get(world: &World, name: &str, id: &str) -> serde_json::Value {
    world.get(&world.operator, "Advisory", &advisory(name, id).uid_in(&world.org)).unwrap()
}

#[test]
fn a_repeated_put_writes_only_resources_that_differ() {
    let world = World::new();
    let mut all: Vec<_> = (0..1_203).map(|n| advisory(&format!("package {n}"), "CGA-1")).collect();
    assert_eq!(counts(&put(&world, &all)), (1_203, 0, 0, 0));
    world.clock.advance(5_000);
    all[7].author = "ada".to_owned();
    all.push(advisory("package 0", "CGA-2"));
    assert_eq!(counts(&put(&world, &all)), (1, 1, 1_202, 0));
    assert_eq!(counts(&put(&world, &all)), (0, 0, 1_204, 0));
    assert_eq!(world.list(&world.operator, "Advisory", &[("page_size", "1")]).unwrap().total, 1_204);
    let later = BEGIN.plus_millis(5_000).to_string();
    let times = |name: &str, id: &str| {
        let one = get(&world, name, id);
        (text(&one, "createTime").to_owned(), text(&one, "updateTime").to_owned())
    };
    assert_eq!(times("package 0", "CGA-1"), (BEGIN.to_string(), BEGIN.to_string()));
    assert_eq!(times("package 7", "CGA-1"), (BEGIN.to_string(), later.clone()));
    assert_eq!(times("package 0", "CGA-2"), (later.clone(), later));
}

#[test]
fn times_come_from_the_source_and_update_time_never_decreases() {
    let world = World::new();
    let at = |millis| Some(Timestamp::from_millis(millis));
    let with_times = Advisory { create_time: at(1_000), update_time: at(9_000), ..advisory("a", "CGA-1") };
    assert_eq!(counts(&put(&world, std::slice::from_ref(&with_times))), (1, 0, 0, 0));
    let found = get(&world, "a", "CGA-1");
    assert_eq!(text(&found, "createTime"), "1970-01-01T00:00:01.000Z");
    assert_eq!(text(&found, "updateTime"), "1970-01-01T00:00:09.000Z");
    let earlier = Advisory { update_time: at(5_000), ..with_times.clone() };
    assert_eq!(counts(&put(&world, std::slice::from_ref(&earlier))), (0, 0, 1, 0));
    let changed = Advisory { author: "ada".to_owned(), ..earlier };
    assert_eq!(counts(&put(&world, &[changed])), (0, 1, 0, 0));
    assert_eq!(text(&get(&world, "a", "CGA-1"), "updateTime"), "1970-01-01T00:00:09.000Z");
}

#[test]
fn of_two_resources_with_the_same_key_the_later_counts() {
    let world = World::new();
    let named = |author: &str| Advisory { author: author.to_owned(), ..advisory("a", "CGA-1") };
    assert_eq!(counts(&put(&world, &[named("first"), named("second")])), (1, 0, 0, 0));
    assert_eq!(text(&get(&world, "a", "CGA-1"), "author"), "second");
}

#[test]
fn invalid_resources_are_reported_and_the_others_are_written() {
    let world = World::new();
    let two_forms =
        AdvisoryEvent { fixed: Some(Default::default()), detection: Some(Default::default()), ..Default::default() };
    let broken = [
        advisory("", "CGA-1"),
        advisory("fine", "CGA-1"),
        advisory("a\u{0}", "CGA-1"),
        Advisory { aliases: vec!["x".repeat(2_000)], ..advisory("long", "CGA-1") },
        Advisory { events: vec![two_forms], ..advisory("b", "CGA-1") },
        Advisory {
            events: vec![AdvisoryEvent { findings: "?".to_owned(), ..Default::default() }],
            ..advisory("c", "CGA-1")
        },
    ];
    let reply = put(&world, &broken);
    assert_eq!(counts(&reply), (1, 0, 0, 5));
    let reported: Vec<_> =
        reply.refused.iter().map(|one| (one.index, one.error.violations()[0].field.clone())).collect();
    let expected = [
        (0, "artifactName"),
        (2, "artifactName"),
        (3, "aliases[0]"),
        (4, "events[0].fixed"),
        (5, "events[0].findings"),
    ];
    assert_eq!(reported, expected.map(|(index, field)| (index, field.to_owned())));
    assert_eq!(world.list(&world.operator, "Advisory", &[]).unwrap().total, 1);
}

#[test]
fn events_keep_their_uids_when_earlier_ones_are_inserted() {
    let world = World::new();
    let event = |at| AdvisoryEvent {
        create_time: Some(Timestamp::from_millis(at)),
        review_state: ReviewState::ReviewStateApproved,
        fixed: Some(Default::default()),
        ..Default::default()
    };
    let mut one = Advisory { events: vec![event(2_000), event(2_000)], ..advisory("a", "CGA-1") };
    put(&world, &[one.clone()]);
    let uids = || -> Vec<String> {
        let found = get(&world, "a", "CGA-1");
        found["events"].as_array().unwrap().iter().map(|event| text(event, "uid").to_owned()).collect()
    };
    let before = uids();
    assert_ne!(before[0], before[1]);
    assert!(before.iter().all(|uid| Uid::parse(uid).unwrap().is_below(&one.uid_in(&world.org))));
    one.events.insert(0, event(1_000));
    put(&world, &[one]);
    assert_eq!(uids()[1..], before);
}

#[test]
fn put_and_remove_require_the_capabilities_or_the_operator() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let image = || {
        let platform = ImagePlatform {
            architecture: "amd64".to_owned(),
            digest: registry::Digest::opaque(digest('0')),
            ..Default::default()
        };
        Image { digest: registry::Digest::opaque(digest('0')), platforms: vec![platform], ..Image::default() }
    };
    let writer = world.holder(&world.org, &["manifest.create", "manifest.update"]);
    let creator = world.holder(&world.org, &["manifest.create"]);
    let try_put = |caller, parent: &str| block_on(world.platform.put(caller, parent, [image()]));
    assert_eq!(counts(&try_put(&writer, &repo).unwrap()), (1, 0, 0, 0));
    assert_eq!(code(try_put(&creator, &repo)), Code::PermissionDenied);
    assert_eq!(code(try_put(&writer, &world.repo(&world.organization()))), Code::PermissionDenied);
    assert_eq!(code(try_put(&writer, &format!("{}/0000000000000000", world.org))), Code::NotFound);
    let uid = image().uid_in(&repo);
    let remove = |caller| block_on(world.platform.remove::<Image>(caller, &uid));
    assert_eq!(code(remove(&creator)), Code::PermissionDenied);
    remove(&writer).unwrap();
    assert_eq!(code(remove(&writer)), Code::NotFound);

    let metadata = || VulnerabilityMetadata { id: "CVE-1".to_owned(), ..Default::default() };
    let owner = world.member("owner", &world.org);
    assert_eq!(code(block_on(world.platform.put(&owner, "", [metadata()]))), Code::PermissionDenied);
    assert_eq!(counts(&block_on(world.platform.put(&world.operator, "", [metadata()])).unwrap()), (1, 0, 0, 0));
    let somewhere = block_on(world.platform.put(&world.operator, &world.org, [metadata()]));
    assert_eq!(code(somewhere), Code::InvalidArgument);
    let nonsense = block_on(world.platform.put(&world.operator, "nonsense", [advisory("a", "CGA-1")]));
    assert_eq!(code(nonsense), Code::InvalidArgument);
}

#[test]
fn an_advisory_prevents_the_delete_of_its_group_until_it_is_removed() {
    let world = World::new();
    let group = world.group(&world.org);
    let uid = world.put(&group, advisory("a", "CGA-1"));
    assert_eq!(code(world.delete(&world.operator, "Group", &group)), Code::FailedPrecondition);
    block_on(world.platform.remove::<Advisory>(&world.operator, &uid)).unwrap();
    assert_eq!(world.list(&world.operator, "Advisory", &[]).unwrap().total, 0);
    world.delete(&world.operator, "Group", &group).unwrap();
}

#[test]
fn remove_all_removes_the_children_of_a_parent_including_withdrawn_ones() {
    let world = World::new();
    let (group, sibling) = (world.group(&world.org), world.group(&world.org));
    let withdrawn =
        Advisory { delete_time: Some(platform_engine::timestamp::Timestamp::EPOCH), ..advisory("b", "CGA-2") };
    world.put(&group, advisory("a", "CGA-1"));
    world.put(&group, withdrawn);
    world.put(&sibling, advisory("a", "CGA-1"));
    let remove = |caller, parent: &str| block_on(world.platform.remove_all::<Advisory>(caller, parent));
    let viewer = world.member("viewer", &world.org);
    assert_eq!(code(remove(&viewer, &group)), Code::PermissionDenied);
    assert_eq!(remove(&world.operator, &group).unwrap(), 2);
    assert_eq!(remove(&world.operator, &group).unwrap(), 0);
    assert_eq!(world.list(&world.operator, "Advisory", &[]).unwrap().total, 1, "advisories of the sibling remain");
    world.delete(&world.operator, "Group", &group).unwrap();
    assert_eq!(code(remove(&world.operator, "..")), Code::InvalidArgument);
}
