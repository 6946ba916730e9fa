//! Options for opening a store.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::error::OpenError;

/// Options for opening a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct Options {
    /// The maximum number of connections for reads; 16 by default.
    pub readers: usize,
    /// The number of lanes, which is the most batches of commits that run at the same time, each on a connection of its
    /// own; 4 by default. The commits of an organization are in one batch at a time.
    pub lanes: usize,
    /// The time after which a connection that is not used is closed; 1 minute by default.
    pub idle: Duration,
    /// The maximum number of commits that share one transaction (group commit); 256 by default.
    pub group_commits: usize,
    /// The time for which a call is repeated while no connection works, such as during a failover; 5 seconds by
    /// default.
    pub retry: Duration,
    /// The time for a list of all organizations in a database with Citus, after which it is refused; 10 seconds by
    /// default (our choice). Such a list runs on all nodes, and the coordinator merges what they return.
    pub everywhere: Duration,
    /// Certificates in DER that TLS connections trust, in addition to the public certification authorities.
    pub root_certificates: Vec<CertificateDer<'static>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 16,
            lanes: 4,
            idle: Duration::from_secs(60),
            group_commits: 256,
            retry: Duration::from_secs(5),
            everywhere: Duration::from_secs(10),
            root_certificates: Vec::new(),
        }
    }
}

impl Options {
    /// Sets the maximum number of connections for reads.
    pub const fn readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets the number of lanes; at least 1.
    pub const fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// The least number of connections that a store can have.
    pub const MIN_CONNECTIONS: usize = 6;
    /// The connections that are neither of readers nor of lanes: one writes documents, one asks the primary, and one listens.
    const OTHER_CONNECTIONS: usize = 3;

    /// Returns the maximum number of connections to the database; 23 by default.
    pub const fn max_connections(&self) -> usize {
        self.readers + self.lanes + Self::OTHER_CONNECTIONS
    }

    /// Sets the readers and lanes so that the store has at most so many connections; at least
    /// [`Options::MIN_CONNECTIONS`]. At most 4 are lanes.
    pub fn connections(mut self, connections: usize) -> Self {
        let shared = connections.max(Self::MIN_CONNECTIONS) - Self::OTHER_CONNECTIONS;
        self.lanes = (shared / 4).clamp(1, 4);
        self.readers = shared - self.lanes;
        self
    }

    /// Sets the time after which a connection that is not used is closed.
    pub const fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Sets the maximum number of commits that share one transaction; at least 1.
    pub const fn group_commits(mut self, commits: usize) -> Self {
        self.group_commits = commits;
        self
    }

    /// Sets the time for which a call is repeated while no connection works.
    pub const fn retry(mut self, retry: Duration) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the time for a list of all organizations in a database with Citus.
    pub const fn everywhere(mut self, everywhere: Duration) -> Self {
        self.everywhere = everywhere;
        self
    }

    /// Adds certificates in DER that TLS connections trust.
    pub fn root_certificates(mut self, certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        self.root_certificates.extend(certificates);
        self
    }

    /// Adds the certificates of a text in PEM that TLS connections trust.
    ///
    /// # Errors
    /// [`OpenError::Certificates`] when it has none or a malformed one.
    pub fn root_certificates_pem(self, pem: &[u8]) -> Result<Self, OpenError> {
        let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| OpenError::Certificates(error.to_string().into()))?;
        if found.is_empty() {
            return Err(OpenError::Certificates("there is no BEGIN CERTIFICATE".into()));
        }
        Ok(self.root_certificates(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_connections_is_divided_among_readers_and_lanes() {
        assert_eq!(Options::default().max_connections(), 23);
        for (connections, readers, lanes) in [(23, 16, 4), (6, 2, 1), (0, 2, 1), (11, 6, 2), (100, 93, 4)] {
            let options = Options::default().connections(connections);
            assert_eq!((options.readers, options.lanes), (readers, lanes), "{connections}");
            assert_eq!(options.max_connections(), connections.max(Options::MIN_CONNECTIONS));
        }
    }
}
