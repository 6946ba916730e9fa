//! The check of access.

use platform_engine::{
    access::{Caller, Capability},
    error::Code,
    kind::Verb,
};

use super::{KindSuite, steps::uid_of};

impl KindSuite<'_> {
    /// Each method needs each of its capabilities and no other: a caller who holds only them may call it, and a caller
    /// who holds all but one of them may not. Done with [`KindSuite::callers`] only.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn each_capability_is_required(&self) {
        self.begin("each_capability_is_required", &[]);
        let Some(callers) = &self.callers else { return };
        for method in self.kind().methods.iter().filter(|method| !method.open) {
            let verb = method.verb;
            let needed = [method.capabilities, &self.extra].concat();
            let is_allowed = self.attempt(&callers(&needed), verb);
            self.require(is_allowed, verb.name(), format_args!("must be allowed with {}", names(&needed)));
            for missing in method.capabilities {
                let others: Vec<_> = self.givable.iter().copied().filter(|other| other != missing).collect();
                let is_allowed = self.attempt(&callers(&others), verb);
                self.require(!is_allowed, verb.name(), format_args!("must be denied without {}", missing.name()));
            }
        }
    }

    /// Calls a method as a caller, on another resource that the owner has created, and returns whether it was allowed.
    /// A list is allowed if it shows the resource.
    ///
    /// # Panics
    /// When the method fails for any other reason than PERMISSION_DENIED.
    pub fn attempt(&self, caller: &Caller, verb: Verb) -> bool {
        let pair = self.fresh_pairs().pop();
        let existing = || match (&self.make, &pair) {
            (Some(make), _) => make(),
            (None, Some(pair)) => uid_of(&self.create(&pair.parent, &pair.a)),
            (None, None) => self.fail("the kind needs bodies or `make`"),
        };
        let done = match (verb, &pair) {
            (Verb::List, _) => {
                let uid = existing();
                return self.walk(caller, &[]).iter().any(|item| uid_of(item) == uid);
            }
            (Verb::Get, _) => self.get(caller, &existing()).map(drop),
            (Verb::Create, Some(pair)) => self.try_create(caller, &pair.parent, &pair.a).map(drop),
            (Verb::Create, None) => self.fail("the kind needs bodies"),
            (Verb::Update, _) => {
                let body = pair.as_ref().map_or_else(self.registered.example, |pair| pair.b.clone());
                self.try_update(caller, &existing(), &body, Some("*")).map(drop)
            }
            (Verb::Delete, _) => self.delete(caller, &existing()),
        };
        match done {
            Ok(()) => true,
            Err(error) => {
                self.failed(verb.name(), Err::<(), _>(error), Code::PermissionDenied);
                false
            }
        }
    }
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ")
}
