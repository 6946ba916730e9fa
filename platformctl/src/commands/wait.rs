//! `wait`: waits until a resource fulfills a condition.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use clap::ArgMatches;
use platform_engine::kind::{Field, Kind, Type};
use serde_json::Value;

use crate::{
    failure::{Exit, Failure, Result},
    kinds::noun,
    session::{Session, text},
    value,
};

/// The condition that is waited for.
enum Condition {
    Exists,
    Deleted,
    /// The field at a path has a value.
    Is(&'static Field, Vec<&'static str>, Value),
}

pub(super) fn run(session: &Session<'_>, kind: &'static Kind, matches: &ArgMatches) -> Result<()> {
    let name = text(matches, "uid").unwrap_or_default();
    let wanted = text(matches, "for").unwrap_or_default();
    let condition = condition(kind, wanted)?;
    let duration = |name: &str| matches.get_one::<Duration>(name).copied().unwrap_or_default();
    let (started, timeout, interval) = (Instant::now(), duration("timeout"), duration("interval"));
    loop {
        let found = match session.names.uid(kind, name).and_then(|uid| session.api.get(kind, &uid)) {
            Ok(found) => Some(found),
            Err(failure) if failure.exit() == Exit::NotFound => None,
            // The server is waited for too.
            Err(failure) if failure.exit() == Exit::Unavailable && started.elapsed() < timeout => {
                sleep(interval);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let is_met = match (&condition, &found) {
            (Condition::Exists, found) => found.is_some(),
            (Condition::Deleted, found) => found.is_none(),
            (Condition::Is(..), None) => false,
            (Condition::Is(field, path, value), Some(found)) => {
                let at = path.iter().try_fold(found, |value, name| value.get(name));
                value::is_same(field, value, at.unwrap_or(&Value::Null))
            }
        };
        if is_met {
            return Ok(());
        }
        if started.elapsed() + interval > timeout {
            let timeout = humantime::format_duration(timeout);
            let message = format!("{} {name}: not {wanted} within {timeout}", noun(kind));
            return Err(Failure::new(Exit::TimedOut, message));
        }
        sleep(interval);
    }
}

fn condition(kind: &'static Kind, text: &str) -> Result<Condition> {
    let (path, wanted) = match text {
        "exists" => return Ok(Condition::Exists),
        "deleted" => return Ok(Condition::Deleted),
        _ => text.split_once('=').ok_or_else(|| Failure::usage("--for must be exists, deleted or FIELD=VALUE"))?,
    };
    let (mut fields, mut names, mut last) = (kind.fields, Vec::new(), None);
    for name in path.split('.') {
        let field = value::field(fields, name);
        let field = field.ok_or_else(|| Failure::usage(format!("{} has no field {path}", noun(kind))))?;
        names.push(field.name);
        fields = if let Type::Message(inner) = field.ty { inner } else { &[] };
        last = Some(field);
    }
    let field = last.ok_or_else(|| Failure::usage("--for needs a field"))?;
    let value = match wanted {
        "" => Value::Null,
        wanted => value::parse(&field.ty, wanted).map_err(|rule| Failure::usage(format!("{path}: {rule}")))?,
    };
    Ok(Condition::Is(field, names, value))
}

#[cfg(test)]
mod tests {
    use platform_core::resources::registry::Repo;
    use platform_engine::kind::Resource;

    use super::*;

    #[test]
    fn a_condition_names_a_field_of_the_kind() {
        assert!(matches!(condition(Repo::KIND, "deleted"), Ok(Condition::Deleted)));
        assert!(condition(Repo::KIND, "sync_config.source=a").is_ok());
        assert!(condition(Repo::KIND, "colour=red").is_err());
        assert!(condition(Repo::KIND, "soon").is_err());
    }
}
