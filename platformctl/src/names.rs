//! Finds uids by paths of names, such as `acme/team/nginx`.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use platform_engine::{
    kind::{By, Field, Kind, Parent, Verb},
    uid::Uid,
};
use serde_json::Value;

use crate::{
    api::Api,
    failure::{Exit, Failure, Result},
    kinds::{Kinds, command_name, noun},
};

mod references;

pub(crate) use references::resolve;

/// The most resources that an error lists when a name is ambiguous.
const MAX_SHOWN: usize = 10;

/// The names of the resources of a server.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    kinds: &'a Kinds,
    api: &'a Api,
    known: RefCell<HashMap<(&'static str, String), String>>,
    /// The kinds and paths of resources that will be created.
    planned: RefCell<HashSet<(&'static str, String)>>,
}

/// The resource that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Uid(String),
    /// A resource that will be created first.
    Planned,
}

impl<'a> Names<'a> {
    pub(crate) fn new(kinds: &'a Kinds, api: &'a Api) -> Self {
        Self { kinds, api, known: RefCell::default(), planned: RefCell::default() }
    }

    /// Adds a resource that will be created.
    pub(crate) fn plan(&self, kind: &'static Kind, path: String) {
        self.planned.borrow_mut().insert((kind.name, path));
    }

    /// Adds a resource that exists now.
    pub(crate) fn add(&self, kind: &'static Kind, path: String, uid: &str) {
        self.planned.borrow_mut().remove(&(kind.name, path.clone()));
        self.known.borrow_mut().insert((kind.name, path), uid.to_owned());
    }

    /// Returns the uid of an existing resource.
    ///
    /// # Errors
    /// If there is none, or if several have the name: the error lists their uids.
    pub(crate) fn uid(&self, kind: &'static Kind, text: &str) -> Result<String> {
        match self.find(kind, text)? {
            Found::Uid(uid) => Ok(uid),
            Found::Planned => Err(missing(kind, text)),
        }
    }

    /// Returns the uid of a resource, by its uid or its path of names.
    ///
    /// # Errors
    /// As [`Names::uid`].
    pub(crate) fn find(&self, kind: &'static Kind, text: &str) -> Result<Found> {
        if Uid::parse(text).is_ok() {
            return Ok(Found::Uid(text.to_owned()));
        }
        let text = text.trim_matches('/');
        let key = (kind.name, text.to_owned());
        if let Some(uid) = self.known.borrow().get(&key) {
            return Ok(Found::Uid(uid.clone()));
        }
        if self.planned.borrow().contains(&key) {
            return Ok(Found::Planned);
        }
        let found = self.look_up(kind, text)?;
        if let Found::Uid(uid) = &found {
            self.known.borrow_mut().insert(key, uid.clone());
        }
        Ok(found)
    }

    fn look_up(&self, kind: &'static Kind, text: &str) -> Result<Found> {
        if kind.parent.shares_uid()
            && let Some(parent) = self.kinds.parent(kind)
        {
            return self.find(parent, text);
        }
        let Some(name) = name_field(kind) else {
            return match kind.parent {
                // These uids are not always hexadecimal.
                Parent::None => Ok(Found::Uid(text.to_owned())),
                _ => Err(Failure::usage(format!("{} have no names: use the uid", command_name(kind)))),
            };
        };
        let found = match text.rsplit_once('/') {
            Some((parent, last)) => {
                let Some(parent_kind) = self.kinds.parent(kind) else { return Err(missing(kind, text)) };
                match self.find(parent_kind, parent)? {
                    Found::Uid(parent) => self.matches(kind, name, &parent, last)?,
                    Found::Planned => return Err(missing(kind, text)),
                }
            }
            // An organization is meant before a folder of the same name.
            None if matches!(kind.parent, Parent::GroupOrNone) => match self.matches(kind, name, "/", text)? {
                found if found.is_empty() => self.matches(kind, name, "", text)?,
                found => found,
            },
            None => self.matches(kind, name, "", text)?,
        };
        only(kind, text, &found).map(Found::Uid)
    }

    /// Returns the resources of a name directly below a parent: `/` for none, empty for any.
    fn matches(&self, kind: &'static Kind, name: &Field, parent: &str, text: &str) -> Result<Vec<Value>> {
        let mut query = vec![(name.name.to_owned(), text.to_owned())];
        if !parent.is_empty() {
            query.push(("uidp.children_of".to_owned(), parent.to_owned()));
        }
        let page = self.api.pages(kind, query)?.next(MAX_SHOWN + 1)?;
        let is_named = |item: &Value| item.get(name.name).and_then(Value::as_str) == Some(text);
        Ok(page.map(|page| page.items).unwrap_or_default().into_iter().filter(is_named).collect())
    }

    /// Returns the uid of the resource that `--under` names for a list or a parent of a kind: a resource of the kind above it, or of
    /// one further up.
    ///
    /// # Errors
    /// As [`Names::uid`].
    pub(crate) fn above(&self, kind: &'static Kind, text: &str) -> Result<String> {
        if text == "/" || Uid::parse(text).is_ok() {
            return Ok(text.to_owned());
        }
        let mut chain = Vec::new();
        let mut above = self.kinds.parent(kind);
        while let Some(one) = above {
            if !chain.iter().any(|known: &&Kind| known.name == one.name) {
                chain.push(one);
                above = self.kinds.parent(one);
            } else {
                break;
            }
        }
        let is_path = text.trim_matches('/').contains('/');
        // One name alone is that of an organization or a folder.
        let candidates = chain.iter().filter(|one| match one.parent {
            Parent::GroupOrNone => true,
            parent => is_path && (name_field(one).is_some() || parent.shares_uid()),
        });
        let mut found: Vec<(&'static Kind, String)> = Vec::new();
        for one in candidates {
            match self.uid(one, text) {
                Ok(uid) => found.push((one, uid)),
                Err(failure) if failure.exit() == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        match &found[..] {
            [(_, uid)] => Ok(uid.clone()),
            [] => {
                let message =
                    format!("no group or other parent of {} that you may see is named {text}", command_name(kind));
                let note = "leave out the groups above it that you may not see, or use its uid";
                let failure = Failure::new(Exit::NotFound, message);
                Err(if is_path { failure.note(note) } else { failure })
            }
            several => {
                let failure = Failure::usage(format!("{text} is ambiguous; use a uid"));
                Err(several.iter().fold(failure, |failure, (kind, uid)| failure.note(format!("{} {uid}", noun(kind)))))
            }
        }
    }
}

/// Returns the only one of some resources.
///
/// # Errors
/// If there is none, or if there are several: the error lists their uids.
pub(crate) fn only(kind: &Kind, text: &str, found: &[Value]) -> Result<String> {
    let uid = |item: &Value| item.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    match found {
        [one] => Ok(uid(one)),
        [] => Err(missing(kind, text)),
        several => {
            let failure = Failure::usage(format!("several {} match {text}; use one of these uids", command_name(kind)));
            let mut failure = several.iter().take(MAX_SHOWN).fold(failure, |failure, item| failure.note(uid(item)));
            if several.len() > MAX_SHOWN {
                failure = failure.note("and more");
            }
            Err(failure)
        }
    }
}

fn missing(kind: &Kind, text: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no {} {text}", noun(kind)))
}

/// Returns the field by which people name resources of a kind, which its lists can filter by: `name`, or the one that is
/// unique.
pub(crate) fn name_field(kind: &'static Kind) -> Option<&'static Field> {
    let params = || kind.method(Verb::List).filter(|list| list.served).map(|list| list.params).into_iter().flatten();
    let filtered = |name: &str| {
        let has_param = params().any(|param| param.field.name == name && param.by == By::Value(param.field.name));
        kind.field(name).filter(|_| has_param)
    };
    let unique = kind.unique.iter().filter(|unique| unique.by.len() == 1).flat_map(|unique| unique.by);
    filtered("name").or_else(|| unique.copied().find_map(filtered))
}

#[cfg(test)]
mod tests {
    use platform_core::resources::{
        iam::{Group, Role, RoleBinding},
        registry::{Repo, RepoFollower, Tag},
    };
    use platform_engine::kind::Resource;

    use super::*;

    #[test]
    fn kinds_are_named_by_a_filter_of_their_lists() {
        for kind in [Group::KIND, Role::KIND, Repo::KIND, Tag::KIND] {
            assert_eq!(name_field(kind).map(|field| field.name), Some("name"), "{}", kind.name);
        }
        for kind in [RoleBinding::KIND, RepoFollower::KIND] {
            assert!(name_field(kind).is_none(), "{}", kind.name);
        }
    }
}
