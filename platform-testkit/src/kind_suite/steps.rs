//! The steps that checks are made of: calls as the owner, and comparisons that name the kind and the check.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Display},
};

use futures_lite::future::block_on;
use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    kind::{Access, Field, Parent, Type, Verb},
    options::RequestOptions,
    request::ListRequest,
    uid::Uid,
};
use serde_json::{Map, Value};

use super::{KindSuite, Pair};

impl KindSuite<'_> {
    /// Begins a check, and returns whether it applies: whether the kind has these methods.
    pub(super) fn begin(&self, check: &'static str, needed: &[Verb]) -> bool {
        self.check.set(check);
        needed.iter().all(|verb| self.has(*verb))
    }

    #[track_caller]
    pub(super) fn fail(&self, what: impl Display) -> ! {
        panic!("{}: {}: {what}", self.kind().name, self.check.get())
    }

    #[track_caller]
    pub(super) fn require(&self, holds: bool, field: impl Display, rule: impl Display) {
        if !holds {
            self.fail(format_args!("{field}: {rule}"));
        }
    }

    #[track_caller]
    pub(super) fn equal<F, E>(&self, field: impl Display, found: &F, expected: &E)
    where
        F: PartialEq<E> + Debug + ?Sized,
        E: Debug + ?Sized,
    {
        if found != expected {
            self.fail(format_args!("{field}: expected {expected:?}, found {found:?}"));
        }
    }

    #[track_caller]
    pub(super) fn done<T>(&self, what: impl Display, result: Result<T>) -> T {
        result.unwrap_or_else(|error| self.fail(format_args!("{what}: {error} {:?}", error.violations())))
    }

    #[track_caller]
    pub(super) fn failed<T>(&self, what: impl Display, result: Result<T>, expected: Code) -> Error {
        match result {
            Ok(_) => self.fail(format_args!("{what}: expected {expected:?}, found no error")),
            Err(error) => {
                self.equal(format_args!("{what}: {error}"), &error.code(), &expected);
                error
            }
        }
    }

    /// Checks that a request is rejected for these fields.
    #[track_caller]
    pub(super) fn violates<T>(&self, what: impl Display, result: Result<T>, fields: &[&str]) {
        let error = self.failed(&what, result, Code::InvalidArgument);
        let found: Vec<_> = error.violations().iter().map(|violation| &*violation.field).collect();
        self.equal(what, &*found, fields);
    }

    pub(super) fn has(&self, verb: Verb) -> bool {
        self.kind().method(verb).is_some()
    }

    pub(super) fn fields(&self, access: Access) -> impl Iterator<Item = &'static Field> {
        self.kind().fields.iter().filter(move |field| field.access == access)
    }

    /// Returns the fields that updates set.
    pub(super) fn settable(&self) -> impl Iterator<Item = &'static Field> {
        let fields = self.kind().fields.iter();
        fields.filter(|field| matches!(field.access, Access::Mutable | Access::InputOnly))
    }

    /// Deletes the resources that the suite has created.
    fn clear(&self) {
        for uid in self.created.take() {
            // It may be deleted already, or used by others.
            let _ = self.delete(&self.owner, &uid);
        }
    }

    /// Deletes the resources that the suite has created, and returns pairs of bodies to create.
    pub(super) fn fresh_pairs(&self) -> Vec<Pair> {
        self.clear();
        self.next_pairs()
    }

    fn next_pairs(&self) -> Vec<Pair> {
        self.pairs.as_ref().map_or_else(|| self.bodies.clone(), |pairs| pairs())
    }

    pub(super) fn try_create(&self, caller: &Caller, parent: &Uid, body: &Value) -> Result<Value> {
        let body = object(body);
        let create = self.platform.create_erased(caller, &self.registered, parent, &body, RequestOptions::none());
        let created = parsed(&block_on(create)?.body);
        self.created.borrow_mut().push(uid_of(&created));
        Ok(created)
    }

    /// Creates a resource, and replaces the existing one if a parent has at most one.
    #[track_caller]
    pub(super) fn create(&self, parent: &Uid, body: &Value) -> Value {
        if matches!(self.kind().parent, Parent::Sole(_)) {
            let _ = self.delete(&self.owner, parent);
        }
        self.done(format_args!("create of {body}"), self.try_create(&self.owner, parent, body))
    }

    pub(super) fn get(&self, caller: &Caller, uid: &str) -> Result<Value> {
        block_on(self.platform.get_erased(caller, &self.registered, uid, RequestOptions::none()))
            .map(|reply| parsed(&reply.body))
    }

    /// Returns a resource as a get returns it, or a list if the kind has no get.
    #[track_caller]
    pub(super) fn read(&self, uid: &str) -> Value {
        if self.has(Verb::Get) {
            return self.done(format_args!("get of {uid}"), self.get(&self.owner, uid));
        }
        let found = self.walk(&self.owner, &[]).into_iter().find(|item| *uid_of(item) == *uid);
        found.unwrap_or_else(|| self.fail(format_args!("{uid}: is not listed")))
    }

    pub(super) fn try_update(&self, caller: &Caller, uid: &str, body: &Value, mask: Option<&str>) -> Result<Value> {
        let body = object(body);
        let updated =
            block_on(self.platform.update_erased(caller, &self.registered, uid, &body, mask, RequestOptions::none()))?;
        Ok(parsed(&updated.body))
    }

    #[track_caller]
    pub(super) fn update(&self, uid: &str, body: &Value, mask: Option<&str>) -> Value {
        let done = self.try_update(&self.owner, uid, body, mask);
        self.done(format_args!("update of {} with {body}", mask.unwrap_or("the fields of the body")), done)
    }

    pub(super) fn delete(&self, caller: &Caller, uid: &str) -> Result<()> {
        block_on(self.platform.delete_erased(caller, &self.registered, uid, RequestOptions::none())).map(drop)
    }

    /// Lists one page with these parameters and those that the kind requires.
    pub(super) fn list(&self, caller: &Caller, query: &[(&str, &str)]) -> Result<Page> {
        let query = self.query.iter().chain(query).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let request = ListRequest::from_query(self.kind(), &query.collect::<Vec<_>>())?;
        let reply = block_on(self.platform.list_erased(Some(caller), &self.registered, &request))?;
        let items = reply.items.iter().map(|item| parsed(item)).collect();
        Ok(Page { items, total: reply.total_count, next: reply.next_page_token })
    }

    /// Lists all pages.
    #[track_caller]
    pub(super) fn walk(&self, caller: &Caller, query: &[(&str, &str)]) -> Vec<Value> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let query = [query, &[("page_token", &*token)]].concat();
            let page = self.done(format_args!("list with {query:?}"), self.list(caller, &query));
            all.extend(page.items);
            match page.next {
                // Otherwise the walk would not end.
                Some(next) if next == token => panic!("the page after {token:?} ends where it begins"),
                Some(next) => token = next,
                None => return all,
            }
        }
    }

    /// Creates resources: some at the same time, some later, some with equal values where they may have. Returns their
    /// uids, and whether some have equal values.
    pub(super) fn make_some(&self) -> (Vec<Uid>, bool) {
        let (mut made, mut has_ties) = (Vec::new(), true);
        self.clear();
        if let Some(make) = &self.make {
            for later in [0, 0, 7] {
                self.clock.advance(later);
                made.push(make());
            }
            if !self.has(Verb::Get) {
                let all = self.walk(&self.owner, &[]);
                made.retain(|uid| all.iter().any(|item| uid_of(item) == *uid));
            }
        } else if matches!(self.kind().parent, Parent::Sole(_)) {
            for later in [0, 0, 7] {
                self.clock.advance(later);
                let first =
                    self.next_pairs().into_iter().map(|pair| self.create(&pair.parent, &pair.a)).collect::<Vec<_>>();
                let second = self.next_pairs().into_iter().map(|pair| self.create(&pair.parent, &pair.b));
                made.extend(first.into_iter().chain(second).map(|created| uid_of(&created)));
            }
        } else {
            for pair in self.next_pairs() {
                made.extend([&pair.a, &pair.b].map(|body| uid_of(&self.create(&pair.parent, body))));
                self.clock.advance(7);
            }
            has_ties = false;
            let pairs = self.next_pairs();
            let bodies = pairs.iter().flat_map(|pair| [(&pair.parent, &pair.a, false), (&pair.parent, &pair.b, true)]);
            for (at, (parent, body, is_second)) in bodies.enumerate() {
                match self.try_create(&self.owner, parent, body).map(|created| uid_of(&created)) {
                    Ok(uid) if !made.contains(&uid) => {
                        made.push(uid);
                        has_ties = true;
                    }
                    // Unique values, or a create that replaces: one of both is created again, at another time.
                    _ if is_second && self.has(Verb::Delete) => {
                        self.done("delete", self.delete(&self.owner, &made[at]));
                        made[at] = uid_of(&self.create(parent, body));
                    }
                    _ => {}
                }
                self.clock.advance(if is_second { 7 } else { 0 });
            }
        }
        let mut seen = BTreeSet::new();
        made.retain(|uid| seen.insert(uid.clone()));
        made.iter().for_each(|uid| drop(self.read(uid)));
        (made, has_ties)
    }

    /// Compares two resources except for the fields that the server sets at each write.
    #[track_caller]
    pub(super) fn same(&self, what: impl Display, found: &Value, expected: &Value) {
        for field in self.kind().fields {
            if field.access != Access::OutputOnly || matches!(field.name, "uid" | "createTime") {
                let [found, expected] = [found, expected].map(|body| self.compared(field, body));
                self.equal(format_args!("{what}: {}", field.name), &found, &expected);
            }
        }
    }

    /// Returns the value of a field without the part that updates renew.
    pub(super) fn compared(&self, field: &Field, body: &Value) -> Option<Value> {
        let mut value = body.get(field.name).cloned()?;
        for (_, part) in self.renewed.iter().filter(|(name, _)| *name == field.name) {
            if let Some(object) = value.as_object_mut() {
                object.remove(*part);
            }
        }
        Some(value)
    }
}

/// A page of a list.
pub(super) struct Page {
    pub(super) items: Vec<Value>,
    pub(super) total: u64,
    pub(super) next: Option<String>,
}

pub(super) fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("a reply is JSON")
}

pub(super) fn object(body: &Value) -> Map<String, Value> {
    body.as_object().cloned().unwrap_or_else(|| panic!("a body must be a JSON object, not {body}"))
}

pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn uid_of(value: &Value) -> Uid {
    Uid::opaque(text(value, "uid").to_owned())
}

/// Returns a message after an update without a mask: each sent field is set and clears the rest of its oneof.
pub(super) fn overlaid(fields: &[Field], old: &Value, sent: &Value) -> Value {
    let (Value::Object(old), Value::Object(sent)) = (old, sent) else { return sent.clone() };
    let mut new = old.clone();
    for (name, value) in sent {
        let field = fields.iter().find(|field| field.name == name).expect("a body has fields of its message");
        if field.access == Access::OutputOnly {
            continue;
        }
        for other in fields.iter().filter(|other| other.oneof.is_some() && other.oneof == field.oneof) {
            if other.name != name {
                new.remove(other.name);
            }
        }
        let value = match (&field.ty, new.get(name)) {
            (Type::Message(inner), Some(old)) => overlaid(inner, old, value),
            _ => value.clone(),
        };
        new.insert(name.clone(), value);
    }
    new.into()
}
