//! `platform-server check`: proves the store.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{Config, Store},
    installation::store_path,
};

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let path = store_path(config);
    if !path.exists() {
        bail!("there is no store at {}: name it with --data-dir or --store", path.display());
    }
    let findings: Vec<String> = match &config.store {
        Store::Sqlite(_) => {
            let store = SqliteStore::open(&path)?;
            store.check().context("the check did not come to its end")?.iter().map(ToString::to_string).collect()
        }
        Store::Sled(_) => {
            let store = SledStore::open(&path)?;
            store.check().context("the check did not come to its end")?.iter().map(ToString::to_string).collect()
        }
        Store::Memory => bail!("a memory store ends with its server: there is nothing to check"),
    };
    #[expect(clippy::print_stdout, reason = "the command's output")]
    for finding in &findings {
        println!("{finding}");
    }
    let (count, path) = (findings.len(), path.display());
    #[expect(clippy::print_stderr, reason = "the command's verdict, apart from its output")]
    match count {
        0 => eprintln!("{path} is sound"),
        _ => eprintln!("{path} is damaged: {count} findings"),
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
