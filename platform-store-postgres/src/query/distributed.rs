//! Gets and lists of a distributed database: a statement for each organization.
//!
//! There is no common state of several organizations. The records of an organization are read in one state with its
//! epochs, which guard them. Access to records of other organizations is decided by these epochs, too, so epochs are also
//! read after all records. If one was raised in between, everything is read again.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, iter::Peekable};

use futures_util::future::try_join_all;
use platform_engine::{
    store::{Epoch, Item, Key, OrderBy, Page, Position, Query, Read, Record, Scope, StoreError, place::Place},
    uid::Uid,
};
use tokio_postgres::{Row, types::ToSql};

use super::{
    After, Filters, MOST, Nodes, Scopes, choices, epoch_rows, epoch_values, key, list_of, page, positions, record,
    statements::{
        Bodies, GET_MANY, READ_LENGTH,
        everywhere::{COUNT_OF_KIND, EVERYWHERE, Part},
    },
};
use crate::{
    batch::{all_of, pipeline},
    connection::{Connection, Params},
    error::{Failure, corrupt},
    schema::{self, Column, Org, Slots},
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

/// How often several organizations are read while their epochs are being raised.
const ATTEMPTS: usize = 16;

fn unsettled() -> Failure {
    Failure::Lost("epochs are raised faster than several organizations can be read".into())
}

/// Returns whether epochs still had these values, as far as they were read, when they were read again.
fn is_settled(before: &[Option<u64>], after: &[u64]) -> bool {
    before.iter().zip(after).all(|(before, after)| before.is_none_or(|before| before == *after))
}

/// Reads records by key, and epochs, with one statement for each organization.
pub(crate) async fn get(connection: &Connection, keys: &[Key], epochs: &[Epoch]) -> Result<Read, Failure> {
    for _ in 0..ATTEMPTS {
        if let Some(read) = get_once(connection, keys, epochs).await? {
            return Ok(read);
        }
    }
    Err(unsettled())
}

/// Returns `None` if an epoch was raised in between.
async fn get_once(connection: &Connection, keys: &[Key], epochs: &[Epoch]) -> Result<Option<Read>, Failure> {
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
    // The epochs of the only organization with keys are read in one state with its records.
    let last = of_epochs.iter().filter(|(org, _)| of_keys.len() > 1 || !of_keys.contains_key(*org));
    for (org, indices) in last.clone() {
        statements.push(epochs_statement(*org, &chosen(epochs, Some(indices))));
    }
    let results = all_of(pipeline(connection, &statements).await?)?;
    let mut results = results.iter();
    let mut records: Vec<Option<Record>> = keys.iter().map(|_| None).collect();
    let mut before = vec![None; epochs.len()];
    for ((org, indices), rows) in of_keys.iter().zip(&mut results) {
        for row in rows {
            let Some(place) = row.try_get::<_, Option<i64>>(0)? else {
                set(&mut before, of_epochs.get(org), epoch_values(row, 3)?.into_iter().map(Some));
                continue;
            };
            let index = usize::try_from(place).ok().and_then(|place| indices.get(place.checked_sub(1)?).copied());
            let Some(index) = index else { continue };
            if let (Some(key), Some(found)) = (keys.get(index), records.get_mut(index)) {
                *found = Some(record(key, row, 1)?);
            }
        }
    }
    let mut after: Vec<u64> = before.iter().map(|value| value.unwrap_or(0)).collect();
    for ((_, indices), rows) in last.zip(results) {
        set(&mut after, Some(indices), named(&chosen(epochs, Some(indices)), rows)?);
    }
    Ok(is_settled(&before, &after).then_some(Read { records, epochs: after }))
}

/// Sets the values with these indices.
fn set<T>(values: &mut [T], indices: Option<&Vec<usize>>, new: impl IntoIterator<Item = T>) {
    for (index, new) in indices.into_iter().flatten().zip(new) {
        if let Some(value) = values.get_mut(*index) {
            *value = new;
        }
    }
}

/// Reads epochs, with one statement for each organization.
async fn read_epochs(connection: &Connection, epochs: &[Epoch]) -> Result<Vec<u64>, Failure> {
    Ok(get_once(connection, &[], epochs).await?.map(|read| read.epochs).unwrap_or_default())
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
    let is_everywhere = query.scopes.iter().any(|scope| matches!(scope, Scope::Roots | Scope::All));
    if !is_everywhere && scopes.len() <= 1 {
        return list_one(connection, slots, query, scopes.keys().next()).await;
    }
    for _ in 0..ATTEMPTS {
        let (mut page, before) = if is_everywhere {
            let before = read_epochs(connection, &query.epochs).await?;
            let all = list_everywhere(connection, slots, query);
            let page = tokio::time::timeout(connection.everywhere(), all).await.map_err(|_| costly())??;
            (page, before.into_iter().map(Some).collect())
        } else {
            list_several(connection, slots, query, &scopes).await?
        };
        page.epochs = read_epochs(connection, &query.epochs).await?;
        if is_settled(&before, &page.epochs) {
            return Ok(page);
        }
    }
    Err(unsettled())
}

/// The time for a list of all organizations is over. Its statements are canceled with its connection.
fn costly() -> Failure {
    StoreError::TooCostly("a list of all organizations takes too long".into()).into()
}

/// Reads a page of all nodes, without epochs.
async fn list_everywhere(connection: &Connection, slots: (&Slots, u64), query: &Query) -> Result<Page, Failure> {
    let mut rest = Query { epochs: [].into(), count: false, skip: 0, ..query.clone() };
    if query.skip > 0 {
        // Without bodies: each node returns all records up to this one, because it may have all that are skipped.
        let column = slots.0.column(query.kind, query.order.by);
        let rows = run_everywhere(connection, slots.0, query, 0, Part::Position).await?;
        let position = rows.first().map(|row| {
            Ok::<_, Failure>(Position { value: key(column, row)?, uid: Uid::opaque(row.try_get::<_, &str>(0)?) })
        });
        match position.transpose()? {
            None => rest.limit = 0,
            after => rest.after = after,
        }
    }
    let mut page = match rest.limit {
        0 => Page::default(),
        _ => list_of(connection, slots, &rest, Nodes::All).await?.0,
    };
    if query.count {
        page.total = Some(count_everywhere(connection, slots.0, query).await?.cast_unsigned());
    }
    Ok(page)
}

async fn count_everywhere(connection: &Connection, slots: &Slots, query: &Query) -> Result<i64, Failure> {
    let count = |rows: &[Row]| Ok::<i64, Failure>(rows.first().map_or(Ok(0), |row| row.try_get(0))?);
    if query.scopes != [Scope::All] || !query.filters.is_empty() || !slots.has_kind(query.kind) {
        return count(&run_everywhere(connection, slots, query, 0, Part::Count).await?);
    }
    let (org, roots) = (schema::installation(), schema::list(query.kind, Place::Roots));
    let below = count(&connection.query(COUNT_OF_KIND, &[&query.kind]).await?)?;
    Ok(below + count(&connection.query(READ_LENGTH, &[&org, &roots]).await?)?)
}

/// Reads a page of at most `limit` records of all nodes, with their positions.
pub(super) async fn read_everywhere(
    connection: &Connection,
    slots: &Slots,
    query: &Query,
    limit: usize,
) -> Result<Positioned, Failure> {
    let column = slots.column(query.kind, query.order.by);
    let rows = run_everywhere(connection, slots, query, limit, Part::Page).await?;
    let page = page(limit, column, &rows, Bodies::Fitting)?.unwrap_or_default();
    let positions = positions(column, &rows, &page)?;
    Ok(merge(query, [(page, positions)]))
}

/// Runs the statement of a list on all nodes.
async fn run_everywhere(
    connection: &Connection,
    slots: &Slots,
    query: &Query,
    limit: usize,
    part: Part,
) -> Result<Vec<Row>, Failure> {
    let (column, descending) = (slots.column(query.kind, query.order.by), query.order.descending);
    let after = After::of(column, descending, query.after.as_ref());
    let (scopes, filters) = (Scopes::of(query.kind, &query.scopes), Filters::of(query, slots)?);
    let likes = filters.likes();
    let members = choices(query).into_iter().next();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX).min(MOST);
    let skip = i64::try_from(query.skip).unwrap_or(i64::MAX).min(MOST);
    let name = if let OrderBy::Key(name) = query.order.by { name } else { "" };
    let statement = EVERYWHERE.get(&(column, descending, members.is_some(), part));
    let (sql, used) = statement.ok_or_else(|| corrupt("an order has no statement"))?;
    // The numbers are those of a scan.
    let number = |number: &usize| -> Option<&(dyn ToSql + Sync)> {
        Some(match number {
            4 => &limit,
            6 => after.value(),
            7 => &after.uid,
            8 => &query.kind,
            9 => &scopes.orgs,
            10 => &scopes.modes,
            11 => &scopes.lows,
            12 => &scopes.highs,
            13 => &filters.operations,
            14 => &filters.numbers,
            15 => &filters.keys,
            16 => &filters.values,
            17 => &skip,
            18 if column == Column::Other => &name,
            18 | 19 => &members,
            number => likes.get(number.checked_sub(20)?)?,
        })
    };
    let params: Vec<_> = used.iter().filter_map(number).collect();
    connection.query(sql, &params).await
}

/// Reads a page of one organization, and the epochs of others after it; without an organization, an empty page.
async fn list_one(
    connection: &Connection,
    slots: (&Slots, u64),
    query: &Query,
    org: Option<&Org>,
) -> Result<Page, Failure> {
    let is_own = |epoch: &Epoch| org == Some(&epoch_org(epoch));
    let (own, others): (Vec<Epoch>, Vec<Epoch>) = query.epochs.iter().cloned().partition(is_own);
    let mut page = match org {
        Some(org) => {
            list_of(connection, slots, &Query { epochs: own.into(), ..query.clone() }, Nodes::Of(*org)).await?.0
        }
        None => Page { total: query.count.then_some(0), ..Page::default() },
    };
    let others = read_epochs(connection, &others).await?;
    let (mut own, mut others) = (std::mem::take(&mut page.epochs).into_iter(), others.into_iter());
    let value = |epoch| if is_own(epoch) { own.next() } else { others.next() };
    page.epochs = query.epochs.iter().map(value).map(Option::unwrap_or_default).collect();
    Ok(page)
}

/// The organizations that a list reads at once, of which each returns up to a whole page.
const AT_ONCE: usize = 16;

/// Reads a page of the scopes of several organizations, and the epochs of each with its records. The page has no epochs.
async fn list_several(
    connection: &Connection,
    slots: (&Slots, u64),
    query: &Query,
    scopes: &BTreeMap<Org, Vec<usize>>,
) -> Result<(Page, Vec<Option<u64>>), Failure> {
    let of_epochs = by_organization(&query.epochs, epoch_org);
    let read = async |query: &Query| {
        let (mut merged, mut total, mut epochs) = (Vec::new(), Some(0), vec![None; query.epochs.len()]);
        let mut left: Vec<_> = scopes.iter().collect();
        while !left.is_empty() {
            let some: Vec<_> = left.drain(..left.len().min(AT_ONCE)).collect();
            let each = some.iter().map(|(org, indices)| {
                let (scopes, epochs) =
                    (chosen(&query.scopes, Some(*indices)), chosen(&query.epochs, of_epochs.get(*org)));
                let own = Query { scopes, skip: 0, epochs: epochs.into(), ..query.clone() };
                async move { list_of(connection, slots, &own, Nodes::Of(**org)).await }
            });
            let pages = try_join_all(each).await?;
            for ((org, _), (page, _)) in some.iter().zip(&pages) {
                total = total.zip(page.total).map(|(total, more)| total + more);
                set(&mut epochs, of_epochs.get(*org), page.epochs.iter().copied().map(Some));
            }
            merged = vec![merge(query, merged.into_iter().chain(pages))];
        }
        let mut page = merged.pop().map(|(page, _)| page).unwrap_or_default();
        page.total = total;
        Ok::<_, Failure>((page, epochs))
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
    read(&query).await
}

/// A page, with the positions of its records and that of the record after it, if there is one.
pub(super) type Positioned = (Page, Vec<Position>);

/// The records of a page with their positions, and the position of the record after them.
type Source = std::vec::IntoIter<(Position, Option<Item>)>;

/// Merges pages in the order of a query, within its limits. The merged page has no total and no epochs.
pub(super) fn merge(query: &Query, pages: impl IntoIterator<Item = Positioned>) -> Positioned {
    let sources = pages.into_iter().map(|(page, positions)| {
        // The record after a page is too long for it, also in the merged one.
        let items = page.items.into_iter().map(Some).chain(std::iter::once(None));
        positions.into_iter().zip(items).collect::<Vec<_>>().into_iter().peekable()
    });
    let mut sources: Vec<Peekable<Source>> = sources.collect();
    let (mut merged, mut positions, mut length) = (Page::default(), Vec::new(), 0_usize);
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
        let Some((position, item)) = sources.get_mut(index).and_then(Iterator::next) else { break };
        let fits = merged.items.len() < query.limit && (merged.items.is_empty() || length <= query.bytes);
        let Some(item) = item.filter(|_| fits) else {
            merged.next = positions.last().cloned();
            positions.push(position);
            break;
        };
        positions.push(position);
        merged.items.push(item);
    }
    (merged, positions)
}
