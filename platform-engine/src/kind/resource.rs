//! The Rust type of a kind, the behavior that its table cannot express, and both with the type erased.

use std::{any::TypeId, fmt::Debug};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Authorization, Field, Http, Kind, ListPage, Parent, Verb, WriteRules};
use crate::{
    BoxFuture,
    access::Capability,
    context::Context,
    error::{Error, Result, Violations},
    etag::Reply,
    event::Draft,
    fields::{self, Checked},
    platform::Rendered,
    store::{Key, Record, Require},
    uid::Uid,
    write::{Write, keeps_unknown},
};

/// A kind of resource: its Rust type, its table, and the behavior that the table cannot express.
///
/// The type's serde form is the resource's JSON: camelCase names, and a default for every field.
pub trait Resource: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The table.
    const KIND: &'static Kind;

    /// The methods of its service other than the standard ones.
    const ACTIONS: &'static [Action] = &[];

    /// Returns a valid resource with every field set, for the tests over all kinds and for the documentation.
    fn example() -> Self;

    /// Adds a violation for each rule over several fields that the resource breaks.
    ///
    /// Called with the resource that a create or update would store, after every field has passed its own rules.
    fn validate(&self, _violations: &mut Violations) {}

    /// Completes a change before it is committed: sets the fields that the server sets, checks rules that involve other
    /// resources, and adds requirements and further writes to the commit.
    ///
    /// It runs again, from the start, when data that it has read changes before the commit. It must therefore have no
    /// effects other than on the change.
    fn prepare<'a>(_cx: &'a Context<'a>, _change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns a private part without its secrets, for an export of a store. The resource must stay valid with it.
    ///
    /// By default, the whole private part is a secret.
    ///
    /// # Errors
    /// INTERNAL when the private part is malformed.
    fn without_secrets(_private: Bytes) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    /// Checks the access to a create of a kind whose parent is [`Parent::None`](super::Parent::None) or
    /// [`Parent::GroupOrNone`](super::Parent::GroupOrNone), and returns the parent: `None` at the top of the hierarchy.
    ///
    /// By default, resources at the top are created by the operator and by callers who hold the `needed` capabilities
    /// everywhere; the others require these capabilities at the parent.
    ///
    /// # Errors
    /// PERMISSION_DENIED when the caller does not hold the `needed` capabilities, INVALID_ARGUMENT for a `parent` that
    /// is malformed or must be empty.
    fn parent_for_create<'a>(
        cx: &'a Context<'a>,
        parent: &'a str,
        needed: &'static [Capability],
    ) -> BoxFuture<'a, Result<Option<Uid>>> {
        Box::pin(async move {
            if parent.is_empty() {
                return if cx.is_operator() || cx.allows("", needed) { Ok(None) } else { Err(Error::denied()) };
            }
            if matches!(Self::KIND.parent, Parent::None) {
                return Err(Error::invalid_field("parent", "must be empty"));
            }
            let uid = Uid::parse(parent).map_err(|rule| Error::invalid_field("parent", rule.to_string()))?;
            cx.demand(&uid, needed)?;
            Ok(Some(uid))
        })
    }

    /// Returns whether [`Resource::render`] must complete this resource each time that it is read.
    fn computed(&self) -> bool {
        false
    }

    /// Fills in values that are not stored with the resources but looked up when they are read, for a page at once.
    fn render<'a>(_cx: &'a Context<'a>, _resources: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Customizes the event of a standard method: its group and its body.
    ///
    /// By default the event is about the resource, goes to the subscriptions of its parent, and has as its body the
    /// resource as the method returns it or, for a delete, the request. Fields that only the reply of a create shows
    /// ([`Field::once`]) are removed.
    fn customize_event(_event: &mut Draft) {}
}

/// A method that is not one of the five standard ones (AIP-136).
#[derive(Debug)]
#[non_exhaustive]
pub struct Action {
    /// The RPC's name, such as `LookupGroup`.
    pub name: &'static str,
    /// The HTTP method.
    pub http: Http,
    /// The path after the domain and version: literals, `{name=**}` for uids, `{name}` for a segment, `:verb`. Empty if
    /// REST does not have the action.
    pub path: &'static str,
    /// The fields of its request; with [`Http::Get`] from path and query, otherwise from path and body.
    pub request: &'static [Field],
    /// The fields of its response.
    pub response: &'static [Field],
    /// The callers that may run it.
    pub authorization: Authorization,
    /// The event that it records.
    pub event: Option<&'static str>,
    /// The part of a request that is the body of the HTTP request.
    pub body: Part,
    /// Whether it has a preview ([`Action::previewed`]).
    pub has_preview: bool,
    /// Whether its whole effect is one commit, so that it takes an idempotency key ([`Action::one_commit`]).
    pub is_one_commit: bool,
    /// The implementation. The request is in canonical form.
    pub run: Run,
}

/// The part of the request of an action that is the body of the HTTP request, if its method has a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All fields that are not in the path.
    Whole,
    /// One field. The others are in the path or the query.
    Field(&'static str),
}

/// The implementation of an action.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Maps a request to a response, both JSON objects.
    Once(RunOnce),
    /// Maps a request to an encoded response, for long ones: a value of megabytes is encoded and dropped in one step.
    Encoded(RunEncoded),
    /// Maps a request to an encoded response with an ETag: REST replies 304 to a request whose If-None-Match has it.
    Rendered(RunRendered),
    /// Runs a standard method, with messages of another version. The reply has the ETag of the resource, and the
    /// preconditions of the request are those of the method.
    Resource(RunResource),
    /// Returns everything that matches a request, page by page.
    Pages(RunPages),
}

/// Maps a request to a response, both JSON objects.
pub type RunOnce = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Value>>;

/// Maps a request to an encoded response, a JSON object.
pub type RunEncoded = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Bytes>>;

/// Maps a request to an encoded response, a JSON object, with its ETag.
pub type RunRendered = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Rendered>>;

/// Maps a request to a resource, as a standard method returns it.
pub type RunResource = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Reply>>;

/// Maps a request, and the token of the page before, to a page. The token is empty for the first page.
pub type RunPages = for<'a> fn(&'a Context<'a>, Map<String, Value>, &'a str) -> BoxFuture<'a, Result<ListPage>>;

impl Action {
    pub(crate) const fn new(name: &'static str, http: Http, path: &'static str, run: Run) -> Self {
        let (request, response): (&[Field], &[Field]) = (&[], &[]);
        let authorization = Authorization::Authenticated;
        let (event, body, has_preview, is_one_commit) = (None, Part::Whole, false, false);
        Self { name, http, path, request, response, authorization, event, body, has_preview, is_one_commit, run }
    }

    /// Returns an action with typed messages.
    pub const fn typed<H: Handler>(name: &'static str, http: Http, path: &'static str) -> Self {
        Self { request: H::REQUEST, response: H::RESPONSE, ..Self::new(name, http, path, Run::Once(handle::<H>)) }
    }

    /// Returns a GET, with an empty request and response, for any authenticated caller.
    pub const fn get(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Get, path, Run::Once(run))
    }

    /// Returns a GET, as [`Action::get`], with an encoded response: for long ones, and those that are cached.
    pub const fn get_rendered(name: &'static str, path: &'static str, run: RunRendered) -> Self {
        Self::new(name, Http::Get, path, Run::Rendered(run))
    }

    /// Returns a GET, as [`Action::get`], that returns pages. The first field of the response is the list.
    pub const fn get_pages(name: &'static str, path: &'static str, run: RunPages) -> Self {
        Self::new(name, Http::Get, path, Run::Pages(run))
    }

    /// Returns a POST, as [`Action::get`].
    pub const fn post(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Post, path, Run::Once(run))
    }

    /// Returns a PATCH, as [`Action::get`].
    pub const fn patch(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Patch, path, Run::Once(run))
    }

    /// Returns an action that only gRPC has, otherwise as [`Action::get`].
    pub const fn rpc(name: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Post, "", Run::Once(run))
    }

    /// Returns a PUT, as [`Action::get`].
    pub const fn put(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Put, path, Run::Once(run))
    }

    /// Returns a DELETE, as [`Action::get`].
    pub const fn delete(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Delete, path, Run::Once(run))
    }

    /// Returns the name of the first field of the response: the list, for an action that returns pages.
    pub fn list_field(&self) -> &'static str {
        self.response.first().map_or("items", |field| field.name)
    }

    /// Sets the fields of the request.
    #[must_use]
    pub const fn request(mut self, request: &'static [Field]) -> Self {
        self.request = request;
        self
    }

    /// Sets the fields of the response.
    #[must_use]
    pub const fn response(mut self, response: &'static [Field]) -> Self {
        self.response = response;
        self
    }

    /// Sets the callers that may run it.
    #[must_use]
    pub const fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sets the part of a request that is the body of the HTTP request.
    #[must_use]
    pub const fn body(mut self, body: Part) -> Self {
        self.body = body;
        self
    }

    /// Gives it a preview (`validateOnly`; AIP-163), in which [`Context::commit`] checks the write and does not apply it.
    /// For an action whose only effect is one commit by its context, such as [`Context::modify`], and whose reply has no
    /// secret in a preview.
    #[must_use]
    pub const fn previewed(mut self) -> Self {
        self.has_preview = true;
        self.one_commit()
    }

    /// Lets it take an idempotency key (AIP-155; [`idempotency`](crate::idempotency)). For an action whose only effect is at
    /// most one commit by its context, and which does nothing after it that depends on the commit: with a key, the commit
    /// is made after the action has returned.
    #[must_use]
    pub const fn one_commit(mut self) -> Self {
        self.is_one_commit = true;
        self
    }

    /// Returns whether it takes an idempotency key: a standard method with messages of another version takes one as the
    /// method does.
    pub fn takes_key(&self) -> bool {
        !self.http.is_safe() && (self.is_one_commit || matches!(self.run, Run::Resource(_)))
    }

    /// Sets the event that it records.
    #[must_use]
    pub const fn event(mut self, event: &'static str) -> Self {
        self.event = Some(event);
        self
    }
}

/// The implementation of an action with typed messages, for [`Action::typed`].
///
/// The serde forms of the messages must match their fields, as that of a resource does.
pub trait Handler: 'static {
    /// The fields of the request, which have passed their rules when the action runs.
    const REQUEST: &'static [Field];
    /// The fields of the response.
    const RESPONSE: &'static [Field];
    /// The request.
    type Request: DeserializeOwned + Send;
    /// The response, often a resource.
    type Response: Serialize;

    /// Runs the action. It runs again, from the start, when data that it has read changes before its commit.
    fn run<'a>(cx: &'a Context<'a>, request: Self::Request) -> BoxFuture<'a, Result<Self::Response>>;
}

fn handle<'a, H: Handler>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let request = serde_json::from_value(Value::Object(request)).map_err(Error::internal)?;
        let response = H::run(cx, request).await?;
        Checked::made(H::RESPONSE, &response).map(Checked::into_inner)
    })
}

/// Returns the event of an action about a resource, for the subscriptions of its parent, with the action's response as
/// its body.
///
/// # Errors
/// INTERNAL when the kind has no such action, or the action names no event.
pub fn action_event<R: Resource>(action: &str, uid: &Uid, response: &Value) -> Result<Draft> {
    let known = R::ACTIONS.iter().find(|known| known.name == action);
    let (action, ty) = known
        .and_then(|action| Some((action, action.event?)))
        .ok_or_else(|| Error::internal("an action without an event"))?;
    Ok(Draft::of_action(R::KIND, (action.name, action.path), ty, uid, (action.response, response)))
}

/// A create, update or delete that is being prepared.
#[derive(Debug)]
#[non_exhaustive]
pub struct Change<R> {
    /// The verb. A create that replaces an existing resource is an update.
    pub verb: Verb,
    /// The resource's uid.
    pub uid: Uid,
    /// The stored resource; `None` for a create.
    pub old: Option<R>,
    /// The resource to store; `None` for a delete.
    pub new: Option<R>,
    /// The part that is stored and never returned; initially the stored one, or empty for a create.
    pub private: Bytes,
    /// The paths that the request sets: the mask of an update, or the fields in the body of a create.
    pub paths: Vec<String>,
    /// Whether the mask is `*`: all fields that callers may set are replaced, and those that were not sent are cleared.
    pub replaces_all: bool,
    /// The rules for the request.
    pub rules: WriteRules,
    /// Further requirements and changes in the same commit.
    pub write: Write,
}

/// Returns the uid of a resource's parent. Unlike [`Uid::parent`], it fails for a uid of one segment, so that callers
/// do not decide access at an empty uid by mistake.
///
/// # Errors
/// INTERNAL for a uid of one segment.
pub fn parent_uid(uid: &Uid) -> Result<Uid> {
    uid.parent().ok_or_else(|| Error::internal(format!("the resource {uid} has no parent")))
}

impl<R> Change<R> {
    /// Returns the resource to store, or the stored one for a delete.
    ///
    /// # Errors
    /// INTERNAL when there is neither, which no verb causes.
    pub fn subject(&mut self) -> Result<&mut R> {
        self.new.as_mut().or(self.old.as_mut()).ok_or_else(|| Error::internal("a change without a resource"))
    }

    /// Returns whether the request sets this path, or a path that contains it or lies within it.
    pub fn sets(&self, path: &str) -> bool {
        self.paths.iter().any(|set| fields::covers(set, path) || fields::covers(path, set))
    }
}

/// A kind with its type erased, so that one slice can contain all kinds.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    /// The table.
    pub kind: &'static Kind,
    /// [`Resource::ACTIONS`], or those of [`Registered::with_actions`].
    pub actions: &'static [Action],
    pub(crate) type_id: fn() -> TypeId,
    /// The serde form of the example.
    pub(crate) serde_form: fn() -> serde_json::Result<Value>,
    /// A valid resource, in canonical form.
    pub example: fn() -> Value,
    /// Returns the example as a client sends it, with input-only fields.
    pub sent: fn() -> Value,
    pub(crate) prepare: Prepare,
    pub(crate) render: Render,
    pub(crate) customize_event: fn(&mut Draft),
    pub(crate) parent_for_create: ParentForCreate,
    /// [`Resource::without_secrets`].
    pub(crate) without_secrets: fn(Bytes) -> Result<Bytes>,
}

/// Runs [`Resource::parent_for_create`].
type ParentForCreate =
    for<'a> fn(&'a Context<'a>, &'a str, &'static [Capability]) -> BoxFuture<'a, Result<Option<Uid>>>;

/// Runs [`Resource::validate`] and [`Resource::prepare`]. Takes the old and the new resource out of the change, and
/// returns the new one and whether it is [computed](Resource::computed); `None` for a delete.
type Prepare = for<'a> fn(&'a Context<'a>, &'a mut Change<Checked>) -> BoxFuture<'a, Result<Option<(Checked, bool)>>>;

/// Runs [`Resource::render`] over a page of stored bodies.
type Render = for<'a> fn(&'a Context<'a>, Vec<Bytes>) -> BoxFuture<'a, Result<Vec<Bytes>>>;

impl Registered {
    /// Erases a kind's type.
    pub const fn of<R: Resource>() -> Self {
        Self {
            kind: R::KIND,
            actions: R::ACTIONS,
            type_id: TypeId::of::<R>,
            serde_form: || serde_json::to_value(R::example()),
            example: example::<R>,
            sent: sent_example::<R>,
            prepare: prepare::<R>,
            render: render::<R>,
            customize_event: R::customize_event,
            parent_for_create: R::parent_for_create,
            without_secrets: R::without_secrets,
        }
    }

    /// Sets the actions, for those that use kinds below this one: the file of a kind cannot depend on its children.
    #[must_use]
    pub const fn with_actions(mut self, actions: &'static [Action]) -> Self {
        self.actions = actions;
        self
    }
}

impl Registered {
    /// Returns a service without resources: a kind without fields, and its actions. For services of other versions of
    /// the API ([conversions](crate::conversion)), and others that belong to no kind.
    pub const fn service(kind: &'static Kind, actions: &'static [Action]) -> Self {
        Self { kind, actions, ..Self::of::<NoResource>() }
    }
}

/// The resource of services without resources.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
struct NoResource {}

impl Resource for NoResource {
    const KIND: &'static Kind =
        &Kind::new("NoResource", "noResources", "NoResources", super::Domain::new("none", "none"));

    fn example() -> Self {
        Self {}
    }
}

fn example<R: Resource>() -> Value {
    canonical(&R::example()).unwrap_or_default()
}

fn sent_example<R: Resource>() -> Value {
    sent(&R::example()).map(Value::Object).unwrap_or_default()
}

fn prepare<'a, R: Resource>(
    cx: &'a Context<'a>,
    change: &'a mut Change<Checked>,
) -> BoxFuture<'a, Result<Option<(Checked, bool)>>> {
    Box::pin(async move {
        // The hook gets a typed change, whose parts are moved back afterwards.
        let mut typed = Change {
            verb: change.verb,
            uid: change.uid.clone(),
            old: change.old.take().map(Checked::into_inner).map(typed::<R>).transpose()?,
            new: change.new.take().map(Checked::into_inner).map(typed::<R>).transpose()?,
            private: std::mem::take(&mut change.private),
            paths: std::mem::take(&mut change.paths),
            replaces_all: change.replaces_all,
            rules: change.rules,
            write: std::mem::take(&mut change.write),
        };
        if let Some(new) = &typed.new {
            let mut violations = Violations::default();
            new.validate(&mut violations);
            violations.none_or(())?;
        }
        R::prepare(cx, &mut typed).await?;
        change.uid = typed.uid;
        change.private = typed.private;
        change.paths = typed.paths;
        change.write = typed.write;
        let made = |new: R| Ok((Checked::made(R::KIND.fields, &new)?.evolved(R::KIND), new.computed()));
        typed.new.map(made).transpose()
    })
}

fn render<'a, R: Resource>(cx: &'a Context<'a>, bodies: Vec<Bytes>) -> BoxFuture<'a, Result<Vec<Bytes>>> {
    Box::pin(async move {
        let mut resources = bodies.iter().map(|body| stored::<R>(body)).collect::<Result<Vec<_>>>()?;
        R::render(cx, &mut resources).await?;
        let bodies = resources.iter().map(|resource| fields::to_bytes(R::KIND.fields, resource).map(Bytes::from));
        bodies.collect::<serde_json::Result<_>>().map_err(Error::internal)
    })
}

/// Parses a stored body, and converts it to the table.
pub(crate) fn stored<R: Resource>(body: &[u8]) -> Result<R> {
    if R::KIND.has_history {
        return typed(Checked::stored(R::KIND, body)?.into_inner());
    }
    serde_json::from_slice(body).map_err(Error::internal)
}

/// Parses a validated body, or a stored one that was converted to the table.
pub(crate) fn typed<R: Resource>(body: Value) -> Result<R> {
    serde_json::from_value(body).map_err(Error::internal)
}

/// Returns the JSON of a resource as replies show it: without empty and input-only fields ([`fields::prune`]).
///
/// # Errors
/// INTERNAL when it cannot be written as JSON.
pub fn canonical<R: Resource>(resource: &R) -> Result<Value> {
    Checked::made(R::KIND.fields, resource).map(Checked::into_inner)
}

/// Returns the JSON of a resource as a client sends it: without empty fields, and with input-only ones.
///
/// # Errors
/// INTERNAL when it cannot be written as a JSON object.
pub fn sent<R: Resource>(resource: &R) -> Result<Map<String, Value>> {
    let mut body = serde_json::to_value(resource).map_err(Error::internal)?;
    fields::prune_empty(R::KIND.fields, &mut body);
    match body {
        Value::Object(object) => Ok(object),
        _ => Err(Error::internal("a resource that is not a JSON object")),
    }
}

/// Puts of typed resources.
impl Write {
    /// Adds a put of a resource of any kind. The caller's capabilities are not checked. The resources that it
    /// references must exist at the commit, or be put by it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for each index key that would be longer than
    /// [`KeyValue::MAX_LEN`](crate::store::KeyValue::MAX_LEN), INTERNAL when it cannot be written as JSON.
    pub fn put<R: Resource>(&mut self, uid: &Uid, resource: &R, private: Bytes) -> Result<()> {
        let body = Checked::made(R::KIND.fields, resource)?;
        self.put_body(R::KIND, uid, None, &body, resource.computed(), private)
    }

    /// Adds a put of a resource that replaces a stored one, as [`Write::put`] does. The values of the stored body that
    /// have no field are kept, as by an update: a later release, which serves the store too during an upgrade, has
    /// stored them. The caller requires that the record has not changed.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub fn replace<R: Resource>(&mut self, stored: &Record, resource: &R, private: Bytes) -> Result<()> {
        let (fields, old) = (R::KIND.fields, Checked::stored(R::KIND, &stored.body)?);
        let body = Checked::made(fields, resource)?;
        let body = if keeps_unknown(stored.rendering) { body.keeping_unknown(fields, &old) } else { body };
        self.put_body(R::KIND, &stored.key.uid, Some(&old), &body, resource.computed(), private)
    }

    /// Adds a put of a new resource of a kind that is a [queue](Kind::queue). If a resource with this uid exists, the
    /// operation is retried.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub fn put_in_queue<R: Resource>(&mut self, uid: &Uid, resource: &R, private: Bytes) -> Result<()> {
        self.require_or_retry(Require::Absent(Key::new(R::KIND.name, uid.clone())));
        self.put(uid, resource, private)
    }
}
