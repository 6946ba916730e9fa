//! SCIM 2.0 (RFC 7643, RFC 7644), with which the directory of an identity provider manages its users.
//!
//! Supports users only, which are stored as [`DirectoryUser`]s. A directory authenticates with the SCIM token of its
//! provider and with nothing else. Every response, including errors, has SCIM's own format (`docs/api.md`, SCIM).

mod attributes;
mod discovery;
mod openapi;
mod path;
mod reply;
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
    error::{Error, Result},
    offload::Pace,
    platform::Platform,
    request_scope::RequestScope,
    uid::Uid,
};
use platform_http::{
    Limits, Reply, bearer,
    mount::{self, Body, Call, Mount, Refusal},
};
use scim_v2::filter::{AttrExp, CompValue, CompareOp, Filter};
use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use self::{
    discovery::Discovery,
    reply::{LIST, MAX_COUNT, ScimError, scim},
};

/// Prefix of all SCIM paths. The provider's uid follows.
const PREFIX: &str = "/scim/v2/";

/// Maximum size of a body in bytes: 256 KiB. Our choice, documented in the contract.
const MAX_BODY: usize = 256 << 10;
/// Default number of users on a page; our choice.
const DEFAULT_COUNT: usize = 100;

/// Endpoint of a path, after the provider's uid.
#[derive(Debug, PartialEq, Eq)]
enum Endpoint<'p> {
    Users,
    User(&'p str),
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
    match (endpoint, method) {
        (Endpoint::Users, &Method::GET) => directory.list(call.query).await,
        (Endpoint::Users, &Method::POST) => directory.create(&read(body, &limits).await?).await,
        (Endpoint::User(id), &Method::GET) => {
            let user = Iam::of(platform).directory_user(&directory.provider, id).await?;
            Ok(scim(StatusCode::OK, &user::to_json(&user, &directory.base())))
        }
        (Endpoint::User(id), &Method::PUT) => directory.replace(id, &read(body, &limits).await?).await,
        (Endpoint::User(id), &Method::PATCH) => directory.patch(id, &read(body, &limits).await?).await,
        (Endpoint::User(id), &Method::DELETE) => {
            Iam::of(platform).delete_directory_user(&directory.provider, id).await?;
            let mut reply = Reply::default();
            *reply.status_mut() = StatusCode::NO_CONTENT;
            Ok(reply)
        }
        (Endpoint::Discovery(discovery), &Method::GET) => {
            Ok(scim(StatusCode::OK, &discovery.to_json(&directory.base())))
        }
        (endpoint, _) => {
            let allow = match endpoint {
                Endpoint::Users => "GET, POST, HEAD",
                Endpoint::User(_) => "GET, PUT, PATCH, DELETE, HEAD",
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

    async fn list(&self, query: &str) -> Result<Reply, ScimError> {
        let (users, skip, count) = page(query)?;
        let (found, total) = Iam::of(self.platform).directory_users(&self.provider, &users, skip, count).await?;
        let base = self.base();
        let (mut resources, mut pace) = (Vec::with_capacity(found.len()), Pace::new(self.platform.offload()));
        for user in &found {
            let user = to_raw_value(&user::to_json(user, &base)).map_err(Error::internal)?;
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

    async fn create(&self, body: &Value) -> Result<Reply, ScimError> {
        let user = user::read(body, None)?;
        let user = Iam::of(self.platform).create_directory_user(&self.provider, user).await?;
        let base = self.base();
        let mut reply = scim(StatusCode::CREATED, &user::to_json(&user, &base));
        if let Ok(location) = HeaderValue::from_str(&user::location(&user, &base)) {
            reply.headers_mut().insert(LOCATION, location);
        }
        Ok(reply)
    }

    async fn replace(&self, id: &str, body: &Value) -> Result<Reply, ScimError> {
        self.update(id, |stored| user::read(body, Some(&stored))).await
    }

    async fn patch(&self, id: &str, body: &Value) -> Result<Reply, ScimError> {
        let operations = user::operations(body)?;
        self.update(id, |stored| user::patched(stored, &operations)).await
    }

    /// Replaces a user by the result of `change`, which is called with the stored user.
    async fn update(
        &self,
        id: &str,
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
            (Ok(user), _) => Ok(scim(StatusCode::OK, &user::to_json(&user, &self.base()))),
            (Err(_), Some(refused)) => Err(refused),
            (Err(error), None) => Err(error.into()),
        }
    }
}

/// Reads the parameters of a list: its filter, the number of users to skip, and the size of the page.
fn page(query: &str) -> Result<(DirectoryUsers, u64, usize), ScimError> {
    let mut users = DirectoryUsers::All;
    let (mut start, mut count) = (1_i64, None);
    for (name, value) in mount::pairs(query)? {
        let number = || {
            value.parse::<i64>().map_err(|_| ScimError::invalid("invalidValue", format!("{name} must be an integer")))
        };
        match name.as_str() {
            "filter" => users = filter(&value).ok_or_else(|| ScimError::invalid("invalidFilter", FILTERS))?,
            "startIndex" => start = number()?,
            "count" => count = Some(number()?),
            // Other parameters are optional for a server, and ignored.
            _ => {}
        }
    }
    let skip = u64::try_from(start.max(1) - 1).unwrap_or_default();
    let count = count.map_or(DEFAULT_COUNT, |count| usize::try_from(count.max(0)).unwrap_or(MAX_COUNT));
    Ok((users, skip, count.min(MAX_COUNT)))
}

/// Supported filters.
const FILTERS: &str = "a filter must be userName eq \"…\" or externalId eq \"…\"";

/// Parses a filter. Names and operators are case-insensitive (RFC 7644 section 3.4.2.2).
fn filter(text: &str) -> Option<DirectoryUsers> {
    let Ok(Filter::Attr(AttrExp::Comparison(path, CompareOp::Eq, CompValue::Str(value)))) = text.parse() else {
        return None;
    };
    let known = path.uri.is_none_or(|schema| schema.eq_ignore_ascii_case(user::SCHEMA)) && path.sub_attr.is_none();
    match path.name.to_ascii_lowercase().as_str() {
        "username" if known => Some(DirectoryUsers::Named(value)),
        "externalid" if known => Some(DirectoryUsers::External(value)),
        _ => None,
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
        assert_eq!(found("/Users/0123456789abcdef").as_deref(), Some("true User(\"0123456789abcdef\")"));
        assert_eq!(found("/ServiceProviderConfig").as_deref(), Some("true Discovery(Config)"));
        for other in ["", "/", "/users", "/Groups", "/Bulk"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(find("Users"), None);
        let encoded = format!("{}%2FUsers", provider.replace('/', "%2f"));
        assert_eq!(find(&with_slashes(&encoded)), Some((&*provider, Endpoint::Users)));
    }

    #[test]
    fn the_parameters_of_the_table_are_read_and_others_are_ignored() {
        for parameter in attributes::QUERY {
            let refused = page(&format!("{}=x", parameter.name)).unwrap_err();
            assert!(refused.kind.starts_with("invalid"), "{}", parameter.name);
        }
        assert_eq!(page("sortBy=x&startIndex=3&count=500").unwrap(), (DirectoryUsers::All, 2, MAX_COUNT));
    }

    #[test]
    fn a_filter_compares_a_user_name_or_an_external_id() {
        let named = |text: &str| Some(DirectoryUsers::Named(text.to_owned()));
        for (text, expected) in [
            (r#"userName eq "ada@example.com""#, named("ada@example.com")),
            (r#"USERNAME EQ "a \"b\" c""#, named("a \"b\" c")),
            (r#"urn:ietf:params:scim:schemas:core:2.0:User:userName eq "a""#, named("a")),
            (r#"externalId eq "7""#, Some(DirectoryUsers::External("7".to_owned()))),
            (r#"userName eq ada"#, None),
            (r#"userName co "ada""#, None),
            (r#"userName eq "a" or userName eq "b""#, None),
            (r#"active eq "true""#, None),
            ("userName pr", None),
            ("", None),
        ] {
            assert_eq!(filter(text), expected, "{text}");
        }
    }
}
