//! Compares results with the states of their organizations.

use std::{collections::HashMap, ops::RangeInclusive};

use platform_core::capabilities::cap;
use platform_engine::{
    access::{Caller, Capability},
    error::Code,
    uid::Uid,
};

use super::{
    Summary,
    model::{Bound, Rules, Shown, State, requires_of, writes_to},
    operations::{Action, Operation, Outcome, Page},
    recorder::Recorded,
};

/// The last state of each organization, persons included.
#[derive(Debug)]
pub(super) struct Checker {
    rules: Rules,
    organizations: HashMap<Uid, Organization>,
}

#[derive(Debug, Default)]
struct Organization {
    state: State,
    sequence: u64,
}

/// The states of an organization during a round.
struct States<'r> {
    uid: Uid,
    commits: Vec<&'r Recorded>,
    /// The state before the first commit, and that after each commit.
    states: Vec<State>,
    /// The earliest begin and end of a commit and those after it.
    begins: Vec<u64>,
    ends: Vec<u64>,
    /// The position of the commit of each operation.
    of_operation: HashMap<u64, usize>,
    /// For each other organization, how many of the commits before each state write to it, too.
    shared: HashMap<Uid, Vec<usize>>,
}

impl Checker {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, organizations: HashMap::new() }
    }

    /// Checks the operations of a round, which made these commits, on these organizations. The commits include the
    /// creation of new organizations.
    pub(super) fn check(
        &mut self,
        organizations: &[Uid],
        operations: &[Operation],
        commits: &[Recorded],
        summary: &mut Summary,
    ) -> Result<(), String> {
        self.organizations.retain(|uid, _| organizations.contains(uid));
        let mut all = HashMap::new();
        for uid in organizations {
            let organization = self.organizations.entry(uid.clone()).or_default();
            let mut states = organization.replay(uid, commits, &self.rules)?;
            states.share(organizations);
            summary.commits += states.commits.len();
            all.insert(uid, states);
        }
        for operation in operations {
            self.check_one(operation, &all, summary)?;
        }
        for (uid, states) in all {
            if let Some(organization) = self.organizations.get_mut(uid) {
                organization.state = states.states.last().cloned().unwrap_or_default();
            }
        }
        Ok(())
    }

    fn check_one(
        &self,
        operation: &Operation,
        all: &HashMap<&Uid, States<'_>>,
        summary: &mut Summary,
    ) -> Result<(), String> {
        let states = &all[&operation.organization];
        let seen = states.during(operation);
        summary.concurrent += usize::from(seen.end() > seen.start());
        match (&operation.outcome, &operation.action) {
            (Outcome::Denied, _) => summary.denied += 1,
            (Outcome::Got(_) | Outcome::Listed(..) | Outcome::Bindings(..), _) => summary.allowed += 1,
            // Whether the change was made is known from the commits.
            (Outcome::Failed(Code::Unavailable, _), _) => {
                summary.unavailable += 1;
                return Ok(());
            }
            // The operator may do everything, and may name resources that another thread has deleted.
            (Outcome::Written | Outcome::Missing, Action::Other(_)) => return Ok(()),
            (
                Outcome::Failed(Code::InvalidArgument | Code::AlreadyExists | Code::FailedPrecondition, _),
                Action::Other(_),
            ) => return Ok(()),
            // Another thread has changed the state of SCIM.
            (Outcome::Failed(Code::Aborted, _), Action::Other("SCIM")) => return Ok(()),
            (Outcome::Written, Action::Register { .. }) => summary.registrations += 1,
            (Outcome::Written, Action::Redeem { .. }) => summary.redeemed += 1,
            (Outcome::Written, _) => summary.allowed += 1,
            (Outcome::Failed(Code::InvalidArgument | Code::AlreadyExists, _), Action::Redeem { .. })
            | (Outcome::Missing | Outcome::Unauthenticated, _) => {}
            (Outcome::Failed(code, message), _) => {
                return Err(format!("failed with {code:?}, {message}: {operation:#?}"));
            }
        }
        // A write was decided in the state before its commit.
        let at = states.of_operation.get(&operation.id).filter(|_| matches!(operation.outcome, Outcome::Written));
        let moments = at.map_or(seen.clone(), |at| *at..=*at);
        let is_possible = |at: usize, person: &State| {
            let moment = Moment { rules: &self.rules, state: &states.states[at], person };
            let committed = states.of_operation.contains_key(&operation.id);
            moment.is_possible(operation, committed)
        };
        let person = operation.person().filter(|person| **person != operation.organization);
        let possible = seen.contains(moments.start())
            && match person.map(|person| &all[person]) {
                None => moments.clone().any(|at| is_possible(at, &states.states[at])),
                Some(person) => {
                    let of_person = person.during(operation);
                    moments.clone().any(|at| {
                        let mut together = of_person.clone().filter(|of_person| states.is_with(at, person, *of_person));
                        together.any(|of_person| is_possible(at, &person.states[of_person]))
                    })
                }
            };
        if possible {
            return Ok(());
        }
        let between = |states: &States<'_>| {
            let seen = states.during(operation);
            let commits = &states.commits[*seen.start()..*seen.end()];
            let commits: Vec<_> = commits.iter().map(|recorded| &recorded.commit).collect();
            format!("between its states {seen:?} of {}, with the commits {commits:#?}", states.states.len())
        };
        let of_person = person.map(|person| format!("\nand of {person} {}", between(&all[person])));
        Err(format!("not possible: {operation:#?}\n{}{}", between(states), of_person.unwrap_or_default()))
    }
}

impl Organization {
    fn replay<'r>(&mut self, uid: &Uid, commits: &'r [Recorded], rules: &Rules) -> Result<States<'r>, String> {
        let requiring: Vec<_> = commits
            .iter()
            .filter(|recorded| !writes_to(&recorded.commit, uid) && requires_of(&recorded.commit, uid))
            .collect();
        let mut commits: Vec<_> = commits.iter().filter(|recorded| writes_to(&recorded.commit, uid)).collect();
        commits.sort_by_key(|recorded| recorded.sequence);
        let mut latest_begin = 0;
        let mut states = vec![self.state.clone()];
        for recorded in &commits {
            if recorded.sequence <= self.sequence {
                return Err(format!("in {uid}, the sequence {} follows {}", recorded.sequence, self.sequence));
            }
            if recorded.end < latest_begin {
                return Err(format!("in {uid}, the commit {} ended before an earlier one began", recorded.sequence));
            }
            self.sequence = recorded.sequence;
            latest_begin = latest_begin.max(recorded.begin);
            states.extend(states.last().map(|state| state.after(&recorded.commit, uid, rules)));
        }
        let earliest = |time: fn(&Recorded) -> u64| {
            let mut all: Vec<u64> = commits
                .iter()
                .rev()
                .scan(u64::MAX, |earliest, recorded| {
                    *earliest = time(recorded).min(*earliest);
                    Some(*earliest)
                })
                .collect();
            all.reverse();
            all
        };
        let (begins, ends) = (earliest(|recorded| recorded.begin), earliest(|recorded| recorded.end));
        for recorded in requiring {
            let before = ends.partition_point(|end| *end < recorded.begin);
            let last = before.checked_sub(1).map_or(0, |last| commits[last].sequence);
            if recorded.sequence <= last {
                return Err(format!(
                    "a commit that requires something of {uid} has {} after {last}",
                    recorded.sequence
                ));
            }
        }
        let of_operation = commits.iter().enumerate().map(|(at, recorded)| (recorded.operation, at)).collect();
        Ok(States { uid: uid.clone(), states, begins, ends, of_operation, commits, shared: HashMap::new() })
    }
}

impl States<'_> {
    /// Returns the states that an operation may have seen: from the last commit that had ended before it began to the
    /// last commit that began before it ended.
    fn during(&self, operation: &Operation) -> RangeInclusive<usize> {
        let first = self.ends.partition_point(|end| *end < operation.begin);
        first..=self.begins.partition_point(|begin| *begin < operation.end)
    }

    /// Counts the commits that write to each of the organizations, too.
    fn share(&mut self, organizations: &[Uid]) {
        for uid in organizations {
            let mut count = 0;
            let after = self.commits.iter().map(|recorded| {
                count += usize::from(writes_to(&recorded.commit, uid));
                count
            });
            let counts = std::iter::once(0).chain(after).collect();
            self.shared.insert(uid.clone(), counts);
        }
    }

    /// Returns whether a state of this organization and a state of another can exist at one moment: whether both are
    /// after, or both before, each commit to both.
    fn is_with(&self, at: usize, other: &States<'_>, other_at: usize) -> bool {
        self.shared.get(&other.uid).map(|shared| shared[at])
            == other.shared.get(&self.uid).map(|shared| shared[other_at])
    }
}

/// A state of the organization that an operation addresses, and one of the person who is its caller or subject.
struct Moment<'s> {
    rules: &'s Rules,
    state: &'s State,
    person: &'s State,
}

impl Moment<'_> {
    /// Returns whether an operation can have its result now; for a write, whether it is allowed before its commit.
    fn is_possible(&self, operation: &Operation, committed: bool) -> bool {
        let caller = operation.caller.as_ref();
        let exists = caller.is_none_or(|caller| self.has(caller));
        let allows = |capability, uid: &Uid| exists && self.state.allows(self.rules, caller, capability, uid);
        let (capability, uid, found) = match (&operation.action, &operation.outcome) {
            (_, Outcome::Unauthenticated) => return !exists,
            (Action::Get(uid), _) => ("repo.list", uid, self.state.repo(uid).is_some()),
            (Action::Update(uid), _) => ("repo.update", uid, self.state.repo(uid).is_some()),
            (Action::Delete(uid), _) => ("repo.delete", uid, self.state.repo(uid).is_some()),
            (Action::Create(group), _) => ("repo.create", group, self.state.has_group(group)),
            (Action::List { group, name, page }, Outcome::Listed(listed, total)) => {
                let expected = self.repos(caller, group, name.as_deref());
                return exists && *total == expected.len() as u64 && *listed == page.of(expected);
            }
            (Action::Bindings { group, identity }, Outcome::Bindings(listed, total)) => {
                let expected = self.bindings(caller, group, identity.as_ref());
                return exists && *total == expected.len() as u64 && *listed == expected;
            }
            // Registering again changes nothing.
            (Action::Register { .. }, Outcome::Written) => {
                return operation.person().is_some_and(|person| self.person.has_identity(person) != committed);
            }
            (Action::Unregister, Outcome::Written) => return exists && committed,
            (Action::Redeem { invite, person, group }, outcome) => {
                let accepted = self.accepts(invite, person, group);
                return match outcome {
                    Outcome::Written => accepted && committed,
                    Outcome::Failed(Code::AlreadyExists, _) => accepted && self.is_bound(invite, person, group),
                    Outcome::Failed(Code::InvalidArgument, _) => !accepted,
                    _ => false,
                };
            }
            _ => return false,
        };
        match &operation.outcome {
            Outcome::Denied => exists && !allows(capability, uid),
            Outcome::Missing => allows(capability, uid) && !found,
            Outcome::Got(shown) => allows(capability, uid) && self.state.repo(uid) == Some(shown),
            Outcome::Written => allows(capability, uid) && found && committed,
            _ => false,
        }
    }

    /// Returns whether a caller can be authenticated: whether the identity exists and its sign-in is valid.
    fn has(&self, caller: &Caller) -> bool {
        let identities = if caller.identity.is_root() { self.person } else { self.state };
        identities.has_caller(caller) && caller.session.as_deref().is_none_or(|session| self.state.admits(session))
    }

    /// Returns the repos at or below a group that a caller may list, with this name if there is one, by name.
    fn repos(&self, caller: Option<&Caller>, group: &Uid, name: Option<&str>) -> Vec<(Uid, Shown)> {
        let mut all: Vec<_> = self
            .state
            .repos()
            .filter(|(uid, shown)| uid.is_at_or_below(group) && name.is_none_or(|name| shown.name == name))
            .filter(|(uid, _)| self.state.allows(self.rules, caller, "repo.list", uid))
            .map(|(uid, shown)| (uid.clone(), shown.clone()))
            .collect();
        all.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        all
    }

    /// Returns the role bindings at or below a group that a caller may list, those of one identity if there is one, by
    /// uid.
    fn bindings(&self, caller: Option<&Caller>, group: &Uid, identity: Option<&Uid>) -> Vec<(Uid, Bound)> {
        self.state
            .bindings()
            .filter(|(uid, bound)| uid.is_below(group) && identity.is_none_or(|identity| bound.identity == *identity))
            .filter(|(uid, _)| self.state.allows(self.rules, caller, "role_bindings.list", uid))
            .map(|(uid, bound)| (uid.clone(), bound.clone()))
            .collect()
    }

    /// Returns whether a person can redeem an invite to a group: both exist, and whoever gives the role may give it now.
    fn accepts(&self, invite: &Uid, person: &Uid, group: &Uid) -> bool {
        const NEEDED: [Capability; 2] = [cap("group_invites.create"), cap("role_bindings.create")];
        let Some((role, inviter)) = self.state.invite(invite) else { return false };
        let may_give = *inviter == self.rules.operator || {
            let inviter = Caller::new(inviter.clone());
            let held = self.state.held(self.rules, &inviter, group);
            let given = self.state.role(self.rules, role);
            self.state.has_caller(&inviter) && held.contains_all(&NEEDED) && held.is_superset(&given)
        };
        may_give && self.person.has_identity(person)
    }

    fn is_bound(&self, invite: &Uid, person: &Uid, group: &Uid) -> bool {
        let Some((role, _)) = self.state.invite(invite) else { return false };
        self.state.bindings().any(|(uid, bound)| {
            uid.parent().as_ref() == Some(group) && bound.identity == *person && bound.role == *role
        })
    }
}

impl Page {
    /// Returns the page of a list.
    fn of<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.skip).take(self.size).collect()
    }
}
