//! Runs the suite that the kinds of the platform pass, and compares `proto/` with the tables.

use std::{fs, path::Path, sync::Arc};

use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    access::Caller, platform::Settings, store::memory::MemoryStore, timestamp::Timestamp, uid::Uid,
};
use platform_grpc::proto;
use platform_testkit::{KindSuite, SeededEntropy, TestClock};
use {{crate_name}}::{DESCRIPTORS, KINDS, {{plural}}::{{kind}}};

#[tokio::test]
async fn {{plural}}_are_a_kind_like_those_of_the_platform() {
    let (me, organization) = (Uid::from_digest([1; 20]), Uid::from_digest([2; 20]));
    let clock = TestClock::at(Timestamp::EPOCH);
    let platform = platform_core::builder(Arc::new(MemoryStore::new()), clock.clone(), SeededEntropy::new(1))
        .kind::<{{kind}}>()
        .settings(Settings { operators: [me.clone()].into(), ..Settings::default() })
        .ephemeral_keys()
        .build()
        .unwrap();
    let first =
        Bootstrap { organization: organization.clone(), organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await.unwrap();
    // The suite requires that these set each field that a create sets.
    let of_name =
        |name: &str| {{kind}} { name: name.to_owned(), description: format!("the {name}"), ..{{kind}}::default() };
    let (a, b) = (of_name("a"), of_name("b"));
    KindSuite::of::<{{kind}}>(&platform, &clock, Caller::new(me)).bodies(&organization, &a, &b).run();
}

#[test]
fn the_protobuf_files_are_those_of_the_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let made = proto::generate(KINDS, |name| Ok(fs::read_to_string(folder.join(name)).ok())).unwrap();
    assert!(made.descriptors == DESCRIPTORS, "run `cargo run --bin proto`");
    for (name, text) in made.files {
        assert_eq!(fs::read_to_string(folder.join(&name)).unwrap(), text, "{name}");
    }
}
