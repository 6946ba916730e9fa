//! The methods of all kinds: typed for embedders, and type-erased for transports.

use bytes::Bytes;
use futures_lite::{Stream, StreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{Platform, Rendered};
use crate::{
    access::Caller,
    context::Context,
    error::{Code, Error, Result},
    etag::Reply,
    idempotency::record::Request,
    kind::{Action, Authorization, Kind, ListPage, Registered, Resource, Run, Verb, sent, typed},
    offload::Pace,
    options::RequestOptions,
    request::ListRequest,
    verbs::{self, ListReply, Once},
};

impl Platform {
    /// Lists resources of a kind: [`Platform::list`] with the type erased. An [open](crate::kind::Method::open) list needs no
    /// caller.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a caller if the list needs one, INVALID_ARGUMENT on `page_token`, and NOT_FOUND for the
    /// resource that the list belongs to ([`Method::of`]). Never PERMISSION_DENIED: a list has the resources that the
    /// caller may see.
    ///
    /// [`Method::of`]: crate::kind::Method::of
    pub async fn list_erased(
        &self,
        caller: Option<&Caller>,
        registered: &Registered,
        request: &ListRequest,
    ) -> Result<ListReply> {
        let open = registered.kind.method(Verb::List).is_some_and(|list| list.open);
        let done = match caller {
            // The page tokens of an open list do not depend on the caller.
            _ if open => {
                verbs::list::list(&Context::without_caller(self, RequestOptions::none()), registered, request).await
            }
            None => Err(Error::missing_token()),
            Some(caller) => self.with_caller(caller, |cx| Box::pin(verbs::list::list(cx, registered, request))).await,
        };
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Gets a resource: [`Platform::get`] with the type erased. The caller compares `If-None-Match` with the tag of the
    /// reply.
    ///
    /// # Errors
    /// As [`Platform::get`], and [`Error::etag_mismatch`] when `If-Match` does not hold.
    pub async fn get_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        uid: &str,
        options: &RequestOptions,
    ) -> Result<Reply> {
        let done = self.with_options(caller, options, |cx| Box::pin(verbs::get::get(cx, registered, uid))).await;
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Gets several resources (AIP-231), in the order of the uids in the request, whose fields are
    /// [`BATCH_GET_REQUEST`](verbs::BATCH_GET_REQUEST). They are as of different moments during the call.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the caller may not get one of them, then NOT_FOUND for the first that does not exist; and
    /// INVALID_ARGUMENT on `uids` when the resources have more than [`PAGE_BYTES`](verbs::PAGE_BYTES).
    pub async fn batch_get_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        request: &Map<String, Value>,
    ) -> Result<Vec<Bytes>> {
        let get = self.with_caller(caller, |cx| Box::pin(verbs::batch_get::batch_get(cx, registered, request)));
        let done = get.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Creates a resource: [`Platform::create`] with the type erased. The body is the resource in any form of proto3
    /// JSON.
    ///
    /// # Errors
    /// As [`Platform::create`], and [`Error::unchecked_condition`] for a precondition other than `If-Match: *`.
    pub async fn create_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        parent: &str,
        body: &Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Reply> {
        let once = Once::default();
        let method = [registered.kind.name, Verb::Create.name(), parent];
        let request = |key: &_| Request::new(key, caller, &method, &options.preconditions, body);
        let create = self.once_per_key(caller, options, request, |cx| {
            Box::pin(verbs::create::create(cx, registered, parent, body, &once))
        });
        let done = create.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Updates a resource: [`Platform::update`] with the type erased. The mask defaults to the fields of the body.
    ///
    /// # Errors
    /// As [`Platform::update`], and [`Error::etag_mismatch`] when a precondition does not hold at the commit.
    pub async fn update_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        uid: &str,
        body: &Map<String, Value>,
        mask: Option<&str>,
        options: &RequestOptions,
    ) -> Result<Reply> {
        let once = Once::default();
        // A mask never has this text.
        let method = [registered.kind.name, Verb::Update.name(), uid, mask.unwrap_or("(none)")];
        let request = |key: &_| Request::new(key, caller, &method, &options.preconditions, body);
        let update = self.once_per_key(caller, options, request, |cx| {
            Box::pin(verbs::update::update(cx, registered, uid, body, mask, &once))
        });
        let done = update.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Deletes a resource: [`Platform::delete`] with the type erased. The body of the reply is an empty object.
    ///
    /// # Errors
    /// As [`Platform::delete`], and [`Error::etag_mismatch`] when a precondition does not hold at the commit.
    pub async fn delete_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        uid: &str,
        options: &RequestOptions,
    ) -> Result<Reply> {
        let method = [registered.kind.name, Verb::Delete.name(), uid];
        let request = |key: &_| Request::new(key, caller, &method, &options.preconditions, &Map::new());
        let delete = self.once_per_key(caller, options, request, |cx| {
            Box::pin(async move {
                verbs::delete::delete(cx, registered, uid).await?;
                Ok(Reply::empty())
            })
        });
        let done = delete.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    /// Runs an action of a kind's service. A [public](Authorization::Public) action needs no caller.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a caller if the action needs one, and those of the action.
    pub async fn run(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<Value> {
        self.run_rendered(caller, kind, action, request, RequestOptions::none()).await?.into_value()
    }

    /// Runs an action of a kind by its name, such as `CloseTicket`, with typed messages.
    ///
    /// # Errors
    /// UNIMPLEMENTED when the kind has no such action, and as [`Platform::run`].
    pub async fn run_named<R: Resource, S: DeserializeOwned>(
        &self,
        caller: Option<&Caller>,
        action: &str,
        request: &impl Serialize,
    ) -> Result<S> {
        let unknown = || Error::new(Code::Unimplemented, format!("{} has no action {action}", R::KIND.name));
        let actions = self.registered_of::<R>()?.actions;
        let action = actions.iter().find(|known| known.name == action).ok_or_else(unknown)?;
        let Value::Object(request) = serde_json::to_value(request).map_err(Error::internal)? else {
            return Err(Error::internal("the request of an action must be a JSON object"));
        };
        serde_json::from_value(self.run(caller, R::KIND, action, &request).await?).map_err(Error::internal)
    }

    /// Runs an action as [`Platform::run`], and returns its reply without parsing it: some actions reply with rendered
    /// bytes.
    ///
    /// # Errors
    /// As [`Platform::run`]; [`Error::etag_mismatch`] when a precondition does not hold, and
    /// [`Error::unchecked_condition`] for one that the action does not check.
    pub async fn run_rendered(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<ActionReply> {
        if let Run::Pages(_) = action.run {
            return self.run_pages(caller, kind, action, request).await.map(ActionReply::Value);
        }
        let done = match (caller, action.authorization) {
            (_, Authorization::Public) => {
                verbs::action::run(&Context::without_caller(self, options), action, request).await
            }
            (None, _) => Err(Error::missing_token()),
            (Some(caller), _) if action.takes_key() && options.key_of_write().is_some() => {
                let method = [kind.name, action.name];
                let known = |key: &_| Request::new(key, caller, &method, &options.preconditions, request);
                let run = self.once_per_key(caller, options, known, |cx| {
                    Box::pin(async move { verbs::action::run(cx, action, request).await?.into_reply() })
                });
                run.await.map(ActionReply::Resource)
            }
            (Some(caller), _) => {
                self.with_options(caller, options, |cx| Box::pin(verbs::action::run(cx, action, request))).await
            }
        };
        done.map_err(|error| error.of_domain(kind.domain.name))
    }

    /// Runs an action that returns everything that matches, for the page after this token, which is empty for the first.
    ///
    /// # Errors
    /// As [`Platform::run`].
    pub async fn run_page(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
        page_token: &str,
    ) -> Result<ListPage> {
        let done = match (caller, action.authorization) {
            (_, Authorization::Public) => {
                let cx = Context::without_caller(self, RequestOptions::none());
                verbs::action::run_page(&cx, action, request, page_token).await
            }
            (None, _) => Err(Error::missing_token()),
            (Some(caller), _) => {
                self.with_caller(caller, |cx| Box::pin(verbs::action::run_page(cx, action, request, page_token))).await
            }
        };
        done.map_err(|error| error.of_domain(kind.domain.name))
    }

    /// Runs an action that returns everything that matches, and returns all pages as one response.
    async fn run_pages(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<Value> {
        let (mut items, mut page_token, mut pace) = (Vec::new(), String::new(), Pace::new(self.offload()));
        loop {
            let page = self.run_page(caller, kind, action, request, &page_token).await?;
            for item in &page.items {
                items.push(serde_json::from_slice::<Value>(item).map_err(Error::internal)?);
                pace.step(item.len()).await;
            }
            match page.next_page_token {
                Some(next) => page_token = next,
                None => return Ok(json!({ action.list_field(): items })),
            }
        }
    }

    /// Checks that the caller may call a standard method for this uid, which for a create is the parent's. Transports
    /// call it before they read the body of a request.
    ///
    /// Cached grants suffice to pass, without a read of the store: the method itself checks again.
    ///
    /// # Errors
    /// PERMISSION_DENIED, as the method would return; INVALID_ARGUMENT for a malformed uid.
    pub async fn admit(&self, caller: &Caller, registered: &Registered, verb: Verb, uid: &str) -> Result<()> {
        let kind = registered.kind;
        let cx = Context::new(self, Some(caller), self.grants_of(caller).await?, RequestOptions::none());
        if verbs::demand(&cx, registered, verb, uid).await.is_ok() {
            return Ok(());
        }
        // The cached grants may be stale: check again with current ones before the caller is rejected.
        let done = self.with_caller(caller, |cx| Box::pin(verbs::demand(cx, registered, verb, uid))).await;
        done.map_err(|error| error.of_domain(kind.domain.name))
    }

    /// Checks that the caller may run an action, as [`Platform::admit`] does, by the part of the request that is known
    /// before its body is read. An action whose uid is in the body passes.
    ///
    /// # Errors
    /// PERMISSION_DENIED, as the action would return; INVALID_ARGUMENT for a malformed uid.
    pub async fn admit_action(
        &self,
        caller: &Caller,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<()> {
        if let Authorization::At(field, _) | Authorization::As(_, _, field) = action.authorization
            && verbs::action::sent(action, field, request).is_none()
        {
            return Ok(());
        }
        let cx = Context::new(self, Some(caller), self.grants_of(caller).await?, RequestOptions::none());
        if verbs::action::demand(&cx, action, request).await.is_ok() {
            return Ok(());
        }
        let done = self.with_caller(caller, |cx| Box::pin(verbs::action::demand(cx, action, request))).await;
        done.map_err(|error| error.of_domain(kind.domain.name))
    }

    /// Lists a page of the resources of a kind that the caller may see.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `page_token`, and NOT_FOUND for the resource that the list belongs to
    /// ([`Method::of`](crate::kind::Method::of)).
    pub async fn list<R: Resource>(&self, caller: &Caller, request: &ListRequest) -> Result<List<R>> {
        let reply = self.list_erased(Some(caller), self.registered_of::<R>()?, request).await?;
        let resources = reply.items.iter().map(|body| serde_json::from_slice(body).map_err(Error::internal));
        Ok(List {
            resources: resources.collect::<Result<_>>()?,
            next_page_token: reply.next_page_token,
            total_count: reply.total_count,
        })
    }

    /// Returns a stream of all resources of a request, which reads a page whenever it is polled and has none left. The
    /// request's page size is the number of resources that are read at once.
    ///
    /// A resource that exists throughout is returned exactly once. The stream ends at the first error.
    pub fn list_all<'a, R: Resource>(
        &'a self,
        caller: &'a Caller,
        request: ListRequest,
    ) -> impl Stream<Item = Result<R>> + 'a {
        let pages = stream::try_unfold(Some(request), move |request| async move {
            let Some(mut request) = request else { return Ok(None) };
            let List { resources, next_page_token, .. } = self.list::<R>(caller, &request).await?;
            let next = next_page_token.map(|token| {
                request.page_token = token;
                request.skip = 0;
                request
            });
            Ok(Some((stream::iter(resources.into_iter().map(Ok)), next)))
        });
        pages.flat_map(|page| match page {
            Ok(resources) => resources.boxed(),
            Err(error) => stream::once(Err(error)).boxed(),
        })
    }

    /// Gets a resource by its uid.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a malformed uid, PERMISSION_DENIED when the caller lacks a capability there, NOT_FOUND.
    pub async fn get<R: Resource>(&self, caller: &Caller, uid: &str) -> Result<R> {
        Ok(self.get_with::<R>(caller, uid, RequestOptions::none()).await?.resource)
    }

    /// Gets a resource as [`Platform::get`] does, with its revision and with the options of a request.
    ///
    /// # Errors
    /// As [`Platform::get_erased`].
    pub async fn get_with<R: Resource>(
        &self,
        caller: &Caller,
        uid: &str,
        options: &RequestOptions,
    ) -> Result<Revised<R>> {
        Revised::of(&self.get_erased(caller, self.registered_of::<R>()?, uid, options).await?)
    }

    /// Creates a resource below a parent, which is empty for a kind without parents.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT with all violations, NOT_FOUND for the parent, ALREADY_EXISTS.
    pub async fn create<R: Resource>(&self, caller: &Caller, parent: &str, resource: &R) -> Result<R> {
        Ok(self.create_with(caller, parent, resource, RequestOptions::none()).await?.resource)
    }

    /// Creates a resource as [`Platform::create`] does, with the options of a request. With an
    /// [idempotency key](RequestOptions::idempotency_key), the create can be repeated.
    ///
    /// # Errors
    /// As [`Platform::create_erased`].
    pub async fn create_with<R: Resource>(
        &self,
        caller: &Caller,
        parent: &str,
        resource: &R,
        options: &RequestOptions,
    ) -> Result<Revised<R>> {
        let body = sent(resource)?;
        Revised::of(&self.create_erased(caller, self.registered_of::<R>()?, parent, &body, options).await?)
    }

    /// Sets the fields of a resource that the mask names (`docs/api.md`, Updates).
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT with all violations, NOT_FOUND.
    pub async fn update<R: Resource>(&self, caller: &Caller, uid: &str, resource: &R, mask: &str) -> Result<R> {
        Ok(self.update_with(caller, uid, resource, mask, RequestOptions::none()).await?.resource)
    }

    /// Updates a resource as [`Platform::update`] does, with the options of a request. With
    /// [`Preconditions::of_revision`](crate::options::Preconditions::of_revision), a change that another writer made since
    /// the resource was read is not overwritten.
    ///
    /// # Errors
    /// As [`Platform::update_erased`].
    pub async fn update_with<R: Resource>(
        &self,
        caller: &Caller,
        uid: &str,
        resource: &R,
        mask: &str,
        options: &RequestOptions,
    ) -> Result<Revised<R>> {
        let body = sent(resource)?;
        Revised::of(&self.update_erased(caller, self.registered_of::<R>()?, uid, &body, Some(mask), options).await?)
    }

    /// Deletes a resource with its dependents.
    ///
    /// # Errors
    /// PERMISSION_DENIED, NOT_FOUND, FAILED_PRECONDITION when a dependent restricts the delete.
    pub async fn delete<R: Resource>(&self, caller: &Caller, uid: &str) -> Result<()> {
        self.delete_erased(caller, self.registered_of::<R>()?, uid, RequestOptions::none()).await.map(drop)
    }
}

/// A resource as a method returns it, with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revised<R> {
    /// The resource.
    pub resource: R,
    /// Its revision ([`Tag::revision`](crate::etag::Tag::revision)).
    pub revision: u64,
    /// Whether this is what an earlier request with the same idempotency key has returned.
    pub is_replayed: bool,
}

impl<R: Resource> Revised<R> {
    fn of(reply: &Reply) -> Result<Self> {
        let resource = typed(serde_json::from_slice(&reply.body).map_err(Error::internal)?)?;
        let revision = reply.tag.map_or(0, |tag| tag.revision());
        Ok(Self { resource, revision, is_replayed: reply.is_replayed })
    }
}

/// The reply of an action.
///
/// Exhaustive, because each transport must encode all cases.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionReply {
    /// A JSON object.
    Value(Value),
    /// A JSON object, encoded.
    Encoded(Bytes),
    /// A JSON object, encoded, with its ETag.
    Rendered(Rendered),
    /// A resource, as a standard method returns it.
    Resource(Reply),
}

impl ActionReply {
    /// Returns the object, encoded, with its tag if it is a resource.
    pub(crate) fn into_reply(self) -> Result<Reply> {
        match self {
            Self::Value(value) => verbs::encode(&value).map(Reply::untagged),
            Self::Encoded(body) | Self::Rendered(Rendered { body, .. }) => Ok(Reply::untagged(body)),
            Self::Resource(reply) => Ok(reply),
        }
    }

    /// Returns the object, which is parsed if it is encoded.
    ///
    /// # Errors
    /// INTERNAL when it is not JSON.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Encoded(body) | Self::Rendered(Rendered { body, .. }) | Self::Resource(Reply { body, .. }) => {
                serde_json::from_slice(&body).map_err(Error::internal)
            }
        }
    }
}

/// A page of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct List<R> {
    /// The resources, in order.
    pub resources: Vec<R>,
    /// The token of the next page; `None` on the last page.
    pub next_page_token: Option<String>,
    /// The number of resources on all pages that match and that the caller may see.
    pub total_count: u64,
}
