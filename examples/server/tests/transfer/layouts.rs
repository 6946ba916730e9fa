//! Data directories that earlier releases have written, one for each layout (see `tests/layouts/README.md`).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use platform_store_postgres::PostgresStore;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use tempfile::tempdir;

use crate::common::{Server, api, run};

fn tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

#[test]
fn a_data_directory_of_each_layout_opens_and_has_its_records() {
    for (store, newest) in [("sqlite", SqliteStore::LAYOUT), ("sled", SledStore::LAYOUT)] {
        // Those before were never released.
        let oldest = if store == "sqlite" { 4 } else { 2 };
        for layout in oldest..=newest {
            let archive = tests(&format!("layouts/{store}-{layout}.tar.gz"));
            let size = fs::metadata(&archive).map(|file| file.len());
            assert!(size.is_ok_and(|size| size <= 200 << 10), "{}: see README.md there", archive.display());
            let dir = tempdir().unwrap();
            let unpacked = Command::new("tar").arg("-xzf").arg(&archive).current_dir(dir.path()).status().unwrap();
            assert!(unpacked.success());
            let run = |arguments: &[&str]| run(dir.path(), &[arguments, &["--store", store]].concat());
            let found = run(&["migrate", "--dry-run"]).ok();
            assert!(found.contains(&format!("has layout {layout}")), "{found}");
            assert!(found.matches("would run: ").count() as u32 <= newest - layout, "{found}");
            assert_eq!(found.contains(&format!("would run: layout {newest}: ")), layout < newest, "{found}");
            let server = Server::start(dir.path(), &["--store", store]);
            let (api, _) = api(dir.path(), &["--store", store]);
            assert_eq!(api.get("/registry/v2/repos?name=kept").ok()["repos"][0]["name"], "kept", "{store} {layout}");
            server.terminate();
            assert_eq!(server.wait().code, Some(0));
            assert_eq!(run(&["check"]).ok(), "", "{store} {layout}");
            assert!(run(&["migrate", "--dry-run"]).ok().ends_with(&format!("layout {newest}, that of this release\n")));
        }
    }
    for layout in 1..=PostgresStore::LAYOUT {
        assert!(tests(&format!("dumps/layout-{layout}.sql")).exists(), "the other tests restore it");
    }
}
