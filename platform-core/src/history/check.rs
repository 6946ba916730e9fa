//! Compares results with the states of their organizations.

use std::{collections::HashMap, sync::Arc};

use super::{
    Summary,
    model::State,
    operations::{Action, Operation, Outcome, World},
    recorder::Recorded,
};
use crate::{access::Capabilities, error::Code, uid::Uid};

/// The last state of each organization.
#[derive(Debug)]
pub(super) struct Checker {
    known: Arc<Capabilities>,
    organizations: Vec<Organization>,
}

#[derive(Debug)]
struct Organization {
    uid: Uid,
    state: State,
    sequence: u64,
}

/// The states of an organization during a round.
struct States<'r> {
    commits: Vec<&'r Recorded>,
    /// The state before the first commit, and that after each commit.
    states: Vec<State>,
    /// The earliest begin and end of a commit and those after it.
    begins: Vec<u64>,
    ends: Vec<u64>,
    /// The position of the commit of each operation.
    of_operation: HashMap<u64, usize>,
}

impl Checker {
    pub(super) fn new(world: &World) -> Self {
        let organization = |uid: &Uid| Organization { uid: uid.clone(), state: State::default(), sequence: 0 };
        Self {
            known: Arc::clone(world.platform().capabilities()),
            organizations: world.organizations.iter().map(|one| organization(&one.uid)).collect(),
        }
    }

    /// Checks the operations of a round, which made these commits. Those of the first round include the creation of the
    /// organizations.
    pub(super) fn check(
        &mut self,
        operations: &[Operation],
        commits: &[Recorded],
        summary: &mut Summary,
    ) -> Result<(), String> {
        let known = Arc::clone(&self.known);
        for (index, organization) in self.organizations.iter_mut().enumerate() {
            let mut states = organization.replay(commits, &known)?;
            summary.commits += states.commits.len();
            for operation in operations.iter().filter(|operation| operation.organization == index) {
                states.check(operation, &known, summary)?;
            }
            organization.state = states.states.pop().unwrap_or_default();
        }
        Ok(())
    }
}

impl Organization {
    fn replay<'r>(&mut self, commits: &'r [Recorded], known: &Capabilities) -> Result<States<'r>, String> {
        let changes = |recorded: &&Recorded| State::is_changed_by(&recorded.commit, &self.uid);
        let mut commits: Vec<_> = commits.iter().filter(changes).collect();
        commits.sort_by_key(|recorded| recorded.sequence);
        let mut latest_begin = 0;
        let mut states = vec![self.state.clone()];
        for recorded in &commits {
            if recorded.sequence <= self.sequence {
                return Err(format!("the sequence {} follows {}", recorded.sequence, self.sequence));
            }
            if recorded.end < latest_begin {
                return Err(format!("the commit {} ended before an earlier one began", recorded.sequence));
            }
            self.sequence = recorded.sequence;
            latest_begin = latest_begin.max(recorded.begin);
            states.extend(states.last().map(|state| state.after(&recorded.commit, &self.uid, known)));
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
        let of_operation = commits.iter().enumerate().map(|(at, recorded)| (recorded.operation, at)).collect();
        Ok(States { states, begins, ends, of_operation, commits })
    }
}

impl States<'_> {
    fn check(&self, operation: &Operation, known: &Capabilities, summary: &mut Summary) -> Result<(), String> {
        // The states that the operation may have seen: from the last commit that had ended before it began to the last
        // commit that began before it ended.
        let first = self.ends.partition_point(|end| *end < operation.begin);
        let last = self.begins.partition_point(|begin| *begin < operation.end);
        summary.concurrent += usize::from(last > first);
        match &operation.outcome {
            Outcome::Denied => summary.denied += 1,
            Outcome::Got(_) | Outcome::Listed(..) | Outcome::Written => summary.allowed += 1,
            _ => {}
        }
        let possible = match (&operation.outcome, &operation.action) {
            (Outcome::Written, Action::Other) => return Ok(()),
            // The operator may name resources that another thread has deleted.
            (Outcome::Missing, Action::Other) => return Ok(()),
            (Outcome::Failed(Code::InvalidArgument | Code::AlreadyExists, _), Action::Other) => return Ok(()),
            (Outcome::Failed(code, message), _) => {
                return Err(format!("failed with {code:?}, {message}: {operation:#?}"));
            }
            (Outcome::Written, _) => match self.of_operation.get(&operation.id) {
                Some(at) => (first..=last).contains(at) && is_possible(&self.states[*at], operation, known),
                None => false,
            },
            _ => (first..=last).any(|at| is_possible(&self.states[at], operation, known)),
        };
        if possible {
            return Ok(());
        }
        let between: Vec<_> = self.commits.iter().take(last).skip(first).map(|recorded| &recorded.commit).collect();
        Err(format!(
            "not possible: {operation:#?}\nbetween the states {first} and {last} of {}, with the commits {between:#?}",
            self.states.len()
        ))
    }
}

/// Returns whether an operation can have its result in a state; for a write, whether it is allowed in the state before
/// its commit.
fn is_possible(state: &State, operation: &Operation, known: &Capabilities) -> bool {
    let caller = operation.caller.as_ref();
    // Persons exist throughout.
    let exists = caller.is_none_or(|caller| caller.identity.is_root() || state.has_identity(&caller.identity));
    if let Outcome::Unauthenticated = operation.outcome {
        return !exists;
    }
    let allows =
        |capability, uid: &Uid| exists && caller.is_none_or(|caller| state.allows(known, caller, capability, uid));
    let (capability, uid, found) = match &operation.action {
        Action::Get(uid) => ("repo.list", uid, state.repo(uid).is_some()),
        Action::Update(uid) => ("repo.update", uid, state.repo(uid).is_some()),
        Action::Delete(uid) => ("repo.delete", uid, state.repo(uid).is_some()),
        Action::Create(group) => ("repo.create", group, state.has_group(group)),
        Action::List(group) => {
            let Outcome::Listed(listed, total) = &operation.outcome else { return false };
            let Some(caller) = caller else { return true };
            return exists && *listed == state.visible(known, caller, group) && *total == listed.len() as u64;
        }
        Action::Other => return false,
    };
    match &operation.outcome {
        Outcome::Denied => exists && !allows(capability, uid),
        Outcome::Missing => allows(capability, uid) && !found,
        Outcome::Got(shown) => allows(capability, uid) && state.repo(uid) == Some(shown),
        Outcome::Written => allows(capability, uid) && found,
        _ => false,
    }
}
