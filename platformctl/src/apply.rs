//! `apply`: creates and updates resources until they are as files describe them.

use std::io::Write;

use clap::ArgMatches;
use platform_engine::kind::Verb;

use crate::{
    api::Request,
    document,
    failure::{Exit, Failure, Result, printable},
    kinds::noun,
    session::{Session, confirm, progress, text, texts},
};

mod inventory;
mod plan;

use inventory::{Entry, Inventory};
use plan::{Action, Plan, Planner};

pub(crate) fn run(session: &Session<'_>, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let paths: Vec<String> = texts(matches, "file").into_iter().map(str::to_owned).collect();
    let documents = document::read(&paths)?;
    let inventory = text(matches, "set").map(|set| Inventory::open(session.api.url(), set, text(matches, "inventory")));
    let mut inventory = inventory.transpose()?;

    let mut planner = Planner::new(session);
    let plans = planner.plan_all(documents)?;
    for plan in &plans {
        print(plan, out)?;
    }
    let pruned: Vec<Entry> = match (&inventory, matches.get_flag("prune")) {
        (Some(inventory), true) => {
            let is_described = |entry: &&Entry| plans.iter().any(|plan| plan.uid.as_ref() == Some(&entry.uid));
            inventory.entries().iter().filter(|entry| !is_described(entry)).cloned().collect()
        }
        _ => Vec::new(),
    };
    for entry in &pruned {
        writeln!(out, "delete {} {} ({})", entry.kind, printable(&entry.name), entry.uid)?;
    }
    let changes = plans.iter().filter(|plan| plan.action != Action::Nothing).count();
    if let Some(place) = text(matches, "dry-run") {
        let unchecked = if place == "server" { preview(session, &plans, &pruned)? } else { 0 };
        if unchecked > 0 {
            writeln!(out, "{unchecked} not checked, because they depend on what does not exist yet")?;
        }
        writeln!(out, "would change {changes} and delete {}; {} unchanged", pruned.len(), plans.len() - changes)?;
        out.flush()?;
        return Ok(());
    }
    // The differences are shown before the first change.
    out.flush()?;
    if !pruned.is_empty() && !confirm(&format!("Delete {} resources?", pruned.len()), matches)? {
        return Err(Failure::new(Exit::Failed, "nothing was changed"));
    }

    let bar = progress((changes + pruned.len()) as u64);
    let (mut created, mut updated, unchanged) = (0, 0, plans.len() - changes);
    for plan in plans {
        // Resources that the plan could not know yet exist now.
        let plan = if plan.is_provisional { planner.plan(plan.placed)? } else { plan };
        let failed = |failure: Failure| failure.while_(&plan.placed.place);
        match plan.action {
            Action::Nothing => continue,
            Action::Create => {
                let resource = session.api.create(plan.kind, &plan.parent, plan.body.into()).map_err(failed)?;
                let uid = resource.get("uid").and_then(serde_json::Value::as_str).unwrap_or(&plan.parent);
                session.names.add(plan.kind, plan.name.clone(), uid);
                if let Some(inventory) = &mut inventory {
                    inventory.add(Entry { kind: plan.kind.name.to_owned(), uid: uid.to_owned(), name: plan.name })?;
                }
                created += 1;
            }
            Action::Replace => {
                session.api.create(plan.kind, &plan.parent, plan.body.into()).map_err(failed)?;
                updated += 1;
            }
            Action::Update => {
                let uid = plan.uid.as_deref().unwrap_or_default();
                session.api.update(plan.kind, uid, &plan.mask, plan.body.into(), None).map_err(failed)?;
                updated += 1;
            }
        }
        bar.inc(1);
    }
    let mut deleted = 0;
    // Children were created after their parents.
    for entry in pruned.iter().rev() {
        let kind = session.kinds.named(&entry.kind);
        let kind = kind.ok_or_else(|| Failure::usage(format!("the set has the unknown kind {}", entry.kind)))?;
        match session.api.delete(kind, &entry.uid, None) {
            // Somebody else has deleted it, or it was deleted with its parent.
            Err(failure) if failure.is("NOT_FOUND") => {}
            result => {
                result.map_err(|failure| failure.while_(format!("delete {} {}", noun(kind), entry.name)))?;
                deleted += 1;
            }
        }
        if let Some(inventory) = &mut inventory {
            inventory.remove(&entry.uid)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    writeln!(out, "{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged")?;
    out.flush()?;
    Ok(())
}

/// Has the server check each change without making it, and returns the number of those that it cannot check yet.
///
/// # Errors
/// With everything that the server rejects.
fn preview(session: &Session<'_>, plans: &[Plan], pruned: &[Entry]) -> Result<usize> {
    let (mut problems, mut unchecked): (Option<Failure>, _) = (None, 0);
    let mut check = |what: String, request: Result<Request>| {
        let request = request.map(|mut request| {
            request.query.push(("validateOnly".to_owned(), "true".to_owned()));
            request
        });
        if let Err(failure) = request.and_then(|request| session.api.send(&request)) {
            let problem = failure.while_(what).to_string();
            let problem = problem.trim_end().trim_start_matches("error: ").replace('\n', "\n  ");
            let all = problems.take().unwrap_or_else(|| Failure::new(Exit::Failed, "the server would reject this"));
            problems = Some(all.note(problem));
        }
    };
    for plan in plans.iter().filter(|plan| plan.action != Action::Nothing) {
        if plan.is_provisional {
            unchecked += 1;
            continue;
        }
        let request = match plan.action {
            Action::Update => Request::of(plan.kind, Verb::Update, plan.uid.as_deref().unwrap_or_default())
                .map(|request| request.query(vec![("updateMask".to_owned(), plan.mask.join(","))])),
            _ => Request::of(plan.kind, Verb::Create, &plan.parent),
        };
        check(plan.placed.place.clone(), request.map(|request| request.body(plan.body.clone().into())));
    }
    for entry in pruned {
        if let Some(kind) = session.kinds.named(&entry.kind) {
            check(format!("delete {} {}", noun(kind), entry.name), Request::of(kind, Verb::Delete, &entry.uid));
        }
    }
    problems.map_or(Ok(unchecked), Err)
}

/// Prints what will be done for a document, and the fields that differ.
fn print(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    let what = match plan.action {
        Action::Nothing => return Ok(()),
        Action::Create => "create",
        Action::Update => "update",
        Action::Replace => "replace",
    };
    let uid = plan.uid.as_ref().map(|uid| format!(" ({uid})")).unwrap_or_default();
    writeln!(out, "{what} {} {}{uid}", noun(plan.kind), printable(&plan.name))?;
    let lines = |fields: &serde_json::Map<String, serde_json::Value>| {
        if fields.is_empty() { Ok(String::new()) } else { document::yaml(fields) }
    };
    let (before, after) = (lines(&plan.before)?, lines(&plan.after)?);
    for change in similar::TextDiff::from_lines(&before, &after).iter_all_changes() {
        writeln!(out, "  {}{}", change.tag(), printable(change.value().trim_end_matches('\n')))?;
    }
    Ok(())
}
