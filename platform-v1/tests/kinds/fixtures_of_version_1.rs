//! The facts about the kinds of this crate that do not follow from their tables and examples.

use platform_testkit::Pair;
use platform_v1::resources::{SyncStatus, sync_status::SyncState};
use serde_json::json;

use crate::fixtures::Fixture;

pub(crate) const FIXTURES: &[Fixture] = &[
    Fixture {
        kind: "SyncStatus",
        make: Some(|world, group| {
            world.put(&world.repo(group), SyncStatus { state: SyncState::Queued, ..SyncStatus::default() })
        }),
        ..Fixture::NONE
    },
    Fixture {
        kind: "Entitlement",
        pairs: Some(|world, organization, example| {
            let other = json!({ "ecosystem": "ECOSYSTEM_PYTHON", "cooldownDays": 1 });
            vec![Pair::new(&world.group(organization), example, other)]
        }),
        ..Fixture::NONE
    },
];
