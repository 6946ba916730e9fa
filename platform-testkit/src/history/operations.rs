//! Random operations: what they are, and how they are carried out.

use platform_engine::{
    access::{ActsAs, Caller, Credential, Session},
    error::{Code, Error, Result},
    idempotency::IdempotencyKey,
    kind::Registered,
    options::RequestOptions,
    platform::Platform,
    request::ListRequest,
    uid::Uid,
};

use crate::Rng;
use futures_lite::future::block_on;
use serde_json::json;

use platform_core::{
    iam::Iam,
    resources::{
        iam::{RoleBinding, person_uid},
        registry::Repo,
    },
};

use super::{
    model::{Bound, Shown},
    recorder::Recorder,
    world::{ISSUER, Organization, World, object, uid_in, uid_of},
};

/// The maximum number of repos of an organization, which bounds the cost of the check.
const MAX_REPOS: usize = 12;
/// The number of items of a page that has everything.
const ALL: usize = 100;

const REPO: Registered = Registered::of::<Repo>();
const BINDING: Registered = Registered::of::<RoleBinding>();

/// An operation and its result.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: u64,
    /// The organization that it addresses.
    pub(super) organization: Uid,
    /// `None` for the operator, who may do everything.
    pub(super) caller: Option<Caller>,
    pub(super) action: Action,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Gets a repo.
    Get(Uid),
    /// Lists the repos at and below a group, by name.
    List {
        group: Uid,
        name: Option<String>,
        page: Page,
    },
    /// Lists the role bindings at and below a group.
    Bindings {
        group: Uid,
        identity: Option<Uid>,
    },
    /// Creates a repo in a group.
    Create(Uid),
    Update(Uid),
    Delete(Uid),
    /// Registers a person, whose uid is the organization.
    Register {
        subject: String,
    },
    /// Deletes the calling person.
    Unregister,
    /// Redeems an invite to a group for a person.
    Redeem {
        invite: Uid,
        person: Uid,
        group: Uid,
    },
    /// A change of anything else, by the operator or for a directory.
    Other(&'static str),
}

/// A part of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) skip: usize,
    pub(super) size: usize,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Denied,
    Missing,
    Unauthenticated,
    Got(Shown),
    /// A page of repos, and the total.
    Listed(Vec<(Uid, Shown)>, u64),
    /// All role bindings by uid, and the total.
    Bindings(Vec<(Uid, Bound)>, u64),
    Written,
    /// Any other error.
    Failed(Code, String),
}

impl Operation {
    /// Returns the person whose record the result depends on.
    pub(super) fn person(&self) -> Option<&Uid> {
        match &self.action {
            Action::Register { .. } => Some(&self.organization),
            Action::Redeem { person, .. } => Some(person),
            _ => self.caller.as_ref().map(|caller| &caller.identity).filter(|identity| identity.is_root()),
        }
    }
}

impl World {
    /// Runs a random operation.
    pub(super) fn operation(&self, platform: &Platform, random: &mut Rng) -> Operation {
        let id = self.number();
        Recorder::begin(id);
        let organization = random.pick(&self.organizations);
        let what = random.below(20);
        let (organization_uid, caller, action, code) = match what {
            0..6 => (organization.uid.clone(), None, None, None),
            6 => {
                let (person, caller, action) = self.of_person(random);
                (person, caller, Some(action), None)
            }
            7 => {
                let (action, code) = self.redeem(organization, random);
                (organization.uid.clone(), None, action, code)
            }
            8 => (organization.uid.clone(), None, Some(self.action(organization, random)), None),
            _ => {
                let caller = Some(self.caller(organization, random));
                (organization.uid.clone(), caller, Some(self.action(organization, random)), None)
            }
        };
        let begin = self.recorder.now();
        let (action, outcome) = match action {
            None => {
                let (what, done) = self.administer(platform, organization, random);
                (Action::Other(what), done.map(|()| Outcome::Written))
            }
            Some(action) => {
                let done = self.act(platform, organization, caller.as_ref(), &action, code.as_deref());
                (action, done)
            }
        };
        let end = self.recorder.now();
        let outcome = outcome.unwrap_or_else(|error| match error.code() {
            Code::PermissionDenied => Outcome::Denied,
            Code::NotFound => Outcome::Missing,
            Code::Unauthenticated => Outcome::Unauthenticated,
            code => Outcome::Failed(code, error.to_string()),
        });
        Operation { id, organization: organization_uid, caller, action, begin, end, outcome }
    }

    /// Returns a person, and the registration or deletion of that person.
    fn of_person(&self, random: &mut Rng) -> (Uid, Option<Caller>, Action) {
        let subject = random.pick(&self.persons).clone();
        let person = person_uid(ISSUER, &subject);
        if random.one_in(3) {
            (person.clone(), Some(self.person(random, person)), Action::Unregister)
        } else {
            (person, None, Action::Register { subject })
        }
    }

    /// Returns the redemption of an invite, with its code.
    fn redeem(&self, organization: &Organization, random: &mut Rng) -> (Option<Action>, Option<String>) {
        let known = organization.known.lock();
        if known.invites.is_empty() {
            return (None, None);
        }
        let (invite, code) = random.pick(&known.invites).clone();
        let person = self.any_person(random);
        let group = invite.parent().unwrap_or_default();
        (Some(Action::Redeem { invite, person, group }), Some(code))
    }

    /// Returns a person as a caller: by the current registration, or by one that may have ended.
    fn person(&self, random: &mut Rng, uid: Uid) -> Caller {
        let registrations = self.registrations.lock();
        let known = registrations.get(&uid).filter(|known| !known.is_empty() && random.one_in(2));
        let acts_as = known.map_or(ActsAs::Current, |known| ActsAs::Registration(*random.pick(known)));
        Caller::new(uid).acting_as(acts_as)
    }

    /// Returns a person, a person who signed in by the organization's provider, or an identity of the organization; some
    /// by a token that may be revoked.
    fn caller(&self, organization: &Organization, random: &mut Rng) -> Caller {
        let caller = self.caller_without_token(organization, random);
        if !random.one_in(3) {
            return caller;
        }
        let known = self.generations.lock().get(&caller.identity).copied().unwrap_or_default();
        let generation = if random.one_in(4) { known.saturating_sub(1) } else { known };
        let id = (*random.pick(&TOKENS)).to_owned();
        // The times of tokens matter only without the number of revocations.
        caller.with_credential(Credential { generation: Some(generation), id: Some(id), ..Credential::issued_at(None) })
    }

    fn caller_without_token(&self, organization: &Organization, random: &mut Rng) -> Caller {
        let known = organization.known.lock();
        if random.one_in(4) && !known.identities.is_empty() {
            return Caller::new(random.pick(&known.identities).clone());
        }
        let person = self.any_person(random);
        let person = self.person(random, person);
        if !random.one_in(3) {
            return person;
        }
        let user = (random.one_in(2) && !known.users.is_empty()).then(|| random.pick(&known.users).clone());
        let groups: Vec<_> = EXTERNAL.into_iter().filter(|_| random.one_in(2)).map(str::to_owned).collect();
        person.signed_in(Session {
            provider: organization.provider.clone(),
            issuer: ISSUER.to_owned(),
            user,
            groups_claim: CLAIMS[0].to_owned(),
            groups,
        })
    }

    fn action(&self, organization: &Organization, random: &mut Rng) -> Action {
        let known = organization.known.lock();
        let group = |random: &mut Rng| {
            if known.groups.is_empty() || random.one_in(2) {
                organization.uid.clone()
            } else {
                random.pick(&known.groups).clone()
            }
        };
        let deleted = known.deleted.as_ref().filter(|_| random.one_in(10));
        let repo = (!known.repos.is_empty()).then(|| random.pick(&known.repos).clone());
        let (repo, name) = repo.unzip();
        let repo = deleted.cloned().or(repo);
        match (random.below(14), repo) {
            (0..4, _) => {
                let page = if random.one_in(2) {
                    Page { skip: 0, size: ALL }
                } else {
                    Page { skip: random.below(4), size: 1 + random.below(5) }
                };
                let name = name.filter(|_| random.one_in(4));
                Action::List { group: group(random), name, page }
            }
            (4 | 5, _) => {
                let persons = || person_uid(ISSUER, &self.persons[0]);
                Action::Bindings { group: group(random), identity: random.one_in(2).then(persons) }
            }
            (6..10, Some(repo)) => Action::Get(repo),
            (10 | 11, Some(repo)) => Action::Update(repo),
            (12, Some(repo)) => Action::Delete(repo),
            (_, Some(repo)) if known.repos.len() >= MAX_REPOS => Action::Delete(repo),
            _ => Action::Create(group(random)),
        }
    }

    fn act(
        &self,
        platform: &Platform,
        organization: &Organization,
        caller: Option<&Caller>,
        action: &Action,
        code: Option<&str>,
    ) -> Result<Outcome> {
        let caller = caller.unwrap_or(&self.admin);
        match action {
            Action::Get(repo) => {
                let reply = block_on(platform.get_erased(caller, &REPO, repo, RequestOptions::none()))?;
                Ok(Outcome::Got(Shown::of(&reply.body)))
            }
            Action::List { group, name, page } => {
                let (skip, size) = (page.skip.to_string(), page.size.to_string());
                let mut query = vec![
                    ("uidp.descendants_of", group.as_str()),
                    ("order_by", "name"),
                    ("skip", &skip),
                    ("page_size", &size),
                ];
                query.extend(name.as_deref().map(|name| ("name", name)));
                let (items, total) = list(platform, caller, &REPO, &query)?;
                Ok(Outcome::Listed(items.iter().map(|item| (uid_in(item), Shown::of(item))).collect(), total))
            }
            Action::Bindings { group, identity } => {
                let size = ALL.to_string();
                let mut query = vec![("uidp.descendants_of", group.as_str()), ("page_size", &size)];
                query.extend(identity.as_ref().map(|identity| ("identity", identity.as_str())));
                let (items, total) = list(platform, caller, &BINDING, &query)?;
                let mut bindings: Vec<_> = items.iter().map(|item| (uid_in(item), Bound::of(item))).collect();
                bindings.sort_by(|(one, _), (other, _)| one.cmp(other));
                Ok(Outcome::Bindings(bindings, total))
            }
            Action::Create(group) => {
                let name = self.name();
                let uid = uid_of(self.create(platform, caller, &REPO, group, json!({ "name": name })))?;
                organization.known.lock().repos.push((uid, name));
                Ok(Outcome::Written)
            }
            Action::Update(repo) => {
                let body = object(json!({ "description": self.name() }));
                // A preview that committed anything would be a commit of no operation.
                let preview = RequestOptions::default().validate_only(true);
                let key = IdempotencyKey::parse(self.name().as_bytes()).map_err(Error::internal)?;
                let keyed = RequestOptions::default().idempotency_key(Some(key));
                let update = |options| block_on(platform.update_erased(caller, &REPO, repo, &body, None, options));
                update(&preview)?;
                update(&keyed)?;
                // The key of a person belongs to a registration, and another operation may have made a new one since.
                if caller.session.is_some() && matches!(caller.acts_as, ActsAs::Current) {
                    return Ok(Outcome::Written);
                }
                // So would a repetition that is carried out, unless it has failed, such as after a revocation.
                match update(&keyed) {
                    Ok(reply) if !reply.is_replayed => Err(Error::internal("a repetition was not recognized")),
                    Ok(_) | Err(_) => Ok(Outcome::Written),
                }
            }
            Action::Delete(repo) => {
                block_on(platform.delete_erased(caller, &REPO, repo, RequestOptions::none()))?;
                let mut known = organization.known.lock();
                known.repos.retain(|(known, _)| known != repo);
                known.deleted = Some(repo.clone());
                Ok(Outcome::Written)
            }
            Action::Register { subject } => {
                let uid = person_uid(ISSUER, subject);
                block_on(Iam::of(platform).register_person(&uid, ISSUER, subject, None))?;
                self.learn_registration(platform, &uid);
                Ok(Outcome::Written)
            }
            Action::Unregister => block_on(Iam::of(platform).unregister(caller)).map(|()| Outcome::Written),
            Action::Redeem { person, .. } => {
                let redeemed = block_on(Iam::of(platform).redeem_invite(person, code.unwrap_or_default()))?;
                organization.known.lock().bindings.push(redeemed.role_binding);
                Ok(Outcome::Written)
            }
            Action::Other(_) => Ok(Outcome::Written),
        }
    }
}

/// The external groups of sign-ins, and the claims that may have them.
pub(super) const EXTERNAL: [&str; 2] = ["readers", "writers"];
pub(super) const CLAIMS: [&str; 2] = ["groups", "teams"];

/// The ids of tokens.
pub(super) const TOKENS: [&str; 4] = [
    "00000000000000000000000000000001",
    "00000000000000000000000000000002",
    "00000000000000000000000000000003",
    "00000000000000000000000000000004",
];

/// Returns the resources of a page and the total.
fn list(
    platform: &Platform,
    caller: &Caller,
    registered: &Registered,
    query: &[(&str, &str)],
) -> Result<(Vec<bytes::Bytes>, u64)> {
    let pairs: Vec<_> = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = ListRequest::from_query(registered.kind, &pairs)?;
    let reply = block_on(platform.list_erased(Some(caller), registered, &request))?;
    Ok((reply.items, reply.total_count))
}
