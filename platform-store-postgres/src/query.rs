//! Gets and lists, each answered by one statement.

pub(crate) mod distributed;
pub(crate) mod like;
pub(crate) mod statements;

use std::borrow::Cow;

use bytes::Bytes;
use platform_engine::{
    store::{
        Epoch, Filter, Item, Key, KeyValue, OrderBy, Page, Position, Query, Read, Record, Scope, StoreError,
        order::{sequence_of, sequence_value},
        place::{Place, below},
        plan::{Plan, distinct},
    },
    uid::Uid,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use self::distributed::Positioned;
use self::statements::{Bodies, FEW, GET_MANY, GET_ONE, LISTS, Shape};
use crate::{
    connection::Connection,
    error::{Failure, corrupt},
    schema::{self, Column, List, Org, Slots},
    split::local,
};

/// The longest value that is compared in SQL: greater than every value of a key.
const GREATEST: [u8; KeyValue::MAX_LEN + 8] = [u8::MAX; KeyValue::MAX_LEN + 8];

/// Returns the organizations and the names of epochs, as the table `epoch` has them.
pub(crate) fn epoch_rows<'e>(epochs: impl IntoIterator<Item = &'e Epoch>) -> (Vec<Org>, Vec<String>) {
    epochs.into_iter().map(schema::epoch).unzip()
}

/// Reads records by key, and epochs.
pub(crate) async fn get(connection: &Connection, keys: &[Key], epochs: &[Epoch]) -> Result<Read, Failure> {
    let (orgs, names) = epoch_rows(epochs);
    if let ([key], Some(statement)) = (keys, GET_ONE.get(epochs.len())) {
        let org = schema::organization(&key.uid);
        let uid = &*key.uid;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&org, &key.kind, &uid];
        for (org, name) in orgs.iter().zip(&names) {
            params.extend::<[&(dyn ToSql + Sync); 2]>([org, name]);
        }
        let rows = connection.query(statement, &params).await?;
        let Some(row) = rows.first() else { return Err(corrupt("a get has no row").into()) };
        let epochs = (0..epochs.len()).map(|epoch| Ok(row.try_get::<_, i64>(4 + epoch)?.cast_unsigned()));
        let epochs = epochs.collect::<Result<_, Failure>>()?;
        let exists = row.try_get::<_, Option<i64>>(0)?.is_some();
        let record = exists.then(|| record(key, row, 0)).transpose()?;
        return Ok(Read { records: vec![record], epochs });
    }
    let of: Vec<Org> = keys.iter().map(|key| schema::organization(&key.uid)).collect();
    let kinds: Vec<&str> = keys.iter().map(|key| key.kind).collect();
    let uids: Vec<&str> = keys.iter().map(|key| &*key.uid).collect();
    let rows = connection.query(GET_MANY, &[&orgs, &names, &of, &kinds, &uids]).await?;
    let mut read = Read { records: keys.iter().map(|_| None).collect(), epochs: Vec::new() };
    for row in &rows {
        let Some(place) = row.try_get::<_, Option<i64>>(0)? else {
            read.epochs = epoch_values(row, 3)?;
            continue;
        };
        let place = usize::try_from(place).unwrap_or_default().wrapping_sub(1);
        if let (Some(key), Some(found)) = (keys.get(place), read.records.get_mut(place)) {
            *found = Some(record(key, row, 1)?);
        }
    }
    Ok(read)
}

/// Returns the record whose columns begin at this one.
fn record(key: &Key, row: &Row, column: usize) -> Result<Record, Failure> {
    let (revision, rendering) = (revision(row, column)?, rendering(row, column + 1)?);
    let (body, private) = (bytes(row, column + 2)?, bytes(row, column + 3)?);
    Ok(Record { key: key.clone(), revision, rendering, body, private })
}

/// Returns the values of epochs, of which each has 8 bytes. There is no value without epochs.
fn epoch_values(row: &Row, column: usize) -> Result<Vec<u64>, Failure> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    let values = bytes.unwrap_or_default().chunks_exact(8);
    Ok(values.filter_map(|value| value.try_into().ok()).map(u64::from_be_bytes).collect())
}

fn revision(row: &Row, column: usize) -> Result<u64, Failure> {
    Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
}

fn rendering(row: &Row, column: usize) -> Result<u16, Failure> {
    let stored: i32 = row.try_get(column)?;
    u16::try_from(stored).map_err(|_| corrupt(format!("a record has the rendering {stored}")).into())
}

fn bytes(row: &Row, column: usize) -> Result<Bytes, Failure> {
    Ok(Bytes::copy_from_slice(row.try_get(column)?))
}

/// The scopes of a query, as parameters.
#[derive(Debug, Default)]
struct Scopes<'q> {
    orgs: Vec<Org>,
    modes: Vec<i32>,
    lows: Vec<String>,
    highs: Vec<String>,
    /// Whether a scope is in no organization.
    everywhere: bool,
    /// The lists of children, of further descendants, and single uids.
    direct: (Vec<Org>, Vec<Uuid>),
    deep: (Vec<Org>, Vec<Uuid>),
    exact: (Vec<Org>, Vec<&'q str>),
}

impl<'q> Scopes<'q> {
    fn of(kind: &str, scopes: &'q [Scope]) -> Self {
        let mut all = Self::default();
        for scope in scopes {
            let org = match scope {
                Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => schema::organization(uid),
                Scope::Roots | Scope::All => schema::installation(),
            };
            let list = Place::of_scope(scope).map(|place| schema::list(kind, place));
            let mut add = |mode, (low, high)| {
                all.orgs.push(org);
                all.modes.push(mode);
                all.lows.push(low);
                all.highs.push(high);
            };
            match scope {
                Scope::Exact(uid) => add(0, only(uid)),
                Scope::Children(uid) => add(1, below(uid)),
                Scope::Subtree(uid) => {
                    add(0, only(uid));
                    add(2, below(uid));
                }
                Scope::Roots => add(3, Default::default()),
                Scope::All => add(4, Default::default()),
            }
            all.everywhere |= matches!(scope, Scope::Roots | Scope::All);
            if matches!(scope, Scope::Children(_) | Scope::Subtree(_)) {
                all.direct.0.push(org);
                all.direct.1.extend(list);
            }
            if matches!(scope, Scope::Roots | Scope::Subtree(_)) {
                all.deep.0.push(org);
                all.deep.1.extend(list);
            }
            if let Scope::Exact(uid) | Scope::Subtree(uid) = scope {
                all.exact.0.push(org);
                all.exact.1.push(uid);
            }
        }
        all
    }
}

/// Returns a range that contains the uid, and few others.
fn only(uid: &str) -> (String, String) {
    (uid.to_owned(), format!("{uid}\u{1}"))
}

/// The filters of a query, as parameters.
#[derive(Debug, Default)]
struct Filters<'q> {
    operations: Vec<i32>,
    numbers: Vec<i32>,
    keys: Vec<&'q str>,
    values: Vec<Cow<'q, [u8]>>,
}

impl<'q> Filters<'q> {
    fn of(query: &'q Query, slots: &Slots) -> Result<Self, Failure> {
        let mut all = Self::default();
        for filter in &query.filters {
            let (operation, values) = match filter {
                Filter::Like { key, pattern } => {
                    all.add_like(slots, (query.kind, key), pattern)?;
                    continue;
                }
                Filter::AnyOf { values, .. } => (0, &**values),
                Filter::NoneOf { values, .. } => (1, &**values),
                Filter::Above { value, .. } => (2, std::slice::from_ref(value)),
                Filter::Contains { bytes, .. } => (3, std::slice::from_ref(bytes)),
            };
            all.operations.push(operation);
            let number = i32::try_from(all.operations.len()).unwrap_or(i32::MAX);
            for key in filter.keys() {
                for value in values {
                    all.numbers.push(number);
                    all.keys.push(key);
                    all.values.push(Cow::Borrowed(value.as_bytes()));
                }
            }
        }
        Ok(all)
    }
}

/// Rejects a query that the database cannot answer.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn verify(query: &Query) -> Result<(), StoreError> {
    let scopes = query.scopes.iter().filter_map(|scope| match scope {
        Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => Some(uid),
        Scope::Roots | Scope::All => None,
    });
    let after = query.after.iter().map(|after| &after.uid);
    schema::verify(scopes.chain(after).chain(query.epochs.iter().map(|epoch| &epoch.uid)))
}

/// Returns whether the kind, the order and the patterns of a query are registered. Otherwise the page is right only if they are not
/// registered in the database either.
pub(crate) fn knows(slots: &Slots, query: &Query) -> bool {
    let is_known = |filter: &Filter| !matches!(filter, Filter::Like { key, .. } if !slots.knows(query.kind, key));
    if !query.filters.iter().all(is_known) {
        return false;
    }
    match query.order.by {
        OrderBy::Key(key) => slots.knows(query.kind, key),
        OrderBy::Uid | OrderBy::Sequence => slots.has_kind(query.kind),
    }
}

/// The number of records that are read at first if the page is bounded by bytes.
const FIRST: usize = 1_024;

/// Reads a page. If its length is bounded by bytes much more than by the number of records, few records are read at
/// first, and all again with more if they fit: a page is of one snapshot, and not much more is read than is returned.
pub(crate) async fn list(connection: &Connection, slots: &Slots, salt: u64, query: &Query) -> Result<Page, Failure> {
    Ok(list_of(connection, (slots, salt), query, Nodes::One).await?.0)
}

/// The nodes that the statement of a list may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nodes {
    /// The only one of the database.
    One,
    /// That of an organization, in which all scopes and epochs are.
    Of(Org),
    /// All, without epochs.
    All,
}

/// Reads a page as [`list`]. If the database is distributed, returns the positions of its records too, and, last, that
/// of the record after the page, if there is one.
async fn list_of(
    connection: &Connection,
    slots: (&Slots, u64),
    query: &Query,
    nodes: Nodes,
) -> Result<Positioned, Failure> {
    // The statements of all nodes return the bodies of all records, also of those that do not fit into the page.
    let first = if nodes == Nodes::All { FIRST / 8 } else { FIRST };
    let mut limit = if query.bytes == usize::MAX { query.limit } else { query.limit.min(first) };
    loop {
        let (page, positions) = read(connection, slots, query, limit, nodes).await?;
        if limit >= query.limit || page.items.len() < limit || page.next.is_none() {
            return Ok((page, positions));
        }
        limit = limit.saturating_mul(8).min(query.limit);
    }
}

/// Reads a page of at most `limit` records.
async fn read(
    connection: &Connection,
    (slots, salt): (&Slots, u64),
    query: &Query,
    limit: usize,
    nodes: Nodes,
) -> Result<Positioned, Failure> {
    if nodes == Nodes::All {
        return distributed::read_everywhere(connection, slots, query, limit).await;
    }
    let (column, descending) = (slots.column(query.kind, query.order.by), query.order.descending);
    let (epoch_orgs, epoch_names) = epoch_rows(query.epochs.iter());
    let records = limit;
    let (limit, most) = (i64::try_from(limit).unwrap_or(i64::MAX).min(MOST), i64::try_from(query.bytes));
    let (most, skip) = (most.unwrap_or(i64::MAX), i64::try_from(query.skip).unwrap_or(i64::MAX).min(MOST));
    let after = After::of(column, descending, query.after.as_ref());
    let scopes = Scopes::of(query.kind, &query.scopes);
    let installation = schema::installation();
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&epoch_orgs, &epoch_names, &query.count, &limit, &most, after.value(), &after.uid];
    let mut shape = shape(slots, query, column);
    let scope = query.scopes.first();
    let has_deep = !matches!(scope, Some(Scope::Children(_)));
    let org = scopes.orgs.first().copied().unwrap_or(installation);
    let place = scope.and_then(Place::of_scope).filter(|place| *place != Place::All).unwrap_or(Place::Roots);
    let list = schema::list(query.kind, place);
    let uid = if let Some(Scope::Subtree(top) | Scope::Children(top)) = scope { top } else { "" };
    let name = if let OrderBy::Key(name) = query.order.by { name } else { "" };
    let (filters, driver) = match shape {
        Shape::Scan { .. } => (Filters::of(query, slots)?, driver(connection, &scopes, query).await?),
        _ => Default::default(),
    };
    if filters.has_like() && driver.is_none() && !connection.is_distributed() {
        like::bound(connection, &scopes, query).await?;
    }
    let filtered = Filtered::of(salt, query).unwrap_or_default();
    let (by_member, members) = (driver.is_some(), driver.unwrap_or_default());
    match shape {
        Shape::Children => params.extend::<[&(dyn ToSql + Sync); 2]>([&org, &list]),
        Shape::Roots => params.extend::<[&(dyn ToSql + Sync); 3]>([&org, &list, &query.kind]),
        Shape::Subtree => params.extend::<[&(dyn ToSql + Sync); 4]>([&org, &list, &query.kind, &uid]),
        Shape::Skip => {
            params.extend::<[&(dyn ToSql + Sync); 6]>([&org, &list, &query.kind, &uid, &skip, &has_deep]);
        }
        Shape::Merge => {
            params.push(&query.kind);
            let lists: [&(dyn ToSql + Sync); 4] = [&scopes.direct.0, &scopes.direct.1, &scopes.deep.0, &scopes.deep.1];
            params.extend(lists);
            params.extend::<[&(dyn ToSql + Sync); 3]>([&scopes.exact.0, &scopes.exact.1, &skip]);
        }
        Shape::All => params.extend::<[&(dyn ToSql + Sync); 4]>([&query.kind, &skip, &installation, &list]),
        Shape::Filtered => {
            params.extend::<[&(dyn ToSql + Sync); 6]>([
                &filtered.list.org,
                &filtered.list.id,
                &query.kind,
                &filtered.hash,
                &filtered.top,
                &filtered.low,
            ]);
            params.extend::<[&(dyn ToSql + Sync); 5]>([
                &filtered.high,
                &filtered.children,
                &filtered.key,
                &filtered.value,
                &skip,
            ]);
        }
        Shape::Scan { .. } => {
            shape = Shape::Scan { everywhere: scopes.everywhere, by_member };
            let places: [&(dyn ToSql + Sync); 5] =
                [&query.kind, &scopes.orgs, &scopes.modes, &scopes.lows, &scopes.highs];
            params.extend(places);
            let values: [&(dyn ToSql + Sync); 5] =
                [&filters.operations, &filters.numbers, &filters.keys, &filters.values, &skip];
            params.extend(values);
            if column == Column::Other {
                params.push(&name);
            }
            if by_member {
                params.push(&members);
            }
        }
    }
    let statement = |bodies| {
        let statement = LISTS.get(&(shape, column, descending, bodies));
        statement.ok_or_else(|| corrupt("an order has no statement"))
    };
    if let Nodes::Of(org) = &nodes
        && local(statement(Bodies::Fitting)?).appended
    {
        params.push(org);
    }
    let run = async |bodies, params: &[&(dyn ToSql + Sync)]| {
        let sql = statement(bodies)?;
        let rows = match nodes {
            Nodes::Of(_) => connection.query(&local(sql).sql, params).await?,
            _ => connection.query(sql, params).await?,
        };
        let Some(page) = page(records, column, &rows, bodies)? else { return Ok(None) };
        let positions = if nodes == Nodes::One { Vec::new() } else { positions(column, &rows, &page)? };
        Ok::<_, Failure>(Some((page, positions)))
    };
    // The share of each record in the page's bytes. Bodies are rarely longer.
    let share = most / limit.saturating_add(1);
    if shape.is_first_page() && share >= SHARE && limit > 0 && query.epochs.len() <= FEW {
        let mut params = params.clone();
        if let Some(most) = params.get_mut(4) {
            *most = &share;
        }
        let bodies = Bodies::Short(query.epochs.len());
        if let Some(read) = run(bodies, &params).await? {
            return Ok(read);
        }
    }
    Ok(run(Bodies::Fitting, &params).await?.unwrap_or_default())
}

/// Returns the positions of the items of a page, which are those of its first rows, and of the record after them.
fn positions(column: Column, rows: &[Row], page: &Page) -> Result<Vec<Position>, Failure> {
    let mut positions = Vec::with_capacity(page.items.len() + 1);
    for row in rows {
        let Some(uid) = row.try_get::<_, Option<&str>>(0)? else { continue };
        if positions.len() <= page.items.len() {
            positions.push(Position { value: key(column, row)?, uid: Uid::opaque(uid) });
        }
    }
    Ok(positions)
}

/// The least share of a record in the bytes of a page with which the page is read without adding up lengths.
const SHARE: i64 = 16 << 10;

/// The greatest limit and skip: sums of them do not overflow.
const MOST: i64 = 1 << 60;

/// Returns how to read a list; a scan's details are decided later.
fn shape(slots: &Slots, query: &Query, column: Column) -> Shape {
    let scan = Shape::Scan { everywhere: false, by_member: false };
    let is_known = column != Column::Other && slots.has_kind(query.kind);
    if is_known && !slots.is_queue(query.kind) && Filtered::of(0, query).is_some() {
        return Shape::Filtered;
    }
    if !query.filters.is_empty() || column == Column::Other || !slots.has_kind(query.kind) {
        return scan;
    }
    let is_queue = slots.is_queue(query.kind);
    match &*query.scopes {
        [Scope::All] if matches!(column, Column::Uid | Column::Sequence) => Shape::All,
        scopes if scopes.contains(&Scope::All) => scan,
        scopes if is_queue && !scopes.iter().all(|scope| matches!(scope, Scope::Children(_) | Scope::Exact(_))) => scan,
        [Scope::Children(_) | Scope::Subtree(_) | Scope::Roots] if query.skip > 0 && query.after.is_none() => {
            Shape::Skip
        }
        [Scope::Children(_)] if query.skip == 0 => Shape::Children,
        [Scope::Subtree(_)] if query.skip == 0 => Shape::Subtree,
        [Scope::Roots] if query.skip == 0 => Shape::Roots,
        _ => Shape::Merge,
    }
}

/// The records of a place that have a filter value, as parameters.
#[derive(Debug, Default)]
struct Filtered<'q> {
    list: List,
    hash: Uuid,
    top: &'q str,
    low: String,
    high: String,
    children: bool,
    key: &'q str,
    value: &'q [u8],
}

impl<'q> Filtered<'q> {
    /// Returns the parameters of a query with one place and one value.
    fn of(salt: u64, query: &'q Query) -> Option<Self> {
        let ([Scope::Children(top) | Scope::Subtree(top)], [Filter::AnyOf { key, values }]) =
            (&*query.scopes, &*query.filters)
        else {
            return None;
        };
        let (first, others) = values.split_first()?;
        if others.iter().any(|other| other != first) {
            return None;
        }
        let (value, children) = (first.as_bytes(), matches!(&*query.scopes, [Scope::Children(_)]));
        let (low, high) = below(top);
        Some(Self {
            list: schema::filtered(salt, query.kind, (top, children), (key, value)),
            hash: schema::filter_value(query.kind, key, value),
            top,
            low,
            high,
            children,
            key,
            value,
        })
    }
}

/// Returns the values of each filter by which records can be found, as the table `member` has them.
fn choices(query: &Query) -> Vec<Vec<Uuid>> {
    let value = |key: &str, value: &[u8]| schema::filter_value(query.kind, key, value);
    let choices = query.filters.iter().filter_map(|filter| match filter {
        Filter::AnyOf { key, values } => Some(distinct(values).into_iter().map(|bytes| value(key, bytes)).collect()),
        _ => None,
    });
    choices.collect()
}

/// Returns the filter values that lead to the fewest candidates; `None` if no filter is a [`Filter::AnyOf`].
async fn driver(connection: &Connection, scopes: &Scopes<'_>, query: &Query) -> Result<Option<Vec<Uuid>>, Failure> {
    let choices = choices(query);
    if choices.len() < 2 {
        return Ok(choices.into_iter().next());
    }
    // An estimate: at most a thousand members of each value are counted, in one organization if there is only one.
    let mut all: Vec<Uuid> = choices.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let org = scopes.orgs.first().filter(|org| !scopes.everywhere && scopes.orgs.iter().all(|other| other == *org));
    let rows = match org {
        Some(org) => connection.query(COUNT_IN_ORGANIZATION, &[&all, org]).await?,
        None => connection.query(COUNT_EVERYWHERE, &[&all]).await?,
    };
    let mut counts = Vec::with_capacity(rows.len());
    for row in &rows {
        counts.push((row.try_get::<_, Uuid>(0)?, row.try_get::<_, i64>(1)?.cast_unsigned()));
    }
    let count = |wanted: Uuid| counts.iter().find(|(value, _)| *value == wanted).map_or(0, |(_, count)| *count);
    let one = Query { scopes: vec![Scope::All], ..query.clone() };
    let value = |key: &str, value: &[u8]| schema::filter_value(query.kind, key, value);
    let Ok(plan) = Plan::of(&one, |_, key, bytes| Ok::<_, std::convert::Infallible>(count(value(key, bytes))));
    let driver = plan.driver.map(|(key, values)| values.into_iter().map(|bytes| value(key, bytes)).collect());
    Ok(driver)
}

/// Counts the members of filter values, each up to a limit.
pub(crate) const COUNT_IN_ORGANIZATION: &str = "SELECT v.value, (SELECT count(*) FROM (SELECT FROM member m \
     WHERE m.org = $2 AND m.value = v.value LIMIT 1000) m) FROM unnest($1::uuid[]) v(value)";
pub(crate) const COUNT_EVERYWHERE: &str = "SELECT v.value, (SELECT count(*) FROM (SELECT FROM member m \
     WHERE m.value = v.value LIMIT 1000) m) FROM unnest($1::uuid[]) v(value)";

/// The position after which a page begins, as parameters.
#[derive(Debug)]
struct After {
    bytes: Vec<u8>,
    sequence: i64,
    uid: String,
    is_sequence: bool,
}

impl After {
    /// Without a position, returns one before all records in the direction of the list.
    fn of(column: Column, descending: bool, position: Option<&Position>) -> Self {
        let is_sequence = column == Column::Sequence;
        if let Some(Position { value, uid }) = position {
            let sequence = match <[u8; 8]>::try_from(value.as_bytes()) {
                Ok(value) => sequence_of(value).cast_signed(),
                // Not a sequence: the least one.
                Err(_) => i64::MIN,
            };
            return Self { bytes: value.as_bytes().to_vec(), sequence, uid: uid.to_string(), is_sequence };
        }
        let (bytes, sequence, uid) = if descending {
            (GREATEST.to_vec(), i64::MAX, char::MAX.to_string().repeat(256))
        } else {
            (Vec::new(), i64::MIN, String::new())
        };
        Self { bytes, sequence, uid, is_sequence }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        if self.is_sequence { &self.sequence } else { &self.bytes }
    }
}

/// Returns the page of the rows of a list statement; `None` if a body is missing that was not short.
fn page(limit: usize, column: Column, rows: &[Row], bodies: Bodies) -> Result<Option<Page>, Failure> {
    let mut page = Page::default();
    let (mut last, mut has_more) = (None, false);
    for row in rows {
        let Some(uid) = row.try_get::<_, Option<&str>>(0)? else {
            page.total = row.try_get::<_, Option<i64>>(1)?.map(i64::cast_unsigned);
            page.epochs = epoch_values(row, 3)?;
            continue;
        };
        if page.items.len() >= limit {
            has_more = true;
            continue;
        }
        let Some(body) = row.try_get::<_, Option<&[u8]>>(3)? else {
            if bodies != Bodies::Fitting {
                return Ok(None);
            }
            has_more = true;
            continue;
        };
        let (uid, revision, rendering) = (Uid::opaque(uid), revision(row, 1)?, rendering(row, 2)?);
        last = Some(row);
        let body = Bytes::copy_from_slice(body);
        page.items.push(Item::new(uid, revision, rendering, body, true));
    }
    if let (Some(row), Some(item), true) = (last, page.items.last(), has_more && limit > 0) {
        page.next = Some(Position { value: key(column, row)?, uid: item.uid() });
    }
    Ok(Some(page))
}

/// Returns the sort key of a row.
fn key(column: Column, row: &Row) -> Result<KeyValue, Failure> {
    Ok(match column {
        Column::Uid => KeyValue::default(),
        Column::Sequence => KeyValue::from_bytes(sequence_value(revision(row, 1)?)),
        Column::Slot(_) | Column::Other => KeyValue::from_bytes(row.try_get::<_, &[u8]>(4)?),
    })
}
