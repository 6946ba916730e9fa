//! In-process event streams.

use platform_core::{outbox::Outbox, resources::registry::Repo};
use platform_engine::event::{Audience, EventStream, StreamItem};

use super::*;

fn next(stream: &mut EventStream) -> StreamItem {
    block_on(stream.next()).expect("the platform exists")
}

#[test]
fn a_stream_receives_typed_events_of_a_group_and_its_descendants_in_order() {
    let world = World::new();
    let (a, b) = (world.group(&world.org), world.group(&world.org));
    let deep = world.group(&a);
    let mut stream = world.platform.subscribe(&a);
    world.repo(&b);
    let first = world.repo(&deep);
    let second = world.repo(&a);
    let mut last = 0;
    for expected in [&first, &second] {
        let StreamItem::Event { sequence, event } = next(&mut stream) else { panic!("expected an event") };
        assert_eq!(event.body::<Repo>().unwrap().uid, *expected);
        assert!(sequence > last);
        last = sequence;
    }
}

#[test]
fn a_slow_reader_learns_how_many_events_it_missed_and_a_stream_of_all_has_internal_events() {
    let world = World::new();
    let mut slow = world.platform.subscribe(&world.org);
    // The capacity of a stream, and the event that the reader takes first.
    let received = 1024 + 1;
    for _ in 0..received + 5 {
        world.repo(&world.org);
    }
    (0..received).for_each(|_| assert!(matches!(next(&mut slow), StreamItem::Event { .. })));
    assert!(matches!(next(&mut slow), StreamItem::Missed(5)));
    drop(slow);

    let mut all = world.platform.subscribe_to_all();
    let metadata = json!({ "identityMetadata": { "company": "x" } });
    world.run(Some(&world.operator), "UpdateIdentityMetadata", metadata).unwrap();
    let StreamItem::Event { event, .. } = next(&mut all) else { panic!("expected an event") };
    assert_eq!(event.audience, Audience::Internal);
}

#[test]
fn a_dispatcher_is_woken_once_for_several_pending_events() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let mut watch = Outbox::of(&world.platform).watch();
    world.repo(&world.org);
    world.repo(&world.org);
    assert_eq!(block_on(watch.next()), Some(vec![subscription]));
}
