//! The attacks, and the changes that the operator makes in between.

use platform_core::{
    iam::Iam,
    resources::iam::{DirectoryUser, person_uid},
    tokens::{Refresh, Register, TokenService},
};
use platform_engine::{
    access::Caller,
    error::{Error, Result},
    options::RequestOptions,
    seal::Secret,
    uid::Uid,
};
use serde_json::{Value, json};

use super::{EVIL, POOL, Rng, SECRET, SSO, SUBJECT, World, built_in, capabilities};
use crate::{
    common::{API, OWN, TRUSTED},
    fixture::{object, token},
    oracle::{Set, text},
};

impl World {
    /// Returns the uid of a random record of this kind.
    fn any(&self, rng: &mut Rng, kind: &str) -> Option<String> {
        let all = self.state.all(kind);
        if all.is_empty() { None } else { Some(text(rng.pick(all), "uid").to_owned()) }
    }

    fn any_role(&self, rng: &mut Rng) -> String {
        if rng.one_in(3) { built_in("owner") } else { self.any(rng, "Role").unwrap() }
    }

    /// Returns, with probability one half, a random identity that satisfies `related`, if there is one; otherwise any
    /// identity.
    fn any_related(&self, rng: &mut Rng, related: impl Fn(&Value) -> bool) -> Option<String> {
        let all: Vec<_> = self.state.all("Identity").iter().filter(|identity| related(identity)).collect();
        if all.is_empty() || rng.one_in(2) {
            self.any(rng, "Identity")
        } else {
            Some(text(rng.pick::<&Value>(&all), "uid").to_owned())
        }
    }

    /// Returns a random identity or a person of the coalition.
    fn any_identity(&self, rng: &mut Rng) -> String {
        let person = person_uid(TRUSTED, rng.pick::<String>(&self.credentials.persons)).to_string();
        if rng.one_in(2) { person } else { self.any(rng, "Identity").unwrap() }
    }

    fn issuer(rng: &mut Rng) -> &'static str {
        rng.pick::<&str>(&[EVIL, EVIL, SSO])
    }

    /// Returns a random relationship that the coalition may be able to use.
    fn relationship(&self, rng: &mut Rng) -> Value {
        match rng.below(9) {
            0 => json!({ "claimMatch": { "issuer": EVIL } }),
            1 => json!({ "claimMatch": { "issuer": EVIL, "subject": "anyone" } }),
            2 => json!({ "claimMatch": { "issuer": TRUSTED, "subject": "mallory" } }),
            3 => json!({ "claimMatch": { "issuerPattern": ".*", "subjectPattern": ".*" } }),
            4 => json!({ "claimMatch": { "subjectPattern": ".*" } }),
            5 => json!({ "claimMatch": { "issuer": OWN, "subject": self.any_identity(rng) } }),
            6 => json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
            _ => {
                let keys = self.credentials.keys.clone();
                json!({ "staticKeys": { "issuer": EVIL, "subject": "anyone", "issuerKeys": keys } })
            }
        }
    }

    fn evil_token(&self, more: Value) -> String {
        let mut claims = object(json!({ "iss": EVIL, "sub": "anyone", "aud": [API, "client"], "groups": ["admins"] }));
        claims.extend(object(json!({ "nickname": ["admins"] })));
        claims.extend(object(more));
        token(&self.evil, claims.into())
    }

    /// Makes a random change as the operator; returns its description.
    pub(super) async fn operator_acts(&mut self, rng: &mut Rng) -> String {
        let operator = self.fixture.operator.clone();
        let done = match rng.below(7) {
            0 => {
                let (group, role) = (self.any(rng, "Group").unwrap(), self.any(rng, "Role").unwrap());
                let body = json!({ "identityUid": self.any_identity(rng), "roleUid": role });
                (
                    format!("bind at {group}: {body}"),
                    self.create(&operator, "RoleBinding", &group, body).await.map(drop),
                )
            }
            1 => match self.any(rng, "RoleBinding") {
                Some(binding) => (format!("unbind {binding}"), self.delete(&operator, "RoleBinding", &binding).await),
                None => return String::new(),
            },
            2 => {
                let role = self.any(rng, "Role").unwrap();
                let body = json!({ "capabilities": capabilities(rng, 8) });
                (format!("change {role}: {body}"), self.update(&operator, "Role", &role, body).await)
            }
            3 => match self.any(rng, "DirectoryUser") {
                Some(user) => {
                    let (provider, id) = user.rsplit_once('/').unwrap();
                    let provider = Uid::opaque(provider);
                    let done = Iam::of(&self.fixture.platform).delete_directory_user(&provider, id).await;
                    (format!("delete {user}"), done)
                }
                None => return String::new(),
            },
            4 => match self.any(rng, "ExternalGroupRoleMapping") {
                Some(mapping) => {
                    (format!("unmap {mapping}"), self.delete(&operator, "ExternalGroupRoleMapping", &mapping).await)
                }
                None => return String::new(),
            },
            5 => match self.any(rng, "IdentityProvider") {
                Some(provider) => {
                    let body = json!({ "defaultRole": self.any(rng, "Role") });
                    (format!("{provider}: {body}"), self.update(&operator, "IdentityProvider", &provider, body).await)
                }
                None => return String::new(),
            },
            _ => {
                let group = self.any(rng, "Group").unwrap();
                let body = json!({ "name": "more", "claimMatch": { "issuer": TRUSTED, "subject": "victim 2" } });
                (
                    format!("create identity at {group}"),
                    self.create(&operator, "Identity", &group, body).await.map(drop),
                )
            }
        };
        format!("{}: {}", done.0, done.1.is_ok())
    }

    /// Runs an attack. Returns its description and its result, or `None` if there is nothing to attack.
    #[allow(clippy::too_many_lines, clippy::cognitive_complexity, reason = "a few lines for each attack")]
    pub(super) async fn run_attack(
        &mut self,
        attack: &str,
        rng: &mut Rng,
        caller: &Caller,
        credential: &str,
    ) -> (String, Option<Result<()>>) {
        let nothing = (String::new(), None);
        let group = self.any(rng, "Group").unwrap();
        match attack {
            "bind" => {
                let body = json!({ "identityUid": self.any_identity(rng), "roleUid": self.any_role(rng) });
                let done = self.create(caller, "RoleBinding", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "rebind" => {
                let Some(binding) = self.any(rng, "RoleBinding") else { return nothing };
                let body = match rng.below(2) {
                    0 => json!({ "identityUid": self.any_identity(rng) }),
                    _ => json!({ "roleUid": self.any_role(rng) }),
                };
                (format!("{binding} {body}"), Some(self.update(caller, "RoleBinding", &binding, body.clone()).await))
            }
            "unbind" => {
                let Some(binding) = self.any(rng, "RoleBinding") else { return nothing };
                (binding.clone(), Some(self.delete(caller, "RoleBinding", &binding).await))
            }
            "bind many" => {
                let requests: Vec<_> = (0..1 + rng.below(3))
                    .map(|_| {
                        let binding = json!({ "identityUid": self.any_identity(rng), "roleUid": self.any_role(rng) });
                        json!({ "roleBinding": binding })
                    })
                    .collect();
                let request = json!({ "parent": group, "requests": requests });
                let done = self.run(caller, "BatchCreateRoleBindings", request.clone()).await;
                (request.to_string(), Some(done.map(drop)))
            }
            "create role" => {
                let body = json!({ "name": format!("made {}", rng.below(1000)), "capabilities": capabilities(rng, 5) });
                let done = self.create(caller, "Role", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "change role" => {
                let Some(role) = self.any(rng, "Role") else { return nothing };
                let body = json!({ "capabilities": capabilities(rng, 8) });
                (format!("{role} {body}"), Some(self.update(caller, "Role", &role, body.clone()).await))
            }
            "invite" => {
                let body = json!({ "roleUid": self.any_role(rng), "ttl": "3600s" });
                let (kind, sent) = (self.kind("GroupInvite"), object(body.clone()));
                let done = self
                    .fixture
                    .platform
                    .create_erased(caller, &kind, &group, &sent, RequestOptions::none())
                    .await
                    .map(|reply| {
                        let invite: Value = serde_json::from_slice(&reply.body).unwrap();
                        self.codes.push(text(&invite, "code").to_owned());
                    });
                (format!("{group} {body}"), Some(done))
            }
            "redeem" => {
                if self.codes.is_empty() {
                    return nothing;
                }
                let code = Some(Secret::new(rng.pick(&self.codes).clone()));
                let subject = rng.pick(&self.credentials.persons).clone();
                let upstream = self.fixture.upstream(json!({ "sub": subject }));
                let done = self.fixture.sts.register(&upstream, &Register { code, identity: None }).await;
                (format!("as {subject}"), Some(done.map(drop)))
            }
            "create provider" => {
                let oidc = json!({
                    "issuer": Self::issuer(rng), "clientId": "client", "groupsClaim": "nickname", "pkceEnabled": true,
                });
                let body = json!({ "name": "mine", "defaultRole": self.any_role(rng), "oidc": oidc });
                let done = self.create(caller, "IdentityProvider", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "change provider" => {
                let Some(provider) = self.any(rng, "IdentityProvider") else { return nothing };
                let body = match rng.below(5) {
                    0 => json!({ "defaultRole": self.any_role(rng) }),
                    1 => json!({ "oidc": { "groupsClaim": rng.pick(&["nickname", "groups"]) } }),
                    2 => json!({ "name": "renamed" }),
                    _ => json!({ "oidc": { "issuer": Self::issuer(rng) } }),
                };
                let done = self.update(caller, "IdentityProvider", &provider, body.clone()).await;
                (format!("{provider} {body}"), Some(done))
            }
            "map" => {
                let Some(provider) = self.any(rng, "IdentityProvider") else { return nothing };
                let scope = Uid::opaque(provider.as_str()).root().to_owned();
                let external = *rng.pick(&["admins", "devs"]);
                let body = json!({ "externalGroupId": external, "roleUid": self.any_role(rng), "scope": scope });
                let done = self.create(caller, "ExternalGroupRoleMapping", &provider, body.clone()).await;
                (format!("{provider} {body}"), Some(done.map(drop)))
            }
            "unmap" => {
                let Some(mapping) = self.any(rng, "ExternalGroupRoleMapping") else { return nothing };
                (mapping.clone(), Some(self.delete(caller, "ExternalGroupRoleMapping", &mapping).await))
            }
            "create identity" => {
                let mut body = object(json!({ "name": "mine" }));
                body.extend(object(self.relationship(rng)));
                if let Some(claims) = body.get_mut("claimMatch").filter(|claims| claims.get("subjectPattern").is_none())
                {
                    claims["subject"] = claims.get("subject").cloned().unwrap_or_else(|| "anyone".into());
                    let literal = claims.get("issuerPattern").is_none() && claims.get("issuer").is_none();
                    if literal {
                        claims["issuer"] = EVIL.into();
                    }
                }
                let body = Value::from(body);
                let done = self.create(caller, "Identity", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "change identity" => {
                let Some(identity) = self.any(rng, "Identity") else { return nothing };
                let body = if rng.one_in(8) { json!({ "description": "x" }) } else { self.relationship(rng) };
                (format!("{identity} {body}"), Some(self.update(caller, "Identity", &identity, body.clone()).await))
            }
            "delete identity" => {
                let Some(identity) = self.any(rng, "Identity") else { return nothing };
                (identity.clone(), Some(self.delete(caller, "Identity", &identity).await))
            }
            "associate" => {
                let serves = |identity: &Value| identity.get("servicePrincipal").is_some();
                let Some(identity) = self.any_related(rng, serves) else { return nothing };
                let group = identity.rsplit_once('/').map_or(group, |(group, _)| group.to_owned());
                let bindings = json!({ "serviceBindings": { "INGESTER": identity } });
                let body = json!({ "name": "accounts", "chainguard": bindings });
                let exists = self.state.all("AccountAssociation").iter().any(|found| text(found, "uid") == group);
                let bare = json!({ "name": "accounts" });
                let body = if rng.one_in(3) { bare } else { body };
                let done = if exists {
                    self.update(caller, "AccountAssociation", &group, body.clone()).await
                } else {
                    self.create(caller, "AccountAssociation", &group, body.clone()).await.map(drop)
                };
                (format!("{group} {body}"), Some(done))
            }
            "directory token" => {
                let Some(provider) = self.any(rng, "IdentityProvider") else { return nothing };
                let shown = self.state.all("IdentityProvider").iter().find(|found| text(found, "uid") == provider);
                let etag = shown.map(|found| text(&found["scim"], "etag").to_owned()).unwrap_or_default();
                let action =
                    *rng.pick(&["GenerateScimToken", "RegenerateScimToken", "SetScimEnabled", "RevokeScimToken"]);
                let mut request = json!({ "identityProviderUid": provider });
                if matches!(action, "RegenerateScimToken" | "SetScimEnabled") {
                    request["etag"] = etag.into();
                }
                if action == "SetScimEnabled" {
                    request["enabled"] = rng.one_in(2).into();
                }
                let done = self.run(caller, action, request).await.map(|reply| {
                    let issued = text(&reply, "token");
                    if !issued.is_empty() {
                        self.credentials.scim.push(issued.to_owned());
                    }
                });
                (format!("{action} {provider}"), Some(done))
            }
            "directory user" => {
                if self.credentials.scim.is_empty() {
                    return nothing;
                }
                let access =
                    Iam::of(&self.fixture.platform).verify_scim_token(rng.pick::<String>(&self.credentials.scim)).await;
                let done = match access {
                    Ok(access) if access.enabled => {
                        let user = DirectoryUser {
                            user_name: SUBJECT.to_owned(),
                            external_id: SUBJECT.to_owned(),
                            active: true,
                            ..DirectoryUser::default()
                        };
                        Iam::of(&self.fixture.platform).create_directory_user(&access.provider, user).await.map(drop)
                    }
                    Ok(_) => Err(Error::denied()),
                    Err(error) => Err(error),
                };
                (String::new(), Some(done))
            }
            "assume" => {
                let Some(identity) = self.any(rng, "Identity") else { return nothing };
                let upstream = match rng.below(3) {
                    0 => self.fixture.upstream(json!({ "sub": "mallory" })),
                    _ => self.evil_token(json!({})),
                };
                let done = self.fixture.assume(&upstream, &identity).await;
                (identity, Some(done.map(|reply| self.store_tokens(&reply))))
            }
            "assume by own token" => {
                let trusts = |identity: &Value| text(&identity["claimMatch"], "issuer") == OWN;
                let Some(identity) = self.any_related(rng, trusts) else { return nothing };
                let done = self.fixture.assume(credential, &identity).await;
                (identity, Some(done.map(|reply| self.store_tokens(&reply))))
            }
            "sign in" => {
                let Some(provider) = self.any(rng, "IdentityProvider") else { return nothing };
                let upstream = match rng.below(2) {
                    0 => self.evil_token(json!({ "sub": SUBJECT })),
                    _ => {
                        let said = json!({ "groups": ["devs"], "nickname": "admins" });
                        let mut claims = object(json!({ "iss": SSO, "sub": SUBJECT, "aud": "client" }));
                        claims.extend(object(said));
                        token(&self.sso, claims.into())
                    }
                };
                let request = json!({ "aud": [API], "identityProvider": provider });
                let done = self.fixture.exchange(&upstream, request).await;
                (provider, Some(done.map(|reply| self.store_tokens(&reply))))
            }
            "narrow" => {
                let names: Vec<_> = (0..rng.below(5)).map(|_| *rng.pick(POOL)).collect();
                let mut request = json!({ "aud": [API], "cap": names });
                if rng.one_in(2) {
                    request["scopes"] = json!([group]);
                }
                let done = self.fixture.exchange(credential, request.clone()).await;
                (request.to_string(), Some(done.map(|reply| self.store_tokens(&reply))))
            }
            "refresh" => {
                if self.refresh.is_empty() {
                    return nothing;
                }
                let at = rng.below(self.refresh.len());
                let request = Refresh::read(object(json!({ "aud": [API] }))).unwrap();
                let done = self.fixture.sts.refresh(&self.refresh[at], &request).await.map(|pair| {
                    self.tokens.push(pair.token.token.expose().to_owned());
                    self.refresh[at] = pair.refresh_token.token.expose().to_owned();
                });
                (String::new(), Some(done))
            }
            "create group" => {
                let body = json!({ "name": format!("group {}", rng.below(1000)) });
                let parent = if rng.one_in(4) { String::new() } else { group };
                let done = self.create(caller, "Group", &parent, body).await;
                (parent, Some(done.map(drop)))
            }
            "delete group" => (group.clone(), Some(self.delete(caller, "Group", &group).await)),
            "follow" => {
                let Some(source) = self.any(rng, "Repo") else { return nothing };
                let config = json!({ "source": source });
                let done = if rng.one_in(3) {
                    let follower = self.any(rng, "Repo").unwrap();
                    self.update(caller, "Repo", &follower, json!({ "syncConfig": config })).await
                } else {
                    let name = format!("follower {}", rng.below(1000));
                    let body = json!({ "name": name, "syncConfig": config });
                    self.create(caller, "Repo", &group, body).await.map(drop)
                };
                let pull = Set::of(["CAP_REPO_LIST", "CAP_REPO_BLOBS_GET"]);
                let open = pull.minus(self.allowed.at(&source)).is_empty();
                let done = match done {
                    Ok(()) if !open => Err(Error::internal("a repo was followed without permission to pull from it")),
                    done => done,
                };
                (source, Some(done))
            }
            "read follower" => {
                let sources = self.state.all("Repo").iter().filter_map(|repo| {
                    let source = text(repo.get("syncConfig")?, "source");
                    Some((text(repo, "uid").to_owned(), source.to_owned()))
                });
                let sources: Vec<_> = sources.collect();
                if sources.is_empty() {
                    return nothing;
                }
                let (follower, source) = rng.pick(&sources);
                let reply = self
                    .fixture
                    .platform
                    .get_erased(caller, &self.kind("Repo"), follower, RequestOptions::none())
                    .await;
                let pull = Set::of(["CAP_REPO_LIST", "CAP_REPO_BLOBS_GET"]);
                let open = pull.minus(self.state.powers(&self.credentials).at(source)).is_empty();
                let done = reply.and_then(|reply| {
                    let repo: Value = serde_json::from_slice(&reply.body).unwrap();
                    if text(&repo, "description") == SECRET && !open {
                        Err(Error::internal("a follower shows data that the coalition may not pull"))
                    } else {
                        Ok(())
                    }
                });
                (follower.clone(), Some(done))
            }
            "register again" => {
                let subject = rng.pick(&self.credentials.persons).clone();
                let upstream = self.fixture.upstream(json!({ "sub": subject }));
                let uid = person_uid(TRUSTED, &subject);
                let who = if rng.one_in(2) { uid.to_string() } else { self.any(rng, "Identity").unwrap() };
                let done = self.fixture.sts.unregister(&upstream, &who).await;
                self.fixture.sts.register(&upstream, &Register::default()).await.unwrap();
                let reply = self.fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
                self.store_tokens(&reply);
                (subject, Some(done))
            }
            other => panic!("unknown attack {other}"),
        }
    }
}
