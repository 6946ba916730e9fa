//! Why an identity has a capability at a place, or not: the role bindings that give it, or those that it has and the roles
//! that would give it.

use std::io::Write;

use platform_engine::{
    access::Capability,
    kind::{Action, By, Field, Http, Kind, Verb},
    uid,
};
use serde_json::Value;

use super::{is_it, roles, strings};
use crate::{
    api::{self, Request},
    failure::{Failure, Result, printable},
    session::Session,
};

/// The most role bindings and roles that an answer looks at.
const MOST: usize = 200;

/// Explains the access of an identity at a place.
pub(super) struct Explainer<'s> {
    session: &'s Session<'s>,
    kind: &'static Kind,
    action: &'static Action,
    identity: String,
    at: &'s str,
}

/// The role bindings that give a capability.
pub(super) struct Explained {
    capability: Capability,
    /// `ALLOWED`, `DENIED` or `UNKNOWN`.
    pub(super) decision: String,
    bindings: Vec<Value>,
    is_operator: bool,
}

impl<'s> Explainer<'s> {
    /// Returns an explainer for an identity, or for that of the token.
    ///
    /// # Errors
    /// If the server explains no access, or if there is no such identity.
    pub(super) fn new(session: &'s Session<'s>, identity: Option<&str>, at: &'s str) -> Result<Self> {
        let all = session.kinds.iter().flat_map(|one| one.actions.iter().map(|action| (one.kind, action)));
        let found = all.into_iter().find(|(_, action)| action.name == "ExplainAccess");
        let (kind, action) = found.ok_or_else(|| Failure::usage("the server explains no access"))?;
        let identity = match identity {
            Some(identity) => {
                let kind =
                    action.request.iter().find(|field| field.name == "identityUid").and_then(|field| field.uid_of);
                match kind.and_then(|name| session.kinds.named(name)) {
                    Some(kind) => session.names.uid(kind, identity)?,
                    None => identity.to_owned(),
                }
            }
            None => {
                let token = session.api.send(&Request::new(Http::Get, "/auth/v1/ok".to_owned()))?;
                text(&token, "/subject")
            }
        };
        Ok(Self { session, kind, action, identity, at })
    }

    /// Asks the server about a capability.
    ///
    /// # Errors
    /// Those of the request.
    pub(super) fn explain(&self, capability: Capability) -> Result<Explained> {
        let path = api::path(&self.kind.domain, self.action.path, |_| None)?;
        let query = [("uid", self.at), ("identityUid", &*self.identity), ("capability", capability.name())];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut reply = self.session.api.send(&Request::new(Http::Get, path).query(query))?;
        let bindings = match reply.get_mut("bindings").map(Value::take) {
            Some(Value::Array(bindings)) => bindings,
            _ => Vec::new(),
        };
        let is_operator = reply.get("operator").and_then(Value::as_bool).unwrap_or_default();
        Ok(Explained { capability, decision: text(&reply, "/decision"), bindings, is_operator })
    }

    /// Prints the role bindings that give a capability; without any, those that the identity has and why they do not
    /// suffice, and the roles that have the capability.
    ///
    /// # Errors
    /// Those of the requests and of the output.
    pub(super) fn print(&self, explained: &Explained, out: &mut dyn Write) -> Result<()> {
        let name = explained.capability.name();
        for one in explained.bindings.iter().filter_map(|one| one.get("binding")) {
            writeln!(out, "{}", printable(&format!("{name}: {}", described(one))))?;
        }
        if explained.is_operator {
            writeln!(out, "the identity is an operator of the installation")?;
        } else if explained.bindings.is_empty() {
            self.print_missing(explained.capability, out)?;
        }
        Ok(())
    }

    fn print_missing(&self, capability: Capability, out: &mut dyn Write) -> Result<()> {
        let name = capability.name();
        writeln!(out, "{name}: no role binding that you may list gives it there")?;
        for one in self.bindings()? {
            let line = format!("{}: {}", described(&one), self.shortcoming(&one, name));
            writeln!(out, "  {}", printable(&line))?;
        }
        let roles = self.roles_with(capability)?;
        if !roles.is_empty() {
            writeln!(out, "  {}", printable(&format!("roles that have {name}: {}", roles.join(", "))))?;
        }
        Ok(())
    }

    /// Says why a role binding does not give a capability at the place.
    fn shortcoming(&self, binding: &Value, capability: &str) -> String {
        let group = text(binding, "/group/uid");
        let home = self.identity.rsplit_once('/').map_or("", |(home, _)| home);
        if !uid::is_at_or_below(self.at, &group) {
            "the place is not in that group".to_owned()
        } else if !home.is_empty() && !uid::is_at_or_below(self.at, home) {
            format!("the identity was created in {home}, and has no access outside of it")
        } else {
            format!("the role does not have {capability}")
        }
    }

    /// Returns the role bindings of the identity: those of the kind whose lists find them by it.
    fn bindings(&self) -> Result<Vec<Value>> {
        let lists = self.session.kinds.with(&[Verb::List]).map(|registered| registered.kind);
        let found = lists.filter(|kind| kind.field("role").is_some()).find_map(|kind| {
            let list = kind.method(Verb::List)?;
            let by_identity = list.params.iter().find(|param| param.by == By::Value("identityUid"))?;
            Some((kind, by_identity.field.name))
        });
        match found {
            Some((kind, name)) => self.first(kind, vec![(name.to_owned(), self.identity.clone())]),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the names of the roles that have a capability and can be given at the place.
    fn roles_with(&self, capability: Capability) -> Result<Vec<String>> {
        let Some((kind, field)) = roles(self.session) else { return Ok(Vec::new()) };
        let is_usable = |role: &Value| {
            let role = text(role, "/uid");
            role.rsplit_once('/').is_none_or(|(group, _)| uid::is_at_or_below(self.at, group))
        };
        let has = |role: &&Value| holds(role, field, capability) && is_usable(role);
        let all = self.first(kind, Vec::new())?;
        Ok(all.iter().filter(has).map(|role| text(role, "/name")).collect())
    }

    fn first(&self, kind: &'static Kind, query: Vec<(String, String)>) -> Result<Vec<Value>> {
        let page = self.session.api.pages(kind, query)?.next(MOST)?;
        Ok(page.map(|page| page.items).unwrap_or_default())
    }
}

fn holds(role: &Value, field: &Field, capability: Capability) -> bool {
    strings(role.get(field.name)).iter().any(|held| is_it(capability, held))
}

/// Returns a role binding in words.
fn described(binding: &Value) -> String {
    let text = |at: &str| text(binding, at);
    format!("role {} at {} (binding {})", text("/role/name"), text("/group/name"), text("/uid"))
}

fn text(value: &Value, at: &str) -> String {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
}
