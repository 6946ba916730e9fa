//! The access matrix of the services: the outcome of every method for typical callers, as a table for reviewers in
//! `tests/access_matrix_of_services.txt`.

use platform_engine::{
    error::Code,
    kind::{Action, Authorization, Verb},
    uid::Uid,
};
use platform_v1::services::SERVICES;
use pollster::block_on;
use serde_json::{Map, json};

use crate::{access_matrix::Cast, snapshot::assert_snapshot};

/// The access matrix of version 1. A method whose access is decided at a uid is called with that of a missing resource
/// at each place: its access is decided before the rest of the request is read.
#[test]
fn the_access_matrix_of_the_services_matches_the_committed_file() {
    let cast = Cast::new();
    let mut found = LEGEND_OF_VERSION_1.to_owned();
    let names = cast.actors.iter().map(|(name, _)| format!(" {name:<9}")).collect::<String>();
    found.push_str(format!("{:<31}{names}", "").trim_end());
    found.push('\n');
    for service in SERVICES {
        found.push_str(&format!("{}\n", service.kind.service));
        for action in service.actions {
            let line = match action.authorization {
                Authorization::At(field, _) | Authorization::As(_, _, field) => {
                    cast.line(action.name, |place, actor| {
                        let request = Map::from_iter([(field.to_owned(), json!(uid_for(action, place)))]);
                        let done = block_on(cast.world.platform.run(Some(actor), service.kind, action, &request));
                        Some(!matches!(done, Err(error) if error.code() == Code::PermissionDenied))
                    })
                }
                Authorization::Anywhere(_) => format!("  {:<26} who holds {}\n", action.name, needed(action)),
                Authorization::FiltersResult(_) => {
                    format!("  {:<26} shows what {} allows\n", action.name, needed(action))
                }
                Authorization::Authenticated => format!("  {:<26} every caller\n", action.name),
                Authorization::Public => format!("  {:<26} everyone, without a token\n", action.name),
            };
            found.push_str(&line);
        }
    }
    assert_snapshot("tests/access_matrix_of_services.txt", &found);
}

/// Returns the uid at which the access to an action is decided: the place for a create, and otherwise a missing
/// resource.
fn uid_for(action: &Action, place: &Uid) -> String {
    match action.authorization {
        Authorization::As(_, Verb::Create, _) => place.to_string(),
        _ => format!("{place}/0000000000000000"),
    }
}

fn needed(action: &Action) -> String {
    match action.authorization {
        Authorization::Anywhere(held) | Authorization::FiltersResult(held) => {
            held.iter().map(|one| one.name()).collect::<Vec<_>>().join(" and ")
        }
        _ => String::new(),
    }
}

const LEGEND_OF_VERSION_1: &str = "\
The access matrix of version 1. Each cell has three marks: for a resource of the organization itself, of a folder in it,
and of a sibling of that folder. The callers are those of access_matrix.txt.

";
