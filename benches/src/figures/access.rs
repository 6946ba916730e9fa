//! One access decision: whether a caller holds a capability at a uid. Compared with the minimum: a lookup in one set
//! for each ancestor.

use std::{collections::HashSet, hint::black_box, sync::Arc};

use platform_core::{
    capabilities::cap,
    iam::Iam,
    resources::iam::{Identity, RoleBinding, role},
};
use platform_engine::{
    access::Capability,
    platform::{Platform, Settings},
    store::{Commit, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::{self, Uid},
};
use platform_system::{SystemClock, SystemEntropy};
use pollster::block_on;

use crate::{
    data::{mix, organization, put},
    measure::{Goal, Line, Times, compare},
};

const LIST: &[Capability] = &[cap("repo.list")];

/// Identities and their bindings, in the platform and as bare sets.
#[derive(Debug)]
pub struct Sides {
    platform: Platform,
    identities: Vec<Uid>,
    /// The groups of each identity.
    bare: Vec<HashSet<Uid>>,
    targets: Vec<Uid>,
}

impl Sides {
    /// Creates registered persons with this number of bindings each, at groups two levels deep.
    pub fn new(identities: u64, bindings: u64) -> Self {
        let store = Arc::new(MemoryStore::new());
        let settings = Settings { cached_grants_bytes: 1 << 30, ..Settings::default() };
        let platform = platform_v1::builder(store.clone(), SystemClock, SystemEntropy)
            .settings(settings)
            .ephemeral_keys()
            .build()
            .unwrap();
        block_on(Iam::of(&platform).write_built_in_roles()).unwrap();
        let now = Some(Timestamp::from_millis(1_760_000_000_000));
        let group = |number: u64| Uid::opaque(format!("{}/{:016x}", organization(number % 1_000), mix(number)));
        let persons: Vec<_> = (0..identities).map(|number| organization(1_000_000 + number)).collect();
        let (mut records, mut bare, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (index, uid) in persons.iter().enumerate() {
            let person = Identity { uid: uid.clone(), create_time: now, update_time: now, ..Identity::default() };
            records.push(put(&person, uid));
            let mut groups = HashSet::new();
            for binding in 0..bindings {
                let group = group(index as u64 * bindings + binding);
                let binding = RoleBinding {
                    uid: Uid::opaque(format!("{group}/{:016x}", index as u64 * bindings + binding)),
                    identity_uid: uid.clone(),
                    role_uid: role::owner_uid(),
                    ..RoleBinding::default()
                };
                records.push(put(&binding, &binding.uid));
                targets.push(Uid::opaque(format!("{group}/0123456789abcdef")));
                groups.insert(group);
            }
            bare.push(groups);
        }
        for put in records.chunks(5_000) {
            block_on(store.commit(Commit { put: put.to_vec(), ..Commit::default() })).unwrap();
        }
        let sides = Self { platform, identities: persons, bare, targets };
        (0..sides.targets.len()).for_each(|round| assert_eq!(sides.decide(round), sides.by_hand(round)));
        sides
    }

    /// Returns caller and target of a round. In every second round the caller is the next identity, which is denied
    /// (unless there is only one identity).
    fn case(&self, round: usize) -> (usize, &Uid) {
        let target = mix(round as u64) as usize % self.targets.len();
        let owner = target / (self.targets.len() / self.identities.len());
        let caller = if round.is_multiple_of(2) { owner } else { (owner + 1) % self.identities.len() };
        (caller, &self.targets[target])
    }

    /// Decides with the platform: gets the caller's grants, and the capabilities that they give at the target.
    pub fn decide(&self, round: usize) -> bool {
        let (caller, target) = self.case(round);
        let grants = block_on(self.platform.grants(&self.identities[caller])).unwrap();
        grants.at(target).contains_all(LIST)
    }

    /// Decides with bare lookups.
    pub fn by_hand(&self, round: usize) -> bool {
        let (caller, target) = self.case(round);
        let mut above = std::iter::successors(Some(&**target), |uid| uid::parent(uid));
        // The minimum: no capabilities and no revocation.
        above.any(|group| self.bare[caller].contains(group))
    }
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    [("40,000 bindings of 20,000", 20_000, 2), ("a caller with 1,000", 1, 1_000)]
        .map(|(of, identities, bindings)| {
            let sides = Sides::new(identities, bindings);
            let times = Times { calls: 200, ..Times::of(300) };
            let decide = |round| {
                black_box(sides.decide(round));
            };
            let by_hand = |round| {
                black_box(sides.by_hand(round));
            };
            let compared = compare(times, decide, by_hand);
            let line =
                Line::ratio(format!("access: decision / bare probes, {of}, us"), compared, Goal::AtMost(1.0, 0.25));
            // The goal is a time instead of a ratio.
            Line { value: compared.a.p50, cpu: None, ..line }
        })
        .into()
}
