//! Ordinary writers: each has its own resources, and knows the last acknowledged state of each.

use serde_json::{Value, json};

use crate::{
    Client, Fixture, Written,
    common::{Api, Response},
    known::{Change, Expected, Known, Unacknowledged},
};

/// The uid of the built-in role that the bindings use.
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// Number of repos, and of folders, from which on a writer deletes more often.
const MANY: usize = 12;

pub(crate) struct Writer {
    name: String,
    rng: fastrand::Rng,
    written: u64,
    known: Known,
}

/// Error of a request without a response, with the change that it may have made.
pub(crate) struct NoResponse(pub(crate) Change);

impl Writer {
    pub(crate) fn new(name: String, rng: fastrand::Rng) -> Self {
        Self { name, rng, written: 0, known: Known::default() }
    }
}

impl Client for Writer {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged> {
        self.write_one(api, fixture).map(|()| Written::Once).map_err(|NoResponse(change)| vec![change])
    }
}

impl Writer {
    fn write_one(&mut self, api: &Api, fixture: &Fixture) -> Result<(), NoResponse> {
        self.written += 1;
        let repos = self.known.names(&format!("repo {}-", self.name));
        let folders = self.known.names(&format!("group {}-", self.name));
        let (repo, folder) = (self.rng.choice(&repos), self.rng.choice(&folders));
        let delete_weight = |names: &[String]| if names.len() > MANY { 4 } else { 1 };
        let weights: [usize; 8] = [4, 4, 6, 2, delete_weight(&repos), 2, 3, delete_weight(&folders)];
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
            (Some(5), ..) => self.create(api, "group", &format!("/iam/v2/groups/{}", fixture.folder)),
            (Some(6), _, Some(folder)) => self.bind_all(api, fixture, folder),
            (Some(7), _, Some(folder)) => self.delete_folder(api, folder),
            _ => self.create(api, "repo", &format!("/registry/v2/repos/{}", fixture.folder)),
        }
    }

    fn create(&mut self, api: &Api, kind: &str, path: &str) -> Result<(), NoResponse> {
        let name = format!("{}-{}", self.name, self.written);
        let body = json!({"name": name, "description": format!("made by write {}", self.written)});
        let name = format!("{kind} {name}");
        let change = vec![(name.clone(), Some(Expected::With(body.clone())))];
        let made = written(api.try_send("POST", path, Some(&body)), change)?;
        assert_eq!((&made["name"], &made["description"]), (&body["name"], &body["description"]));
        self.known.acknowledge(name, made);
        Ok(())
    }

    fn patch_repo(&mut self, api: &Api, repo: &str) -> Result<(), NoResponse> {
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

    /// Creates a tag or moves it to another digest.
    fn put_tag(&mut self, api: &Api, repo: &str) -> Result<(), NoResponse> {
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

    fn delete_tag(&mut self, api: &Api, repo: &str) -> Result<(), NoResponse> {
        let tags = self.tags(repo);
        let Some(tag) = self.rng.choice(&tags) else { return self.put_tag(api, repo) };
        self.delete(api, "/registry/v2/tags/", tag, &[])
    }

    fn delete_repo(&mut self, api: &Api, repo: &str) -> Result<(), NoResponse> {
        let tags = self.tags(repo);
        self.delete(api, "/registry/v2/repos/", repo, &tags)
    }

    fn delete_folder(&mut self, api: &Api, folder: &str) -> Result<(), NoResponse> {
        let bindings = self.bindings(folder);
        self.delete(api, "/iam/v2/groups/", folder, &bindings)
    }

    /// Deletes a resource and, by cascade, its dependents.
    fn delete(&mut self, api: &Api, collection: &str, name: &str, dependents: &[String]) -> Result<(), NoResponse> {
        let deleted = || std::iter::once(name).chain(dependents.iter().map(String::as_str));
        let change = deleted().map(|name| (name.to_owned(), None)).collect();
        let path = path(collection, self.known.get(name).unwrap());
        let response = api.try_send("DELETE", &path, None).ok_or(NoResponse(change))?;
        assert_eq!((response.status, response.text.as_str()), (200, ""), "DELETE of {name}");
        deleted().for_each(|name| self.known.forget(name));
        Ok(())
    }

    /// Binds every identity at a folder in one batch, which is applied as a whole or not at all.
    fn bind_all(&mut self, api: &Api, fixture: &Fixture, folder: &str) -> Result<(), NoResponse> {
        if !self.bindings(folder).is_empty() {
            return self.delete_folder(api, folder);
        }
        let requests: Vec<_> =
            fixture.identities.iter().map(|uid| json!({"roleBinding": {"identityUid": uid}})).collect();
        let uid = &self.known.get(folder).unwrap()["uid"];
        let body = json!({"parent": uid, "roleUid": VIEWER, "requests": requests});
        let binding_of = |identity: &str| format!("binding {} {identity}", folder.trim_start_matches("group "));
        let fields = Expected::With(json!({}));
        let change = fixture.identities.iter().map(|uid| (binding_of(uid), Some(fields.clone()))).collect();
        let made = written(api.try_send("POST", "/iam/v2/roleBindings:batchCreate", Some(&body)), change)?;
        let made = made["roleBindings"].as_array().unwrap();
        assert_eq!(made.len(), fixture.identities.len());
        for (identity, binding) in fixture.identities.iter().zip(made) {
            assert_eq!(binding["identity"]["uid"], *identity, "responses come in the order of the requests");
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

/// Returns the written resource, or an error if there was no response.
pub(crate) fn written(response: Option<Response>, change: Change) -> Result<Value, NoResponse> {
    response.map(|response| response.ok()).ok_or(NoResponse(change))
}

/// Returns the expected fields of a resource after these fields are written. Leaves out `updateTime`, which changes.
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
