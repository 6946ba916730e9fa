//! Consistency of the tables of the kinds of this crate, and with those of `platform-core`.

use std::collections::BTreeSet;

use platform_core::resources;
use platform_engine::kind::{Access, Verb};
use platform_v1::resources::KINDS;

#[test]
fn names_and_plurals_are_unique_among_the_kinds_of_both_crates() {
    let all = || resources::KINDS.iter().chain(KINDS).map(|registered| registered.kind);
    let names: BTreeSet<_> = all().map(|kind| kind.name).collect();
    let plurals: BTreeSet<_> = all().map(|kind| (kind.domain.name, kind.plural)).collect();
    assert_eq!((names.len(), plurals.len()), (all().count(), all().count()));
    for parent in all().filter_map(|kind| kind.parent.kind()) {
        assert!(names.contains(parent), "{parent}");
    }
}

/// `docs/api.md`, Giving power: a field that gives power would need a case in the tests of `platform-core`.
#[test]
fn every_field_that_callers_can_set_is_known_to_give_no_power() {
    let kinds = KINDS.iter().map(|registered| registered.kind);
    let settable = kinds.filter(|kind| kind.method(Verb::Create).is_some()).flat_map(|kind| {
        let fields = kind.fields.iter().filter(|field| field.access != Access::OutputOnly);
        fields.map(|field| (format!("{}.{}", kind.name, field.name), field.privileged))
    });
    let known = ["Deployment.charts", "Entitlement.ecosystem", "Entitlement.policy", "Entitlement.source"];
    let known = known.into_iter().chain(["Entitlement.cooldownDays"]).map(|path| (path.to_owned(), false));
    assert_eq!(settable.collect::<Vec<_>>(), known.collect::<Vec<_>>());
}

#[test]
fn version_2_serves_no_method_of_these_kinds() {
    for kind in KINDS.iter().map(|registered| registered.kind) {
        assert_eq!(kind.served().count(), 0, "{}", kind.name);
    }
}
