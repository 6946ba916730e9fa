//! Ordinary writers: each has resources of its own, and knows of each what the server last said.

use serde_json::{Value, json};

use crate::{
    Client, Place, Written,
    common::{Answer, Api},
    known::{Change, Expected, Known, Unsure},
};

/// The published role that is bound.
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// How many repos, and how many folders, a writer has before it would rather delete some.
const MANY: usize = 12;

pub(crate) struct Writer {
    name: String,
    rng: fastrand::Rng,
    written: u64,
    known: Known,
}

/// No answer came: what the request would have changed.
pub(crate) struct Lost(pub(crate) Change);

impl Writer {
    pub(crate) fn new(name: String, rng: fastrand::Rng) -> Self {
        Self { name, rng, written: 0, known: Known::default() }
    }
}

impl Client for Writer {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, place: &Place) -> Result<Written, Unsure> {
        self.one(api, place).map(|()| Written::Once).map_err(|Lost(change)| vec![change])
    }
}

impl Writer {
    fn one(&mut self, api: &Api, place: &Place) -> Result<(), Lost> {
        self.written += 1;
        let repos = self.known.names(&format!("repo {}-", self.name));
        let folders = self.known.names(&format!("group {}-", self.name));
        let (repo, folder) = (self.rng.choice(&repos), self.rng.choice(&folders));
        let rather_delete = |names: &[String]| if names.len() > MANY { 4 } else { 1 };
        let weights: [usize; 8] = [4, 4, 6, 2, rather_delete(&repos), 2, 3, rather_delete(&folders)];
        let mut dice = self.rng.usize(..weights.iter().sum::<usize>());
        let choice = weights.iter().position(|weight| {
            let here = dice < *weight;
            dice = dice.saturating_sub(*weight);
            here
        });
        match (choice, repo, folder) {
            (Some(1), Some(repo), _) => self.patch_repo(api, repo),
            (Some(2), Some(repo), _) => self.put_tag(api, repo),
            (Some(3), Some(repo), _) => self.delete_tag(api, repo),
            (Some(4), Some(repo), _) => self.delete_repo(api, repo),
            (Some(5), ..) => self.create(api, "group", &format!("/iam/v2/groups/{}", place.folder)),
            (Some(6), _, Some(folder)) => self.bind_all(api, place, folder),
            (Some(7), _, Some(folder)) => self.delete_folder(api, folder),
            _ => self.create(api, "repo", &format!("/registry/v2/repos/{}", place.folder)),
        }
    }

    fn create(&mut self, api: &Api, sort: &str, path: &str) -> Result<(), Lost> {
        let name = format!("{}-{}", self.name, self.written);
        let body = json!({"name": name, "description": format!("made by write {}", self.written)});
        let name = format!("{sort} {name}");
        let change = vec![(name.clone(), Some(Expected::With(body.clone())))];
        let made = written(api.try_send("POST", path, Some(&body)), change)?;
        assert_eq!((&made["name"], &made["description"]), (&body["name"], &body["description"]));
        self.known.acknowledge(name, made);
        Ok(())
    }

    fn patch_repo(&mut self, api: &Api, repo: &str) -> Result<(), Lost> {
        let before = &self.known.get(repo).unwrap();
        let patch = json!({"description": format!("patched by write {}", self.written)});
        let expected = with(before, &patch);
        let change = vec![(repo.to_owned(), Some(Expected::With(expected.clone())))];
        let after = written(api.try_send("PATCH", &path("/registry/v2/repos/", before), Some(&patch)), change)?;
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(after.get(field), Some(value), "{field} of {repo}");
        }
        assert!(after["updateTime"].as_str() >= before["updateTime"].as_str(), "{before} {after}");
        self.known.acknowledge(repo, after);
        Ok(())
    }

    /// Makes a tag or moves it.
    fn put_tag(&mut self, api: &Api, repo: &str) -> Result<(), Lost> {
        let name = format!("t{}", self.rng.u8(..4));
        let tag = format!("tag {} {name}", repo.trim_start_matches("repo "));
        let digest = format!("sha256:{:064x}", self.rng.u128(..));
        let body = json!({"name": name, "digest": digest});
        let expected = self.known.get(&tag).map_or_else(|| body.clone(), |before| with(before, &body));
        let change = vec![(tag.clone(), Some(Expected::With(expected.clone())))];
        let path = path("/registry/v2/tags/", self.known.get(repo).unwrap());
        let after = written(api.try_send("POST", &path, Some(&body)), change)?;
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(after.get(field), Some(value), "{field} of {tag}");
        }
        self.known.acknowledge(tag, after);
        Ok(())
    }

    fn delete_tag(&mut self, api: &Api, repo: &str) -> Result<(), Lost> {
        let tags = self.tags(repo);
        let Some(tag) = self.rng.choice(&tags) else { return self.put_tag(api, repo) };
        self.delete(api, "/registry/v2/tags/", tag, &[])
    }

    fn delete_repo(&mut self, api: &Api, repo: &str) -> Result<(), Lost> {
        let tags = self.tags(repo);
        self.delete(api, "/registry/v2/repos/", repo, &tags)
    }

    fn delete_folder(&mut self, api: &Api, folder: &str) -> Result<(), Lost> {
        let bindings = self.bindings(folder);
        self.delete(api, "/iam/v2/groups/", folder, &bindings)
    }

    /// Deletes a resource, which takes others with it.
    fn delete(&mut self, api: &Api, collection: &str, name: &str, with_it: &[String]) -> Result<(), Lost> {
        let gone = || std::iter::once(name).chain(with_it.iter().map(String::as_str));
        let change = gone().map(|name| (name.to_owned(), None)).collect();
        let path = path(collection, self.known.get(name).unwrap());
        let answer = api.try_send("DELETE", &path, None).ok_or(Lost(change))?;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""), "DELETE of {name}");
        gone().for_each(|name| self.known.forget(name));
        Ok(())
    }

    /// Binds every identity at a folder in one batch, which is done whole or not at all.
    fn bind_all(&mut self, api: &Api, place: &Place, folder: &str) -> Result<(), Lost> {
        if !self.bindings(folder).is_empty() {
            return self.delete_folder(api, folder);
        }
        let requests: Vec<_> =
            place.identities.iter().map(|uid| json!({"roleBinding": {"identityUid": uid}})).collect();
        let uid = &self.known.get(folder).unwrap()["uid"];
        let body = json!({"parent": uid, "roleUid": VIEWER, "requests": requests});
        let binding_of = |identity: &str| format!("binding {} {identity}", folder.trim_start_matches("group "));
        let fields = Expected::With(json!({}));
        let change = place.identities.iter().map(|uid| (binding_of(uid), Some(fields.clone()))).collect();
        let made = written(api.try_send("POST", "/iam/v2/roleBindings:batchCreate", Some(&body)), change)?;
        let made = made["roleBindings"].as_array().unwrap();
        assert_eq!(made.len(), place.identities.len());
        for (identity, binding) in place.identities.iter().zip(made) {
            assert_eq!(binding["identity"]["uid"], *identity, "answers come in the order of the requests");
            self.known.acknowledge(binding_of(identity), binding.clone());
        }
        Ok(())
    }

    fn tags(&self, repo: &str) -> Vec<String> {
        self.known.names(&format!("tag {} ", repo.trim_start_matches("repo ")))
    }

    fn bindings(&self, folder: &str) -> Vec<String> {
        self.known.names(&format!("binding {} ", folder.trim_start_matches("group ")))
    }
}

/// Returns what was written, unless there was no answer.
pub(crate) fn written(answer: Option<Answer>, change: Change) -> Result<Value, Lost> {
    answer.map(|answer| answer.ok()).ok_or(Lost(change))
}

/// Returns what stays of a resource when these fields are written.
pub(crate) fn with(before: &Value, written: &Value) -> Value {
    let mut fields = before.as_object().unwrap().clone();
    fields.remove("updateTime");
    fields.extend(written.as_object().unwrap().clone());
    Value::Object(fields)
}

/// Returns the path of a resource, or of the resources below it.
pub(crate) fn path(collection: &str, body: &Value) -> String {
    format!("{collection}{}", body["uid"].as_str().unwrap())
}
