//! Watches of the engine over the store: several platforms, as in several processes, see each change once and in commit
//! order, and resume after the store was opened again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use futures_lite::future::zip;
use parking_lot::Mutex;
use platform_engine::{
    access::{Caller, Capability},
    event::Wake,
    kind::{Domain, Field, Kind, Method, Parent, Registered, Resource},
    platform::{Platform, Settings},
    request::ListRequest,
    store::Store,
    timestamp::Timestamp,
    uid::Uid,
    watch::{ResumeFrom, WatchEvent, WatchRequest, Watcher, What},
};
use serde::{Deserialize, Serialize};

use super::{Case, Fixture, cases};
use crate::{SeededEntropy, TestClock};

pub(super) const CASES: &[Case] = cases![
    changes_of_several_platforms_are_watched_once_and_in_commit_order,
    a_log_that_nobody_watches_ends_in_all_platforms,
];

const ANY: Capability = Capability::new(1_000_000, "CAP_NOTES", "notes");
const OPERATOR: &str = "7f0c2b1d44617e3f2603851537be0123af4a57d8";
/// The number of notes that each platform creates.
const NOTES: usize = 30;

/// A parent of notes, which is an organization.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Folder {
    uid: Uid,
}

impl Resource for Folder {
    const KIND: &'static Kind = &Kind::new("Folder", "folders", "FoldersService", Domain::new("notes", "test.notes"))
        .methods(&[Method::create(&[ANY])])
        .fields(&[Field::UID]);

    fn example() -> Self {
        Self::default()
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Note {
    uid: Uid,
    text: String,
    create_time: Option<Timestamp>,
    update_time: Option<Timestamp>,
}

impl Resource for Note {
    const KIND: &'static Kind = &Kind::new("Note", "notes", "NotesService", Domain::new("notes", "test.notes"))
        .parent(Parent::Of(Folder::KIND))
        .methods(&[Method::list(&[ANY]), Method::create(&[ANY]), Method::update(&[ANY]), Method::delete(&[ANY])])
        .fields(&[Field::UID, Field::string("text"), Field::CREATE_TIME, Field::UPDATE_TIME]);

    fn example() -> Self {
        Self { text: "text".to_owned(), ..Self::default() }
    }
}

/// Wakes the other platforms.
#[derive(Debug, Default)]
struct Others(Mutex<Vec<Weak<Platform>>>);

impl Wake for Others {
    fn wake_others(&self, uids: &[Uid]) {
        let others: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        others.iter().for_each(|platform| platform.woken(uids));
    }
}

/// Returns platforms over the store that wake each other.
fn platforms(fixture: &Fixture, clock: &TestClock, seeds: [u64; 2]) -> [Arc<Platform>; 2] {
    let wake = Arc::<Others>::default();
    let platforms = seeds.map(|seed| {
        let store = Arc::clone(fixture.store()) as Arc<dyn Store>;
        let settings = Settings { operators: [Uid::opaque(OPERATOR)].into(), ..Settings::default() };
        let builder = Platform::builder(store, clock.clone(), SeededEntropy::new(seed));
        let builder = builder.kind::<Folder>().kind::<Note>();
        let wake = Arc::clone(&wake) as Arc<dyn Wake>;
        Arc::new(builder.settings(settings).ephemeral_keys().wake(wake).build().expect("a valid kind"))
    });
    wake.0.lock().extend(platforms.iter().map(Arc::downgrade));
    platforms
}

fn operator() -> Caller {
    Caller::new(Uid::opaque(OPERATOR))
}

async fn folder(platform: &Platform) -> Uid {
    platform.create(&operator(), "", &Folder::default()).await.expect("a create").uid
}

async fn open(platform: &Arc<Platform>, folder: &Uid, resume: Option<ResumeFrom>) -> Watcher<Arc<Platform>> {
    let list = ListRequest::of::<Note>().descendants_of(folder).build().expect("a valid request");
    let request = WatchRequest { list, names: false, initial_state: false, resume };
    let (operator, registered) = (operator(), Registered::of::<Note>());
    let opened = Watcher::open(Arc::clone(platform), &operator, &registered, request).await;
    opened.expect("a list that can be watched")
}

async fn watch(platform: &Arc<Platform>, folder: &Uid, token: Option<&str>) -> Watcher<Arc<Platform>> {
    let mut watcher = open(platform, folder, token.map(|token| ResumeFrom::Token(token.to_owned()))).await;
    assert_eq!(next(&mut watcher).await.what.name(), "bookmark");
    watcher
}

async fn next(watcher: &mut Watcher<Arc<Platform>>) -> WatchEvent {
    watcher.next().await.expect("a watch that has not ended")
}

async fn create(platform: &Platform, folder: &Uid, text: &str) -> Uid {
    let note = Note { text: text.to_owned(), ..Note::default() };
    platform.create(&operator(), folder, &note).await.expect("a create").uid
}

/// Creates notes, updates them, and deletes them.
async fn write(platform: &Platform, folder: &Uid, name: &str) {
    for number in 0..NOTES {
        let uid = create(platform, folder, &format!("{name} {number}")).await;
        let note = Note { text: "updated".to_owned(), ..Note::default() };
        platform.update(&operator(), &uid, &note, "text").await.expect("an update");
        platform.delete::<Note>(&operator(), &uid).await.expect("a delete");
    }
}

async fn changes_of_several_platforms_are_watched_once_and_in_commit_order(fixture: &mut Fixture) {
    let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
    let [one, other] = platforms(fixture, &clock, [1, 2]);
    let folder = &folder(&one).await;
    let mut watchers = [watch(&one, folder, None).await, watch(&other, folder, None).await];
    zip(
        zip(write(&one, folder, "a"), write(&other, folder, "b")),
        zip(write(&one, folder, "c"), write(&other, folder, "d")),
    )
    .await;
    let mut all = Vec::new();
    for watcher in &mut watchers {
        let (mut seen, mut events) = (BTreeMap::<Uid, Vec<&str>>::new(), Vec::new());
        while events.len() < 4 * 3 * NOTES {
            let event = next(watcher).await;
            let (What::Added(changed) | What::Modified(changed) | What::Deleted(changed)) = &event.what else {
                panic!("{event:?}");
            };
            seen.entry(changed.uid.clone()).or_default().push(event.what.name());
            events.push((event.what.to_json(), event.token));
        }
        assert_eq!(seen.len(), 4 * NOTES);
        for (uid, names) in seen {
            assert_eq!(names, ["added", "modified", "deleted"], "{uid}");
        }
        all.push(events);
    }
    assert_eq!(all[0], all[1], "one order");
}

pub(super) async fn a_watch_resumes_after_reopening(fixture: &mut Fixture) {
    let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
    let [one, other] = platforms(fixture, &clock, [1, 2]);
    let folder = &folder(&one).await;
    let mut watcher = watch(&one, folder, None).await;
    let first = create(&other, folder, "first").await;
    let seen = next(&mut watcher).await;
    create(&one, folder, "second").await;
    let expected = next(&mut watcher).await;
    assert!(matches!(&seen.what, What::Added(changed) if changed.uid == first), "{seen:?}");
    drop((watcher, one, other));
    fixture.reopen().await;
    let [one, other] = platforms(fixture, &clock, [3, 4]);
    // Written before anybody watches again.
    let third = create(&other, folder, "third").await;
    let mut again = watch(&one, folder, Some(&seen.token)).await;
    let event = next(&mut again).await;
    assert_eq!((event.what.to_json(), event.token), (expected.what.to_json(), expected.token));
    assert!(matches!(&next(&mut again).await.what, What::Added(changed) if changed.uid == third));
}

async fn a_log_that_nobody_watches_ends_in_all_platforms(fixture: &mut Fixture) {
    let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
    let [one, other] = platforms(fixture, &clock, [1, 2]);
    let folder = &folder(&one).await;
    let mut watcher = watch(&one, folder, None).await;
    create(&other, folder, "logged").await;
    let token = next(&mut watcher).await.token;
    drop(watcher);
    clock.advance(2 * 60 * 60 * 1000);
    one.sweep_change_logs().await.expect("a sweep");
    // Known to be watched before, and not any longer.
    create(&other, folder, "not logged").await;
    let mut again = open(&one, folder, Some(ResumeFrom::LastEventId(token))).await;
    assert_eq!(next(&mut again).await.what.name(), "expired");
    let uid = create(&other, folder, "logged again").await;
    assert!(matches!(&next(&mut again).await.what, What::Added(changed) if changed.uid == uid));
}
