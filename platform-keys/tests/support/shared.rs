//! Documents that several processes share.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use platform_keys::{DataDirError, Document, Documents};
use zeroize::Zeroizing;

/// Documents in memory, as several processes see those of one database.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) documents: Mutex<HashMap<String, (Vec<u8>, u64)>>,
    pub(crate) reads: AtomicUsize,
}

#[async_trait]
impl Documents for Shared {
    async fn read(&self, name: &str) -> Result<Option<Document>, DataDirError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let found = self.documents.lock().unwrap().get(name).cloned();
        Ok(found.map(|(contents, revision)| Document { contents: Zeroizing::new(contents), revision }))
    }

    async fn write(&self, name: &str, expected: u64, contents: &[u8]) -> Result<bool, DataDirError> {
        let mut documents = self.documents.lock().unwrap();
        let revision = documents.get(name).map_or(0, |(_, revision)| *revision);
        if revision == expected {
            documents.insert(name.to_owned(), (contents.to_vec(), revision + 1));
        }
        Ok(revision == expected)
    }

    fn place(&self, name: &str) -> PathBuf {
        name.into()
    }
}
