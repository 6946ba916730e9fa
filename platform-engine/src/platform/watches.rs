//! Change logs and watches of a platform.

use super::Platform;
use crate::{
    error::Result,
    store::Epoch,
    uid::Uid,
    watch::{hub::Hub, record::record},
    write::Write,
};

impl Platform {
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Adds to a write the records of its changes in the logs of organizations that are watched, and returns these
    /// organizations.
    pub(crate) async fn log_changes(&self, write: &mut Write) -> Result<Vec<Uid>> {
        record(&self.hub, self.store(), (self.entropy(), self.now()), write).await
    }

    /// Wakes the watches of these organizations in all processes, and those of this process whose access depends on one
    /// of these epochs, after a commit.
    pub(crate) fn changed(&self, organizations: &[Uid], raised: &[Epoch]) {
        self.hub.raised(raised);
        self.hub.wake(organizations);
        self.events.wake_others(organizations);
    }
}
