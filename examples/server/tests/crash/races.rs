//! Clients that send two conflicting requests at the same time, of which the store's commits must accept the right
//! ones.

use std::{sync::Barrier, thread};

use serde_json::{Value, json};

use crate::{
    Client, Fixture, Written,
    common::{Api, Response},
    known::{Change, Expected, Known, Unacknowledged},
    writers::{NoResponse, path, with, written},
};

/// A request: its method, its path and its body.
type Request = (&'static str, String, Option<Value>);

/// Sends two requests at the same time.
fn at_once(api: &Api, one: &Request, other: &Request) -> [Option<Response>; 2] {
    let barrier = Barrier::new(2);
    let send = |(method, path, body): &Request| {
        barrier.wait();
        api.try_send(method, path, body.as_ref())
    };
    thread::scope(|scope| {
        let one = scope.spawn(|| send(one));
        let other = send(other);
        [one.join().unwrap(), other]
    })
}

fn is_ok(response: Option<&Response>) -> bool {
    response.is_some_and(|response| response.status == 200)
}

/// Returns the reason of an error.
fn reason(response: &Response) -> String {
    response.error(response.status)["details"][0]["reason"].as_str().unwrap().to_owned()
}

/// Returns the changes of the requests without a response.
fn unanswered(responses: &[Option<Response>; 2], changes: &[Change; 2]) -> Unacknowledged {
    let unanswered = responses.iter().zip(changes).filter(|(response, _)| response.is_none());
    unanswered.map(|(_, change)| change.clone()).collect()
}

/// Deletes folders while a child is created in them. Never leaves an orphan.
#[derive(Default)]
pub(crate) struct ParentRace {
    raced: u64,
    known: Known,
}

impl Client for ParentRace {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged> {
        self.clean_up(api).map_err(|NoResponse(change)| vec![change])?;
        self.raced += 1;
        let name = format!("orphan-{}", self.raced);
        let folder = format!("group {name}");
        let body = json!({"name": name});
        let change = vec![(folder.clone(), Some(Expected::With(body.clone())))];
        let made = api.try_send("POST", &format!("/iam/v2/groups/{}", fixture.folder), Some(&body));
        let made = written(made, change).map_err(|NoResponse(change)| vec![change])?;
        self.known.acknowledge(&folder, made.clone());

        let (kind, collection, body) = match self.raced % 3 {
            0 => ("repo", "/registry/v2/repos/", json!({"name": format!("{name}-child")})),
            1 => ("group", "/iam/v2/groups/", json!({"name": format!("{name}-child")})),
            _ => {
                let claims = json!({"issuer": "https://issuer.example", "subject": name});
                ("identity", "/iam/v2/identities/", json!({"name": format!("{name}-child"), "claimMatch": claims}))
            }
        };
        let child = format!("{kind} {name}-child");
        let delete = ("DELETE", path("/iam/v2/groups/", &made), None);
        let create = ("POST", path(collection, &made), Some(body.clone()));
        let responses = at_once(api, &delete, &create);
        let [deleted, created] = responses.each_ref().map(Option::as_ref);
        assert!(!(is_ok(deleted) && is_ok(created)), "an orphan: {responses:?}");
        if is_ok(deleted) {
            self.known.forget(&folder);
        }
        if is_ok(created) {
            self.known.acknowledge(&child, responses[1].as_ref().unwrap().json());
        }
        if let [Some(deleted), Some(created)] = &responses {
            match (deleted.status, created.status) {
                (200, _) => assert!(reason(created) == "NOT_FOUND", "{created:?}"),
                (_, 200) => assert!(reason(deleted) == "FAILED_PRECONDITION", "{deleted:?}"),
                _ => panic!("both requests failed: {responses:?}"),
            }
            return Ok(Written::Race);
        }
        let changes = [vec![(folder, None)], vec![(child, Some(Expected::With(body)))]];
        Err(unanswered(&responses, &changes))
    }
}

impl ParentRace {
    /// Deletes the remains of the last race: the child, and then the folder.
    fn clean_up(&mut self, api: &Api) -> Result<(), NoResponse> {
        let mut left = self.known.names("repo ");
        left.extend(self.known.names("identity "));
        // The name of a folder sorts before that of its child, which must be deleted first.
        left.extend(self.known.names("group ").into_iter().rev());
        for name in left {
            let collection = match name.split_once(' ').unwrap().0 {
                "repo" => "/registry/v2/repos/",
                "identity" => "/iam/v2/identities/",
                _ => "/iam/v2/groups/",
            };
            let path = path(collection, self.known.get(&name).unwrap());
            let response = api.try_send("DELETE", &path, None).ok_or_else(|| NoResponse(vec![(name.clone(), None)]))?;
            assert_eq!(response.status, 200, "{response:?}");
            self.known.forget(&name);
        }
        Ok(())
    }
}

/// Creates two resources of the same name at the same time. Exactly one succeeds.
#[derive(Default)]
pub(crate) struct NameRace {
    raced: u64,
    known: Known,
}

impl Client for NameRace {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged> {
        for name in [self.known.names("group "), self.known.names("repo ")].concat() {
            let collection = if name.starts_with("group ") { "/iam/v2/groups/" } else { "/registry/v2/repos/" };
            let path = path(collection, self.known.get(&name).unwrap());
            let response = api.try_send("DELETE", &path, None).ok_or_else(|| vec![vec![(name.clone(), None)]])?;
            assert_eq!(response.status, 200, "{response:?}");
            self.known.forget(&name);
        }
        self.raced += 1;
        let (kind, collection) = match self.raced % 2 {
            0 => ("group", "/iam/v2/groups/"),
            _ => ("repo", "/registry/v2/repos/"),
        };
        let name = format!("{kind} twin-{}", self.raced);
        let bodies = ["one", "other"]
            .map(|description| json!({"name": format!("twin-{}", self.raced), "description": description}));
        let [one, other] =
            bodies.each_ref().map(|body| ("POST", format!("{collection}{}", fixture.folder), Some(body.clone())));
        let responses = at_once(api, &one, &other);
        let winners: Vec<_> = responses.iter().flatten().filter(|response| response.status == 200).collect();
        for rejected in responses.iter().flatten().filter(|response| response.status != 200) {
            assert_eq!(reason(rejected), "ALREADY_EXISTS", "{rejected:?}");
        }
        match winners[..] {
            [winner] => self.known.acknowledge(&name, winner.json()),
            [] => assert!(responses.iter().any(Option::is_none), "both requests failed: {responses:?}"),
            _ => panic!("two resources of one name: {responses:?}"),
        }
        if responses.iter().all(Option::is_some) {
            return Ok(Written::Race);
        }
        if !winners.is_empty() {
            // The request without a response must have failed, since the name was taken.
            return Err(Unacknowledged::new());
        }
        let changes = bodies.map(|body| vec![(name.clone(), Some(Expected::With(body)))]);
        Err(unanswered(&responses, &changes))
    }
}

/// Patches two fields of a repo at the same time. Neither update is lost.
#[derive(Default)]
pub(crate) struct PatchRace {
    raced: u64,
    known: Known,
}

impl PatchRace {
    const NAME: &str = "repo fields";
}

impl Client for PatchRace {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged> {
        let Some(before) = self.known.get(Self::NAME).cloned() else {
            let body = json!({"name": "fields", "description": "", "activeTags": ["0"]});
            let change = vec![(Self::NAME.to_owned(), Some(Expected::With(json!({"name": "fields"}))))];
            let made = api.try_send("POST", &format!("/registry/v2/repos/{}", fixture.folder), Some(&body));
            let made = written(made, change).map_err(|NoResponse(change)| vec![change])?;
            self.known.acknowledge(Self::NAME, made);
            return Ok(Written::Race);
        };
        self.raced += 1;
        let patches = [
            json!({"description": format!("described {} times", self.raced)}),
            json!({"activeTags": [format!("{}", self.raced)]}),
        ];
        let uid = path("/registry/v2/repos/", &before);
        let [one, other] = patches.each_ref().map(|patch| ("PATCH", uid.clone(), Some(patch.clone())));
        let responses = at_once(api, &one, &other);
        let mut left = with(&before, &json!({}));
        for (response, patch) in responses.iter().zip(&patches) {
            let Some(response) = response else { continue };
            let after = response.ok();
            left = with(&left, patch);
            for (field, value) in patch.as_object().unwrap() {
                assert_eq!(after[field], *value, "{responses:?}");
            }
        }
        if responses.iter().all(Option::is_some) {
            let Some(now) = api.try_send("GET", &uid, None) else {
                self.known.acknowledge_fields(Self::NAME, left);
                return Err(Unacknowledged::new());
            };
            let now = now.ok();
            assert_eq!(with(&now, &json!({})), left, "a field was lost");
            self.known.acknowledge(Self::NAME, now);
            return Ok(Written::Race);
        }
        let changed = |patches: &[&Value]| {
            let left = patches.iter().fold(left.clone(), |left, patch| with(&left, patch));
            vec![(Self::NAME.to_owned(), Some(Expected::With(left)))]
        };
        let mut unacknowledged = unanswered(&responses, &patches.each_ref().map(|patch| changed(&[patch])));
        if unacknowledged.len() == 2 {
            unacknowledged.push(changed(&patches.each_ref()));
        }
        self.known.acknowledge_fields(Self::NAME, left);
        Err(unacknowledged)
    }
}
