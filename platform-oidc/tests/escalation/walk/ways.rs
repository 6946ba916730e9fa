//! Each way of getting more, and what the operator does meanwhile.

use platform_core::{
    access::Caller,
    error::{Error, Result},
    iam::Iam,
    resources::iam::{DirectoryUser, person_uid},
    seal::Secret,
    tokens::{Refresh, Register, TokenService},
    uid::Uid,
};
use serde_json::{Value, json};

use super::{Dice, EVIL, POOL, SECRET, SSO, SUBJECT, World, built_in, capabilities};
use crate::{
    common::{API, OWN, TRUSTED},
    oracle::{Set, text},
    setting::{object, token},
};

impl World {
    /// The uid of a record of this kind.
    fn any(&self, dice: &mut Dice, kind: &str) -> Option<String> {
        let all = self.state.all(kind);
        if all.is_empty() { None } else { Some(text(dice.pick(all), "uid").to_owned()) }
    }

    fn any_role(&self, dice: &mut Dice) -> String {
        if dice.once_in(3) { built_in("owner") } else { self.any(dice, "Role").unwrap() }
    }

    /// An identity of this kind of relationship half of the time, if there is one; any other, otherwise.
    fn any_related(&self, dice: &mut Dice, related: impl Fn(&Value) -> bool) -> Option<String> {
        let all: Vec<_> = self.state.all("Identity").iter().filter(|identity| related(identity)).collect();
        match all.is_empty() || dice.once_in(2) {
            true => self.any(dice, "Identity"),
            false => Some(text(dice.pick::<&Value>(&all), "uid").to_owned()),
        }
    }

    /// An identity, or a person of the coalition.
    fn any_identity(&self, dice: &mut Dice) -> String {
        let person = person_uid(TRUSTED, dice.pick::<String>(&self.credentials.persons)).to_string();
        if dice.once_in(2) { person } else { self.any(dice, "Identity").unwrap() }
    }

    fn issuer(dice: &mut Dice) -> &'static str {
        dice.pick::<&str>(&[EVIL, EVIL, SSO])
    }

    /// Some relationship that the coalition may use.
    fn relationship(&self, dice: &mut Dice) -> Value {
        match dice.below(9) {
            0 => json!({ "claimMatch": { "issuer": EVIL } }),
            1 => json!({ "claimMatch": { "issuer": EVIL, "subject": "anyone" } }),
            2 => json!({ "claimMatch": { "issuer": TRUSTED, "subject": "mallory" } }),
            3 => json!({ "claimMatch": { "issuerPattern": ".*", "subjectPattern": ".*" } }),
            4 => json!({ "claimMatch": { "subjectPattern": ".*" } }),
            5 => json!({ "claimMatch": { "issuer": OWN, "subject": self.any_identity(dice) } }),
            6 => json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
            _ => {
                let keys = self.credentials.keys.clone();
                json!({ "staticKeys": { "issuer": EVIL, "subject": "anyone", "issuerKeys": keys } })
            }
        }
    }

    fn by_evil(&self, more: Value) -> String {
        let mut claims = object(json!({ "iss": EVIL, "sub": "anyone", "aud": [API, "client"], "groups": ["admins"] }));
        claims.extend(object(json!({ "nickname": ["admins"] })));
        claims.extend(object(more));
        token(&self.evil, claims.into())
    }

    /// What the operator changes for reasons of their own.
    pub(super) async fn operator_acts(&mut self, dice: &mut Dice) -> String {
        let operator = self.setting.operator.clone();
        let done = match dice.below(7) {
            0 => {
                let (group, role) = (self.any(dice, "Group").unwrap(), self.any(dice, "Role").unwrap());
                let body = json!({ "identityUid": self.any_identity(dice), "roleUid": role });
                (
                    format!("bind at {group}: {body}"),
                    self.create(&operator, "RoleBinding", &group, body).await.map(drop),
                )
            }
            1 => match self.any(dice, "RoleBinding") {
                Some(binding) => (format!("unbind {binding}"), self.delete(&operator, "RoleBinding", &binding).await),
                None => return String::new(),
            },
            2 => {
                let role = self.any(dice, "Role").unwrap();
                let body = json!({ "capabilities": capabilities(dice, 8) });
                (format!("change {role}: {body}"), self.update(&operator, "Role", &role, body).await)
            }
            3 => match self.any(dice, "DirectoryUser") {
                Some(user) => {
                    let (provider, id) = user.rsplit_once('/').unwrap();
                    let provider = Uid::opaque(provider);
                    let done = Iam::of(&self.setting.platform).delete_directory_user(&provider, id).await;
                    (format!("delete {user}"), done)
                }
                None => return String::new(),
            },
            4 => match self.any(dice, "ExternalGroupRoleMapping") {
                Some(mapping) => {
                    (format!("unmap {mapping}"), self.delete(&operator, "ExternalGroupRoleMapping", &mapping).await)
                }
                None => return String::new(),
            },
            5 => match self.any(dice, "IdentityProvider") {
                Some(provider) => {
                    let body = json!({ "defaultRole": self.any(dice, "Role") });
                    (format!("{provider}: {body}"), self.update(&operator, "IdentityProvider", &provider, body).await)
                }
                None => return String::new(),
            },
            _ => {
                let group = self.any(dice, "Group").unwrap();
                let body = json!({ "name": "more", "claimMatch": { "issuer": TRUSTED, "subject": "victim 2" } });
                (
                    format!("create identity at {group}"),
                    self.create(&operator, "Identity", &group, body).await.map(drop),
                )
            }
        };
        format!("{}: {}", done.0, done.1.is_ok())
    }

    /// Tries something. Returns what, and how it went; nothing when there is nothing to try it with.
    #[allow(clippy::too_many_lines, clippy::cognitive_complexity, reason = "a line or two for each way")]
    pub(super) async fn go(
        &mut self,
        way: &str,
        dice: &mut Dice,
        caller: &Caller,
        credential: &str,
    ) -> (String, Option<Result<()>>) {
        let nothing = (String::new(), None);
        let group = self.any(dice, "Group").unwrap();
        match way {
            "bind" => {
                let body = json!({ "identityUid": self.any_identity(dice), "roleUid": self.any_role(dice) });
                let done = self.create(caller, "RoleBinding", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "rebind" => {
                let Some(binding) = self.any(dice, "RoleBinding") else { return nothing };
                let body = match dice.below(2) {
                    0 => json!({ "identityUid": self.any_identity(dice) }),
                    _ => json!({ "roleUid": self.any_role(dice) }),
                };
                (format!("{binding} {body}"), Some(self.update(caller, "RoleBinding", &binding, body.clone()).await))
            }
            "unbind" => {
                let Some(binding) = self.any(dice, "RoleBinding") else { return nothing };
                (binding.clone(), Some(self.delete(caller, "RoleBinding", &binding).await))
            }
            "bind many" => {
                let requests: Vec<_> = (0..1 + dice.below(3))
                    .map(|_| {
                        let binding = json!({ "identityUid": self.any_identity(dice), "roleUid": self.any_role(dice) });
                        json!({ "roleBinding": binding })
                    })
                    .collect();
                let request = json!({ "parent": group, "requests": requests });
                let done = self.run(caller, "BatchCreateRoleBindings", request.clone()).await;
                (request.to_string(), Some(done.map(drop)))
            }
            "create role" => {
                let body =
                    json!({ "name": format!("made {}", dice.below(1000)), "capabilities": capabilities(dice, 5) });
                let done = self.create(caller, "Role", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "change role" => {
                let Some(role) = self.any(dice, "Role") else { return nothing };
                let body = json!({ "capabilities": capabilities(dice, 8) });
                (format!("{role} {body}"), Some(self.update(caller, "Role", &role, body.clone()).await))
            }
            "invite" => {
                let body = json!({ "roleUid": self.any_role(dice), "ttl": "3600s" });
                let (kind, sent) = (self.kind("GroupInvite"), object(body.clone()));
                let done = self.setting.platform.create_erased(caller, &kind, &group, &sent).await.map(|reply| {
                    let invite: Value = serde_json::from_slice(&reply).unwrap();
                    self.codes.push(text(&invite, "code").to_owned());
                });
                (format!("{group} {body}"), Some(done))
            }
            "redeem" => {
                if self.codes.is_empty() {
                    return nothing;
                }
                let code = Some(Secret::new(dice.pick(&self.codes).clone()));
                let subject = dice.pick(&self.credentials.persons).clone();
                let upstream = self.setting.upstream(json!({ "sub": subject }));
                let done = self.setting.sts.register(&upstream, &Register { code, identity: None }).await;
                (format!("as {subject}"), Some(done.map(drop)))
            }
            "create provider" => {
                let oidc = json!({
                    "issuer": Self::issuer(dice), "clientId": "client", "groupsClaim": "nickname", "pkceEnabled": true,
                });
                let body = json!({ "name": "mine", "defaultRole": self.any_role(dice), "oidc": oidc });
                let done = self.create(caller, "IdentityProvider", &group, body.clone()).await;
                (format!("{group} {body}"), Some(done.map(drop)))
            }
            "change provider" => {
                let Some(provider) = self.any(dice, "IdentityProvider") else { return nothing };
                let body = match dice.below(5) {
                    0 => json!({ "defaultRole": self.any_role(dice) }),
                    1 => json!({ "oidc": { "groupsClaim": dice.pick(&["nickname", "groups"]) } }),
                    2 => json!({ "name": "renamed" }),
                    _ => json!({ "oidc": { "issuer": Self::issuer(dice) } }),
                };
                let done = self.update(caller, "IdentityProvider", &provider, body.clone()).await;
                (format!("{provider} {body}"), Some(done))
            }
            "map" => {
                let Some(provider) = self.any(dice, "IdentityProvider") else { return nothing };
                let scope = Uid::opaque(provider.as_str()).root().to_owned();
                let external = *dice.pick(&["admins", "devs"]);
                let body = json!({ "externalGroupId": external, "roleUid": self.any_role(dice), "scope": scope });
                let done = self.create(caller, "ExternalGroupRoleMapping", &provider, body.clone()).await;
                (format!("{provider} {body}"), Some(done.map(drop)))
            }
            "unmap" => {
                let Some(mapping) = self.any(dice, "ExternalGroupRoleMapping") else { return nothing };
                (mapping.clone(), Some(self.delete(caller, "ExternalGroupRoleMapping", &mapping).await))
            }
            "create identity" => {
                let mut body = object(json!({ "name": "mine" }));
                body.extend(object(self.relationship(dice)));
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
                let Some(identity) = self.any(dice, "Identity") else { return nothing };
                let body = if dice.once_in(8) { json!({ "description": "x" }) } else { self.relationship(dice) };
                (format!("{identity} {body}"), Some(self.update(caller, "Identity", &identity, body.clone()).await))
            }
            "delete identity" => {
                let Some(identity) = self.any(dice, "Identity") else { return nothing };
                (identity.clone(), Some(self.delete(caller, "Identity", &identity).await))
            }
            "associate" => {
                let serves = |identity: &Value| identity.get("servicePrincipal").is_some();
                let Some(identity) = self.any_related(dice, serves) else { return nothing };
                let group = identity.rsplit_once('/').map_or(group, |(group, _)| group.to_owned());
                let bindings = json!({ "serviceBindings": { "INGESTER": identity } });
                let body = json!({ "name": "accounts", "chainguard": bindings });
                let stands = self.state.all("AccountAssociation").iter().any(|found| text(found, "uid") == group);
                let bare = json!({ "name": "accounts" });
                let body = if dice.once_in(3) { bare } else { body };
                let done = match stands {
                    true => self.update(caller, "AccountAssociation", &group, body.clone()).await,
                    false => self.create(caller, "AccountAssociation", &group, body.clone()).await.map(drop),
                };
                (format!("{group} {body}"), Some(done))
            }
            "directory token" => {
                let Some(provider) = self.any(dice, "IdentityProvider") else { return nothing };
                let shown = self.state.all("IdentityProvider").iter().find(|found| text(found, "uid") == provider);
                let etag = shown.map(|found| text(&found["scim"], "etag").to_owned()).unwrap_or_default();
                let action =
                    *dice.pick(&["GenerateScimToken", "RegenerateScimToken", "SetScimEnabled", "RevokeScimToken"]);
                let mut request = json!({ "identityProviderUid": provider });
                if matches!(action, "RegenerateScimToken" | "SetScimEnabled") {
                    request["etag"] = etag.into();
                }
                if action == "SetScimEnabled" {
                    request["enabled"] = dice.once_in(2).into();
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
                let access = Iam::of(&self.setting.platform)
                    .verify_scim_token(dice.pick::<String>(&self.credentials.scim))
                    .await;
                let done = match access {
                    Ok(access) if access.enabled => {
                        let user = DirectoryUser {
                            user_name: SUBJECT.to_owned(),
                            external_id: SUBJECT.to_owned(),
                            active: true,
                            ..DirectoryUser::default()
                        };
                        Iam::of(&self.setting.platform).create_directory_user(&access.provider, user).await.map(drop)
                    }
                    Ok(_) => Err(Error::denied()),
                    Err(error) => Err(error),
                };
                (String::new(), Some(done))
            }
            "assume" => {
                let Some(identity) = self.any(dice, "Identity") else { return nothing };
                let upstream = match dice.below(3) {
                    0 => self.setting.upstream(json!({ "sub": "mallory" })),
                    _ => self.by_evil(json!({})),
                };
                let done = self.setting.assume(&upstream, &identity).await;
                (identity, Some(done.map(|reply| self.keep(&reply))))
            }
            "assume by own token" => {
                let trusts = |identity: &Value| text(&identity["claimMatch"], "issuer") == OWN;
                let Some(identity) = self.any_related(dice, trusts) else { return nothing };
                let done = self.setting.assume(credential, &identity).await;
                (identity, Some(done.map(|reply| self.keep(&reply))))
            }
            "sign in" => {
                let Some(provider) = self.any(dice, "IdentityProvider") else { return nothing };
                let upstream = match dice.below(2) {
                    0 => self.by_evil(json!({ "sub": SUBJECT })),
                    _ => {
                        let said = json!({ "groups": ["devs"], "nickname": "admins" });
                        let mut claims = object(json!({ "iss": SSO, "sub": SUBJECT, "aud": "client" }));
                        claims.extend(object(said));
                        token(&self.sso, claims.into())
                    }
                };
                let request = json!({ "aud": [API], "identityProvider": provider });
                let done = self.setting.exchange(&upstream, request).await;
                (provider, Some(done.map(|reply| self.keep(&reply))))
            }
            "narrow" => {
                let names: Vec<_> = (0..dice.below(5)).map(|_| *dice.pick(POOL)).collect();
                let mut request = json!({ "aud": [API], "cap": names });
                if dice.once_in(2) {
                    request["scopes"] = json!([group]);
                }
                let done = self.setting.exchange(credential, request.clone()).await;
                (request.to_string(), Some(done.map(|reply| self.keep(&reply))))
            }
            "refresh" => {
                if self.refresh.is_empty() {
                    return nothing;
                }
                let at = dice.below(self.refresh.len());
                let request = Refresh::read(object(json!({ "aud": [API] }))).unwrap();
                let done = self.setting.sts.refresh(&self.refresh[at], &request).await.map(|pair| {
                    self.tokens.push(pair.token.token.expose().to_owned());
                    self.refresh[at] = pair.refresh_token.token.expose().to_owned();
                });
                (String::new(), Some(done))
            }
            "create group" => {
                let body = json!({ "name": format!("group {}", dice.below(1000)) });
                let parent = if dice.once_in(4) { String::new() } else { group };
                let done = self.create(caller, "Group", &parent, body).await;
                (parent, Some(done.map(drop)))
            }
            "delete group" => (group.clone(), Some(self.delete(caller, "Group", &group).await)),
            "follow" => {
                let Some(source) = self.any(dice, "Repo") else { return nothing };
                let config = json!({ "source": source });
                let done = if dice.once_in(3) {
                    let follower = self.any(dice, "Repo").unwrap();
                    self.update(caller, "Repo", &follower, json!({ "syncConfig": config })).await
                } else {
                    let name = format!("follower {}", dice.below(1000));
                    let body = json!({ "name": name, "syncConfig": config });
                    self.create(caller, "Repo", &group, body).await.map(drop)
                };
                let pull = Set::of(["CAP_REPO_LIST", "CAP_REPO_BLOBS_GET"]);
                let open = pull.beyond(self.closure.at(&source)).is_empty();
                let done = match done {
                    Ok(()) if !open => Err(Error::internal("a repo that nobody may pull from was followed")),
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
                let (follower, source) = dice.pick(&sources);
                let reply = self.setting.platform.get_erased(caller, &self.kind("Repo"), follower).await;
                let pull = Set::of(["CAP_REPO_LIST", "CAP_REPO_BLOBS_GET"]);
                let open = pull.beyond(self.state.powers(&self.credentials).at(source)).is_empty();
                let done = reply.and_then(|reply| {
                    let repo: Value = serde_json::from_slice(&reply).unwrap();
                    match text(&repo, "description") == SECRET && !open {
                        true => Err(Error::internal("a follower shows what nobody of the coalition may pull")),
                        false => Ok(()),
                    }
                });
                (follower.clone(), Some(done))
            }
            "register again" => {
                let subject = dice.pick(&self.credentials.persons).clone();
                let upstream = self.setting.upstream(json!({ "sub": subject }));
                let uid = person_uid(TRUSTED, &subject);
                let who = if dice.once_in(2) { uid.to_string() } else { self.any(dice, "Identity").unwrap() };
                let done = self.setting.sts.unregister(&upstream, &who).await;
                self.setting.sts.register(&upstream, &Register::default()).await.unwrap();
                let reply = self.setting.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
                self.keep(&reply);
                (subject, Some(done))
            }
            other => panic!("no way {other}"),
        }
    }
}
