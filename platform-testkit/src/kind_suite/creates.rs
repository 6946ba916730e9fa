//! Checks of examples, creates, deletes and names.

use futures_lite::future::block_on;
use platform_engine::{
    error::{Code, Detail},
    kind::{Access, Field, Parent, Roots, Type, Verb},
    options::RequestOptions,
    uid::Uid,
};
use serde_json::{Value, json};

use super::{
    KindSuite,
    steps::{object, overlaid, text, uid_of},
};

impl KindSuite<'_> {
    /// The [example](platform_engine::kind::Resource::example) has each field of the table, in its order and in canonical form.
    /// It has one alternative of each oneof, and input-only fields only where replies show them.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn example_has_each_field(&self) {
        self.begin("example_has_each_field", &[]);
        let example = (self.registered.example)();
        let fields = self.kind().fields;
        let other_form = |field: &&Field| {
            let set = |other: &Field| other.oneof == field.oneof && example.get(other.name).is_some();
            field.oneof.is_some() && example.get(field.name).is_none() && fields.iter().any(set)
        };
        let declared = fields
            .iter()
            .filter(|field| !other_form(field) && (field.access != Access::InputOnly || field.always))
            .map(|field| field.name);
        let found = object(&example);
        self.equal("fields of the example", &found.keys().collect::<Vec<_>>(), &declared.collect::<Vec<_>>());
    }

    /// The bodies that the suite was given set each field that callers can set, so that the other checks cover it.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn bodies_set_each_field(&self) {
        if !self.begin("bodies_set_each_field", &[Verb::Create]) {
            return;
        }
        let pairs = self.fresh_pairs();
        self.require(!pairs.is_empty(), "bodies", "a kind with a create needs at least one pair");
        for field in self.kind().fields.iter().filter(|field| field.access != Access::OutputOnly) {
            let set = |body: &Value| body.get(field.name).is_some() || field.access == Access::InputOnly;
            let is_set = pairs.iter().any(|pair| set(&pair.a) || set(&pair.b));
            self.require(is_set, field.name, "must be set in a body");
        }
    }

    /// A create returns the resource as a get does, below its parent, with the sent values and both times, and without
    /// input-only values. Only the create returns fields that are shown once.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn create_returns_what_get_returns(&self) {
        if !self.begin("create_returns_what_get_returns", &[Verb::Create]) {
            return;
        }
        for pair in self.fresh_pairs() {
            for body in [&pair.a, &pair.b] {
                let created = self.create(&pair.parent, body);
                let uid = uid_of(&created);
                self.require(Uid::parse(&uid).is_ok(), "uid", format_args!("must be a uid, not {uid}"));
                let parent = if self.kind().parent.shares_uid() { Some(uid.clone()) } else { uid.parent() };
                self.equal("parent of the uid", &parent.unwrap_or_default(), &pair.parent);
                let mut stored = object(&created);
                for field in self.kind().fields.iter().filter(|field| field.once) {
                    let is_shown = stored.shift_remove(field.name).is_some();
                    self.require(is_shown, field.name, "must be in the reply of a create");
                }
                self.equal("get after a create", &self.read(&uid), &Value::Object(stored));
                for field in self.fields(Access::Mutable) {
                    if let (Some(sent), Some(found)) = (body.get(field.name), created.get(field.name)) {
                        let expected = match field.ty {
                            Type::Message(inner) => overlaid(inner, found, sent),
                            _ => sent.clone(),
                        };
                        self.equal(field.name, found, &expected);
                    }
                }
                for time in ["createTime", "updateTime"] {
                    self.equal(time, text(&created, time), &*self.platform.now().to_string());
                }
                for field in self.fields(Access::InputOnly) {
                    let is_hidden = created.get(field.name).is_none_or(Value::is_null);
                    self.require(is_hidden, field.name, "is input-only and must not be in a reply");
                }
            }
        }
    }

    /// Lists, creates and updates reject parameters, fields and paths that the table does not have, by their names.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn unknown_names_are_rejected(&self) {
        self.begin("unknown_names_are_rejected", &[]);
        let nonsense = "nonsense";
        if self.has(Verb::List) {
            self.violates("list", self.list(&self.owner, &[(nonsense, "1")]), &[nonsense]);
        }
        if !self.has(Verb::Create) {
            return;
        }
        for pair in self.fresh_pairs() {
            let mut body = pair.a.clone();
            body[nonsense] = json!(1);
            self.violates("create", self.try_create(&self.owner, &pair.parent, &body), &[nonsense]);
            let uid = uid_of(&self.create(&pair.parent, &pair.a));
            if self.has(Verb::Update) {
                let update = |body: Value, mask| self.try_update(&self.owner, &uid, &body, mask);
                for mask in [None, Some("*"), Some(self.kind().fields[1].name)] {
                    self.violates("update", update(json!({ nonsense: 1 }), mask), &[nonsense]);
                }
                self.violates("update", update(json!({}), Some(nonsense)), &["update_mask"]);
            }
        }
    }

    /// A deleted resource is in no list, and gets and deletes return NOT_FOUND with its type and uid; or
    /// PERMISSION_DENIED if its deletion took the owner's access to it.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn deleted_resources_are_not_found(&self) {
        if !self.begin("deleted_resources_are_not_found", &[Verb::Delete]) {
            return;
        }
        let domain = &self.platform.settings().service_domain;
        for uid in self.make_some().0 {
            self.done("delete", self.delete(&self.owner, &uid));
            let get = self.has(Verb::Get).then(|| self.get(&self.owner, &uid).map(drop));
            for again in get.into_iter().chain([self.delete(&self.owner, &uid)]) {
                if !self.may_still_see(&uid) {
                    self.failed(&uid, again, Code::PermissionDenied);
                    continue;
                }
                let error = self.failed(&uid, again, Code::NotFound);
                let info = error.details().iter().find_map(|detail| match detail {
                    Detail::ResourceInfo { domain: of, kind, name } => Some((format!("{of}.{domain}/{kind}"), &**name)),
                    _ => None,
                });
                self.equal("resource of the error", &info, &Some((self.kind().resource_type(domain), &*uid)));
            }
            if self.has(Verb::List) {
                let is_gone = self.walk(&self.owner, &[]).iter().all(|item| uid_of(item) != uid);
                self.require(is_gone, uid, "is deleted and must not be listed");
            }
        }
    }

    /// Returns whether the owner has access to a uid, whether or not there is a resource.
    fn may_still_see(&self, uid: &str) -> bool {
        let Some(method) = self.kind().method(Verb::Delete) else { return false };
        let grants = self.done("grants", block_on(self.platform.current_grants(&self.owner)));
        self.kind().roots != Roots::Granted || grants.at(uid).contains_all(method.capabilities)
    }

    /// A singleton can be read and updated without a create, has only its uid and times at first, and ends with its
    /// parent.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn singleton_is_always_there(&self) {
        self.begin("singleton_is_always_there", &[]);
        let (Parent::Singleton(parent, _), Some(make)) = (self.kind().parent, &self.make) else { return };
        let uid = make();
        let mut at_first = object(&self.read(&uid));
        at_first.retain(|_, value| *value != Value::Bool(false));
        self.equal("fields", &at_first.keys().collect::<Vec<_>>(), &["uid", "createTime", "updateTime"]);
        if self.has(Verb::Update) {
            let example = (self.registered.example)();
            let written = self.update(&uid, &example, None);
            for field in self.settable() {
                self.equal(field.name, &written[field.name], &example[field.name]);
            }
            self.equal("get after an update", &self.read(&uid), &written);
        }
        let registered = self.platform.registered().iter().find(|registered| registered.kind.name == parent.name);
        // A group may have other children, which restrict its delete.
        if let Some(registered) = registered.filter(|_| !matches!(parent.parent, Parent::GroupOrNone)) {
            let deleted = self.platform.delete_erased(&self.owner, registered, &uid, RequestOptions::none());
            self.done("delete of the parent", block_on(deleted));
            self.failed(&uid, self.get(&self.owner, &uid), Code::NotFound);
        }
    }
}
