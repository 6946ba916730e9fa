//! The record of a person names the organizations in which the person has bindings, and grants are read from these.

use platform_core::resources::iam::{Identity, person_uid};
use platform_engine::{
    access::Caller,
    kind::Resource,
    store::{Key, Record},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::Value;

use crate::common::{ISSUER, World, block_on, built_in};

fn record(world: &World, identity: &Uid) -> Record {
    let key = Key::new(Identity::KIND.name, identity.clone());
    block_on(world.platform.store().get(&[key], &[])).unwrap().records.remove(0).unwrap()
}

fn organizations(world: &World, person: &Caller) -> Vec<String> {
    let private: Value = serde_json::from_slice(&record(world, &person.identity).private).unwrap();
    serde_json::from_value(private["organizations"].clone()).unwrap()
}

#[test]
fn the_record_of_a_person_names_each_organization_while_the_person_has_a_binding_there() {
    let world = World::new();
    let (ada, other) = (world.person("ada", None), world.organization());
    let [viewer, editor] = ["viewer", "editor"].map(built_in);
    let delete = |binding: &Uid| world.delete(&world.operator, "RoleBinding", binding).unwrap();
    assert_eq!(organizations(&world, &ada), [""; 0]);
    let (first, second) = (world.bind(&ada, &viewer, &world.org), world.bind(&ada, &editor, &world.group(&world.org)));
    world.bind(&ada, &viewer, &other);
    let mut both = [world.org.to_string(), other.to_string()];
    both.sort();
    assert_eq!(organizations(&world, &ada), both);
    delete(&first);
    assert_eq!(organizations(&world, &ada), both);
    delete(&second);
    assert_eq!(organizations(&world, &ada), [&*other]);
    // An earlier release recorded none: the bindings are searched.
    world.change_private::<Identity>(&ada.identity, |private| {
        assert!(private.as_object_mut().unwrap().remove("organizations").is_some());
    });
    world.bind(&ada, &editor, &other);
    assert_eq!(organizations(&world, &ada), [&*other]);
}

#[test]
fn a_binding_does_not_change_the_record_of_an_identity_of_a_group() {
    let world = World::new();
    let identity = world.identity(&world.org);
    let before = record(&world, &identity.identity);
    let binding = world.bind(&identity, &built_in("viewer"), &world.org);
    assert_eq!(record(&world, &identity.identity), before);
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
    assert_eq!(record(&world, &identity.identity), before);
}

#[test]
fn a_person_who_registers_while_being_bound_has_the_binding() {
    for bound_first in [false, true] {
        let (store, gate) = GatedStore::in_memory();
        let world = World::over(store);
        let ada = Caller::new(person_uid(ISSUER, "ada"));
        let bind = || drop(world.bind(&ada, &built_in("viewer"), &world.org));
        let register = || drop(world.person("ada", None));
        if bound_first {
            gate.interleave(Call::Commit, register, bind);
        } else {
            gate.interleave(Call::Commit, bind, register);
        }
        assert_eq!(organizations(&world, &ada), [&*world.org], "bound first: {bound_first}");
        world.get(&ada, "Group", &world.org).unwrap();
    }
}

#[test]
fn a_person_who_is_bound_while_the_last_binding_is_deleted_has_the_new_one() {
    for deleted_first in [false, true] {
        let (store, gate) = GatedStore::in_memory();
        let world = World::over(store);
        let ada = world.person("ada", None);
        let old = world.bind(&ada, &built_in("viewer"), &world.org);
        let delete = || world.delete(&world.operator, "RoleBinding", &old).unwrap();
        let bind = || drop(world.bind(&ada, &built_in("editor"), &world.org));
        if deleted_first {
            gate.interleave(Call::Commit, bind, delete);
        } else {
            gate.interleave(Call::Commit, delete, bind);
        }
        assert_eq!(organizations(&world, &ada), [&*world.org], "deleted first: {deleted_first}");
        world.get(&ada, "Group", &world.org).unwrap();
    }
}
