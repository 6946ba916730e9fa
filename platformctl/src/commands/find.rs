//! `find`: finds resources of all kinds by a part of a name or of another text that identifies them, or by a uid.

use std::{collections::HashMap, io::Write};

use clap::ArgMatches;
use platform_engine::{
    kind::{Field, Kind, Method, Parent, Verb},
    uid::Uid,
};
use serde_json::Value;

use crate::{
    api,
    failure::{Exit, Failure, Result, printable},
    kinds::command_name,
    names::name_field,
    session::{Session, say, text},
};

/// The first resources of each kind that are searched, unless the server searches them.
const SEARCHED: usize = 1000;

/// The most matches of each kind that are printed.
const SHOWN: usize = 20;

const PAGE: usize = 200;

/// The parameter of lists that search by a part of a text.
const QUERY: &str = "query";

/// The parameter of lists with a filter.
const FILTER: &str = "filter";

/// The length in bytes of the shortest part that servers find by an index.
const TRIGRAM: usize = 3;

/// A match: the kind, and the resource.
type Match = (&'static Kind, Value);

pub(super) fn run(session: &Session<'_>, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let wanted = text(matches, "text").unwrap_or_default();
    let (mut found, mut bounds): (Vec<Match>, _) = (Vec::new(), Vec::new());
    for registered in session.kinds.with(&[Verb::List]) {
        let kind = registered.kind;
        match search(session, kind, wanted) {
            Ok((items, bound)) => {
                found.extend(items.into_iter().map(|item| (kind, item)));
                bounds.extend(bound);
            }
            Err(failure) if failure.is("PERMISSION_DENIED") => {}
            Err(failure) => return Err(failure),
        }
    }
    let paths = paths(session, &found)?;
    let widest = found.iter().map(|(kind, _)| command_name(kind).len()).max().unwrap_or_default();
    let longest = paths.iter().map(|path| console::measure_text_width(path)).max().unwrap_or_default();
    for ((kind, item), path) in found.iter().zip(&paths) {
        let line = format!("{:widest$}  {path:longest$}  {}", command_name(kind), text_of(item, "uid"));
        writeln!(out, "{}", printable(&line))?;
    }
    out.flush()?;
    if !bounds.is_empty() {
        say(format!("searched the first of each kind, and all for exactly this name: {}", bounds.join(", ")));
    }
    if found.is_empty() {
        return Err(Failure::new(
            Exit::NotFound,
            format!("nothing that you may see has {wanted} in its name, address or identifier"),
        ));
    }
    Ok(())
}

/// Returns the matches of a kind, and the bound of the search if there are more resources than it.
fn search(session: &Session<'_>, kind: &'static Kind, wanted: &str) -> Result<(Vec<Value>, Option<String>)> {
    let Some(list) = kind.method(Verb::List) else { return Ok(Default::default()) };
    let is_required = |name: &str| api::is_in_path(kind, list, name);
    if list.params.iter().any(|param| param.field.required || is_required(param.field.name)) {
        return Ok(Default::default());
    }
    let query = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    if Uid::parse(wanted).is_ok() {
        // Kinds outside of the hierarchy have uids of their own forms, and no filter by them.
        if matches!(kind.parent, Parent::None) {
            return Ok(Default::default());
        }
        return Ok((first(session, kind, "uidp.ids", wanted.to_owned())?, None));
    }
    if list.params.iter().any(|param| param.field.name == QUERY) {
        return Ok((first(session, kind, QUERY, wanted.to_owned())?, None));
    }
    let name = name_field(kind);
    let is_other = |field: &&Field| field.findable && name.is_none_or(|name| name.name != field.name);
    let texts: Vec<_> = name.into_iter().chain(kind.fields.iter().filter(is_other)).collect();
    if texts.is_empty() {
        return Ok(Default::default());
    }
    let (mut found, mut is_whole) = (Vec::new(), true);
    for field in &texts {
        let is_filtered = field.findable || field.searched && wanted.len() >= TRIGRAM;
        if !is_filtered {
            is_whole = false;
            continue;
        }
        match filtered(session, kind, field, wanted) {
            Ok(items) => add(&mut found, items),
            // The part is in too many texts, or the server is of an earlier release: search the first resources.
            Err(failure) if failure.is("INVALID_ARGUMENT") => is_whole = false,
            Err(failure) => return Err(failure),
        }
    }
    let mut bound = None;
    if !is_whole {
        let low = wanted.to_lowercase();
        let has_part = |item: &Value, field: &&Field| text_of(item, field.name).to_lowercase().contains(&low);
        let is_match =
            |item: &Value| texts.iter().any(|field| has_part(item, field)) || text_of(item, "uid").contains(&low);
        let order = name.filter(|name| !name.sort.is_empty());
        let mut pages = session.api.pages(kind, order.map_or_else(Vec::new, |name| query("order_by", name.name)))?;
        let (mut read, mut matches) = (0, Vec::new());
        while let Some(page) = pages.next(PAGE)? {
            read += page.items.len();
            matches.extend(page.items.into_iter().filter(is_match));
            if !page.is_last && (read >= SEARCHED || matches.len() >= SHOWN) {
                bound = Some(format!("{read} of {} {}", page.total, command_name(kind)));
                break;
            }
        }
        if bound.is_some() {
            for field in &texts {
                add(&mut found, exact(session, kind, field, wanted)?);
            }
        }
        add(&mut found, matches);
    }
    found.truncate(SHOWN);
    Ok((found, bound))
}

/// Adds the resources that were not found before.
fn add(found: &mut Vec<Value>, items: Vec<Value>) {
    for item in items {
        if found.iter().all(|other| other.get("uid") != item.get("uid")) {
            found.push(item);
        }
    }
}

/// Returns the resources that have exactly this text, and then those with a part of it, as the server finds them.
fn filtered(session: &Session<'_>, kind: &'static Kind, field: &Field, wanted: &str) -> Result<Vec<Value>> {
    let mut found = exact(session, kind, field, wanted)?;
    // Names of the API are in lower case; other texts may be as the text is written.
    let low = wanted.to_lowercase();
    let parts = [&*low, wanted];
    for part in parts.iter().take(if low == wanted { 1 } else { 2 }) {
        add(&mut found, first(session, kind, FILTER, format!("{}:\"*{}*\"", field.name, escaped(part)))?);
    }
    Ok(found)
}

/// Returns the resources that have exactly this text, as it is written or in one case, if the server has an index of it.
fn exact(session: &Session<'_>, kind: &'static Kind, field: &Field, wanted: &str) -> Result<Vec<Value>> {
    let is_param = |list: &Method| list.params.iter().any(|param| param.field.name == field.name);
    if !kind.method(Verb::List).is_some_and(is_param) {
        return Ok(Vec::new());
    }
    let texts = [wanted.to_owned(), wanted.to_lowercase(), wanted.to_uppercase()];
    let equal = texts.map(|text| format!("{} = \"{}\"", field.name, escaped(&text)));
    match first(session, kind, FILTER, equal.join(" OR ")) {
        // A server of an earlier release has no filters.
        Err(failure) if failure.is("INVALID_ARGUMENT") => first(session, kind, field.name, wanted.to_owned()),
        done => done,
    }
}

/// Returns the first resources of a list with a parameter.
fn first(session: &Session<'_>, kind: &'static Kind, name: &str, value: String) -> Result<Vec<Value>> {
    let page = session.api.pages(kind, vec![(name.to_owned(), value)])?.next(SHOWN)?;
    Ok(page.map(|page| page.items).unwrap_or_default())
}

/// Returns a text as a part of a quoted one in a filter.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| r#"\"'*"#.contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Returns the paths of names of resources, as far as the names of the groups above them can be read.
fn paths(session: &Session<'_>, found: &[Match]) -> Result<Vec<String>> {
    let above = |item: &Value| -> Vec<String> {
        let uid = text_of(item, "uid").to_owned();
        uid.match_indices('/').map(|(at, _)| uid[..at].to_owned()).collect()
    };
    let mut names = HashMap::new();
    if let Some(top) = session.kinds.top() {
        let mut wanted: Vec<_> = found.iter().flat_map(|(_, item)| above(item)).collect();
        wanted.sort();
        wanted.dedup();
        for some in wanted.chunks(PAGE / 2) {
            let query = some.iter().map(|uid| ("uidp.ids".to_owned(), uid.clone())).collect();
            let page = session.api.pages(top, query)?.next(PAGE)?;
            let groups = page.map(|page| page.items).unwrap_or_default();
            names.extend(groups.iter().map(|group| (text_of(group, "uid").to_owned(), label(top, group).to_owned())));
        }
    }
    let path = |(kind, item): &Match| {
        let groups = above(item).into_iter().filter_map(|uid| names.get(&uid).cloned());
        groups.chain([label(kind, item).to_owned()]).collect::<Vec<_>>().join("/")
    };
    Ok(found.iter().map(path).collect())
}

/// Returns what to call a resource: its name, or else the first of the texts that identify it, or of all.
fn label<'v>(kind: &'static Kind, item: &'v Value) -> &'v str {
    let fields = || kind.fields.iter().filter(|field| field.name != "uid");
    let text = |one: &Field| item.get(one.name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let named = name_field(kind).into_iter().chain(fields().filter(|field| field.findable));
    named.chain(fields()).find_map(text).unwrap_or_default()
}

fn text_of<'v>(item: &'v Value, name: &str) -> &'v str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}
