//! SCIM 2.0 (RFC 7643, RFC 7644), with which the directory of an identity provider manages its users.
//!
//! Supports users only, which are stored as [`DirectoryUser`]s. A directory authenticates with the SCIM token of its
//! provider and with nothing else. Every response, including errors, has SCIM's own format (`docs/api.md`, SCIM).

mod attributes;
mod discovery;
mod filter;
mod openapi;
mod path;
mod reply;
mod search;
mod selection;
mod user;

use std::borrow::Cow;

use async_trait::async_trait;
use http::{HeaderValue, Method, StatusCode, header::LOCATION};
use parking_lot::Mutex;
use platform_core::{
    iam::Iam,
    resources::iam::{DirectoryUser, DirectoryUsers},
};
use platform_engine::{
    error::{Code, Error, Result},
    offload::Pace,
    platform::Platform,
    request_scope::RequestScope,
    uid::Uid,
};
use platform_http::{
    Limits, Reply, bearer,
    mount::{self, Body, Call, Mount, Refusal},
};
use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use self::{
    discovery::Discovery,
    filter::{Condition, Index},
    reply::{LIST, ScimError, scim},
    search::Search,
    selection::Selection,
};

/// Prefix of all SCIM paths. The provider's uid follows.
const PREFIX: &str = "/scim/v2/";

/// Maximum size of a body in bytes: 256 KiB. Our choice, documented in the contract.
const MAX_BODY: usize = 256 << 10;
/// Number of users that a scan reads at once; our choice.
const SCAN: usize = 500;

/// Endpoint of a path, after the provider's uid.
#[derive(Debug, PartialEq, Eq)]
enum Endpoint<'p> {
    Users,
    User(&'p str),
    Search,
    Discovery(Discovery),
}

/// Splits a path into the provider's uid and the endpoint after it.
fn find(path: &str) -> Option<(&str, Endpoint<'_>)> {
    let segments = path.split('/').map(str::len).take_while(|len| matches!(len, 16 | 40));
    let length = segments.map(|len| len + 1).sum::<usize>().checked_sub(1)?;
    let (provider, rest) = path.split_at_checked(length)?;
    let rest = rest.strip_prefix('/')?;
    let endpoint = match rest.split_once('/') {
        None if rest == "Users" => Endpoint::Users,
        Some(("Users", "")) => Endpoint::Users,
        // Users are the only resources, so a search of all types finds the same.
        None if rest == ".search" => Endpoint::Search,
        Some(("Users", ".search")) => Endpoint::Search,
        Some(("Users", id)) => Endpoint::User(id),
        _ => Endpoint::Discovery(Discovery::find(rest)?),
    };
    Some((provider, endpoint))
}

/// Replaces `%2F`, an encoded slash of the provider's uid, by `/`. The ids of users contain no slash.
fn with_slashes(path: &str) -> Cow<'_, str> {
    if path.contains('%') { path.replace("%2F", "/").replace("%2f", "/").into() } else { path.into() }
}

/// SCIM, at `/scim/v2/`. A directory may send bodies of up to 256 KiB. A request without a valid SCIM token counts
/// against the rate limit for requests without a token.
#[derive(Debug, Clone, Copy)]
pub struct Scim;

#[async_trait]
impl Mount for Scim {
    fn name(&self) -> &'static str {
        "Scim"
    }

    fn has(&self, path: &str) -> bool {
        path.starts_with(PREFIX)
    }

    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        Ok(answer(call, body).await.unwrap_or_else(ScimError::into_reply))
    }

    fn refused(&self, refusal: Refusal) -> Result<Reply, Refusal> {
        Ok(ScimError::from(refusal).into_reply())
    }

    fn openapi(&self) -> Value {
        openapi::part()
    }
}

async fn answer(call: Call<'_>, body: Body<'_>) -> Result<Reply, ScimError> {
    let Call { platform, head, .. } = call;
    let needed = || Error::unauthenticated("A SCIM token is required");
    let access = match bearer(&head.headers).and_then(|token| token.ok_or_else(needed)) {
        Ok(token) => Iam::of(platform).verify_scim_token(token).await,
        Err(error) => Err(error),
    };
    let access = access.map_err(|error| call.origin.refused(error))?;
    RequestScope::set_principal(&access.provider);
    let path = with_slashes(call.path.strip_prefix(PREFIX).unwrap_or_default());
    let (provider, endpoint) = find(&path).ok_or_else(ScimError::not_found)?;
    // A token is valid only for its own provider, and must not reveal anything about another one.
    if *provider != *access.provider {
        return Err(Error::unauthenticated("The SCIM token is not valid for this path").into());
    }
    if !access.enabled {
        return Err(ScimError::new(StatusCode::FORBIDDEN, "", "SCIM is not enabled for this identity provider"));
    }
    let directory = Directory { platform, provider: access.provider };
    let limits = Limits { body: call.limits.body.min(MAX_BODY), ..call.limits.clone() };
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    if method != Method::GET {
        mount::reject_preconditions(head)?;
    }
    // The selection is read before a write, so that an invalid one changes nothing.
    let selection = || search::selection(call.query);
    match (endpoint, method) {
        (Endpoint::Users, &Method::GET) => directory.list(Search::of_query(call.query)?).await,
        (Endpoint::Search, &Method::POST) => directory.list(Search::of_body(&read(body, &limits).await?)?).await,
        (Endpoint::Users, &Method::POST) => directory.create(&read(body, &limits).await?, &selection()?).await,
        (Endpoint::User(id), &Method::GET) => {
            let selection = selection()?;
            let user = Iam::of(platform).directory_user(&directory.provider, id).await?;
            Ok(directory.reply(&user, &selection))
        }
        (Endpoint::User(id), &Method::PUT) => directory.replace(id, &read(body, &limits).await?, &selection()?).await,
        (Endpoint::User(id), &Method::PATCH) => directory.patch(id, &read(body, &limits).await?, &selection()?).await,
        (Endpoint::User(id), &Method::DELETE) => {
            Iam::of(platform).delete_directory_user(&directory.provider, id).await?;
            let mut reply = Reply::default();
            *reply.status_mut() = StatusCode::NO_CONTENT;
            Ok(reply)
        }
        (Endpoint::Discovery(discovery), &Method::GET) => {
            // RFC 7644 section 4; other parameters are ignored.
            if mount::pairs(call.query)?.iter().any(|(name, _)| name == "filter") {
                let rule = "this path does not support filters; leave the filter out";
                return Err(ScimError::new(StatusCode::FORBIDDEN, "", rule));
            }
            Ok(scim(StatusCode::OK, &discovery.to_json(&directory.base())))
        }
        (endpoint, _) => {
            let allow = match endpoint {
                Endpoint::Users => "GET, POST, HEAD",
                Endpoint::User(_) => "GET, PUT, PATCH, DELETE, HEAD",
                Endpoint::Search => "POST",
                Endpoint::Discovery(_) => "GET, HEAD",
            };
            let refused = ScimError::new(StatusCode::METHOD_NOT_ALLOWED, "", "This path does not support this method");
            Err(refused.allowing(allow))
        }
    }
}

/// Reads a body. Rejects objects with two keys that differ only in case.
async fn read(body: Body<'_>, limits: &Limits) -> Result<Value, ScimError> {
    let body = mount::object(body, limits).await?.into();
    user::check_keys(&body)?;
    Ok(body)
}

/// Directory of an identity provider.
struct Directory<'a> {
    platform: &'a Platform,
    provider: Uid,
}

/// A page of users (RFC 7644 3.4.2).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Users {
    schemas: [&'static str; 1],
    total_results: u64,
    start_index: u64,
    items_per_page: usize,
    #[serde(rename = "Resources")]
    resources: Vec<Box<RawValue>>,
}

impl Directory<'_> {
    /// Returns the base URL of this directory, which its administrator configures in the identity provider.
    fn base(&self) -> String {
        let url = self.platform.settings().public_url.trim_end_matches('/');
        format!("{url}{PREFIX}{}", self.provider)
    }

    fn reply(&self, user: &DirectoryUser, selection: &Selection) -> Reply {
        scim(StatusCode::OK, &user::selected(user, &self.base(), selection))
    }

    async fn list(&self, search: Search) -> Result<Reply, ScimError> {
        let Search { condition, skip, count, selection } = search;
        let (found, total) = match condition {
            None => Iam::of(self.platform).directory_users(&self.provider, &DirectoryUsers::All, skip, count).await?,
            Some(condition) => self.filtered(&condition, skip, count).await?,
        };
        let base = self.base();
        let (mut resources, mut pace) = (Vec::with_capacity(found.len()), Pace::new(self.platform.offload()));
        for user in &found {
            let user = to_raw_value(&user::selected(user, &base, &selection)).map_err(Error::internal)?;
            pace.step(user.get().len()).await;
            resources.push(user);
        }
        let page = Users {
            schemas: [LIST],
            total_results: total,
            start_index: skip + 1,
            items_per_page: resources.len(),
            resources,
        };
        Ok(scim(StatusCode::OK, &page))
    }

    /// Returns a page of the users who meet a condition, in the order of their uids, and the number of all of them.
    ///
    /// Reads one user where an index finds those who can meet it, and otherwise each user of the directory once.
    async fn filtered(
        &self,
        condition: &Condition,
        skip: u64,
        count: usize,
    ) -> Result<(Vec<DirectoryUser>, u64), ScimError> {
        let (iam, base) = (Iam::of(self.platform), self.base());
        let (mut found, mut total) = (Vec::new(), 0);
        let mut pace = Pace::new(self.platform.offload());
        let mut after = None;
        loop {
            let (users, next) = match condition.index() {
                Some(Index::Users(users)) => (iam.directory_users(&self.provider, &users, 0, 1).await?.0, None),
                Some(Index::Id(id)) => match iam.directory_user(&self.provider, &id).await {
                    Err(error) if error.code() == Code::NotFound => (Vec::new(), None),
                    user => (vec![user?], None),
                },
                None => iam.scan_directory_users(&self.provider, after, SCAN).await?,
            };
            for user in users {
                let shown = user::to_json(&user, &base);
                pace.step(condition.cost()).await;
                if condition.is_met_by(&shown) {
                    total += 1;
                    if total > skip && found.len() < count {
                        found.push(user);
                    }
                }
            }
            if next.is_none() {
                return Ok((found, total));
            }
            after = next;
        }
    }

    async fn create(&self, body: &Value, selection: &Selection) -> Result<Reply, ScimError> {
        let user = user::read(body, None)?;
        let user = Iam::of(self.platform).create_directory_user(&self.provider, user).await?;
        let mut reply = self.reply(&user, selection);
        *reply.status_mut() = StatusCode::CREATED;
        if let Ok(location) = HeaderValue::from_str(&user::location(&user, &self.base())) {
            reply.headers_mut().insert(LOCATION, location);
        }
        Ok(reply)
    }

    async fn replace(&self, id: &str, body: &Value, selection: &Selection) -> Result<Reply, ScimError> {
        self.update(id, selection, |stored| user::read(body, Some(&stored))).await
    }

    async fn patch(&self, id: &str, body: &Value, selection: &Selection) -> Result<Reply, ScimError> {
        let operations = user::operations(body)?;
        self.update(id, selection, |stored| user::patched(stored, &operations)).await
    }

    /// Replaces a user by the result of `change`, which is called with the stored user.
    async fn update(
        &self,
        id: &str,
        selection: &Selection,
        change: impl Fn(DirectoryUser) -> Result<DirectoryUser, ScimError>,
    ) -> Result<Reply, ScimError> {
        // The platform's callback can only return platform errors, so a SCIM error is passed around it.
        let refused = Mutex::new(None);
        let change = |stored| {
            change(stored).map_err(|found| {
                *refused.lock() = Some(found);
                Error::invalid_field("body", "is invalid")
            })
        };
        let updated = Iam::of(self.platform).update_directory_user(&self.provider, id, change).await;
        match (updated, refused.into_inner()) {
            (Ok(user), _) => Ok(self.reply(&user, selection)),
            (Err(_), Some(refused)) => Err(refused),
            (Err(error), None) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_consists_of_the_uid_of_the_provider_and_an_endpoint() {
        let provider = format!("{}/{}", "a".repeat(40), "b".repeat(16));
        let found = |rest: &str| {
            find(&format!("{provider}{rest}")).map(|(uid, endpoint)| format!("{} {endpoint:?}", uid == provider))
        };
        assert_eq!(found("/Users").as_deref(), Some("true Users"));
        assert_eq!(found("/Users/").as_deref(), Some("true Users"));
        assert_eq!(found("/.search").as_deref(), Some("true Search"));
        assert_eq!(found("/Users/.search").as_deref(), Some("true Search"));
        assert_eq!(found("/Users/0123456789abcdef").as_deref(), Some("true User(\"0123456789abcdef\")"));
        assert_eq!(found("/ServiceProviderConfig").as_deref(), Some("true Discovery(Config)"));
        for other in ["", "/", "/users", "/Groups", "/Bulk"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(find("Users"), None);
        let encoded = format!("{}%2FUsers", provider.replace('/', "%2f"));
        assert_eq!(find(&with_slashes(&encoded)), Some((&*provider, Endpoint::Users)));
    }
}
