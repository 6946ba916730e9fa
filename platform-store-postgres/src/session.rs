//! The settings of every session, which the guarantees and the plans of the store depend on.
//!
//! They are sent when a connection starts, as the parameter `options`, and read back: a pooler may drop the parameter
//! without a word (PgBouncer with `ignore_startup_parameters = options`).

use futures_util::future;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::text;

/// The names of the settings, with the values as PostgreSQL writes them.
const SETTINGS: &[(&str, &str)] = &[
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    // A canceled commit could be acknowledged without the synchronous standbys having it.
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    // It releases the locks of a process that vanished or was cut off, for which others wait.
    ("idle_in_transaction_session_timeout", "3s"),
    // The plans of the statements must not depend on their parameters or on statistics: with other kinds of joins and
    // scans, a plan can be good for a small organization and read a whole table for a large one.
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("max_parallel_workers_per_gather", "0"),
];

/// Settings that a connection over a socket of the system does not have. They release locks as above.
const TCP: &str =
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000";

/// A setting that PostgreSQL has since version 17, and earlier versions refuse.
const NO_TRANSACTION_TIMEOUT: &str =
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'";

/// Returns the query for the settings that differ: their names, values and found values.
fn different() -> String {
    let wanted: Vec<_> = SETTINGS.iter().map(|(name, value)| format!("('{name}', '{value}')")).collect();
    format!(
        "SELECT name, value, coalesce(current_setting(name, true), '') FROM (VALUES {}) AS wanted (name, value) \
         WHERE current_setting(name, true) IS DISTINCT FROM value",
        wanted.join(", ")
    )
}

/// Returns the startup parameter `options`: those of the URL, and then the settings, as the last one of a name counts.
pub(crate) fn options(of_url: &str) -> String {
    let mut options = of_url.to_owned();
    for (name, value) in SETTINGS {
        options.push_str(&format!(" -c {name}={}", value.replace(' ', "\\ ")));
    }
    format!("{options} {TCP}")
}

/// Verifies that a new session has the settings, and sets what cannot be sent when it starts.
///
/// # Errors
/// The difference, and the remedy.
pub(crate) async fn begin(client: &Client) -> Result<(), String> {
    let failed = |error: tokio_postgres::Error| text(&error);
    let different = different();
    // Sent together, to wait for the server less often. A prepared statement could be that of another client, with a
    // pooler that shares sessions, and fail before the reason is found.
    let (different, ()) =
        future::try_join(client.simple_query(&different), client.batch_execute(NO_TRANSACTION_TIMEOUT))
            .await
            .map_err(failed)?;
    let first = different.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    if let Some(row) = first {
        let read = |at| row.try_get(at).map(Option::unwrap_or_default).map_err(failed);
        let (name, wanted, found) = (read(0)?, read(1)?, read(2)?);
        return Err(format!(
            "its sessions have `{name}` = `{found}` in place of `{wanted}`, as something between this server and \
             PostgreSQL drops the startup parameter `options`: connect without the pooler"
        ));
    }
    Ok(())
}
