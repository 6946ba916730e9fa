//! Maps paths to methods of kinds. All routes are derived from the kind tables.
//!
//! Templates are tried in order of precedence, and the first match owns the path: if it does not have the HTTP method,
//! the request is rejected instead of falling through to a greedier template. So `DELETE …/readme` cannot delete a
//! repo.

use std::{fmt, sync::Arc};

use http::Method;
use platform_engine::kind::{self as standard, Action, Domain, Http, Kind, Parent, Registered, Verb};

use crate::{
    calls::ApiMethod,
    request,
    template::{Captured, Template},
};

/// Error of an invalid path, or of two methods with the same path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid path `{path}` of {method}: {why}")]
pub struct BadRoute {
    path: String,
    method: String,
    why: &'static str,
}

/// Target of a request.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// Standard method, with the names of the path's variables. A path of any method except list has at most one
    /// variable, the uid or the parent; the variables of a list's path are parameters of the list.
    Standard(Verb, Registered, Vec<String>),
    /// Batch get of a kind.
    BatchGet(Registered),
    /// Action, with the names of the path's variables.
    Action(&'static Kind, &'static Action, Vec<String>),
}

/// All routes, by domain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Routes {
    domains: Vec<(Domain, Vec<Collection>)>,
}

#[derive(Debug, Clone)]
struct Collection {
    name: String,
    routes: Vec<Route>,
}

/// Template with the endpoint of each HTTP method.
#[derive(Debug, Clone)]
struct Route {
    template: Template,
    methods: Vec<(Method, Endpoint)>,
    /// The API methods, in the order of `methods`.
    calls: Vec<Arc<ApiMethod>>,
}

/// Path in the notation of the OpenAPI document, with its methods.
#[derive(Debug)]
pub(crate) struct Path<'r> {
    /// Path with domain and version, such as `/registry/v2/repos/{uid}/readme`.
    pub(crate) text: String,
    /// Names of its variables, in order.
    pub(crate) names: &'r [String],
    /// For each variable, whether it may contain slashes.
    pub(crate) greedy: Vec<bool>,
    /// Endpoint of each HTTP method.
    pub(crate) methods: &'r [(Method, Endpoint)],
}

/// Result of looking up a path and a method.
#[derive(Debug)]
pub(crate) enum Found<'r, 'p> {
    /// Endpoint, with the text of the path's variables, still percent-encoded, the version in the path, and the API
    /// method for metrics.
    Endpoint(&'r Endpoint, Captured<'p>, &'static str, &'r Arc<ApiMethod>),
    /// The path exists, but not with this method. Contains the value of the Allow header.
    OtherMethods(String),
    /// The path belongs to a service that is left out, for this reason.
    LeftOut(&'static str),
    /// Unknown path.
    Nothing,
}

impl Routes {
    /// Derives the routes of these kinds.
    ///
    /// # Errors
    /// When a path is invalid, or two methods have the same path and HTTP method.
    pub(crate) fn of(kinds: &[Registered]) -> Result<Self, BadRoute> {
        let mut routes = Self::default();
        for registered in kinds {
            let kind = registered.kind;
            for method in kind.served() {
                for path in standard_paths(kind, method) {
                    let endpoint = |names| Endpoint::Standard(method.verb, *registered, names);
                    routes.add(kind, method_of(method.verb.http()), &path, endpoint)?;
                }
            }
            if kind.batch_get().is_some() {
                routes.add(kind, Method::POST, &format!("{}:batchGet", kind.plural), |_| {
                    Endpoint::BatchGet(*registered)
                })?;
            }
            for action in registered.actions.iter().filter(|action| !action.path.is_empty()) {
                routes.add(kind, method_of(action.http), action.path, |names| Endpoint::Action(kind, action, names))?;
            }
        }
        for route in routes.domains.iter_mut().flat_map(|(_, collections)| collections) {
            route.routes.sort_by_key(|route| route.template.precedence());
        }
        Ok(routes)
    }

    fn add(
        &mut self,
        kind: &Kind,
        method: Method,
        path: &str,
        endpoint: impl FnOnce(Vec<String>) -> Endpoint,
    ) -> Result<(), BadRoute> {
        let error = |why| BadRoute { path: path.to_owned(), method: format!("{} {method}", kind.name), why };
        let (template, names) = Template::parse(path).map_err(error)?;
        let collections = entry(&mut self.domains, |(domain, _)| *domain == kind.domain, || (kind.domain, vec![]));
        let name = template.collection();
        let collection = entry(
            &mut collections.1,
            |collection| collection.name == name,
            || Collection { name: name.to_owned(), routes: Vec::new() },
        );
        let route = entry(
            &mut collection.routes,
            |route| route.template == template,
            || Route { template: template.clone(), methods: Vec::new(), calls: Vec::new() },
        );
        if route.methods.iter().any(|(other, _)| *other == method) {
            return Err(error("another method has the same path"));
        }
        let endpoint = endpoint(names);
        route.calls.push(ApiMethod::new("rest", endpoint.rpc()));
        route.methods.push((method, endpoint));
        Ok(())
    }

    /// Returns all paths, grouped by domain, each with the first version of its domain.
    pub(crate) fn paths(&self) -> impl Iterator<Item = Path<'_>> {
        let collections = self.domains.iter().flat_map(|(domain, all)| all.iter().map(move |one| (domain, one)));
        let routes =
            collections.flat_map(|(domain, collection)| collection.routes.iter().map(move |one| (domain, one)));
        routes.map(move |(domain, Route { template, methods, .. })| {
            let names = methods.first().map(|(_, endpoint)| endpoint.variables()).unwrap_or_default();
            let (path, greedy) = template.documented(names);
            Path { text: format!("/{}/{}/{path}", domain.name, domain.version()), names, greedy, methods }
        })
    }

    /// Returns the name of the domain that a path starts with, for the errors of the path; empty for paths that start
    /// with none.
    pub(crate) fn domain(&self, path: &str) -> &'static str {
        let first = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
        self.domains.iter().map(|(domain, _)| domain.name).find(|name| *name == first).unwrap_or_default()
    }

    /// Looks up a path and a method. HEAD is treated as GET.
    pub(crate) fn find<'r, 'p>(&'r self, method: &Method, path: &'p str) -> Found<'r, 'p> {
        let Some((route, captured, version)) = self.route(path) else {
            let reason = self.domains.iter().find_map(|(domain, _)| domain.why_left_out(path));
            return reason.map_or(Found::Nothing, Found::LeftOut);
        };
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        match route.methods.iter().zip(&route.calls).find(|((other, _), _)| other == method) {
            Some(((_, endpoint), call)) => Found::Endpoint(endpoint, captured, version, call),
            None => Found::OtherMethods(route.allow()),
        }
    }

    fn route<'r, 'p>(&'r self, path: &'p str) -> Option<(&'r Route, Captured<'p>, &'static str)> {
        let (domain, path) = path.strip_prefix('/')?.split_once('/')?;
        let (version, path) = path.split_once('/')?;
        // Equivalent versions have the same routes, and kinds of one domain may have different versions.
        let of_path = |(found, collections): &'r (Domain, Vec<Collection>)| {
            let version = found.find_version(version).filter(|_| found.name == domain)?;
            Some(collections.iter().map(move |collection| (version, collection)))
        };
        let name = path.split(['/', ':']).next()?;
        let mut collections = self.domains.iter().filter_map(of_path).flatten();
        let (version, collection) = collections.find(|(_, collection)| collection.name == name)?;
        // One trailing slash is ignored (`docs/api.md`, Paths).
        let path = path.strip_suffix('/').unwrap_or(path);
        collection.routes.iter().find_map(|route| Some((route, route.template.match_path(path)?, version)))
    }
}

impl Route {
    fn allow(&self) -> String {
        request::allow(self.methods.iter().map(|(method, _)| method))
    }
}

impl Endpoint {
    /// Returns whether the OpenAPI document contains this endpoint. It omits a create without a parent for kinds that
    /// need one: that route exists only to reject the request.
    pub(crate) fn is_documented(&self) -> bool {
        match self {
            Self::Standard(Verb::Create, registered, names) => {
                !names.is_empty() || matches!(registered.kind.parent, Parent::None | Parent::GroupOrNone)
            }
            Self::Standard(..) | Self::BatchGet(_) | Self::Action(..) => true,
        }
    }

    /// Returns the names of the service and the RPC, such as `ReposService.ListRepos`.
    pub(crate) fn rpc(&self) -> String {
        match self {
            Self::Standard(verb, registered, _) => {
                format!("{}.{}", registered.kind.service, registered.kind.rpc(*verb))
            }
            Self::BatchGet(registered) => {
                format!("{}.{}", registered.kind.service, registered.kind.batch_get().unwrap_or_default())
            }
            Self::Action(kind, action, _) => format!("{}.{}", kind.service, action.name),
        }
    }

    fn variables(&self) -> &[String] {
        match self {
            Self::Standard(_, _, names) | Self::Action(_, _, names) => names,
            Self::BatchGet(_) => &[],
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(verb, registered, _) => write!(f, "{}{}", verb.name(), registered.kind.name),
            Self::BatchGet(registered) => f.write_str(&registered.kind.batch_get().unwrap_or_default()),
            Self::Action(_, action, _) => f.write_str(action.name),
        }
    }
}

/// Returns the paths of a standard method, without domain and version. A create is also routed at the collection, where
/// it either needs no parent or is rejected because the parent is missing.
fn standard_paths(kind: &Kind, method: &standard::Method) -> Vec<String> {
    let path = kind.path(method);
    match method.verb {
        Verb::Create => vec![kind.plural.to_owned(), path],
        _ => vec![path],
    }
}

fn method_of(http: Http) -> Method {
    // The names are those of standard methods.
    Method::from_bytes(http.name().as_bytes()).unwrap_or_default()
}

/// Returns the first element that matches, after appending a new one if none does.
#[allow(clippy::indexing_slicing, reason = "the index is that of an element found or just appended")]
fn entry<T>(all: &mut Vec<T>, matches: impl FnMut(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(matches).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[at]
}

#[cfg(test)]
mod tests {
    use platform_core::resources::KINDS;

    use super::*;

    fn found(method: &Method, path: &str) -> String {
        match Routes::of(KINDS).unwrap().find(method, path) {
            Found::Endpoint(endpoint, captured, ..) => format!("{endpoint} {captured:?}"),
            Found::OtherMethods(allow) => format!("405 {allow}"),
            Found::LeftOut(reason) => format!("501 {}", reason.split(',').next().unwrap()),
            Found::Nothing => "404".to_owned(),
        }
    }

    #[test]
    fn every_path_is_routed_to_one_method_of_one_kind() {
        let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
        for (method, path, says) in [
            (&get, "/registry/v2/repos", "ListRepo []"),
            (&get, "/registry/v2/repos/", "ListRepo []"),
            (&get, "/registry/v2beta1/repos", "ListRepo []"),
            (&get, "/registry/v2/repos/a/b", "GetRepo [\"a/b\"]"),
            (&get, "/registry/v2/repos/a%2Fb", "GetRepo [\"a%2Fb\"]"),
            (&patch, "/registry/v2/repos/a/b", "UpdateRepo [\"a/b\"]"),
            (&delete, "/registry/v2/repos/a/b", "DeleteRepo [\"a/b\"]"),
            (&post, "/registry/v2/repos/a", "CreateRepo [\"a\"]"),
            (&get, "/registry/v2/repos/a/b/readme", "GetRepoReadme [\"a/b\"]"),
            (&patch, "/registry/v2/repos/a/b/readme", "UpdateRepoReadme [\"a/b\"]"),
            (&delete, "/registry/v2/repos/a/b/readme", "405 GET, PATCH, HEAD, OPTIONS"),
            (&post, "/registry/v2/repos/a/readme", "405 GET, PATCH, HEAD, OPTIONS"),
            (&Method::HEAD, "/registry/v2/repos", "ListRepo []"),
            (&Method::PUT, "/iam/v2/groups", "405 GET, POST, HEAD, OPTIONS"),
            (&delete, "/registry/v2/repos", "405 GET, POST, HEAD, OPTIONS"),
            (&post, "/registry/v2/repos", "CreateRepo []"),
            (&post, "/registry/v2/repos/", "CreateRepo []"),
            (&post, "/registry/v2/repos/a/", "CreateRepo [\"a\"]"),
            (&get, "/registry/v2/repos/a/b/", "GetRepo [\"a/b\"]"),
            (&get, "/registry/v2/repos/a/b//", "GetRepo [\"a/b/\"]"),
            (&get, "/registry/v2/repos/a/b/readme/", "GetRepoReadme [\"a/b\"]"),
            (&get, "/iam/v2/groups:lookupGroup/", "LookupGroup []"),
            (&post, "/iam/v2/groups", "CreateGroup []"),
            (&post, "/iam/v2/groups/", "CreateGroup []"),
            (&post, "/iam/v2/groups/acme", "CreateGroup [\"acme\"]"),
            (&get, "/iam/v2/groups:lookupGroup", "LookupGroup []"),
            (&post, "/iam/v2/groups:lookupGroup", "405 GET, HEAD, OPTIONS"),
            (&get, "/iam/v2/groups:noSuchVerb", "404"),
            (&post, "/iam/v2/groups/a/b:requestGroupAccess", "RequestGroupAccess [\"a/b\"]"),
            (&get, "/iam/v2/groups/a/b:requestGroupAccess", "405 POST, OPTIONS"),
            (&get, "/iam/v2/groups/a%3ArequestGroupAccess", "GetGroup [\"a%3ArequestGroupAccess\"]"),
            (&post, "/iam/v2/roleBindings:batchCreate", "BatchCreateRoleBindings []"),
            (&patch, "/iam/v2/identities:updateIdentityMetadata", "UpdateIdentityMetadata []"),
            (&get, "/ping/v2/ping", "Ping []"),
            (&get, "/registry/v2/repos/a/b/digests/sha256:0/architectures", "GetArchitectures [\"a/b\", \"sha256:0\"]"),
            (&get, "/registry/v2/repos/a/b/digests/sha256%3A0/size", "GetSize [\"a/b\", \"sha256%3A0\"]"),
            (&get, "/vulnerabilities/v2/advisories/a/b", "GetAdvisory [\"a/b\"]"),
            (&post, "/vulnerabilities/v2/advisories/a", "405 GET, HEAD, OPTIONS"),
            (&get, "/advisory/v2/metadata", "ListVulnerabilityMetadata []"),
            (&get, "/advisory/v2/vulnerabilityMetadata", "404"),
            (&get, "/advisory/v2/images/resolvedVulns", "ListResolvedVulnsReports []"),
            (&get, "/libraries/v2beta1/artifacts", "ListArtifact []"),
            (&get, "/registry/v2beta1/overlays/a", "501 Overlays are not served"),
            (&post, "/registry/v2beta1/overlayBindings/a", "501 Overlays are not served"),
            (&get, "/registry/v2/overlays", "404"),
            (&get, "/libraries/v2beta1/requestGroups", "501 Request groups are not served"),
            (&get, "/libraries/v2/artifacts/count", "GetArtifactCount []"),
            (&get, "/libraries/v2/artifacts/python:a/versions", "ListArtifactVersion [\"python:a\"]"),
            (&get, "/libraries/v2/artifacts/python:a", "404"),
            (&get, "/iam/v2//groups", "404"),
            (&get, "//iam/v2/groups", "404"),
            (&get, "/iam/v3/groups", "404"),
            (&get, "/registry/v2/groups", "404"),
            (&get, "/iam/v2/group", "404"),
            (&get, "/iam/v2/%67roups", "404"),
            (&get, "/iam/v2", "404"),
            (&get, "/", "404"),
            (&get, "*", "404"),
            (&get, "", "404"),
        ] {
            assert_eq!(found(method, path), says, "{method} {path}");
        }
    }

    #[test]
    fn two_methods_with_the_same_path_are_rejected() {
        let twice: Vec<_> = KINDS.iter().chain(KINDS).copied().collect();
        assert!(Routes::of(&twice).unwrap_err().to_string().contains("same path"));
    }
}
