//! Sign-ins: the number that a person has at the same time (`docs/api.md`, Refresh tokens).

use std::thread;

use platform_core::{iam::Iam, resources::iam::SignIn};
use platform_engine::{
    error::{Code, Result},
    store::{Query, Scope},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use pollster::block_on;

use crate::common::{World, code};

/// Signs a person in with secrets that derive from a number.
fn sign_in(world: &World, person: &Uid, number: usize, until: i64) -> SignIn {
    try_sign_in(world, person, number, until).unwrap()
}

fn try_sign_in(world: &World, person: &Uid, number: usize, until: i64) -> Result<SignIn> {
    let secret = number.to_be_bytes();
    world.sign_in(person, [&secret, &secret], until)
}

fn count(world: &World, person: &Uid) -> usize {
    let query = Query::new("SignIn", Scope::Children(person.clone()));
    block_on(world.platform.store().list(&query)).unwrap().items.len()
}

#[test]
fn a_sign_in_of_an_unregistered_person_is_unauthenticated() {
    let world = World::new();
    let rejected = try_sign_in(&world, &Uid::opaque("a".repeat(40)), 0, 1_000_000);
    assert_eq!(code(rejected), Code::Unauthenticated);
}

#[test]
fn a_new_sign_in_ends_the_oldest_of_100() {
    let world = World::new();
    let (ada, eve) = (world.person("ada", None).identity, world.person("eve", None).identity);
    let of_eve = sign_in(&world, &eve, 0, 1_000_000);
    let all: Vec<_> = (0..130)
        .map(|number| {
            world.clock.advance(1);
            sign_in(&world, &ada, number, 1_000_000)
        })
        .collect();
    assert_eq!(count(&world, &ada), 100);
    let present = |person: &SignIn, number: usize| {
        let secret = number.to_be_bytes();
        block_on(Iam::of(&world.platform).present_sign_in(&person.uid, &secret, &secret))
    };
    for (number, one) in all.iter().enumerate() {
        match number {
            0..30 => assert_eq!(code(present(one, number)), Code::Unauthenticated, "{number}"),
            _ => drop(present(one, number).unwrap()),
        }
    }
    present(&of_eve, 0).unwrap();
}

#[test]
fn a_refresh_token_that_was_used_twice_at_once_ends_the_sign_in() {
    let world = World::new();
    let ada = world.person("ada", None).identity;
    let (one, other) = (sign_in(&world, &ada, 0, 1_000_000), sign_in(&world, &ada, 1, 1_000_000));
    let iam = Iam::of(&world.platform);
    let present = |sign_in: &SignIn, family: usize, token: &[u8]| {
        block_on(iam.present_sign_in(&sign_in.uid, &family.to_be_bytes(), token))
    };
    let presented = present(&one, 0, &0_usize.to_be_bytes()).unwrap();
    let renew = |next: &[u8]| block_on(iam.renew_sign_in(&presented, &0_usize.to_be_bytes(), next));
    renew(b"next").unwrap();
    assert_eq!(code(renew(b"stolen")), Code::Unauthenticated);
    for token in [&b"next"[..], b"stolen"] {
        assert_eq!(code(present(&one, 0, token)), Code::Unauthenticated, "{token:?}");
    }
    present(&other, 1, &1_usize.to_be_bytes()).unwrap();
    assert_eq!(count(&world, &ada), 1);
}

#[test]
fn expired_sign_ins_are_replaced_first() {
    let world = World::new();
    let ada = world.person("ada", None).identity;
    let unexpired: Vec<_> = (0..60).map(|number| sign_in(&world, &ada, number, 1_000_000)).collect();
    (60..100).for_each(|number| drop(sign_in(&world, &ada, number, 10)));
    world.clock.advance(10);
    (100..140).for_each(|number| drop(sign_in(&world, &ada, number, 1_000_000)));
    assert_eq!(count(&world, &ada), 100);
    for (number, one) in unexpired.iter().enumerate() {
        let secret = number.to_be_bytes();
        block_on(Iam::of(&world.platform).present_sign_in(&one.uid, &secret, &secret)).unwrap();
    }
}

#[test]
fn concurrent_sign_ins_do_not_exceed_100() {
    let world = World::new();
    let ada = world.person("ada", None).identity;
    (0..90).for_each(|number| drop(sign_in(&world, &ada, number, 1_000_000)));
    thread::scope(|scope| {
        for n in 0..8 {
            let (world, ada) = (&world, &ada);
            scope.spawn(move || (0..10).for_each(|m| drop(sign_in(world, ada, 100 + n * 10 + m, 1_000_000))));
        }
    });
    assert_eq!(count(&world, &ada), 100);
}

#[test]
fn a_sign_in_that_begins_while_another_one_does_exceeds_no_bound() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let ada = world.person("ada", None).identity;
    for number in 0..100 {
        sign_in(&world, &ada, number, 1_000_000);
    }
    let begin = |number: usize| drop(sign_in(&world, &ada, number, 1_000_000));
    gate.interleave(Call::Commit, || begin(100), || begin(101));
    assert_eq!(count(&world, &ada), 100);
}
