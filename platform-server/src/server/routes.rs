//! The paths of a server that do not belong to the API: health checks, documentation, discovery and the endpoints of
//! operators.

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderValue, header::CONTENT_TYPE},
    routing::get,
};
use platform_http::{Docs, Limits, OpenPaths, mount::base_path, openapi::ServedDocument};
use platform_oidc::Issuer;
use serde_json::json;

use super::{Access, Base, Observed};
use crate::{backup, config::Config, events, keys, log, operator::Operators, read_only};

/// Returns all of these paths.
pub(super) fn all(config: &Config, limits: &Limits, base: &Base, access: &Access, observed: &Observed) -> Router {
    let open = well_known(&access.issuer).merge(documentation(config, base));
    let open = open.layer(OpenPaths::new(limits, &config.service_domain));
    // Health checks cost nothing and are not rate limited: behind a proxy that is not trusted, all clients share one
    // address, and a flood of their requests must not make a load balancer consider the server dead.
    open.merge(observed.probes.routes()).merge(of_operators(base, access, observed))
}

/// Returns the endpoints of operators.
fn of_operators(base: &Base, access: &Access, observed: &Observed) -> Router {
    let platform = Arc::clone(&base.platform);
    let operators = Operators { platform, authenticator: Arc::clone(&access.authenticator) };
    events::routes(&operators)
        .merge(log::routes(&operators, &observed.log))
        .merge(read_only::routes(&operators))
        .merge(backup::routes(&operators, &base.backups))
        .merge(keys::routes(&operators, &base.installation.ring, &access.issuer))
}

/// Returns the routes that publish the issuer of this server's tokens (OpenID Connect Discovery 1.0, RFC 8414).
fn well_known(issuer: &Arc<Issuer>) -> Router {
    let json = |body: String| ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body);
    let (openid, oauth, keys) = (Arc::clone(issuer), Arc::clone(issuer), Arc::clone(issuer));
    Router::new()
        .route("/.well-known/openid-configuration", get(async move || json(openid.discovery_document())))
        .route("/.well-known/oauth-authorization-server", get(async move || json(oauth.discovery_document())))
        .route("/.well-known/jwks.json", get(async move || json(keys.jwks())))
}

/// Returns the routes that lead to the document of the API: `/docs` and, unless the console has it, `/`.
fn documentation(config: &Config, base: &Base) -> Router {
    let service = config.kinds.service();
    let below = |path: &str| base_path(&base.url).to_owned() + path;
    let docs = Docs::new(service.title(), &below("/docs"), &below("/openapi.json"));
    if config.console.console {
        let docs = docs.session(&below("/console/session")).link("Console", &below("/console"));
        return Router::new().nest_service("/docs", docs);
    }
    // The root URL links to the documentation.
    let landing = json!({
        "name": service.title(), "version": service.version(), "docs": below("/docs"), "openapi": below("/openapi.json"),
    });
    let landing = ServedDocument::new(&landing, &base.platform.settings().service_domain);
    Router::new().route_service("/", landing).nest_service("/docs", docs)
}
