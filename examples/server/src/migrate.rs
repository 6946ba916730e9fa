//! `platform-server migrate`: creates the tables of a database, or changes them to the layout of this release.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::config::{Config, Store};

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    match &config.store {
        #[cfg(feature = "postgres")]
        Store::Postgres(url) => {
            crate::installation::block_on(crate::postgres::migrate(url, config.store_ca.as_deref()))
        }
        Store::Sqlite(_) | Store::Memory => {
            bail!("only a database needs this: set --store postgres://USER@HOST/DATABASE")
        }
        #[cfg(feature = "sled")]
        Store::Sled(_) => bail!("only a database needs this: set --store postgres://USER@HOST/DATABASE"),
    }
}
