//! Checks of conditional requests and previews.

use futures_lite::future::block_on;
use platform_engine::{
    error::{Code, Error, Result},
    etag::{Reply, Tag},
    kind::Verb,
    options::{Preconditions, RequestOptions},
};
use serde_json::{Map, Value};

use super::{
    KindSuite,
    steps::{object, parsed, uid_of},
};

/// Returns the options of a write that requires this tag.
fn if_match(tag: Tag) -> RequestOptions {
    RequestOptions::default().preconditions(Preconditions::of_revision(tag.revision()))
}

fn preview() -> RequestOptions {
    RequestOptions::default().validate_only(true)
}

impl KindSuite<'_> {
    /// An update and a delete require the revision that `If-Match` names, and an update that changes nothing keeps the
    /// tag.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn preconditions_are_checked(&self) {
        if !self.begin("preconditions_are_checked", &[Verb::Create, Verb::Get, Verb::Update]) {
            return;
        }
        for pair in self.fresh_pairs() {
            let uid = uid_of(&self.create(&pair.parent, &pair.a));
            let first = self.tag(&uid);
            let mut same = object(&pair.a);
            same.retain(|name, _| self.renewed.iter().all(|(renewed, _)| renewed != name));
            let kept = self.done("update that changes nothing", self.write(&uid, &same, None, &if_match(first)));
            self.equal("tag after an update that changes nothing", &kept.tag, &Some(first));
            self.clock.advance(1000);
            let b = object(&pair.b);
            let changed = self.done("update with the tag", self.write(&uid, &b, Some("*"), &if_match(first)));
            self.equal("tag of the reply", &changed.tag, &Some(self.tag(&uid)));
            let stale = self.write(&uid, &object(&pair.a), Some("*"), &if_match(first));
            self.equal("reason", self.failed("update with an old tag", stale, Code::Aborted).reason(), "ETAG_MISMATCH");
            self.equal("get after it", &self.read(&uid), &parsed(&changed.body));
            if self.has(Verb::Delete) {
                let delete =
                    |options| block_on(self.platform.delete_erased(&self.owner, &self.registered, &uid, options));
                self.failed("delete with an old tag", delete(&if_match(first)), Code::Aborted);
                self.read(&uid);
            }
        }
    }

    /// A preview of a write returns what the write would return, or fails as it would, and changes nothing.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn previews_change_nothing(&self) {
        if !self.begin("previews_change_nothing", &[Verb::Create, Verb::Get]) {
            return;
        }
        fn code<T>(result: &Result<T>) -> Option<Code> {
            result.as_ref().err().map(Error::code)
        }
        for pair in self.fresh_pairs() {
            let create = |body: &Value| {
                let (body, options) = (object(body), preview());
                let create = self.platform.create_erased(&self.owner, &self.registered, &pair.parent, &body, &options);
                block_on(create).map(|reply| parsed(&reply.body))
            };
            let shown = self.done("preview of a create", create(&pair.a));
            // At the top of the hierarchy, nobody has access to a resource that does not exist.
            let made = code(&self.get(&self.owner, &uid_of(&shown)));
            let is_absent = matches!(made, Some(Code::NotFound | Code::PermissionDenied));
            self.require(is_absent, "uid", format_args!("must not exist after the preview, but a get has {made:?}"));
            let wrong = serde_json::json!({ "noSuchField": 1 });
            self.failed("preview of an invalid create", create(&wrong), Code::InvalidArgument);
            let a = self.create(&pair.parent, &pair.a);
            // Another uid, another time, and no secret that nobody could use.
            let mut expected = a.clone();
            for name in ["uid", "createTime"] {
                expected[name] = shown[name].clone();
            }
            let once = self.kind().fields.iter().filter(|field| field.once);
            once.for_each(|field| drop(object_of(&mut expected).shift_remove(field.name)));
            self.same("preview of a create", &shown, &expected);
            let uid = uid_of(&a);
            let (before, tag) = (self.read(&uid), self.tag(&uid));
            if self.has(Verb::Update) {
                let update = self.write(&uid, &object(&pair.b), Some("*"), &preview());
                let shown = self.done("preview of an update", update);
                self.equal("tag of a preview", &shown.tag, &None);
                self.equal("get after the preview of an update", &self.read(&uid), &before);
                self.equal("tag after the preview of an update", &self.tag(&uid), &tag);
                let updated = self.update(&uid, &pair.b, Some("*"));
                self.same("preview of an update", &parsed(&shown.body), &updated);
            }
            let again = create(&pair.a);
            let twice = self.try_create(&self.owner, &pair.parent, &pair.a);
            self.equal("a second create, and its preview", &code(&again), &code(&twice));
            if self.has(Verb::Delete) {
                let options = preview();
                let previewed = block_on(self.platform.delete_erased(&self.owner, &self.registered, &uid, &options));
                self.read(&uid);
                let deleted = self.delete(&self.owner, &uid);
                self.equal("a delete, and its preview", &code(&previewed), &code(&deleted));
            }
        }
    }

    fn tag(&self, uid: &str) -> Tag {
        let read = block_on(self.platform.get_erased(&self.owner, &self.registered, uid, RequestOptions::none()));
        let tag = self.done("get", read).tag;
        tag.unwrap_or_else(|| self.fail("a get returns a tag"))
    }

    fn write(
        &self,
        uid: &str,
        body: &Map<String, Value>,
        mask: Option<&str>,
        options: &RequestOptions,
    ) -> Result<Reply> {
        block_on(self.platform.update_erased(&self.owner, &self.registered, uid, body, mask, options))
    }
}

fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("a resource is an object")
}
