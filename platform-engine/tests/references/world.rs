//! A platform with the kinds of an office, over a store that runs something before a commit.

use super::*;

pub(crate) type Then = Box<dyn FnOnce() + Send>;

/// A memory store that runs something before its next commit, and remembers its commits.
#[derive(Default)]
pub(crate) struct Interposed {
    pub(crate) store: MemoryStore,
    pub(crate) then: Mutex<Option<Then>>,
    pub(crate) commits: Mutex<Vec<Commit>>,
    pub(crate) lists: AtomicU64,
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl Store for Interposed {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let then = self.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        self.commits.lock().unwrap().push(commit.clone());
        self.store.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

/// Returns a builder of a platform whose clock advances by a second with each reading.
pub(crate) fn builder(store: Arc<dyn Store>) -> Builder {
    Platform::builder(store, TestClock::ticking(Timestamp::EPOCH, 1000), SeededEntropy::new(1))
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) platform: Arc<Platform>,
    pub(crate) store: Arc<Interposed>,
    pub(crate) caller: Caller,
    pub(crate) org: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let operator = Uid::parse("00000000000000000000000000000000000000aa").unwrap();
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let store = Arc::new(Interposed::default());
        let any = Capabilities::new([ANY]).unwrap().set_of([&ANY.id().to_owned()]);
        let grants = [ORG, OTHER]
            .into_iter()
            .fold(FixedGrants::new(), |grants, group| grants.grant(operator.clone(), Uid::opaque(group), any));
        let builder = builder(store.clone());
        let builder = builder.kinds(KINDS).authority(grants).settings(settings);
        let platform = Arc::new(builder.ephemeral_keys().build().unwrap());
        let mut write = Write::default();
        for group in [ORG, OTHER] {
            let uid = Uid::opaque(group);
            write.put(&uid, &Group(Body { uid: uid.clone(), ..Body::default() }), Bytes::new()).unwrap();
        }
        block_on(platform.without_caller(async |cx| cx.commit(write).await)).unwrap();
        Self { platform, store, caller: Caller::new(operator), org: ORG.to_owned() }
    }

    pub(crate) fn registered(&self, kind: &str) -> &Registered {
        self.platform.registered().iter().find(|registered| registered.kind.name == kind).unwrap()
    }

    pub(crate) fn try_create(&self, kind: &str, parent: &str, body: Value) -> Result<String> {
        let Value::Object(body) = body else { panic!("not an object") };
        let reply = block_on(self.platform.create_erased(
            &self.caller,
            self.registered(kind),
            parent,
            &body,
            RequestOptions::none(),
        ))?;
        let reply: Value = serde_json::from_slice(&reply.body).unwrap();
        Ok(reply["uid"].as_str().unwrap().to_owned())
    }

    pub(crate) fn create(&self, kind: &str, parent: &str, body: Value) -> String {
        self.try_create(kind, parent, body).unwrap()
    }

    /// Creates a resource of the organization.
    pub(crate) fn make(&self, kind: &str, body: Value) -> String {
        self.create(kind, &self.org, body)
    }

    pub(crate) fn update(&self, kind: &str, uid: &str, body: Value) -> Result<()> {
        let Value::Object(body) = body else { panic!("not an object") };
        block_on(self.platform.update_erased(
            &self.caller,
            self.registered(kind),
            uid,
            &body,
            None,
            RequestOptions::none(),
        ))
        .map(drop)
    }

    pub(crate) fn delete(&self, kind: &str, uid: &str) -> Result<()> {
        block_on(self.platform.delete_erased(&self.caller, self.registered(kind), uid, RequestOptions::none()))
            .map(drop)
    }

    pub(crate) fn get(&self, kind: &str, uid: &str) -> Option<Map<String, Value>> {
        match block_on(self.platform.get_erased(&self.caller, self.registered(kind), uid, RequestOptions::none())) {
            Ok(reply) => serde_json::from_slice(&reply.body).unwrap(),
            Err(error) if error.code() == Code::NotFound => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Runs `first` and, just before its first commit, `then`.
    pub(crate) fn interpose<T>(&self, first: impl FnOnce(&Self) -> T, then: impl FnOnce(&Self) + Send + 'static) -> T {
        let world = self.clone();
        *self.store.then.lock().unwrap() = Some(Box::new(move || then(&world)));
        let done = first(self);
        self.store.then.lock().unwrap().take();
        done
    }

    /// Returns all references to resources that do not exist, and all resources without their parent.
    pub(crate) fn dangling(&self) -> Vec<String> {
        let mut found = Vec::new();
        let all = |kind: &'static Kind| block_on(self.store.list(&Query::new(kind.name, Scope::All))).unwrap().items;
        let is_there = |kind: &Kind, uid: &str| {
            all(KINDS.iter().find(|known| known.kind.name == kind.name).unwrap().kind)
                .iter()
                .any(|item| item.uid().as_str() == uid)
        };
        for Registered { kind, .. } in KINDS {
            for item in all(kind) {
                let body: Value = serde_json::from_slice(&item.body).unwrap();
                for field in kind.fields {
                    if let (Some(reference), Some(Value::String(to))) = (field.reference, body.get(field.name))
                        && !is_there(reference.kind, to)
                    {
                        found.push(format!("{} {} {} {to}", kind.name, item.uid(), field.name));
                    }
                }
                let parent = self.platform.parent_kind(kind).unwrap();
                let above = if kind.parent.shares_uid() { Some(item.uid()) } else { item.uid().parent() };
                if above.is_some_and(|above| !is_there(parent, &above)) {
                    found.push(format!("{} {} without its parent", kind.name, item.uid()));
                }
            }
        }
        found
    }
}

pub(crate) fn blocked(error: &Error) -> (&'static str, &str) {
    match error.details() {
        [Detail::PreconditionFailure { kind, descriptions }] if descriptions.len() == 1 => (kind, &descriptions[0]),
        other => panic!("{error:?}: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_missing(error: &Error, field: &str, kind: &str) {
    let violations: Vec<_> = error.violations().iter().map(|one| (one.field.as_str(), &*one.description)).collect();
    let rule = format!("must be the uid of an existing {kind} of the same organization or of none");
    assert_eq!((error.code(), violations), (Code::InvalidArgument, vec![(field, &*rule)]));
}
