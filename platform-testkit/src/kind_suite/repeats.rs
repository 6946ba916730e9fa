//! Checks of idempotency keys.

use futures_lite::future::block_on;
use platform_engine::{
    error::{Code, Result},
    etag::Reply,
    idempotency::IdempotencyKey,
    kind::{Parent, Verb},
    options::RequestOptions,
};
use serde_json::Value;

use super::{
    KindSuite, Pair,
    steps::{object, parsed, uid_of},
};

impl KindSuite<'_> {
    /// A write with an idempotency key is carried out once: a repetition gets the reply of the first request, marked as
    /// replayed, and changes nothing; another request with the key is rejected.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn repeated_writes_happen_once(&self) {
        if !self.begin("repeated_writes_happen_once", &[Verb::Create]) {
            return;
        }
        for pair in self.fresh_pairs() {
            self.writes_of_a_pair_happen_once(&pair);
        }
    }

    fn writes_of_a_pair_happen_once(&self, pair: &Pair) {
        if matches!(self.kind().parent, Parent::Sole(_)) {
            let _ = self.delete(&self.owner, &pair.parent);
        }
        let keyed = self.with_new_key();
        let create = |body: &Value| {
            let body = object(body);
            block_on(self.platform.create_erased(&self.owner, &self.registered, &pair.parent, &body, &keyed))
        };
        let first = self.twice("create", || create(&pair.a));
        let uid = uid_of(&parsed(&first.body));
        self.created.borrow_mut().push(uid.clone());
        let other = self.failed("another create with the key", create(&pair.b), Code::InvalidArgument);
        self.equal("its reason", other.reason(), "IDEMPOTENCY_KEY_REUSED");
        if self.has(Verb::Update) {
            let keyed = self.with_new_key();
            let update = || {
                let body = object(&pair.b);
                block_on(self.platform.update_erased(&self.owner, &self.registered, &uid, &body, Some("*"), &keyed))
            };
            let first = self.twice("update", update);
            self.clock.advance(1000);
            self.update(&uid, &pair.a, Some("*"));
            let before = self.read(&uid);
            let late = self.done("late repetition of an update", update());
            self.equal("its reply", &late.body, &first.body);
            self.equal("the resource after it", &self.read(&uid), &before);
        }
        if self.has(Verb::Delete) {
            let keyed = self.with_new_key();
            let delete = || block_on(self.platform.delete_erased(&self.owner, &self.registered, &uid, &keyed));
            self.twice("delete", delete);
        }
    }

    /// Sends a request with a key twice, and returns the first reply.
    #[track_caller]
    fn twice(&self, what: &str, send: impl Fn() -> Result<Reply>) -> Reply {
        let first = self.done(what, send());
        self.equal("whether the first reply is replayed", &first.is_replayed, &false);
        let second = self.done(format_args!("repeated {what}"), send());
        let expected = Reply { is_replayed: true, ..first.clone() };
        self.equal(format_args!("reply of the repeated {what}"), &second, &expected);
        first
    }

    /// Returns the options of a request with a key that no other one has.
    fn with_new_key(&self) -> RequestOptions {
        let mut bytes = [0; 8];
        self.platform.entropy().fill(&mut bytes);
        let key = IdempotencyKey::parse(u64::from_be_bytes(bytes).to_string().as_bytes());
        RequestOptions::default().idempotency_key(Some(key.expect("digits are a key")))
    }
}
