//! `platform-server serve`: serves REST and gRPC on one port until a signal stops it.

use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{Server, config::Config, shell::word, signals, stores::store_path};

pub(crate) fn run(config: Config) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        // Before anything else, so that a signal while a large store is opened stops the server in order.
        let stopped = signals::stopped()?;
        let server = Server::builder(config).start().await?;
        announce(&server);
        anyhow::Ok(server.run_until(stopped).await?)
    })?;
    // Open requests were drained before, so tasks that are still running are abandoned.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

/// Prints the URL of the server and the commands to try next. Scripts that wait for the server read the first line.
fn announce(server: &Server) {
    let (config, url, link) = (server.config(), server.url(), server.console_link());
    let address = config.url_of(server.address());
    let public = if url == address { String::new() } else { format!("\n  public URL: {url}") };
    let store = match store_path(config) {
        None if config.store.is_shared() => config.store.to_string(),
        None => "memory (lost when the server stops)".to_owned(),
        Some(path) => path.display().to_string(),
    };
    let program = std::env::args().next().unwrap_or_else(|| "platform-server".to_owned());
    let dir = match config.data_dir.to_string_lossy() {
        dir if dir == Config::DATA_DIR => String::new(),
        dir => format!(" --data-dir {}", word(&dir)),
    };
    let env = format!("{} env{dir}", word(&program));
    let console = match (link, config.console.console) {
        (Some(link), _) => format!("\n  console, for 15 minutes and once:\n    {link}"),
        (None, true) => format!("\n  console: {url}/console"),
        (None, false) => String::new(),
    };
    // A closed standard output must not stop the server.
    let _ = writeln!(
        stdout(),
        "Listening on {address}{public}\n  store: {store}\n  docs:  {url}/docs{console}\n\nIn another terminal, paste:\n\n  \
         eval \"$({env})\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" \"$API/iam/v2/groups\"\n  \
         curl -s -H \"Authorization: Bearer $TOKEN\" -d '{{\"name\":\"my repo\"}}' \"$API/registry/v2/repos/$ORG_ID\"\n"
    );
}
