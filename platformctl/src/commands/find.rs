//! `find`: finds resources of all kinds by a part of a name, or by a uid.

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
        let line = format!("{:widest$}  {path:longest$}  {}", command_name(kind), field(item, "uid"));
        writeln!(out, "{}", printable(&line))?;
    }
    out.flush()?;
    if !bounds.is_empty() {
        say(format!("searched the first of each kind, and all for exactly this name: {}", bounds.join(", ")));
    }
    if found.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("nothing that you may see has {wanted} in its name")));
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
    let first = |query| -> Result<Vec<Value>> {
        let page = session.api.pages(kind, query)?.next(SHOWN)?;
        Ok(page.map(|page| page.items).unwrap_or_default())
    };
    if Uid::parse(wanted).is_ok() {
        // Kinds outside of the hierarchy have uids of their own forms, and no filter by them.
        if matches!(kind.parent, Parent::None) {
            return Ok(Default::default());
        }
        return Ok((first(query("uidp.ids", wanted))?, None));
    }
    if list.params.iter().any(|param| param.field.name == QUERY) {
        return Ok((first(query(QUERY, wanted))?, None));
    }
    let Some(name) = name_field(kind) else { return Ok(Default::default()) };
    let low = wanted.to_lowercase();
    if name.searched && wanted.len() >= TRIGRAM {
        match indexed(session, kind, name, wanted) {
            Ok(found) => return Ok((found, None)),
            // The part is in too many names, or the server is of an earlier release: search the first resources.
            Err(failure) if failure.is("INVALID_ARGUMENT") => {}
            Err(failure) => return Err(failure),
        }
    }
    let is_match =
        |item: &Value| field(item, name.name).to_lowercase().contains(&low) || field(item, "uid").contains(&low);
    let order = if name.sort.is_empty() { Vec::new() } else { query("order_by", name.name) };
    let mut pages = session.api.pages(kind, order)?;
    let (mut found, mut read, mut bound) = (Vec::new(), 0, None);
    while let Some(page) = pages.next(PAGE)? {
        read += page.items.len();
        found.extend(page.items.into_iter().filter(is_match));
        if !page.is_last && (read >= SEARCHED || found.len() >= SHOWN) {
            bound = Some(format!("{read} of {} {}", page.total, command_name(kind)));
            break;
        }
    }
    if bound.is_some() {
        let exact: Vec<_> = first(query(name.name, wanted))?.into_iter().filter(|item| is_new(item, &found)).collect();
        found.splice(0..0, exact);
    }
    found.truncate(SHOWN);
    Ok((found, bound))
}

fn is_new(item: &Value, found: &[Value]) -> bool {
    found.iter().all(|other| other.get("uid") != item.get("uid"))
}

/// Returns the resources that have exactly this name, and then those with a part of it, which the server finds by an index.
fn indexed(session: &Session<'_>, kind: &'static Kind, name: &Field, wanted: &str) -> Result<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    let mut add = |query: (&str, String)| -> Result<()> {
        let (key, value) = query;
        let page = session.api.pages(kind, vec![(key.to_owned(), value)])?.next(SHOWN)?;
        for item in page.map(|page| page.items).unwrap_or_default() {
            if is_new(&item, &found) {
                found.push(item);
            }
        }
        Ok(())
    };
    let is_param = |list: &Method| list.params.iter().any(|param| param.field.name == name.name);
    if kind.method(Verb::List).is_some_and(is_param) {
        add((name.name, wanted.to_owned()))?;
    }
    // Names of the API are in lower case; those of other kinds may be as the text is written.
    let low = wanted.to_lowercase();
    let parts = [&*low, wanted];
    for part in parts.iter().take(if low == wanted { 1 } else { 2 }) {
        add((FILTER, format!("{}:\"*{}*\"", name.name, escaped(part))))?;
    }
    found.truncate(SHOWN);
    Ok(found)
}

/// Returns a text as a part of a quoted one in a filter.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| r#"\"'*"#.contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Returns the paths of names of resources, as far as the names of the groups above them can be read.
fn paths(session: &Session<'_>, found: &[Match]) -> Result<Vec<String>> {
    let above = |item: &Value| -> Vec<String> {
        let uid = field(item, "uid").to_owned();
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
            names.extend(groups.iter().map(|group| (field(group, "uid").to_owned(), label(top, group).to_owned())));
        }
    }
    let path = |(kind, item): &Match| {
        let groups = above(item).into_iter().filter_map(|uid| names.get(&uid).cloned());
        groups.chain([label(kind, item).to_owned()]).collect::<Vec<_>>().join("/")
    };
    Ok(found.iter().map(path).collect())
}

/// Returns what to call a resource: its name, or else the first of its texts.
fn label<'v>(kind: &'static Kind, item: &'v Value) -> &'v str {
    let fields = || kind.fields.iter().filter(|field| field.name != "uid");
    let text = |one: &Field| item.get(one.name).and_then(Value::as_str).filter(|text| !text.is_empty());
    name_field(kind).and_then(text).or_else(|| fields().find_map(text)).unwrap_or_default()
}

fn field<'v>(item: &'v Value, name: &str) -> &'v str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}
