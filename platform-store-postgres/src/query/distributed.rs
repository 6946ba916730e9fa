//! Gets and lists of a distributed database: a statement for each organization.
//!
//! There is no common state of several organizations. Epochs of organizations of which nothing else is read are read
//! last, so that what they guard was read before them.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

use futures_util::future::try_join_all;
use platform_engine::store::{Epoch, Item, Key, Page, Position, Query, Read, Scope};
use tokio_postgres::Row;

use super::{Nodes, epoch_rows, epoch_values, list_of, record, statements::GET_MANY};
use crate::{
    batch::{all_of, pipeline},
    connection::{Connection, Params},
    error::Failure,
    schema::{self, Org, Slots},
    split::local,
};

/// A statement and its parameters.
type Statement = (Cow<'static, str>, Params);

/// Reads epochs ($2) of one organization ($1).
pub(crate) const READ_EPOCHS_OF: &str =
    "SELECT e.name, e.value FROM epoch e WHERE e.org = $1 AND e.name = ANY($2::text[])";

/// The number of records that a list of several organizations passes over in one step, and their bytes.
const STEP: usize = 1_000;
const STEP_BYTES: usize = 4 << 20;

/// Returns the indices of elements by organization.
fn by_organization<T>(of: &[T], org: impl Fn(&T) -> Org) -> BTreeMap<Org, Vec<usize>> {
    let mut all: BTreeMap<Org, Vec<usize>> = BTreeMap::new();
    for (index, one) in of.iter().enumerate() {
        all.entry(org(one)).or_default().push(index);
    }
    all
}

fn chosen<T: Clone>(of: &[T], indices: Option<&Vec<usize>>) -> Vec<T> {
    indices.into_iter().flatten().filter_map(|index| of.get(*index).cloned()).collect()
}

fn epoch_org(epoch: &Epoch) -> Org {
    schema::epoch(epoch).0
}

/// Reads records by key, and epochs, with one statement for each organization.
pub(crate) async fn get(connection: &Connection, keys: &[Key], epochs: &[Epoch]) -> Result<Read, Failure> {
    let of_keys = by_organization(keys, |key| schema::organization(&key.uid));
    let of_epochs = by_organization(epochs, epoch_org);
    let get = local(GET_MANY);
    let mut statements: Vec<Statement> = Vec::new();
    for (org, indices) in &of_keys {
        let own = chosen(keys, Some(indices));
        let (orgs, names) = epoch_rows(&chosen(epochs, of_epochs.get(org)));
        let mut params: Params = vec![
            Box::new(orgs),
            Box::new(names),
            Box::new(vec![*org; own.len()]),
            Box::new(own.iter().map(|key| key.kind).collect::<Vec<_>>()),
            Box::new(own.iter().map(|key| key.uid.to_string()).collect::<Vec<_>>()),
        ];
        if get.appended {
            params.push(Box::new(*org));
        }
        statements.push((get.sql.clone().into(), params));
    }
    let others = of_epochs.iter().filter(|(org, _)| !of_keys.contains_key(org));
    for (org, indices) in others.clone() {
        statements.push(epochs_statement(*org, &chosen(epochs, Some(indices))));
    }
    let results = all_of(pipeline(connection, &statements).await?)?;
    let mut results = results.iter();
    let mut read = Read { records: keys.iter().map(|_| None).collect(), epochs: vec![0; epochs.len()] };
    for ((org, indices), rows) in of_keys.iter().zip(&mut results) {
        let own = of_epochs.get(org).map_or(&[][..], Vec::as_slice);
        for row in rows {
            let Some(place) = row.try_get::<_, Option<i64>>(0)? else {
                set(&mut read.epochs, own, epoch_values(row, 3)?);
                continue;
            };
            let index = usize::try_from(place).ok().and_then(|place| indices.get(place.checked_sub(1)?).copied());
            let Some(index) = index else { continue };
            if let (Some(key), Some(found)) = (keys.get(index), read.records.get_mut(index)) {
                *found = Some(record(key, row, 1)?);
            }
        }
    }
    for ((_, indices), rows) in others.zip(results) {
        set(&mut read.epochs, indices, named(&chosen(epochs, Some(indices)), rows)?);
    }
    Ok(read)
}

fn set(values: &mut [u64], indices: &[usize], new: Vec<u64>) {
    for (index, new) in indices.iter().zip(new) {
        if let Some(value) = values.get_mut(*index) {
            *value = new;
        }
    }
}

fn epochs_statement(org: Org, epochs: &[Epoch]) -> Statement {
    let (_, names) = epoch_rows(epochs);
    (READ_EPOCHS_OF.into(), vec![Box::new(org), Box::new(names)])
}

/// Returns the values of epochs among rows with names and values.
fn named(epochs: &[Epoch], rows: &[Row]) -> Result<Vec<u64>, Failure> {
    let rows = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.cast_unsigned())));
    let values: BTreeMap<String, u64> = rows.collect::<Result<_, tokio_postgres::Error>>()?;
    Ok(epochs.iter().map(|epoch| values.get(&schema::epoch(epoch).1).copied().unwrap_or(0)).collect())
}

/// Reads a page: of one organization with one statement, which reads the epochs of the organization too; of several with
/// one for each, whose results are merged; or of all nodes.
pub(crate) async fn list(connection: &Connection, slots: &Slots, salt: u64, query: &Query) -> Result<Page, Failure> {
    let slots = (slots, salt);
    let scopes = by_organization(&query.scopes, |scope| match scope {
        Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => schema::organization(uid),
        Scope::Roots | Scope::All => schema::installation(),
    });
    let of_epochs = by_organization(&query.epochs, epoch_org);
    let mut values = vec![0; query.epochs.len()];
    let mut read = BTreeSet::new();
    let everywhere = query.scopes.iter().any(|scope| matches!(scope, Scope::Roots | Scope::All));
    let mut page = match scopes.first_key_value() {
        None => Page { total: query.count.then_some(0), ..Page::default() },
        Some(_) if everywhere => list_everywhere(connection, slots, query).await?,
        Some((org, _)) if scopes.len() == 1 => {
            let own = of_epochs.get(org).map_or(&[][..], Vec::as_slice);
            let epochs = chosen(&query.epochs, of_epochs.get(org)).into();
            let (page, _) = list_of(connection, slots, &Query { epochs, ..query.clone() }, Nodes::Of(*org)).await?;
            set(&mut values, own, page.epochs.clone());
            read.insert(*org);
            page
        }
        Some(_) => list_several(connection, slots, query, &scopes).await?,
    };
    let others: Vec<_> = of_epochs.iter().filter(|(org, _)| !read.contains(*org)).collect();
    let statements: Vec<Statement> =
        others.iter().map(|(org, indices)| epochs_statement(**org, &chosen(&query.epochs, Some(indices)))).collect();
    let results = all_of(pipeline(connection, &statements).await?)?;
    for ((_, indices), rows) in others.into_iter().zip(&results) {
        set(&mut values, indices, named(&chosen(&query.epochs, Some(indices)), rows)?);
    }
    page.epochs = values;
    Ok(page)
}

/// Reads a page of all nodes. The bodies that do not fit into it are read in vain.
async fn list_everywhere(connection: &Connection, slots: (&Slots, u64), query: &Query) -> Result<Page, Failure> {
    let all = Query { epochs: [].into(), ..query.clone() };
    let (page, positions) = list_of(connection, slots, &all, Nodes::All).await?;
    let total = page.total;
    let mut merged = merge(query, vec![(page, positions)]);
    merged.total = total;
    Ok(merged)
}

/// Reads a page of the scopes of several organizations.
async fn list_several(
    connection: &Connection,
    slots: (&Slots, u64),
    query: &Query,
    scopes: &BTreeMap<Org, Vec<usize>>,
) -> Result<Page, Failure> {
    let read = async |query: &Query| {
        let each = scopes.iter().map(|(org, indices)| {
            let scopes = chosen(&query.scopes, Some(indices));
            let own = Query { scopes, skip: 0, epochs: [].into(), ..query.clone() };
            async move { list_of(connection, slots, &own, Nodes::Of(*org)).await }
        });
        let pages = try_join_all(each).await?;
        let total: Option<u64> = pages.iter().map(|(page, _)| page.total).sum();
        Ok::<_, Failure>((merge(query, pages), total))
    };
    let mut query = query.clone();
    while query.skip > 0 {
        let limit = usize::try_from(query.skip).map_or(STEP, |skip| skip.min(STEP));
        let (passed, _) = read(&Query { limit, bytes: STEP_BYTES, count: false, ..query.clone() }).await?;
        query.skip -= passed.items.len() as u64;
        match passed.next {
            Some(next) => query.after = Some(next),
            None => (query.skip, query.limit) = (0, 0),
        }
    }
    let (mut page, total) = read(&query).await?;
    page.total = total;
    Ok(page)
}

/// The records of a page with their positions, and the position of the record after them.
type Source = std::vec::IntoIter<(Position, Option<Item>)>;

/// Merges pages in the order of a query, within its limits. Each has the positions of its records and of the one after.
fn merge(query: &Query, pages: Vec<(Page, Vec<Position>)>) -> Page {
    let sources = pages.into_iter().map(|(page, positions)| {
        // The record after the page is too long for it, also in the merged one.
        let items = page.items.into_iter().map(Some).chain(std::iter::once(None));
        positions.into_iter().zip(items).collect::<Vec<_>>().into_iter().peekable()
    });
    let mut sources: Vec<Peekable<Source>> = sources.collect();
    let (mut merged, mut last, mut length) = (Page::default(), None, 0_usize);
    loop {
        let mut first: Option<(usize, &Position, usize)> = None;
        for (index, source) in sources.iter_mut().enumerate() {
            let Some((position, item)) = source.peek() else { continue };
            let is_before = first.is_none_or(|(_, other, _)| {
                let order = (&position.value, &position.uid).cmp(&(&other.value, &other.uid));
                order == if query.order.descending { Ordering::Greater } else { Ordering::Less }
            });
            if is_before {
                first = Some((index, position, item.as_ref().map_or(usize::MAX, |item| item.body.len())));
            }
        }
        let Some((index, _, body)) = first else { break };
        length = length.saturating_add(body);
        let next = sources.get_mut(index).and_then(Iterator::next);
        match next {
            Some((position, Some(item)))
                if merged.items.len() < query.limit && (merged.items.is_empty() || length <= query.bytes) =>
            {
                last = Some(position);
                merged.items.push(item);
            }
            _ => {
                merged.next = last;
                break;
            }
        }
    }
    merged
}
