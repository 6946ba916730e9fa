//! Lists that grow past any size at which a store may change their representation, and shrink again, compared with the
//! model.

use platform_engine::store::{Commit, Delete, Filter, Key, Order, OrderBy, Put, Query, Require, Scope};

use super::{
    Case, Fixture, cases,
    fixture::differ,
    records::{
        Ask, Describe, THING, TICKET, above, any_of, contains, key, none_of, orders, text, thing, things, things_in,
        ticket, uid,
    },
};
use crate::model::Model;

pub(super) const CASES: &[Case] = cases![
    a_list_of_thousands_is_correct_in_every_order,
    a_filtered_list_of_thousands_is_correct_in_every_order,
    a_list_of_thousands_is_correct_after_its_records_were_replaced,
    a_list_of_thousands_is_correct_after_deletes_by_key,
    a_list_of_thousands_is_correct_after_deletes_below,
    a_list_of_thousands_is_correct_after_deletes_by_value,
    a_list_that_shrank_to_a_few_records_can_grow_again,
    children_and_subtree_differ_once_deeper_records_exist,
    lists_of_scopes_adjacent_to_a_large_one_are_separate,
    a_queue_of_thousands_is_listed_correctly,
    lists_are_correct_when_a_kind_gets_or_loses_a_sort_key,
];

const LARGE: usize = 6_000;
/// A child of the group.
const QUEUE: &str = "0123456789abcdef0123456789abcdef01234567/89abcdef01234567";
const GROUP: &str = "0123456789abcdef0123456789abcdef01234567";

/// The store and the model, which receive the same commits.
struct Both<'a> {
    fixture: &'a Fixture,
    model: Model,
}

impl<'a> Both<'a> {
    /// Puts thousands of records into one group, in commits of a thousand.
    async fn filled(fixture: &'a Fixture) -> Self {
        let mut both = Self { fixture, model: Model::default() };
        for batch in 0..LARGE / 1_000 {
            // The step is coprime to the number of records, so that the uids of a commit are not consecutive.
            let numbers = (0..1_000).map(|i| (batch * 1_000 + i) * 1_021 % LARGE);
            both.put(numbers.map(|number| member(number, number)).collect()).await;
        }
        both
    }

    async fn commit(&mut self, commit: Commit) {
        assert_eq!(self.model.check(&commit), Ok(()));
        let sequence = self.fixture.commit(commit.clone()).await;
        self.model.apply(&commit, sequence);
    }

    async fn put(&mut self, put: Vec<Put>) {
        self.commit(Commit { put, ..Commit::default() }).await;
    }

    async fn delete(&mut self, delete: Vec<Delete>) {
        self.commit(Commit { delete, ..Commit::default() }).await;
    }

    /// Compares first, middle and last pages, by skip and by cursor, with their totals.
    async fn agree(&self, query: &Query) {
        let listing = self.model.listing(query);
        let same = async |query: &Query| {
            let page = self.fixture.page(query).await;
            if let Some(difference) = differ(&page, &listing.page(query)) {
                panic!("{query:?} {difference}");
            }
            page
        };
        let query = Query { count: true, limit: 20, ..query.clone() };
        let all = listing.len() as u64;
        for skip in [0, all / 2, all.saturating_sub(1)] {
            same(&query.clone().skip(skip)).await;
        }
        if let Some(next) = same(&query.clone().skip(all / 3)).await.next {
            same(&query.clone().after(next.clone())).await;
            same(&query.clone().after(next.clone()).bytes(400)).await;
            same(&query.clone().after(next).skip(all / 4)).await;
        }
    }

    /// Compares lists of a queue in all scopes and orders, with and without a filter.
    async fn agree_on_queue(&self) {
        for scope in [Scope::Children(uid(GROUP)), Scope::Subtree(uid(GROUP)), Scope::Children(uid(QUEUE)), Scope::All]
        {
            for order in orders() {
                for filters in [vec![], vec![any_of("color", ["red", "blue"])]] {
                    self.agree(&Query { order, filters, ..Query::new(TICKET, scope.clone()) }).await;
                }
            }
        }
    }

    /// Compares lists of the group in these orders and with these filters.
    async fn agree_on(&self, orders: &[Order], filters: &[Vec<Filter>]) {
        for scope in [Scope::Children(uid(GROUP)), Scope::Subtree(uid(GROUP))] {
            for order in orders {
                for filters in filters {
                    self.agree(&Query { order: *order, filters: filters.clone(), ..things_in(scope.clone()) }).await;
                }
            }
        }
    }

    async fn agree_on_all(&self) {
        self.agree_on(&orders(), &[vec![], vec![any_of("color", ["red"])]]).await;
        self.agree_on(&by_name(), &[vec![any_of("color", ["green", "blue"])], vec![none_of("color", ["red"])]]).await;
    }
}

fn by_name() -> [Order; 2] {
    [false, true].map(|descending| Order { by: OrderBy::Key("name"), descending })
}

fn uid_of(number: usize) -> String {
    format!("{GROUP}/{number:016x}")
}

/// Returns a child of the group with values that derive from the seed: names with ties, few ranks, three colors.
fn member(number: usize, seed: usize) -> Put {
    let name = format!("name {:04}", seed * 7_919 % 4_001);
    let put = thing(&uid_of(number)).named(&name).ranked(seed as i64 % 5 - 2);
    let put = put.with("color", ["red", "green", "red", "blue"][seed % 4]).with("name", &name);
    if seed.is_multiple_of(10) { put.with("color", "tenth") } else { put }
}

async fn a_list_of_thousands_is_correct_in_every_order(fixture: &mut Fixture) {
    let both = Both::filled(fixture).await;
    both.agree_on(&orders(), &[vec![]]).await;
    for order in orders() {
        both.agree(&Query { order, ..things() }).await;
    }
}

async fn a_filtered_list_of_thousands_is_correct_in_every_order(fixture: &mut Fixture) {
    let both = Both::filled(fixture).await;
    both.agree_on(&orders(), &[vec![any_of("color", ["red"])], vec![any_of("color", ["blue", "tenth", "none"])]]).await;
    let others = [
        vec![none_of("color", ["red"])],
        vec![above("name", "name 2")],
        vec![contains(["name", "color"], "77")],
        vec![any_of("color", ["red"]), above("name", "name 3")],
        vec![any_of("color", ["red", "blue"]), any_of("color", ["tenth"])],
        vec![any_of("name", ["name 0007"])],
    ];
    both.agree_on(&by_name(), &others).await;
}

async fn a_list_of_thousands_is_correct_after_its_records_were_replaced(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    for batch in 0..4 {
        let numbers = (0..700).map(|i| (batch * 700 + i) * 13 % LARGE);
        both.put(numbers.map(|number| member(number, number + 1 + batch)).collect()).await;
    }
    both.agree_on_all().await;
    both.agree_on(&by_name(), &[vec![any_of("color", ["tenth"])]]).await;
}

async fn a_list_of_thousands_is_correct_after_deletes_by_key(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    for batch in 0..5 {
        let numbers = (0..1_000).map(|i| (batch * 1_000 + i) * 17 % LARGE);
        both.delete(numbers.map(|number| Delete::Key(key(&uid_of(number)))).collect()).await;
        both.agree_on(&by_name(), &[vec![], vec![any_of("color", ["red"])]]).await;
    }
    both.agree_on_all().await;
}

async fn a_list_of_thousands_is_correct_after_deletes_below(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    let below = |number: usize, leaf: usize| format!("{}/{leaf:016x}", uid_of(number));
    both.put((0..2_000).map(|i| thing(&below(i % 10, i)).named(&format!("deep {}", i % 300))).collect()).await;
    both.agree_on_all().await;
    both.delete((0..9).map(|number| Delete::Below(uid(&uid_of(number)), vec![THING])).collect()).await;
    both.agree_on_all().await;
    both.delete(vec![Delete::Below(uid(GROUP), vec![THING])]).await;
    both.agree_on_all().await;
    assert_eq!(fixture.total(&things()).await, 0);
}

async fn a_list_of_thousands_is_correct_after_deletes_by_value(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    for color in ["red", "tenth", "blue"] {
        both.delete(vec![Delete::With(THING, "color", text(color))]).await;
        both.agree_on_all().await;
    }
    both.delete(vec![Delete::With(THING, "color", text("green"))]).await;
    assert_eq!(fixture.total(&things()).await, 0);
}

async fn a_list_that_shrank_to_a_few_records_can_grow_again(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    both.delete((3..LARGE).map(|number| Delete::Key(key(&uid_of(number)))).collect()).await;
    both.agree_on_all().await;
    both.put((0..3_000).map(|number| member(number * 2, number)).collect()).await;
    both.agree_on_all().await;
}

async fn children_and_subtree_differ_once_deeper_records_exist(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    let deep = format!("{}/0000000000000001", uid_of(17));
    both.put(vec![thing(&deep).named("name 2000").with("color", "red"), thing(GROUP).named("name 1999")]).await;
    both.agree_on_all().await;
    both.delete(vec![Delete::Key(key(&deep))]).await;
    both.agree_on_all().await;
    both.put(vec![thing(&deep).named("name 0000"), member(17, 4)]).await;
    both.agree_on_all().await;
    // A create, above records that exist.
    both.delete(vec![Delete::Key(key(GROUP))]).await;
    let require = vec![Require::Absent(key(GROUP))];
    both.commit(Commit { require, put: vec![thing(GROUP).named("name 1998")], ..Commit::default() }).await;
    both.agree_on_all().await;
}

async fn lists_of_scopes_adjacent_to_a_large_one_are_separate(fixture: &mut Fixture) {
    let mut both = Both::filled(fixture).await;
    let neighbors = [format!("{GROUP}0/a"), format!("{}/a", &GROUP[..39]), format!("{GROUP}-/a")];
    both.put(neighbors.iter().map(|uid| thing(uid).with("color", "red")).collect()).await;
    both.agree_on_all().await;
    for neighbor in &neighbors {
        let top = neighbor.trim_end_matches("/a");
        both.agree(&things_in(Scope::Subtree(uid(top))).by("name")).await;
    }
    let scopes = vec![Scope::Children(uid(GROUP)), Scope::Subtree(uid(neighbors[0].trim_end_matches("/a")))];
    let merged = Query { scopes, ..things() };
    for order in orders() {
        both.agree(&Query { order, ..merged.clone() }).await;
    }
}

async fn a_queue_of_thousands_is_listed_correctly(fixture: &mut Fixture) {
    let mut both = Both { fixture, model: Model::default() };
    // Some tickets are in the group itself, sorted between those of its child and those of another parent.
    for batch in 0..6 {
        let places = [QUEUE, QUEUE, GROUP, QUEUE, "another"];
        let of = |i: usize| (places[i % 5], format!("{:04x}", (batch * 300 + i) * 7 % 1_800));
        let tickets = (0..300).map(|i| (i, of(i)));
        let put = |(i, (place, at)): (usize, (&str, String))| {
            ticket(&format!("{place}/{at}")).with("color", ["red", "green", "blue"][i % 3])
        };
        both.put(tickets.map(put).collect()).await;
        both.agree_on_queue().await;
    }
    let first = both.model.list(&Query { limit: 1_000, ..Query::new(TICKET, Scope::Children(uid(QUEUE))) });
    let deleted = first.items.into_iter().skip(3).map(|item| Delete::Key(Key::new(TICKET, item.uid())));
    both.delete(deleted.collect()).await;
    both.agree_on_queue().await;
    both.delete(vec![Delete::Below(uid(QUEUE), vec![TICKET])]).await;
    both.agree_on_queue().await;
    both.put(vec![ticket(&format!("{QUEUE}/again"))]).await;
    both.agree_on_queue().await;
}

async fn lists_are_correct_when_a_kind_gets_or_loses_a_sort_key(fixture: &mut Fixture) {
    let mut both = Both { fixture, model: Model::default() };
    for (numbers, names) in [(0..200, &["name"][..]), (150..300, &["name", "rank"]), (290..310, &["rank"])] {
        let mut put: Vec<Put> = numbers.map(|number| member(number, number * 7 % 100)).collect();
        put.iter_mut().for_each(|put| put.sort.retain(|(name, _)| names.contains(name)));
        both.put(put).await;
        both.agree_on_all().await;
    }
}
