//! Starts the planner on a SQLite store, with keys that outlive a restart.
//!
//! `cargo run -p service`, then `curl -b session=00000000000000000000000000000000000000aa
//! http://127.0.0.1:8082/planner/v1/projects`.

use std::{path::Path, sync::Arc};

use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{platform::Settings, uid::Uid};
use platform_http::{Limits, serve};
use platform_keys::{Algorithm, Keys};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let me = Uid::parse("00000000000000000000000000000000000000aa")?;
    let organization = Uid::parse("00000000000000000000000000000000000000bb")?;
    let keys = Keys::read_or_create(Path::new("planner-keys"), Algorithm::Es256, &SystemClock, &SystemEntropy)?;
    let store = Arc::new(SqliteStore::open("planner.sqlite")?);
    let settings = Settings { operators: [me.clone()].into(), ..Settings::default() };
    let builder = platform_core::builder(store, SystemClock, SystemEntropy)
        .settings(settings)
        .page_keys(keys.page_keys())
        .seal_keys(keys.seal_keys());
    let platform = Arc::new(service::planner(builder).build()?);
    let first = Bootstrap { organization, organization_name: "mine".into(), operator: me };
    Iam::of(&platform).bootstrap(&first).await?;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:8082").await?;
    let stop = async {
        // Without a handler, the process runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    serve(listener, service::app(platform)?, &Limits::default(), stop).await?;
    Ok(())
}
