//! Embeds the platform in your own service: a store, the REST API next to your routes, and your own authentication.
//!
//! `cargo run -p embed`, then `curl -H 'Authorization: Bearer let-me-in' http://127.0.0.1:8081/iam/v2/roles`.

use std::sync::Arc;

use platform_core::prelude::*;
use platform_engine::error::{Error, Result};
use platform_http::{Limits, Rest, serve};
use platform_keys::{Algorithm, Keys};
use platform_services::{Scim, openapi::INFO};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let me = Uid::parse("00000000000000000000000000000000000000aa")?;
    let store = Arc::new(SqliteStore::open("embedded.sqlite")?);
    let settings = Settings { operators: [me.clone()].into(), ..Settings::default() };
    let keys = Keys::read_or_create("embedded-keys".as_ref(), Algorithm::Es256, &SystemClock, &SystemEntropy)?;
    let builder = platform_core::builder(store, SystemClock, SystemEntropy).settings(settings);
    let platform = Arc::new(builder.page_keys(keys.page_keys()).seal_keys(keys.seal_keys()).build()?);
    let organization = Uid::parse("00000000000000000000000000000000000000bb")?;
    let first = Bootstrap { organization, organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await?;

    let rest = Rest::new(platform, Arc::new(Password(me)), Limits::default())?.mount(Scim);
    let app = axum::Router::new()
        .route("/", axum::routing::get(async || "my service"))
        .fallback_service(rest.with_openapi(|rest| rest.openapi(INFO)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
    serve(listener, app, &Limits::default(), std::future::pending()).await?;
    Ok(())
}

/// Your own authentication: in this example, one password for one identity.
#[derive(Debug)]
struct Password(Uid);

#[async_trait::async_trait]
impl Authenticator for Password {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        let is_valid = token == "let-me-in";
        is_valid.then(|| Caller::new(self.0.clone())).ok_or_else(|| Error::unauthenticated("wrong password"))
    }
}
