//! The suite that every kind passes.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use platform_engine::{
    access::{Caller, Capability},
    kind::{Kind, Registered, Resource, sent},
    platform::Platform,
    uid::Uid,
};
use serde_json::Value;

use super::clock::TestClock;

mod access;
mod batch_gets;
mod conditions;
mod creates;
mod filters;
mod lists;
mod read_masks;
mod repeats;
mod steps;
mod updates;
mod watches;

/// Checks one kind of a platform against the rules that hold for all kinds (`docs/api.md`), by its table.
///
/// The suite creates, updates, lists and deletes resources of the kind as a caller who may do all of this, and panics
/// at the first rule that does not hold; the message names the kind, the check and the field. The test provides the
/// data that the table does not have: pairs of bodies with their parents, and for some kinds more.
///
/// ```no_run
/// # use platform_engine::{access::Caller, kind::Resource, platform::Platform, uid::Uid};
/// # use platform_testkit::{KindSuite, TestClock};
/// # fn suite<Ticket: Resource>(platform: Platform, clock: TestClock, owner: Caller, group: Uid, [a, b]: [Ticket; 2]) {
/// KindSuite::of::<Ticket>(&platform, &clock, owner).bodies(&group, &a, &b).run();
/// # }
/// ```
///
/// [`KindSuite::run`] does all checks. Each is a method too, for tests with names of their own:
///
/// | Check | Applies to |
/// |---|---|
/// | [`example_has_each_field`](Self::example_has_each_field) | all kinds |
/// | [`bodies_set_each_field`](Self::bodies_set_each_field) | creates |
/// | [`create_returns_what_get_returns`](Self::create_returns_what_get_returns) | creates |
/// | [`output_only_fields_are_ignored`](Self::output_only_fields_are_ignored) | creates with updates |
/// | [`each_field_is_updated_alone`](Self::each_field_is_updated_alone) | creates with updates |
/// | [`equal_values_change_nothing`](Self::equal_values_change_nothing) | creates with updates |
/// | [`masked_fields_are_cleared`](Self::masked_fields_are_cleared) | creates with updates |
/// | [`immutable_fields_stay`](Self::immutable_fields_stay) | creates with updates |
/// | [`preconditions_are_checked`](Self::preconditions_are_checked) | creates with gets and updates |
/// | [`previews_change_nothing`](Self::previews_change_nothing) | creates with gets |
/// | [`repeated_writes_happen_once`](Self::repeated_writes_happen_once) | creates |
/// | [`unknown_names_are_rejected`](Self::unknown_names_are_rejected) | all kinds |
/// | [`deleted_resources_are_not_found`](Self::deleted_resources_are_not_found) | deletes |
/// | [`singleton_is_always_there`](Self::singleton_is_always_there) | singletons with [`KindSuite::make`] |
/// | [`sort_keys_order_both_ways`](Self::sort_keys_order_both_ways) | lists |
/// | [`default_order_is_that_of_the_table`](Self::default_order_is_that_of_the_table) | lists |
/// | [`list_parameters_filter`](Self::list_parameters_filter) | lists |
/// | [`filters_select_by_each_field`](Self::filters_select_by_each_field) | lists |
/// | [`read_masks_show_their_fields`](Self::read_masks_show_their_fields) | lists |
/// | [`batch_gets_return_what_gets_return`](Self::batch_gets_return_what_gets_return) | gets |
/// | [`changes_are_watched_once`](Self::changes_are_watched_once) | creates with lists, in organizations |
/// | [`each_capability_is_required`](Self::each_capability_is_required) | with [`KindSuite::callers`] |
///
/// The checks of lists need resources with different values: the two bodies of a pair should differ in every field that
/// sorts or filters. Before a check, the suite deletes the resources that it has created. A kind without a delete
/// method whose resources must be unique therefore needs [`KindSuite::pairs`] that differ each time.
///
/// The suite blocks its thread until each operation ends. Hooks that need a runtime find it if the test has entered it.
pub struct KindSuite<'a> {
    platform: &'a Platform,
    clock: &'a TestClock,
    owner: Caller,
    registered: Registered,
    bodies: Vec<Pair>,
    pairs: Option<Box<dyn Fn() -> Vec<Pair> + 'a>>,
    make: Option<Box<dyn Fn() -> Uid + 'a>>,
    callers: Option<Callers<'a>>,
    extra: Vec<Capability>,
    givable: Vec<Capability>,
    query: &'a [(&'a str, &'a str)],
    renewed: &'a [(&'a str, &'a str)],
    needed: &'a [&'a str],
    distinct: &'a [&'a str],
    /// The resources that the suite has created.
    created: RefCell<Vec<Uid>>,
    /// The name of the current check.
    check: Cell<&'static str>,
}

/// Returns a caller who holds these capabilities.
type Callers<'a> = Box<dyn Fn(&[Capability]) -> Caller + 'a>;

/// A check of a [`KindSuite`].
pub type Check = fn(&KindSuite<'_>);

/// Two bodies that can be created below a parent and updated into each other. Both set the same alternatives of each
/// oneof.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The parent; empty for none.
    pub parent: Uid,
    /// The first body.
    pub a: Value,
    /// The second body.
    pub b: Value,
}

impl Pair {
    /// Returns two bodies below a parent.
    pub fn new(parent: &Uid, a: Value, b: Value) -> Self {
        Self { parent: parent.clone(), a, b }
    }
}

/// Configuration: data that the table of the kind does not have.
impl<'a> KindSuite<'a> {
    /// Returns a suite for a kind of the platform, which must read the time from the clock. The owner must be allowed
    /// to call all methods of the kind where the suite creates resources.
    pub fn of<R: Resource>(platform: &'a Platform, clock: &'a TestClock, owner: Caller) -> Self {
        Self::of_registered(platform, clock, owner, Registered::of::<R>())
    }

    /// Returns a suite for a kind with its type erased.
    pub fn of_registered(platform: &'a Platform, clock: &'a TestClock, owner: Caller, registered: Registered) -> Self {
        Self {
            platform,
            clock,
            owner,
            registered,
            bodies: Vec::new(),
            pairs: None,
            make: None,
            callers: None,
            extra: Vec::new(),
            givable: platform.capabilities().iter().filter(|capability| !capability.is_internal()).collect(),
            query: &[],
            renewed: &[],
            needed: &[],
            distinct: &[],
            created: RefCell::default(),
            check: Cell::new(""),
        }
    }

    /// Adds a pair of resources below a parent, which is empty for a kind at the top of the hierarchy. All pairs
    /// together must set every field that callers can set; a kind with a oneof needs a pair for each alternative.
    #[must_use]
    pub fn bodies<R: Resource>(mut self, parent: &Uid, a: &R, b: &R) -> Self {
        let [a, b] = [a, b].map(|body| Value::Object(sent(body).expect("a resource has a JSON form")));
        self.bodies.push(Pair { parent: parent.clone(), a, b });
        self
    }

    /// Sets a function that returns pairs of bodies, each time below other parents or with other unique values, in
    /// place of [`KindSuite::bodies`].
    #[must_use]
    pub fn pairs(mut self, pairs: impl Fn() -> Vec<Pair> + 'a) -> Self {
        self.pairs = Some(Box::new(pairs));
        self
    }

    /// Sets a function that makes another resource of the kind, for a kind without a create method.
    #[must_use]
    pub fn make(mut self, make: impl Fn() -> Uid + 'a) -> Self {
        self.make = Some(Box::new(make));
        self
    }

    /// Sets a function that returns a caller who holds exactly these capabilities where the suite creates resources.
    #[must_use]
    pub fn callers(mut self, callers: impl Fn(&[Capability]) -> Caller + 'a) -> Self {
        self.callers = Some(Box::new(callers));
        self
    }

    /// Sets the capabilities that a caller needs in addition to those of a method, because the bodies refer to other
    /// resources.
    #[must_use]
    pub fn extra_capabilities(mut self, extra: impl IntoIterator<Item = Capability>) -> Self {
        self.extra = extra.into_iter().collect();
        self
    }

    /// Sets the capabilities that [`KindSuite::callers`] can give. By default they are all of the platform that are not
    /// internal.
    #[must_use]
    pub fn givable_capabilities(mut self, givable: impl IntoIterator<Item = Capability>) -> Self {
        self.givable = givable.into_iter().collect();
        self
    }

    /// Sets the query parameters that every list of the kind requires.
    #[must_use]
    pub fn query(mut self, query: &'a [(&'a str, &'a str)]) -> Self {
        self.query = query;
        self
    }

    /// Sets the fields with a part that each update of the field renews, such as a time of expiry: the names of the
    /// field and of the part.
    #[must_use]
    pub fn renewed(mut self, renewed: &'a [(&'a str, &'a str)]) -> Self {
        self.renewed = renewed;
        self
    }

    /// Sets the fields that cannot be cleared although the table does not require them.
    #[must_use]
    pub fn needed(mut self, needed: &'a [&'a str]) -> Self {
        self.needed = needed;
        self
    }

    /// Sets the sort keys whose values all differ. All others must have ties.
    #[must_use]
    pub fn distinct(mut self, distinct: &'a [&'a str]) -> Self {
        self.distinct = distinct;
        self
    }

    /// Returns the table of the kind.
    pub fn kind(&self) -> &'static Kind {
        self.registered.kind
    }

    /// Runs all checks that apply to the kind.
    ///
    /// # Panics
    /// When a rule does not hold.
    pub fn run(&self) {
        for (_, check) in Self::CHECKS {
            check(self);
        }
    }

    /// All checks, by name.
    pub const CHECKS: &'static [(&'static str, Check)] = &[
        ("example_has_each_field", |suite| suite.example_has_each_field()),
        ("bodies_set_each_field", |suite| suite.bodies_set_each_field()),
        ("create_returns_what_get_returns", |suite| suite.create_returns_what_get_returns()),
        ("output_only_fields_are_ignored", |suite| suite.output_only_fields_are_ignored()),
        ("each_field_is_updated_alone", |suite| suite.each_field_is_updated_alone()),
        ("equal_values_change_nothing", |suite| suite.equal_values_change_nothing()),
        ("masked_fields_are_cleared", |suite| suite.masked_fields_are_cleared()),
        ("immutable_fields_stay", |suite| suite.immutable_fields_stay()),
        ("preconditions_are_checked", |suite| suite.preconditions_are_checked()),
        ("previews_change_nothing", |suite| suite.previews_change_nothing()),
        ("repeated_writes_happen_once", |suite| suite.repeated_writes_happen_once()),
        ("unknown_names_are_rejected", |suite| suite.unknown_names_are_rejected()),
        ("deleted_resources_are_not_found", |suite| suite.deleted_resources_are_not_found()),
        ("singleton_is_always_there", |suite| suite.singleton_is_always_there()),
        ("sort_keys_order_both_ways", |suite| suite.sort_keys_order_both_ways()),
        ("default_order_is_that_of_the_table", |suite| suite.default_order_is_that_of_the_table()),
        ("list_parameters_filter", |suite| suite.list_parameters_filter()),
        ("filters_select_by_each_field", |suite| suite.filters_select_by_each_field()),
        ("read_masks_show_their_fields", |suite| suite.read_masks_show_their_fields()),
        ("batch_gets_return_what_gets_return", |suite| suite.batch_gets_return_what_gets_return()),
        ("changes_are_watched_once", |suite| suite.changes_are_watched_once()),
        ("each_capability_is_required", |suite| suite.each_capability_is_required()),
    ];
}

/// Shows only the name of the kind, because functions do not implement `Debug`.
impl fmt::Debug for KindSuite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindSuite").field("kind", &self.kind().name).finish_non_exhaustive()
    }
}
