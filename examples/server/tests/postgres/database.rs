//! A database of a test, and the commands that use it.

use std::{path::Path, process::Command};

use platform_testkit::postgres::Cluster;
use tempfile::{TempDir, tempdir};

use super::common::{Ran, Server, program};

/// The key-encryption key of the tests: the Base64 of 32 bytes.
pub(super) const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The URL of all servers, which no test resolves.
pub(super) const PUBLIC: &str = "http://platform.test";

/// A database of its own, and a directory in which servers run.
pub(super) struct Database {
    pub(super) url: String,
    pub(super) dir: TempDir,
}

impl Database {
    /// Returns an empty database; `None` without a cluster, which is reported.
    pub(super) fn empty(name: &str) -> Option<Self> {
        let cluster = Cluster::shared()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let schema = format!("server_{name}_{}", std::process::id());
        let url = runtime.block_on(cluster.schema(&schema)).unwrap();
        Some(Self { url, dir: tempdir().unwrap() })
    }

    /// Returns a database with tables.
    pub(super) fn migrated(name: &str) -> Option<Self> {
        let database = Self::empty(name)?;
        Ran::of(database.command(&["migrate"]).output().unwrap()).ok();
        Some(database)
    }

    /// Returns a database with tables whose notifications are lost: they are kept in the table `lost`.
    pub(super) fn silent(name: &str) -> Option<Self> {
        let mut database = Self::migrated(name)?;
        database.execute(
            "CREATE TABLE lost (message text); CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE sql AS \
             'INSERT INTO lost VALUES ($2)'",
        );
        // Functions are looked up in this order.
        database.url.push_str("%2Cpg_catalog");
        Some(database)
    }

    pub(super) fn execute(&self, statements: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Cluster::shared().unwrap().execute(&self.url, statements)).unwrap();
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.path(), arguments);
        command.args(["--store", &self.url]).env("PLATFORM_KEY_ENCRYPTION_KEY", KEY);
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    pub(super) fn serve(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--public-url", PUBLIC]);
        command.args(arguments);
        command
    }

    #[track_caller]
    pub(super) fn start(&self, arguments: &[&str]) -> Server {
        Server::of(&mut self.serve(arguments)).unwrap_or_else(|ran| panic!("the server does not start: {ran:?}"))
    }

    /// Returns the first organization and a token of its operator.
    #[track_caller]
    pub(super) fn operator(&self) -> (String, String) {
        let lines = self.run(&["env"]).ok();
        let value = |name: &str| {
            let line = lines.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            line.unwrap_or_else(|| panic!("{lines}")).to_owned()
        };
        assert_eq!(value("API"), PUBLIC, "as the servers agreed");
        (value("ORG_ID"), value("TOKEN"))
    }
}
