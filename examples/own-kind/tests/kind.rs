//! Runs the suite that the kinds of the platform pass over the kind of the example, and checks its descriptors.

#![allow(clippy::unwrap_used, reason = "that is how tests fail")]

use std::{fs, path::Path, sync::Arc};

use own_kind::ticket::{State, Ticket};
use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    access::Caller, kind::Registered, platform::Settings, store::memory::MemoryStore, timestamp::Timestamp, uid::Uid,
};
use platform_grpc::proto;
use platform_testkit::{KindSuite, SeededEntropy, TestClock};

#[tokio::test]
async fn a_ticket_is_a_kind_like_those_of_the_platform() {
    let (me, organization) = (Uid::from_digest([1; 20]), Uid::from_digest([2; 20]));
    let clock = TestClock::at(Timestamp::EPOCH);
    let platform = platform_core::builder(Arc::new(MemoryStore::new()), clock.clone(), SeededEntropy::new(1))
        .kind::<Ticket>()
        .settings(Settings { operators: [me.clone()].into(), ..Settings::default() })
        .ephemeral_keys()
        .build()
        .unwrap();
    let first =
        Bootstrap { organization: organization.clone(), organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await.unwrap();
    let ticket = |title: &str, state| Ticket { title: title.to_owned(), state, ..Ticket::default() };
    let (a, b) = (ticket("sweep", State::Open), ticket("mop", State::Done));
    KindSuite::of::<Ticket>(&platform, &clock, Caller::new(me)).bodies(&organization, &a, &b).run();
}

#[test]
fn the_descriptors_are_those_of_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let protos = proto::generate(&[Registered::of::<Ticket>()], |name| Ok(fs::read_to_string(folder.join(name)).ok()));
    let protos = protos.unwrap();
    assert_eq!(protos.descriptors, own_kind::DESCRIPTORS, "run `cargo run -p own-kind -- proto`");
    for (name, text) in protos.files {
        assert_eq!(fs::read_to_string(folder.join(&name)).unwrap(), text, "{name}");
    }
}

#[test]
fn the_command_line_has_the_kind() {
    let command = platformctl::command(&[Registered::of::<Ticket>()]);
    let tickets = command.find_subcommand("get").and_then(|get| get.find_subcommand("tickets")).unwrap();
    assert!(tickets.get_arguments().any(|option| option.get_long() == Some("state")));
}
