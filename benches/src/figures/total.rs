//! The cost of the exact total: a page with it, compared with the same page without.

use std::sync::Arc;

use platform_engine::store::{OrderBy, Page, Query, Scope, Store};
use platform_store_sqlite::SqliteStore;
use pollster::block_on;

use super::{count, large};
use crate::{
    data::{Data, organization},
    measure::{Goal, Line, Times, compare},
};

/// Lists a page of the organization by name, with or without the total.
pub fn list(store: &dyn Store, count: bool) -> Page {
    let mut query = Query::new("Repo", Scope::Subtree(organization(0)));
    query.order.by = OrderBy::Key("name");
    query.limit = 50;
    query.count = count;
    block_on(store.list(&query)).unwrap()
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let data = Data::One(large());
    let memory: (_, Arc<dyn Store>) = ("memory", Arc::new(data.memory()));
    let sqlite: (_, Arc<dyn Store>) = ("SQLite", Arc::new(SqliteStore::open(data.sqlite()).unwrap()));
    let line = |(name, store): (&str, Arc<dyn Store>)| {
        assert_eq!(list(&*store, true).total, Some(data.repos()));
        let times = Times::of(2_000);
        let compared = compare(times, |_| drop(list(&*store, true)), |_| drop(list(&*store, false)));
        Line::ratio(format!("total: {name}, with / without, of {}", count(large())), compared, Goal::AtMost(1.15, 1.05))
    };
    [memory, sqlite].map(line).into()
}
