//! Our own services, whose requests name a kind, and whose replies have resources of any kind as `google.protobuf.Any`.

use std::{collections::HashMap, sync::Arc};

use platform_engine::{
    error::{Error, Result},
    kind::{Kind, Registered},
};

use crate::{
    encode::Plan,
    methods::{Method, Operation},
};

/// The descriptors of the files in `proto/platform`.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/own.binpb");

/// The kinds that gRPC serves: those whose resources have a message.
#[derive(Debug, Default)]
pub(crate) struct Kinds(HashMap<&'static str, Arc<Resource>>);

/// A kind, and the message of its resources.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) registered: Registered,
    pub(crate) type_url: String,
    pub(crate) plan: Arc<Plan>,
}

impl Kinds {
    /// Returns the kinds of these methods, each with the message of its newest version.
    pub(crate) fn of(methods: &HashMap<String, Arc<Method>>) -> Self {
        let resource = |method: &Arc<Method>| {
            let (registered, plan) = match &method.operation {
                Operation::List(registered, page) => (*registered, page.item()),
                Operation::Get(registered) => (*registered, &method.output),
                _ => return None,
            };
            let type_url = format!("type.googleapis.com/{}", plan.message());
            let resource = Resource { registered, type_url, plan: Arc::clone(plan) };
            let is_newest = method.version == Some(registered.kind.domain.version());
            is_newest.then(|| (registered.kind.name, Arc::new(resource)))
        };
        Self(methods.values().filter_map(resource).collect())
    }

    /// Returns the kind of that name, which must have a method. `method` says in the error what the method does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `kind`.
    pub(crate) fn find(
        &self,
        name: &str,
        has_method: impl FnOnce(&'static Kind) -> bool,
        method: &str,
    ) -> Result<&Arc<Resource>> {
        let found = self.0.get(name).filter(|resource| has_method(resource.registered.kind));
        found.ok_or_else(|| {
            let rule = format!("must be the name of a kind with a message and {method}, such as `Repo`");
            Error::invalid_field("kind", rule)
        })
    }
}
