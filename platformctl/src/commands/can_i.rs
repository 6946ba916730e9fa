//! `can-i`: prints whether the token may call a method, by the capabilities that `/auth/v1/ok` returns, or whether another
//! identity may, by its role bindings.

use std::{collections::HashMap, io::Write};

use clap::ArgMatches;
use platform_core::capabilities;
use platform_engine::{
    access::Capability,
    kind::{Authorization, Field, Http, Kind, Type, Verb},
    uid,
};
use serde_json::Value;

use self::why::Explainer;
use crate::{
    api::Request,
    failure::{Exit, Failure, Result},
    kinds::{action, verb},
    session::{Session, text},
};

mod why;

/// The requirements of a method.
enum Needs {
    Nothing,
    /// All of these capabilities.
    All(Vec<Capability>),
}

pub(super) fn run(session: &Session<'_>, matches: &ArgMatches, out: &mut dyn Write) -> Result<bool> {
    let method = text(matches, "method").unwrap_or_default();
    let (needs, kind) = match text(matches, "kind") {
        Some(kind) => {
            let registered = session.kinds.find(kind)?;
            let needs = match verb(method) {
                Some(verb) => of_verb(registered.kind, verb)?,
                None => of_authorization(&action(registered, method)?.authorization)?,
            };
            (needs, Some(registered.kind))
        }
        None if method.contains('.') || method.starts_with("CAP_") => {
            let capability = capability(session, method)?;
            (Needs::All(vec![capability]), kind_of(session, capability))
        }
        None => return Err(Failure::usage("name a kind, or a capability such as repo.list")),
    };
    let at = text(matches, "under").map(|under| place(session, kind, under)).transpose()?;
    let identity = text(matches, "identity");
    let explains = identity.is_some() || matches.get_flag("why");
    let (Needs::All(needed), true, Some(at)) = (&needs, explains, &at) else {
        let is_allowed = is_held(session, &needs, at.as_deref())?;
        writeln!(out, "{}", if is_allowed { "yes" } else { "no" })?;
        out.flush()?;
        return Ok(is_allowed);
    };
    let explainer = Explainer::new(session, identity, at)?;
    let explained = needed.iter().map(|needed| explainer.explain(*needed)).collect::<Result<Vec<_>>>()?;
    let is_allowed = match identity {
        Some(_) => explained.iter().all(|one| one.decision == "ALLOWED"),
        None => is_held(session, &needs, Some(at))?,
    };
    let is_unknown = identity.is_some() && explained.iter().all(|one| one.decision != "DENIED");
    let answer = match is_allowed {
        true => "yes",
        false if is_unknown => "unknown: you may not list all role bindings that count there",
        false => "no",
    };
    writeln!(out, "{answer}")?;
    if matches.get_flag("why") {
        for one in &explained {
            explainer.print(one, out)?;
        }
    }
    out.flush()?;
    Ok(is_allowed)
}

/// Whether the token holds what a method requires, at a uid or anywhere.
fn is_held(session: &Session<'_>, needs: &Needs, at: Option<&str>) -> Result<bool> {
    let Needs::All(needed) = needs else { return Ok(true) };
    let held = held(session, at)?;
    Ok(needed.iter().all(|needed| held.iter().any(|held| is_it(*needed, held))))
}

fn of_verb(kind: &Kind, verb: Verb) -> Result<Needs> {
    let method = kind.method(verb).filter(|method| method.served);
    let method = method.ok_or_else(|| {
        Failure::usage(format!("{} have no method {}", crate::kinds::command_name(kind), verb.name().to_lowercase()))
    })?;
    Ok(match method.capabilities {
        [] => Needs::Nothing,
        all => Needs::All(all.to_vec()),
    })
}

fn of_authorization(authorization: &Authorization) -> Result<Needs> {
    match authorization {
        Authorization::Public | Authorization::Authenticated => Ok(Needs::Nothing),
        Authorization::At(_, capabilities)
        | Authorization::Anywhere(capabilities)
        | Authorization::FiltersResult(capabilities) => Ok(Needs::All(capabilities.to_vec())),
        Authorization::As(kind, verb, _) => of_verb(kind, *verb),
    }
}

/// Returns the uid at which access is decided: that of a resource of the kind, or of one above.
fn place(session: &Session<'_>, kind: Option<&'static Kind>, under: &str) -> Result<String> {
    match kind.or_else(|| session.kinds.top()) {
        Some(kind) if matches!(kind.parent, platform_engine::kind::Parent::GroupOrNone) => {
            session.names.uid(kind, under)
        }
        // A path of names may be that of the resource itself.
        Some(kind) => session.names.above(kind, under).or_else(|missing| match missing.exit() {
            Exit::NotFound => session.names.uid(kind, under).map_err(|_| missing),
            _ => Err(missing),
        }),
        None => Ok(under.to_owned()),
    }
}

/// Returns the capabilities that the token holds at a uid or above it, or at any group.
fn held(session: &Session<'_>, at: Option<&str>) -> Result<Vec<String>> {
    let token = session.api.send(&Request::new(Http::Get, "/auth/v1/ok".to_owned()))?;
    let groups = token.get("capabilities").and_then(Value::as_array).into_iter().flatten();
    let mut roles: HashMap<String, Vec<String>> = HashMap::new();
    let mut held = Vec::new();
    for entry in groups {
        let group = entry.get("group").and_then(Value::as_str).unwrap_or_default();
        if at.is_some_and(|at| !group.is_empty() && !uid::is_at_or_below(at, group)) {
            continue;
        }
        held.extend(strings(entry.get("capabilities")));
        let role = entry.get("role").and_then(Value::as_str).unwrap_or_default();
        if !role.is_empty() && !roles.contains_key(role) {
            let capabilities = capabilities_of(session, role)?;
            held.extend(capabilities.iter().cloned());
            roles.insert(role.to_owned(), capabilities);
        }
    }
    Ok(held)
}

/// Returns the capabilities of a built-in role.
fn capabilities_of(session: &Session<'_>, role: &str) -> Result<Vec<String>> {
    let Some((kind, field)) = roles(session) else { return Ok(Vec::new()) };
    let query = vec![("name".to_owned(), role.to_owned()), ("uidp.in_root".to_owned(), "true".to_owned())];
    let page = session.api.pages(kind, query)?.next(1)?;
    let role = page.and_then(|page| page.items.into_iter().next()).unwrap_or_default();
    Ok(strings(role.get(field.name)))
}

/// Returns the kind of roles, with its field of capabilities.
fn roles(session: &Session<'_>) -> Option<(&'static Kind, &'static Field)> {
    let field = |kind: &'static Kind| kind.fields.iter().find(|field| matches!(field.ty, Type::List(Type::Capability)));
    let mut kinds = session.kinds.iter().map(|registered| registered.kind);
    kinds.find_map(|kind| crate::names::name_field(kind).and(field(kind)).map(|field| (kind, field)))
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let all = list.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the capability with this name or identifier: one of the contract, or one that a kind requires.
fn capability(session: &Session<'_>, name: &str) -> Result<Capability> {
    let methods = session.kinds.iter().flat_map(|registered| registered.kind.methods);
    let own = methods.flat_map(|method| method.capabilities).copied();
    let found = capabilities::all().chain(own).find(|capability| is_it(*capability, name));
    found.ok_or_else(|| Failure::usage(format!("there is no capability {name}")))
}

/// Returns the kind that a capability is about: the first with a method that requires it, or else one of the same group of
/// capabilities, such as `repo.` of `repo.list`.
fn kind_of(session: &Session<'_>, capability: Capability) -> Option<&'static Kind> {
    let group = |one: Capability| one.name().rsplit_once('.').map(|(group, _)| group);
    let requires = |test: &dyn Fn(Capability) -> bool| {
        let mut kinds = session.kinds.iter().map(|registered| registered.kind);
        kinds.find(|kind| kind.methods.iter().flat_map(|method| method.capabilities).any(|one| test(*one)))
    };
    requires(&|one| one == capability).or_else(|| requires(&|one| group(one) == group(capability)))
}

/// Returns whether this is the name or the identifier of a capability: `repo.list` and `CAP_REPO_LIST`.
fn is_it(capability: Capability, name: &str) -> bool {
    capability.name() == name || capability.id() == name
}
