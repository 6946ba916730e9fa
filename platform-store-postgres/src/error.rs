//! Errors, with messages that state the problem, its cause and the remedy.

use std::{error::Error, fmt};

use deadpool_postgres::{PoolError, TimeoutType};
use platform_engine::store::{Cause, StoreError};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The error of opening or migrating a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one of a PostgreSQL database.
    #[error("the URL of the database is invalid ({0}): write postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Url(#[source] Cause),
    /// The certificates to trust cannot be read.
    #[error("the certificates cannot be read ({0}): they must be in PEM")]
    Certificates(#[source] Cause),
    /// The database cannot be reached or refuses the connection.
    #[error("the database cannot be opened: {0}")]
    Unavailable(#[source] Cause),
    /// The server is a standby, whose answers can be old.
    #[error("the database is a standby: give the address of the primary, or all addresses separated by commas")]
    Standby,
    /// The database has no tables of the platform.
    #[error("the database has no tables of the platform: run `platform-server migrate`")]
    Empty,
    /// An earlier release wrote the database.
    #[error("the database has layout {found}, but this release needs layout {known}: run `platform-server migrate`")]
    Older {
        /// The layout of the database.
        found: i32,
        /// The layout of this release.
        known: i32,
    },
    /// The database has Citus, but its tables are not distributed as the store needs it.
    #[error("the tables cannot be used with Citus: {0}")]
    Distribution(String),
    /// A later release wrote the database.
    #[error("the database has layout {found}, but this release knows at most {known}: use a later release")]
    Newer {
        /// The layout of the database.
        found: i32,
        /// The layout of this release.
        known: i32,
    },
}

/// A failed call to the database.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection broke, or the server is not, or no longer, the primary. Another connection may work.
    Lost(Cause),
    /// A node of a distributed database does not answer, but the server does. Another attempt may work.
    Node(Cause),
    /// The server did not answer in time, but answers others. Another attempt would take as long.
    Late(Cause),
    /// A unique key was taken between the check and the write.
    Taken,
    /// Any other error.
    Other(StoreError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(state) = error.as_db_error().map(|error| error.code().clone()) else {
            // Errors without a code are those of the connection, except those of this crate's own conversions.
            let is_own = error.source().is_some_and(|source| !source.is::<std::io::Error>()) && !error.is_closed();
            return if is_own { Self::Other(unavailable(Described(error))) } else { Self::Lost(error.into()) };
        };
        match state {
            // Unique keys are written without a lock of their organization, and two commits that exchange some may wait
            // for each other.
            SqlState::UNIQUE_VIOLATION | SqlState::T_R_DEADLOCK_DETECTED | SqlState::T_R_SERIALIZATION_FAILURE => {
                Self::Taken
            }
            SqlState::DISK_FULL => Self::Other(StoreError::Full(Described(error).into())),
            // The server is the primary: its provider has set it to read-only, mostly because its disk is full.
            SqlState::READ_ONLY_SQL_TRANSACTION => Self::Other(StoreError::Full(Described(error).into())),
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => {
                Self::Other(StoreError::Corrupt(Described(error).into()))
            }
            // Values that the database cannot have, and index entries that are too long.
            state if state.code().starts_with("22") || state.code().starts_with("54") => {
                Self::Other(StoreError::Invalid(Described(error).into()))
            }
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | SqlState::IDLE_SESSION_TIMEOUT
            | SqlState::TOO_MANY_CONNECTIONS => lost(error),
            state if state.code().starts_with("08") => lost(error),
            _ => Self::Other(unavailable(Described(error))),
        }
    }
}

/// Returns the failure of an error that ends a connection: of the one to the server if it is fatal, and otherwise of one
/// that the server has to a node.
fn lost(error: tokio_postgres::Error) -> Failure {
    let is_of_node = error.as_db_error().and_then(DbError::parsed_severity) == Some(Severity::Error);
    if is_of_node { Failure::Node(Described(error).into()) } else { Failure::Lost(Described(error).into()) }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => match Self::from(error) {
                // Without a connection, nothing else can be the cause: a password that is refused now may be accepted
                // by the next primary.
                Self::Other(StoreError::Unavailable(cause)) => Self::Lost(cause),
                other => other,
            },
            // Each of many calls that wait for a connection would wait again.
            PoolError::Timeout(TimeoutType::Wait) => Self::Late("all connections are in use".into()),
            other => Self::Lost(other.into()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(cause) | Failure::Node(cause) | Failure::Late(cause) => Self::Unavailable(cause),
            Failure::Taken => unavailable("a unique key was taken by a concurrent commit"),
            Failure::Other(error) => error,
        }
    }
}

/// An error of the driver, with the server's message, which the driver's own text leaves out.
#[derive(Debug)]
struct Described(tokio_postgres::Error);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(f, "{} (SQLSTATE {})", error.message(), error.code().code()),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Error for Described {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Returns an error of the driver as a cause that includes the server's message.
pub(crate) fn cause(error: tokio_postgres::Error) -> Cause {
    Described(error).into()
}

/// Returns an error of the driver with its causes.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

pub(crate) fn unavailable(cause: impl Into<Cause>) -> StoreError {
    StoreError::Unavailable(cause.into())
}

pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
    StoreError::Corrupt(what.into().into())
}
