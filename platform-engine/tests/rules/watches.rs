//! Watches of lists: each change exactly once and in commit order, with tokens that resume.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll, Wake},
    time::Duration,
};

use async_trait::async_trait;
use futures_lite::future::poll_once;
use parking_lot::Mutex;
use platform_engine::{
    access::Caller,
    error::Code,
    request::ListRequest,
    store::{
        Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore,
        switched::SwitchedStore,
    },
    uid::Uid,
    watch::{Closing, ResumeFrom, WatchEvent, WatchRequest, Watcher, What},
};
use pollster::block_on;
use serde_json::{Value, json};

use crate::common::{World, built_in, code, text, uid_of};

type Watch<'w> = Watcher<&'w platform_engine::platform::Platform>;

/// The options of a watch in addition to the list.
#[derive(Debug, Clone, Default)]
struct Ask {
    names: bool,
    state: bool,
    resume: Option<ResumeFrom>,
}

fn open<'w>(
    world: &'w World,
    caller: &Caller,
    kind: &str,
    query: &[(&str, &str)],
    ask: Ask,
) -> platform_engine::error::Result<Watch<'w>> {
    let registered = world.kind(kind);
    let pairs: Vec<_> = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let list = ListRequest::from_query(registered.kind, &pairs)?;
    let request = WatchRequest { list, names: ask.names, initial_state: ask.state, resume: ask.resume };
    block_on(Watcher::open(&world.platform, caller, registered, request))
}

fn watch<'w>(world: &'w World, kind: &str) -> Watch<'w> {
    let org = world.org.clone();
    let mut watch = open(world, &world.operator, kind, &[("uidp.descendants_of", &org)], Ask::default()).unwrap();
    assert_eq!(shown(&[next(&mut watch)]), ["bookmark"]);
    watch
}

fn resume<'w>(world: &'w World, kind: &str, token: &str) -> Watch<'w> {
    let ask = Ask { resume: Some(ResumeFrom::Token(token.to_owned())), ..Ask::default() };
    let mut watch = open(world, &world.operator, kind, &[("uidp.descendants_of", &world.org)], ask).unwrap();
    assert_eq!(shown(&[next(&mut watch)]), ["bookmark"]);
    watch
}

/// Returns the next event, which must be there: the memory store never waits.
#[track_caller]
fn next(watch: &mut Watch<'_>) -> WatchEvent {
    block_on(poll_once(watch.next())).expect("an event without waiting").expect("a watch that has not ended")
}

/// Returns all events that are there.
fn rest(watch: &mut Watch<'_>) -> Vec<WatchEvent> {
    std::iter::from_fn(|| block_on(poll_once(watch.next())).flatten()).collect()
}

/// Returns the events as the names and the names of their resources.
fn shown(events: &[WatchEvent]) -> Vec<String> {
    let shown = |event: &WatchEvent| {
        let json: Value = serde_json::from_slice(&event.what.to_json()).unwrap();
        assert_eq!(json["type"], event.what.name());
        match &event.what {
            What::Added(_) | What::Modified(_) => format!("{} {}", event.what.name(), text(&json["resource"], "name")),
            What::Closing(closing) => format!("closing {:?} {}", closing.code, closing.retryable),
            What::Bookmark { ends_state: true } => "end of the state".to_owned(),
            what => what.name().to_owned(),
        }
    };
    events.iter().map(shown).collect()
}

fn repo(world: &World, name: &str) -> Uid {
    uid_of(&world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).unwrap())
}

fn describe(world: &World, uid: &Uid, description: &str) {
    let body = json!({ "description": description });
    world.update(&world.operator, "Repo", uid, body, Some("description")).unwrap();
}

#[test]
fn each_change_is_reported_once_in_commit_order_as_the_list_shows_it() {
    let world = World::new();
    let mut watch = watch(&world, "Repo");
    let a = repo(&world, "a");
    let created = world.get(&world.operator, "Repo", &a).unwrap();
    let b = repo(&world, "b");
    describe(&world, &a, "new");
    world.delete(&world.operator, "Repo", &b).unwrap();
    world.create(&world.operator, "Group", &world.org, json!({ "name": "of another kind" })).unwrap();
    let events = rest(&mut watch);
    assert_eq!(shown(&events), ["added a", "added b", "modified a", "deleted"]);
    let json: Vec<Value> = events.iter().map(|event| serde_json::from_slice(&event.what.to_json()).unwrap()).collect();
    assert_eq!(json[0]["resource"], created);
    assert_eq!(json[2]["resource"], world.list(&world.operator, "Repo", &[]).unwrap().items[0]);
    assert_eq!(json[3], json!({ "type": "deleted", "resource": { "uid": b } }));
    assert!(rest(&mut watch).is_empty());
}

#[test]
fn a_watch_resumes_after_each_event_with_exactly_the_events_that_follow() {
    let world = World::new();
    let mut first = watch(&world, "Repo");
    let start = first.bookmark().token;
    let (a, b) = (repo(&world, "a"), repo(&world, "b"));
    describe(&world, &a, "new");
    world.delete(&world.operator, "Repo", &b).unwrap();
    let events = rest(&mut first);
    let all = shown(&events);
    let tokens = std::iter::once(&start).chain(events.iter().map(|event| &event.token));
    for (number, token) in tokens.enumerate() {
        assert!(token.bytes().all(|byte| byte.is_ascii_graphic()) && token.len() < 100, "{token}");
        let mut again = resume(&world, "Repo", token);
        assert_eq!(shown(&rest(&mut again)), all[number..], "after event {number}");
        drop(first);
        // And without a watch that shares what it reads.
        first = again;
    }
}

#[test]
fn a_commit_with_several_changes_resumes_between_them() {
    let world = World::new();
    let parent = world.group(&world.org);
    let group = |name: &str, parent: &Uid| {
        uid_of(&world.create(&world.operator, "Group", parent, json!({ "name": name })).unwrap())
    };
    let uids = [group("x", &parent), group("y", &parent)];
    let mut first = watch(&world, "RoleBinding");
    let identity = world.identity(&parent);
    for uid in &uids {
        world.bind(&identity, &built_in("viewer"), uid);
    }
    assert_eq!(rest(&mut first).len(), 2);
    // Deletes both bindings in one commit.
    world.delete(&world.operator, "Identity", &identity.identity).unwrap();
    let events = rest(&mut first);
    assert_eq!(shown(&events), ["deleted", "deleted"]);
    let mut again = resume(&world, "RoleBinding", &events[0].token);
    let rest = rest(&mut again);
    assert_eq!(rest.iter().map(|event| event.what.to_json()).collect::<Vec<_>>(), [events[1].what.to_json()]);
    assert_eq!(rest[0].token, events[1].token);
}

#[test]
fn deletes_of_children_are_reported_although_no_request_names_them() {
    let world = World::new();
    let a = repo(&world, "a");
    let tag = json!({ "name": "v1", "digest": crate::common::digest('1') });
    let tag = uid_of(&world.create(&world.operator, "Tag", &a, tag).unwrap());
    let mut watch = watch(&world, "Tag");
    world.delete(&world.operator, "Repo", &a).unwrap();
    let events = rest(&mut watch);
    assert_eq!(shown(&events), ["deleted"]);
    assert!(matches!(&events[0].what, What::Deleted(changed) if changed.uid == tag));
}

#[test]
fn the_state_comes_first_if_asked_and_resumes_between_its_resources() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        repo(&world, name);
    }
    let org = [("uidp.descendants_of", world.org.as_str())];
    let ask = Ask { state: true, ..Ask::default() };
    let mut first = open(&world, &world.operator, "Repo", &org, ask).unwrap();
    let mut all = vec![next(&mut first)];
    // Changed while the state is being sent, after it was shown: the change follows.
    let What::Added(shown_first) = &all[0].what else { panic!("{all:?}") };
    describe(&world, &shown_first.uid, "new");
    all.extend(rest(&mut first));
    let names = shown(&all);
    assert!(names[..3].iter().all(|name| name.starts_with("added ")), "{names:?}");
    assert_eq!((names.len(), names[3].as_str()), (5, "end of the state"));
    assert!(names[4].starts_with("modified "), "{names:?}");
    for (number, event) in all.iter().enumerate() {
        let ask = Ask { resume: Some(ResumeFrom::Token(event.token.clone())), ..Ask::default() };
        let mut again = open(&world, &world.operator, "Repo", &org, ask).unwrap();
        let again: Vec<_> = shown(&rest(&mut again)).into_iter().filter(|event| event != "bookmark").collect();
        assert_eq!(again, names[number + 1..], "after event {number}");
    }
}

#[test]
fn a_resource_that_changes_before_the_state_shows_it_is_shown_once() {
    let world = World::new();
    let uid = repo(&world, "a");
    let org = [("uidp.descendants_of", world.org.as_str())];
    let ask = Ask { state: true, ..Ask::default() };
    let mut watch = open(&world, &world.operator, "Repo", &org, ask).unwrap();
    describe(&world, &uid, "new");
    assert_eq!(shown(&rest(&mut watch)), ["added a", "end of the state"]);
    describe(&world, &uid, "newer");
    assert_eq!(shown(&rest(&mut watch)), ["modified a"]);
}

#[test]
fn a_watch_of_names_has_no_resources() {
    let world = World::new();
    let ask = Ask { names: true, ..Ask::default() };
    let org = [("uidp.descendants_of", world.org.as_str())];
    let mut watch = open(&world, &world.operator, "Repo", &org, ask).unwrap();
    next(&mut watch);
    let uid = repo(&world, "a");
    let event: Value = serde_json::from_slice(&next(&mut watch).what.to_json()).unwrap();
    assert_eq!(event["resource"], json!({ "uid": uid }));
    assert!(text(&event, "etag").starts_with('"'));
}

#[test]
fn a_watch_with_a_read_mask_also_shows_the_uid() {
    let world = World::new();
    let query = [("uidp.descendants_of", world.org.as_str()), ("read_mask", "name")];
    let mut watch = open(&world, &world.operator, "Repo", &query, Ask::default()).unwrap();
    next(&mut watch);
    let uid = repo(&world, "a");
    let event: Value = serde_json::from_slice(&next(&mut watch).what.to_json()).unwrap();
    assert_eq!(event["resource"], json!({ "uid": uid, "name": "a" }));
}

#[test]
fn a_filter_selects_changes_and_what_leaves_the_list_is_deleted_for_its_watch() {
    let world = World::new();
    let query = [("uidp.descendants_of", world.org.as_str()), ("filter", "description = \"in\"")];
    let mut watch = open(&world, &world.operator, "Repo", &query, Ask::default()).unwrap();
    next(&mut watch);
    let uid = repo(&world, "a");
    describe(&world, &uid, "in");
    describe(&world, &uid, "out");
    assert_eq!(shown(&rest(&mut watch)), ["deleted", "modified a", "deleted"]);
}

#[test]
fn a_token_that_is_too_old_is_an_error_or_an_event_that_says_to_list_again() {
    let world = World::new();
    let mut first = watch(&world, "Repo");
    let token = first.bookmark().token;
    repo(&world, "a");
    assert_eq!(shown(&rest(&mut first)), ["added a"]);
    drop(first);
    // The lease is over, and everything is deleted.
    world.clock.advance(2 * 60 * 60 * 1000);
    block_on(world.platform.sweep_change_logs()).unwrap();
    let org = [("uidp.descendants_of", world.org.as_str())];
    let by_token = Ask { resume: Some(ResumeFrom::Token(token.clone())), ..Ask::default() };
    assert_eq!(code(open(&world, &world.operator, "Repo", &org, by_token.clone()).map(drop)), Code::OutOfRange);
    let by_id = Ask { resume: Some(ResumeFrom::LastEventId(token)), ..Ask::default() };
    let mut again = open(&world, &world.operator, "Repo", &org, by_id).unwrap();
    let expired = next(&mut again);
    assert_eq!(shown(std::slice::from_ref(&expired)), ["expired"]);
    repo(&world, "b");
    assert_eq!(shown(&rest(&mut again)), ["added b"]);
    assert_eq!(shown(&rest(&mut resume(&world, "Repo", &expired.token))), ["added b"]);
    // Of another list, and no token at all.
    assert_eq!(code(open(&world, &world.operator, "Group", &org, by_token).map(drop)), Code::OutOfRange);
    let ask = Ask { resume: Some(ResumeFrom::Token("nonsense".to_owned())), ..Ask::default() };
    assert_eq!(code(open(&world, &world.operator, "Repo", &org, ask).map(drop)), Code::InvalidArgument);
    let ask = Ask { resume: Some(ResumeFrom::LastEventId("nonsense".to_owned())), ..Ask::default() };
    assert_eq!(shown(&[next(&mut open(&world, &world.operator, "Repo", &org, ask).unwrap())]), ["expired"]);
}

#[test]
fn old_changes_are_deleted_while_a_watch_goes_on() {
    let world = World::new();
    let mut watch = watch(&world, "Repo");
    let old = watch.bookmark().token;
    repo(&world, "a");
    let seen = next(&mut watch).token;
    for _ in 0..3 {
        world.clock.advance(40 * 60 * 1000);
        block_on(watch.tick());
    }
    repo(&world, "b");
    assert_eq!(shown(&rest(&mut watch)), ["added b"]);
    let org = [("uidp.descendants_of", world.org.as_str())];
    let ask = Ask { resume: Some(ResumeFrom::Token(old)), ..Ask::default() };
    assert_eq!(code(open(&world, &world.operator, "Repo", &org, ask).map(drop)), Code::OutOfRange);
    assert_eq!(shown(&rest(&mut resume(&world, "Repo", &seen))), ["added b"]);
}

#[test]
fn a_revoked_grant_ends_the_watch_before_the_next_change() {
    let world = World::new();
    let caller = world.identity(&world.org);
    let binding = world.bind(&caller, &built_in("viewer"), &world.org);
    let org = [("uidp.descendants_of", world.org.as_str())];
    let mut watch = open(&world, &caller, "Repo", &org, Ask::default()).unwrap();
    next(&mut watch);
    repo(&world, "a");
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
    repo(&world, "b");
    // Whether what was committed before is still reported does not matter; what comes after must not be.
    let events = shown(&rest(&mut watch));
    assert_eq!(events.last().map(String::as_str), Some("closing PermissionDenied false"), "{events:?}");
    assert!(!events.contains(&"added b".to_owned()), "{events:?}");
    assert!(block_on(watch.next()).is_none());
    assert_eq!(code(open(&world, &caller, "Repo", &org, Ask::default()).map(drop)), Code::PermissionDenied);
}

#[test]
fn a_caller_whose_view_grows_lists_again() {
    let world = World::new();
    let (group, caller) = (world.group(&world.org), world.identity(&world.org));
    world.bind(&caller, &built_in("viewer"), &group);
    let org = [("uidp.descendants_of", world.org.as_str())];
    let mut watch = open(&world, &caller, "Repo", &org, Ask::default()).unwrap();
    let token = next(&mut watch).token;
    repo(&world, "outside");
    assert!(rest(&mut watch).is_empty());
    world.bind(&caller, &built_in("viewer"), &world.org);
    assert_eq!(shown(&rest(&mut watch)), ["closing Aborted true"]);
    let ask = Ask { resume: Some(ResumeFrom::LastEventId(token)), ..Ask::default() };
    let mut again = open(&world, &caller, "Repo", &org, ask).unwrap();
    assert_eq!(shown(&rest(&mut again)), ["expired"]);
}

#[test]
fn a_slow_watch_is_ended_and_resumes_with_everything_that_it_has_missed() {
    let world = World::new();
    let (mut slow, mut fast) = (watch(&world, "Repo"), watch(&world, "Repo"));
    let token = slow.bookmark().token;
    assert!(rest(&mut slow).is_empty());
    let uid = repo(&world, "a");
    for number in 0..1_100 {
        describe(&world, &uid, &number.to_string());
        assert_eq!(rest(&mut fast).len(), if number == 0 { 2 } else { 1 });
    }
    assert_eq!(shown(&rest(&mut slow)), ["closing ResourceExhausted true"]);
    assert_eq!(rest(&mut resume(&world, "Repo", &token)).len(), 1_101);
}

/// Counts how often a task is woken.
#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls a future once, with a waker that counts.
fn poll<T>(future: Pin<&mut impl Future<Output = T>>, wakes: &Arc<Wakes>) -> Poll<T> {
    future.poll(&mut TaskContext::from_waker(&Arc::clone(wakes).into()))
}

#[test]
fn commits_do_not_wake_a_watch_that_pauses_and_it_reads_them_after_the_pause() {
    let world = World::new();
    let mut watch = watch(&world, "Repo");
    // The log has been read in this period of 5 ms.
    assert!(rest(&mut watch).is_empty());
    let (is_over, wakes) = (Cell::new(false), Arc::new(Wakes::default()));
    let sleep = |rest: Duration| {
        assert!((1..=5).contains(&rest.as_millis()), "{rest:?}");
        poll_fn(|_| if is_over.get() { Poll::Ready(()) } else { Poll::Pending })
    };
    {
        let mut event = pin!(watch.next_paced(sleep));
        assert!(poll(event.as_mut(), &wakes).is_pending());
        repo(&world, "a");
        assert_eq!(wakes.count(), 1);
        assert!(poll(event.as_mut(), &wakes).is_pending());
        repo(&world, "b");
        assert_eq!(wakes.count(), 1);
        is_over.set(true);
        let Poll::Ready(Some(event)) = poll(event.as_mut(), &wakes) else { panic!("no event after the pause") };
        assert_eq!(shown(&[event]), ["added a"]);
    }
    assert_eq!(shown(&rest(&mut watch)), ["added b"]);
}

#[test]
fn a_change_wakes_one_watch_that_reads_for_all_and_those_that_show_it() {
    let world = World::new();
    let group = world.create(&world.operator, "Group", &world.org, json!({ "name": "other" })).unwrap();
    let of_group = [("uidp.descendants_of", text(&group, "uid"))];
    let mut reading = watch(&world, "Group");
    let open = || open(&world, &world.operator, "Repo", &of_group, Ask::default()).unwrap();
    let (mut elsewhere, mut concerned) = (open(), watch(&world, "Repo"));
    assert_eq!(shown(&[next(&mut elsewhere)]), ["bookmark"]);
    let begin = elsewhere.bookmark().token;
    {
        let [of_reading, of_elsewhere, of_concerned] = [(); 3].map(|()| Arc::new(Wakes::default()));
        let mut reads = pin!(reading.next());
        let mut waits = pin!(elsewhere.next());
        assert!(poll(reads.as_mut(), &of_reading).is_pending());
        assert!(poll(waits.as_mut(), &of_elsewhere).is_pending());
        // More than a process keeps of a log.
        for number in 0..1_100 {
            let mut shows = pin!(concerned.next());
            assert!(poll(shows.as_mut(), &of_concerned).is_pending());
            let wakes = (of_reading.count(), of_concerned.count());
            repo(&world, &format!("of the organization {number}"));
            assert_eq!((of_reading.count(), of_concerned.count()), (wakes.0 + 1, wakes.1));
            assert!(poll(reads.as_mut(), &of_reading).is_pending());
            assert_eq!(of_concerned.count(), wakes.1 + 1);
            let Poll::Ready(Some(event)) = poll(shows.as_mut(), &of_concerned) else { panic!("no event") };
            assert_eq!(shown(&[event]), [format!("added of the organization {number}")]);
        }
        assert_eq!(of_elsewhere.count(), 0);
    }
    // It is not behind, and its token is as new as the last change.
    assert_ne!(elsewhere.bookmark().token, begin);
    let body = json!({ "name": "of the group" });
    world.create(&world.operator, "Repo", of_group[0].1, body).unwrap();
    assert_eq!(shown(&rest(&mut elsewhere)), ["added of the group"]);
}

#[test]
fn the_next_watch_reads_for_all_when_the_one_that_did_has_gone() {
    let world = World::new();
    let (mut first, mut second) = (watch(&world, "Repo"), watch(&world, "Repo"));
    let wakes = Arc::new(Wakes::default());
    let mut waits = pin!(second.next());
    {
        let mut reads = pin!(first.next());
        assert!(poll(reads.as_mut(), &Arc::default()).is_pending());
        assert!(poll(waits.as_mut(), &wakes).is_pending());
        repo(&world, "a");
        assert_eq!(wakes.count(), 0);
    }
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(Some(event)) = poll(waits.as_mut(), &wakes) else { panic!("no event") };
    assert_eq!(shown(&[event]), ["added a"]);
}

#[test]
fn a_watch_whose_turn_it_is_to_read_and_that_is_not_polled_does_not_stop_the_others() {
    let world = World::new();
    let (mut stuck, mut other) = (watch(&world, "Repo"), watch(&world, "Repo"));
    let mut reads = pin!(stuck.next());
    assert!(poll(reads.as_mut(), &Arc::default()).is_pending());
    repo(&world, "a");
    assert!(rest(&mut other).is_empty());
    block_on(other.tick());
    assert_eq!(shown(&rest(&mut other)), ["added a"]);
}

#[test]
fn an_end_has_the_token_of_the_last_event_that_was_read() {
    let world = World::new();
    let mut watch = watch(&world, "Repo");
    repo(&world, "a");
    let seen = next(&mut watch).token;
    repo(&world, "b");
    watch.close(Closing::retryable(Code::Unavailable, "the server stops"));
    let closing = next(&mut watch);
    assert_eq!(
        (shown(std::slice::from_ref(&closing)), closing.token),
        (vec!["closing Unavailable true".to_owned()], seen.clone())
    );
    assert!(block_on(watch.next()).is_none());
    assert_eq!(shown(&rest(&mut resume(&world, "Repo", &seen))), ["added b"]);
}

#[test]
fn a_list_that_cannot_be_watched_is_refused() {
    let world = World::new();
    let refused =
        |kind: &str, query: &[(&str, &str)]| code(open(&world, &world.operator, kind, query, Ask::default()).map(drop));
    // Built-in roles are in no organization.
    assert_eq!(refused("Role", &[]), Code::InvalidArgument);
    assert_eq!(refused("VulnerabilityMetadata", &[]), Code::Unimplemented);
    let stranger = world.identity(&world.org);
    let org = [("uidp.descendants_of", world.org.as_str())];
    assert_eq!(code(open(&world, &stranger, "Repo", &org, Ask::default()).map(drop)), Code::PermissionDenied);
}

/// A memory store that keeps its commits.
#[derive(Debug, Default)]
struct CommittedStore {
    store: MemoryStore,
    commits: Mutex<Vec<Commit>>,
}

impl CommittedStore {
    fn take(&self) -> Vec<Commit> {
        std::mem::take(&mut self.commits.lock())
    }
}

#[async_trait]
impl Store for CommittedStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }
    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let done = self.store.commit(commit.clone()).await?;
        self.commits.lock().push(commit);
        Ok(done)
    }
    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }
    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

#[test]
fn nobody_pays_for_a_log_without_a_watch() {
    let store = Arc::<CommittedStore>::default();
    let world = World::over(Arc::clone(&store) as Arc<dyn Store>);
    let logged = || {
        let is_log = |commit: &Commit| {
            let puts = commit.put.iter().any(|put| put.key.kind.starts_with("ChangeLog"));
            puts || commit.raise.iter().any(|epoch| epoch.name.starts_with("change") || epoch.name == "watched")
        };
        store.take().iter().filter(|commit| is_log(commit)).count()
    };
    let uid = repo(&world, "a");
    describe(&world, &uid, "new");
    assert_eq!(logged(), 0);
    let other = world.organization();
    let watched = watch(&world, "Repo");
    assert_eq!(logged(), 1, "the lease");
    describe(&world, &uid, "watched");
    assert_eq!(logged(), 1);
    world.create(&world.operator, "Repo", &other, json!({ "name": "b" })).unwrap();
    assert_eq!(logged(), 0, "of another organization");
    drop(watched);
    world.clock.advance(2 * 60 * 60 * 1000);
    block_on(world.platform.sweep_change_logs()).unwrap();
    assert_eq!(logged(), 1, "the end of the lease");
    describe(&world, &uid, "no longer watched");
    assert_eq!(logged(), 0);
}

#[test]
fn a_sign_in_or_a_token_that_ends_elsewhere_ends_the_watch() {
    let world = World::new();
    let caller = world.identity(&world.org);
    world.bind(&caller, &built_in("viewer"), &world.org);
    let org = [("uidp.descendants_of", world.org.as_str())];
    let mut watch = open(&world, &caller, "Repo", &org, Ask::default()).unwrap();
    next(&mut watch);
    assert!(rest(&mut watch).is_empty());
    world.delete(&world.operator, "Identity", &caller.identity).unwrap();
    assert_eq!(shown(&rest(&mut watch)), ["closing Unauthenticated false"]);
}

#[test]
fn a_store_that_refuses_writes_can_be_watched_as_long_as_the_lease_lasts() {
    let store = Arc::new(SwitchedStore::new(Arc::new(MemoryStore::new()), false));
    let world = World::over(Arc::clone(&store) as Arc<dyn Store>);
    let mut watch = watch(&world, "Repo");
    block_on(store.refuse_writes());
    world.clock.advance(50 * 60 * 1000);
    block_on(watch.tick());
    assert!(rest(&mut watch).is_empty());
    let token = watch.bookmark().token;
    assert!(rest(&mut resume(&world, "Repo", &token)).is_empty());
}
