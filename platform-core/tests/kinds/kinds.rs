//! The public suite of kinds, over every kind. Its entry in `KINDS` covers a new kind.

use platform_engine::kind::Access;
use platform_testkit::KindSuite;

use crate::common::World;
use crate::fixtures::fixtures;

/// Runs a check for each kind, in a world of its own.
fn each_kind(check: impl Fn(&KindSuite<'_>)) {
    for fixture in fixtures() {
        let world = World::new();
        let organization = world.organization();
        check(&fixture.suite(&world, &organization));
    }
}

#[test]
fn every_check_of_the_suite_is_a_test() {
    for (check, _) in KindSuite::CHECKS {
        assert!(include_str!("kinds.rs").contains(&format!("suite.{check}()")), "{check}");
    }
}

#[test]
fn an_example_has_each_declared_field_in_order_and_in_canonical_form() {
    let world = World::new();
    for registered in world.platform.registered() {
        let suite = KindSuite::of_registered(&world.platform, &world.clock, world.operator.clone(), *registered);
        suite.example_has_each_field();
    }
}

#[test]
fn changes_are_watched_once_as_the_list_shows_them() {
    each_kind(|suite| suite.changes_are_watched_once());
}

#[test]
fn the_bodies_of_a_fixture_set_every_settable_field() {
    each_kind(|suite| suite.bodies_set_each_field());
}

#[test]
fn a_create_returns_the_same_resource_as_a_get_with_the_server_set_fields() {
    each_kind(|suite| suite.create_returns_what_get_returns());
}

#[test]
fn output_only_fields_are_ignored_in_creates_and_updates() {
    each_kind(|suite| suite.output_only_fields_are_ignored());
}

#[test]
fn each_settable_field_is_updated_with_and_without_a_mask_and_others_are_unchanged() {
    each_kind(|suite| suite.each_field_is_updated_alone());
}

#[test]
fn an_update_with_equal_values_returns_the_resource_unchanged() {
    each_kind(|suite| suite.equal_values_change_nothing());
}

#[test]
fn a_write_requires_the_tag_of_its_precondition_and_keeps_it_when_nothing_changes() {
    each_kind(|suite| suite.preconditions_are_checked());
}

#[test]
fn a_preview_of_a_write_answers_as_the_write_would_and_changes_nothing() {
    each_kind(|suite| suite.previews_change_nothing());
}

#[test]
fn a_repeated_write_with_a_key_returns_the_first_reply_and_changes_nothing() {
    each_kind(|suite| suite.repeated_writes_happen_once());
}

#[test]
fn a_masked_field_that_the_body_lacks_is_cleared_unless_it_is_required() {
    each_kind(|suite| suite.masked_fields_are_cleared());
}

#[test]
fn a_singleton_exists_from_the_start_and_is_updated_without_a_create() {
    each_kind(|suite| suite.singleton_is_always_there());
}

#[test]
fn an_immutable_field_accepts_its_current_value_and_rejects_another() {
    each_kind(|suite| suite.immutable_fields_stay());
    let world = World::new();
    let mut fields = world.platform.kinds().flat_map(|kind| kind.fields);
    assert!(fields.any(|field| field.access == Access::Immutable), "some kind has an immutable field");
}

#[test]
fn a_deleted_resource_is_not_found_with_its_type_and_uid() {
    each_kind(|suite| suite.deleted_resources_are_not_found());
}

#[test]
fn each_method_requires_each_of_its_capabilities_and_no_other() {
    each_kind(|suite| suite.each_capability_is_required());
}

#[test]
fn unknown_keys_and_parameters_are_rejected_by_name() {
    each_kind(|suite| suite.unknown_names_are_rejected());
}

#[test]
fn every_sort_key_orders_both_ways_by_each_of_its_names_with_ties_broken_by_uid() {
    each_kind(|suite| suite.sort_keys_order_both_ways());
}

#[test]
fn a_list_without_order_by_has_the_default_order() {
    each_kind(|suite| suite.default_order_is_that_of_the_table());
}

#[test]
fn every_list_parameter_filters() {
    each_kind(|suite| suite.list_parameters_filter());
}

#[test]
fn a_filter_selects_by_each_field_that_lists_show_as_a_model_does() {
    each_kind(|suite| suite.filters_select_by_each_field());
}

#[test]
fn a_read_mask_shows_each_field_alone_in_lists_and_gets() {
    each_kind(|suite| suite.read_masks_show_their_fields());
}

#[test]
fn a_batch_get_returns_what_gets_return_or_nothing() {
    each_kind(|suite| suite.batch_gets_return_what_gets_return());
}
