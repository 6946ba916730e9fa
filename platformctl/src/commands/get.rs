//! `get`: lists resources, or gets some of them.

use std::io::{IsTerminal, Write, stdout};

use clap::ArgMatches;
use platform_engine::{
    aip::filter::Text,
    kind::{By, Kind, Type, Verb},
    request::{DEFAULT_PAGE_SIZE, FILTER, MAX_PAGE_SIZE},
};
use serde_json::Value;

use super::watch;
use crate::{
    cli::options,
    failure::{Failure, Result, printable},
    kinds::command_name,
    names::name_field,
    output::{Format, Printer},
    session::{Session, format, progress, say, text, texts},
};

pub(super) fn run(session: &Session<'_>, kind: &'static Kind, matches: &ArgMatches, out: &mut dyn Write) -> Result<()> {
    let named = texts(matches, "uid");
    if !named.is_empty() && !named.iter().any(|text| text.contains('*')) {
        if let Ok(Some(true)) = matches.try_get_one::<bool>("watch") {
            return Err(Failure::usage("--watch is for lists, and not for resources that are named"));
        }
        if text(matches, "filter").is_some() {
            return Err(Failure::usage("--filter is for lists, and not for resources that are named"));
        }
        return get(session, kind, &named, matches, out);
    }
    if let Ok(Some(true)) = matches.try_get_one::<bool>("etag") {
        return Err(Failure::usage("--etag is for resources that are named, and not for lists"));
    }
    let query = query(session, kind, &named, matches)?;
    if let Ok(Some(true)) = matches.try_get_one::<bool>("watch") {
        return watch::run(session.api, kind, query, format(matches), out);
    }
    let limit = match (matches.try_get_one::<u64>("limit").ok().flatten(), matches.try_get_one::<bool>("all")) {
        (Some(limit), _) => *limit,
        (None, Ok(Some(true))) => u64::MAX,
        _ => DEFAULT_PAGE_SIZE as u64,
    };
    let mut pages = session.api.pages(kind, query)?;
    let mut printer = Printer::new(kind, format(matches), out, true);
    // On a terminal, the resources themselves show the progress.
    let bar = progress(0);
    if stdout().is_terminal() || limit <= MAX_PAGE_SIZE as u64 {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let (mut read, mut total, mut is_last) = (0, 0, false);
    while read < limit {
        let left = usize::try_from(limit - read).unwrap_or(usize::MAX);
        let Some(page) = pages.next(left.min(MAX_PAGE_SIZE))? else { break };
        read += page.items.len() as u64;
        (total, is_last) = (page.total, page.is_last);
        printer.items(&page.items)?;
        bar.set_length(total.min(limit));
        bar.set_position(read);
    }
    bar.finish_and_clear();
    printer.end(total)?;
    if read == 0 && matches!(format(matches), Format::Table) {
        say(format!("no {}", command_name(kind).replace('-', " ")));
    }
    let is_limited = matches.try_get_one::<u64>("limit").is_ok_and(|limit| limit.is_some());
    if !is_limited && !is_last && read < total {
        say(format!("{read} of {total} shown; --all reads all, and --limit or --skip others"));
    }
    Ok(())
}

/// Gets the resources of these uids or names, in their order.
fn get(
    session: &Session<'_>,
    kind: &'static Kind,
    named: &[&str],
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> Result<()> {
    let mut printer = Printer::new(kind, format(matches), out, named.len() > 1);
    let (mut found, mut tags) = (Vec::new(), Vec::new());
    for text in named {
        let (resource, tag) = session.api.read(kind, &session.names.uid(kind, text)?)?;
        found.push(resource);
        tags.push(tag.unwrap_or_default());
    }
    if let Ok(Some(true)) = matches.try_get_one::<bool>("etag") {
        tags.iter().try_for_each(|tag| writeln!(out, "{}", printable(tag)))?;
        return Ok(out.flush()?);
    }
    printer.items(&found)?;
    printer.end(found.len() as u64)
}

/// Returns the filter of a list: that of the command line, and that of the names, in which `*` stands for any text.
fn filter(kind: &'static Kind, names: &[&str], matches: &ArgMatches) -> Result<Option<String>> {
    let own = text(matches, "filter");
    if names.is_empty() {
        return Ok(own.map(str::to_owned));
    }
    let Some(field) = name_field(kind) else {
        return Err(Failure::usage(format!("{} have no names; use --filter", command_name(kind).replace('-', " "))));
    };
    if let Some(path) = names.iter().find(|name| name.contains('/')) {
        return Err(Failure::usage(format!("{path}: name the part before the last / with --under")));
    }
    let quoted = |name: &&str| Text::of_parts(name.split('*').map(str::to_owned).collect()).to_string();
    let names = names.iter().map(quoted).collect::<Vec<_>>().join(" OR ");
    let by_name = format!("{}:({names})", field.name);
    Ok(Some(own.map_or_else(|| by_name.clone(), |own| format!("{by_name} AND ({own})"))))
}

/// Returns the parameters of a list.
fn query(
    session: &Session<'_>,
    kind: &'static Kind,
    names: &[&str],
    matches: &ArgMatches,
) -> Result<Vec<(String, String)>> {
    let mut query = Vec::new();
    let mut add = |name: &str, value: String| query.push((name.to_owned(), value));
    if let Some(under) = text(matches, "under") {
        match session.names.above(kind, under)?.as_str() {
            "/" => add("uidp.in_root", "true".to_owned()),
            uid => add("uidp.descendants_of", uid.to_owned()),
        }
    }
    if let Some(filter) = filter(kind, names, matches)? {
        add(FILTER.name, filter);
    }
    if let Some(order) = text(matches, "order-by") {
        add("order_by", order.to_owned());
    }
    if let Some(skip) = matches.try_get_one::<u32>("skip").ok().flatten() {
        add("skip", skip.to_string());
    }
    let Some(list) = kind.method(Verb::List) else {
        return Err(Failure::usage(format!("name the {} to get", command_name(kind))));
    };
    for (name, value) in options::read(&options::of_list(list), matches)? {
        // A parameter that filters by a field with uids accepts names too.
        let param = list.params.iter().find(|param| param.field.name == name);
        let key = param.and_then(|param| match param.by {
            By::Value(key) => kind.field(key)?.uid_of,
            _ => None,
        });
        let of = key.or_else(|| param?.field.uid_of).and_then(|of| session.kinds.named(of));
        let values = match (param.map(|param| param.field.ty), value) {
            (Some(Type::List(_)), Value::Array(values)) => values,
            (_, value) => vec![value],
        };
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            add(&name, of.map_or(Ok(text.clone()), |of| session.names.uid(of, &text))?);
        }
    }
    Ok(query)
}
