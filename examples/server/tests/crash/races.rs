//! Requests that are sent at the same moment and of which the store's commits must let the right ones through.

use std::{sync::Barrier, thread};

use serde_json::{Value, json};

use crate::{
    Client, Place, Written,
    common::{Answer, Api},
    known::{Change, Expected, Known, Unsure},
    writers::{Lost, path, with, written},
};

/// A request: its method, its path and its body.
type Request = (&'static str, String, Option<Value>);

/// Sends two requests at the same moment.
fn at_once(api: &Api, one: &Request, other: &Request) -> [Option<Answer>; 2] {
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

fn is_done(answer: Option<&Answer>) -> bool {
    answer.is_some_and(|answer| answer.status == 200)
}

/// Returns the reason of a refusal.
fn reason(answer: &Answer) -> String {
    answer.error(answer.status)["details"][0]["reason"].as_str().unwrap().to_owned()
}

/// Returns the changes of those requests that got no answer.
fn unanswered(answers: &[Option<Answer>; 2], changes: &[Change; 2]) -> Unsure {
    let lost = answers.iter().zip(changes).filter(|(answer, _)| answer.is_none());
    lost.map(|(_, change)| change.clone()).collect()
}

/// Folders that are deleted while something is created in them: there is never an orphan.
#[derive(Default)]
pub(crate) struct Orphans {
    raced: u64,
    known: Known,
}

impl Client for Orphans {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, place: &Place) -> Result<Written, Unsure> {
        self.tidy(api).map_err(|Lost(change)| vec![change])?;
        self.raced += 1;
        let name = format!("orphan-{}", self.raced);
        let folder = format!("group {name}");
        let body = json!({"name": name});
        let change = vec![(folder.clone(), Some(Expected::With(body.clone())))];
        let made = api.try_send("POST", &format!("/iam/v2/groups/{}", place.folder), Some(&body));
        let made = written(made, change).map_err(|Lost(change)| vec![change])?;
        self.known.acknowledge(&folder, made.clone());

        let (sort, collection, body) = match self.raced % 3 {
            0 => ("repo", "/registry/v2/repos/", json!({"name": format!("{name}-child")})),
            1 => ("group", "/iam/v2/groups/", json!({"name": format!("{name}-child")})),
            _ => {
                let claims = json!({"issuer": "https://issuer.example", "subject": name});
                ("identity", "/iam/v2/identities/", json!({"name": format!("{name}-child"), "claimMatch": claims}))
            }
        };
        let child = format!("{sort} {name}-child");
        let delete = ("DELETE", path("/iam/v2/groups/", &made), None);
        let create = ("POST", path(collection, &made), Some(body.clone()));
        let answers = at_once(api, &delete, &create);
        let [deleted, created] = answers.each_ref().map(Option::as_ref);
        assert!(!(is_done(deleted) && is_done(created)), "an orphan: {answers:?}");
        if is_done(deleted) {
            self.known.forget(&folder);
        }
        if is_done(created) {
            self.known.acknowledge(&child, answers[1].as_ref().unwrap().json());
        }
        if let [Some(deleted), Some(created)] = &answers {
            match (deleted.status, created.status) {
                (200, _) => assert!(reason(created) == "NOT_FOUND", "{created:?}"),
                (_, 200) => assert!(reason(deleted) == "FAILED_PRECONDITION", "{deleted:?}"),
                _ => panic!("neither was done: {answers:?}"),
            }
            return Ok(Written::Race);
        }
        let changes = [vec![(folder, None)], vec![(child, Some(Expected::With(body)))]];
        Err(unanswered(&answers, &changes))
    }
}

impl Orphans {
    /// Deletes what the last race left: the child, and then the folder.
    fn tidy(&mut self, api: &Api) -> Result<(), Lost> {
        let mut left = self.known.names("repo ");
        left.extend(self.known.names("identity "));
        // A folder's name comes before its child's.
        left.extend(self.known.names("group ").into_iter().rev());
        for name in left {
            let collection = match name.split_once(' ').unwrap().0 {
                "repo" => "/registry/v2/repos/",
                "identity" => "/iam/v2/identities/",
                _ => "/iam/v2/groups/",
            };
            let path = path(collection, self.known.get(&name).unwrap());
            let answer = api.try_send("DELETE", &path, None).ok_or_else(|| Lost(vec![(name.clone(), None)]))?;
            assert_eq!(answer.status, 200, "{answer:?}");
            self.known.forget(&name);
        }
        Ok(())
    }
}

/// Names that two clients want at once: one of them gets it.
#[derive(Default)]
pub(crate) struct Twins {
    raced: u64,
    known: Known,
}

impl Client for Twins {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, place: &Place) -> Result<Written, Unsure> {
        for name in [self.known.names("group "), self.known.names("repo ")].concat() {
            let collection = if name.starts_with("group ") { "/iam/v2/groups/" } else { "/registry/v2/repos/" };
            let path = path(collection, self.known.get(&name).unwrap());
            let answer = api.try_send("DELETE", &path, None).ok_or_else(|| vec![vec![(name.clone(), None)]])?;
            assert_eq!(answer.status, 200, "{answer:?}");
            self.known.forget(&name);
        }
        self.raced += 1;
        let (sort, collection) = match self.raced % 2 {
            0 => ("group", "/iam/v2/groups/"),
            _ => ("repo", "/registry/v2/repos/"),
        };
        let name = format!("{sort} twin-{}", self.raced);
        let bodies = ["one", "other"]
            .map(|description| json!({"name": format!("twin-{}", self.raced), "description": description}));
        let [one, other] =
            bodies.each_ref().map(|body| ("POST", format!("{collection}{}", place.folder), Some(body.clone())));
        let answers = at_once(api, &one, &other);
        let winners: Vec<_> = answers.iter().flatten().filter(|answer| answer.status == 200).collect();
        for refused in answers.iter().flatten().filter(|answer| answer.status != 200) {
            assert_eq!(reason(refused), "ALREADY_EXISTS", "{refused:?}");
        }
        match winners[..] {
            [winner] => self.known.acknowledge(&name, winner.json()),
            [] => assert!(answers.iter().any(Option::is_none), "neither got the name: {answers:?}"),
            _ => panic!("two of one name: {answers:?}"),
        }
        if answers.iter().all(Option::is_some) {
            return Ok(Written::Race);
        }
        if !winners.is_empty() {
            // The other one can only have been refused.
            return Err(Unsure::new());
        }
        let changes = bodies.map(|body| vec![(name.clone(), Some(Expected::With(body)))]);
        Err(unanswered(&answers, &changes))
    }
}

/// A repo of which two clients patch a field each: both are kept.
#[derive(Default)]
pub(crate) struct Fields {
    raced: u64,
    known: Known,
}

impl Fields {
    const NAME: &str = "repo fields";
}

impl Client for Fields {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, place: &Place) -> Result<Written, Unsure> {
        let Some(before) = self.known.get(Self::NAME).cloned() else {
            let body = json!({"name": "fields", "description": "", "activeTags": ["0"]});
            let change = vec![(Self::NAME.to_owned(), Some(Expected::With(json!({"name": "fields"}))))];
            let made = api.try_send("POST", &format!("/registry/v2/repos/{}", place.folder), Some(&body));
            let made = written(made, change).map_err(|Lost(change)| vec![change])?;
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
        let answers = at_once(api, &one, &other);
        let mut left = with(&before, &json!({}));
        for (answer, patch) in answers.iter().zip(&patches) {
            let Some(answer) = answer else { continue };
            let after = answer.ok();
            left = with(&left, patch);
            for (field, value) in patch.as_object().unwrap() {
                assert_eq!(after[field], *value, "{answers:?}");
            }
        }
        if answers.iter().all(Option::is_some) {
            let Some(now) = api.try_send("GET", &uid, None) else {
                self.known.acknowledge_fields(Self::NAME, left);
                return Err(Unsure::new());
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
        let mut unsure = unanswered(&answers, &patches.each_ref().map(|patch| changed(&[patch])));
        if unsure.len() == 2 {
            unsure.push(changed(&patches.each_ref()));
        }
        self.known.acknowledge_fields(Self::NAME, left);
        Err(unsure)
    }
}
