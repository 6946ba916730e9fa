//! The kinds of the command line, and how people write their names.

use heck::ToKebabCase;
use platform_engine::kind::{Action, Kind, Parent, Registered, Verb};

use crate::failure::{Failure, Result};

/// The kinds that the command line was built for.
#[derive(Debug)]
pub(crate) struct Kinds(Vec<Registered>);

impl Kinds {
    /// Keeps the kinds that have methods over REST.
    pub(crate) fn new(all: &[Registered]) -> Self {
        let is_served = |one: &&Registered| one.kind.served().next().is_some() || actions(one).next().is_some();
        Self(all.iter().filter(is_served).copied().collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.0.iter()
    }

    /// Returns the kinds that serve one of these methods.
    pub(crate) fn with(&self, verbs: &[Verb]) -> impl Iterator<Item = &Registered> {
        self.iter().filter(|one| verbs.iter().any(|verb| one.kind.serves(*verb)))
    }

    /// Returns the kind of a name in any spelling, in the singular or plural.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn find(&self, name: &str) -> Result<&Registered> {
        let name = name.to_kebab_case();
        let is_it = |one: &&Registered| names(one.kind).any(|known| known == name);
        self.iter()
            .find(is_it)
            .ok_or_else(|| Failure::usage(format!("there is no kind `{name}`; see `explain --help`")))
    }

    /// Returns the kind with exactly this name, such as `Repo`.
    pub(crate) fn named(&self, name: &str) -> Option<&'static Kind> {
        self.iter().map(|one| one.kind).find(|kind| kind.name == name)
    }

    /// Returns the kind of a kind's parents; `None` if it has none.
    pub(crate) fn parent(&self, kind: &Kind) -> Option<&'static Kind> {
        self.named(kind.parent.kind()?)
    }

    /// Returns the kind at the top of the hierarchy, whose resources contain those of most others.
    pub(crate) fn top(&self) -> Option<&'static Kind> {
        self.iter().map(|one| one.kind).find(|kind| matches!(kind.parent, Parent::GroupOrNone))
    }
}

/// Returns the actions that REST has.
pub(crate) fn actions(registered: &Registered) -> impl Iterator<Item = &'static Action> + use<> {
    registered.actions.iter().filter(|action| !action.path.is_empty())
}

/// Returns the name of a kind's subcommands, such as `role-bindings`.
pub(crate) fn command_name(kind: &Kind) -> String {
    kind.plural.to_kebab_case()
}

/// Returns the other names of these subcommands.
pub(crate) fn aliases(kind: &Kind) -> Vec<String> {
    let mut all = vec![kind.plural.to_owned(), kind.name.to_kebab_case(), kind.name.to_owned()];
    all.dedup();
    all.retain(|alias| *alias != command_name(kind));
    all
}

fn names(kind: &Kind) -> impl Iterator<Item = String> {
    [kind.plural.to_kebab_case(), kind.name.to_kebab_case()].into_iter()
}

/// Returns the name of a kind in messages, in the singular, such as `role binding`.
pub(crate) fn noun(kind: &Kind) -> String {
    kind.name.to_kebab_case().replace('-', " ")
}

/// Returns whether a create sends a parent: always, never, or as the caller chooses.
pub(crate) fn needs_parent(kind: &Kind) -> Option<bool> {
    match kind.parent {
        Parent::None => Some(false),
        Parent::GroupOrNone => None,
        Parent::Group | Parent::Of(_) | Parent::Sole(_) | Parent::Singleton(..) => Some(true),
    }
}

/// Returns a method that a kind serves, in the words of the command line.
pub(crate) fn verb(name: &str) -> Option<Verb> {
    [Verb::List, Verb::Get, Verb::Create, Verb::Update, Verb::Delete]
        .into_iter()
        .find(|verb| verb.name().eq_ignore_ascii_case(name))
}

/// Returns the action of a name.
///
/// # Errors
/// If the kind has none of this name.
pub(crate) fn action(registered: &Registered, name: &str) -> Result<&'static Action> {
    let is_it = |action: &&Action| action.name.to_kebab_case() == name.to_kebab_case();
    actions(registered)
        .find(is_it)
        .ok_or_else(|| Failure::usage(format!("{} have no method {name}", command_name(registered.kind))))
}
