//! The statements that a store sends, for tests of their plans and of their reach (feature `testing`).

pub mod shards;

/// The rows that a statement for Citus is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those of the organization that is the parameter with this number.
    Organization(usize),
    /// Those of all organizations. The statement runs on all nodes, and is not needed to serve the resources of one
    /// organization.
    Everywhere,
    /// Those of tables that each node has a copy of.
    Copies,
    /// None.
    None,
}

/// Returns every statement that a store sends to Citus, with a name, except those of migrations.
pub fn statements_for_citus() -> Vec<(String, String, Reach)> {
    use crate::{
        batch, check, locks, notify,
        query::{distributed, statements},
        registry, split, store, writer,
    };
    let mut all = Vec::new();
    let others = [batch::statements::LOCK_HEADS, distributed::READ_EPOCHS_OF].map(|sql| ("of an organization", sql));
    let others = others.into_iter().chain(check::STATEMENTS.map(|sql| ("check", sql)));
    let others = others.map(|(name, sql)| (name.to_owned(), sql));
    let is_other = ["Roots", "All", "everywhere: true", "count everywhere", "find with", "read with", "prune"];
    for (name, sql) in statements().into_iter().chain(others) {
        // A get of one record reads the epochs of several organizations; all gets use the statement of many.
        let is_get = name.starts_with("get ") && name != "get many";
        if is_get || is_other.iter().any(|other| name.contains(other)) {
            continue;
        }
        if ["document", "slots"].iter().any(|table| name.contains(table)) {
            all.push((name, sql.to_owned(), Reach::Copies));
        } else if sql.starts_with("INSERT") && split::arrays(sql).is_some() {
            let sizes = split::SIZES.into_iter();
            all.extend(sizes.map(|size| (name.clone(), split::insert(sql, size), Reach::Organization(1))));
        } else if sql.starts_with("INSERT") {
            all.push((name, sql.to_owned(), Reach::Organization(1)));
        } else {
            let org = split::local(sql).org;
            let sql = match split::arrays(sql) {
                Some(_) => split::local_of_rows(sql).0,
                None if name.starts_with("list") || name == "get many" => split::local(sql).sql,
                None => sql.to_owned(),
            };
            all.push((name, sql, Reach::Organization(org)));
        }
    }
    let everywhere =
        statements::everywhere::EVERYWHERE.iter().map(|(key, (sql, _))| (format!("list everywhere {key:?}"), &**sql));
    let everywhere = everywhere.chain(
        [
            statements::everywhere::COUNT_OF_KIND,
            batch::statements::READ_WITH_EVERYWHERE,
            batch::statements::FIND_WITH_EVERYWHERE,
            writer::PRUNE_EVERYWHERE,
            check::ORGANIZATIONS,
        ]
        .map(|sql| ("everywhere".to_owned(), sql)),
    );
    all.extend(everywhere.map(|(name, sql)| (name, sql.to_owned(), Reach::Everywhere)));
    all.extend(registry::every_statement().map(|(sql, is_copy)| {
        let reach = if is_copy { Reach::Copies } else { Reach::Everywhere };
        ("register".to_owned(), sql, reach)
    }));
    let none = [batch::BEGIN, batch::COMMIT, batch::ROLLBACK, check::BEGIN, locks::LOCK, notify::NOTIFY, store::CLOCK];
    all.extend(none.map(|sql| ("no table".to_owned(), sql.to_owned(), Reach::None)));
    all
}

/// Returns the statements that the stores of this process have sent, except those of migrations.
pub fn sent() -> Vec<String> {
    crate::sent::all()
}

/// Returns the statements that do what several of [`statements`] do, with a name, for tests of their plans.
pub fn joined_statements() -> Vec<(String, String)> {
    crate::joined::all()
}

/// Returns every statement of gets, lists and commits, with a name, for tests of their plans.
pub fn statements() -> Vec<(String, &'static str)> {
    use crate::{batch, blocks, documents, filtered, probe, query, query::statements, registry, rows, writer};
    let lists = statements::LISTS.iter().map(|(key, sql)| (format!("list {key:?}"), sql.as_str()));
    let boundaries = statements::BOUNDARIES.iter().map(|(key, sql)| (format!("boundaries {key:?}"), sql.as_str()));
    let counts = statements::COUNTS.iter().map(|(key, sql)| (format!("counts {key:?}"), sql.as_str()));
    let gets = statements::GET_ONE.iter().enumerate().map(|(epochs, sql)| (format!("get {epochs}"), sql.as_str()));
    let others = [
        ("get many", statements::GET_MANY),
        ("count in an organization", query::COUNT_IN_ORGANIZATION),
        ("count everywhere", query::COUNT_EVERYWHERE),
        ("count everywhere in scopes, to be searched", query::like::COUNT_IN_SCOPES),
        ("count everywhere, to be searched", query::like::COUNT_OF_ALL),
        ("read heads", batch::statements::READ_HEADS),
        ("read epochs", batch::statements::READ_EPOCHS),
        ("read records", batch::statements::READ_RECORDS),
        ("read below", batch::statements::READ_BELOW),
        ("read with", batch::statements::READ_WITH),
        ("find below", batch::statements::FIND_BELOW),
        ("find with", batch::statements::FIND_WITH),
        ("read owners", batch::statements::READ_OWNERS),
        ("read blocked", batch::statements::READ_BLOCKED),
        ("read lengths", batch::statements::READ_LENGTHS),
        ("read slots", batch::statements::READ_SLOTS),
        ("put batch", batch::statements::PUT_BATCH),
        ("find batch", batch::statements::FIND_BATCH),
        ("prune batches", writer::PRUNE_BATCHES),
        ("probe", probe::PROBE),
        ("load slots", registry::LOAD),
        ("delete records", rows::DELETE_RECORDS),
        ("create records", rows::CREATE_RECORDS),
        ("put records", rows::PUT_RECORDS),
        ("delete deep", rows::DELETE_DEEP),
        ("put deep", rows::PUT_DEEP),
        ("delete members", rows::DELETE_MEMBERS),
        ("put members", rows::PUT_MEMBERS),
        ("delete owners", rows::DELETE_OWNERS),
        ("put owners", rows::PUT_OWNERS),
        ("put tallies", rows::PUT_TALLIES),
        ("delete tallies", rows::DELETE_TALLIES),
        ("shift blocks", rows::SHIFT_BLOCKS),
        ("put epochs", rows::PUT_EPOCHS),
        ("put heads", rows::PUT_HEADS),
        ("count values", filtered::COUNT_VALUES),
        ("count place", filtered::COUNT_PLACE),
        ("keep list", filtered::KEEP),
        ("fill list", filtered::FILL),
        ("set length", filtered::SET_LENGTH),
        ("empty list", filtered::EMPTY),
        ("forget list", filtered::FORGET),
        ("read length", query::statements::READ_LENGTH),
        ("read tally", blocks::READ_TALLY),
        ("read top", blocks::READ_TOP),
        ("read blocks", blocks::READ_BLOCKS),
        ("delete blocks", blocks::DELETE_BLOCKS),
        ("delete some blocks", blocks::DELETE_SOME),
        ("delete groups", blocks::DELETE_GROUPS),
        ("put blocks", blocks::PUT_BLOCKS),
        ("set blocked", blocks::SET_BLOCKED),
        ("read document", documents::READ),
        ("create document", documents::CREATE),
        ("replace document", documents::REPLACE),
    ];
    let others = others.into_iter().map(|(name, sql)| (name.to_owned(), sql));
    lists.chain(boundaries).chain(counts).chain(gets).chain(others).collect()
}
