//! The model, behind a lock, passes the suite that it is the measure of.

use std::process::ExitCode;

use parking_lot::Mutex;
use platform_core::store::{
    Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError,
    conformance::{self, Suite},
    model::Model,
};

#[derive(Debug, Default)]
struct ModelStore(Mutex<(u64, Model)>);

#[async_trait::async_trait]
impl Store for ModelStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        Ok(self.0.lock().1.get(keys, epochs))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        Ok(self.0.lock().1.list(query))
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let (last, model) = &mut *self.0.lock();
        model.check(&commit).map_err(StoreError::Conflict)?;
        *last += 1;
        model.apply(&commit, *last);
        Ok(Committed { sequence: *last })
    }
}

fn main() -> ExitCode {
    let suite = Suite::new(async |_directory| Ok::<_, StoreError>(ModelStore::default()));
    conformance::main(suite.without("reopen", "nothing outlives the process"))
}
