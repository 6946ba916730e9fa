//! Which server is the primary. One connection asks it every second; when it does not answer, all servers are asked,
//! so that idle connections and calls without an answer are not the last to notice a failover.
//!
//! A server that was replaced while it was stopped continues as if it were the primary when it runs again, until it is
//! told otherwise. Its answers are old. Therefore, a connection is not used after its server has been silent for longer
//! than [`ASK`] and [`ANSWER`], and a server of an earlier timeline is refused. A cluster that waits longer than these
//! until it replaces a primary never has two whose answers count.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{sleep, timeout, timeout_at},
};
use tokio_postgres::{
    Client, Config, Row, Socket, Statement,
    config::{Host, TargetSessionAttrs},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    error::{Failure, OpenError, text},
    session,
};

/// The time between two questions.
const ASK: Duration = Duration::from_secs(1);
/// The time for an answer, and to connect to a server and ask it.
const ANSWER: Duration = Duration::from_secs(2);
/// The time for further servers to answer after one that may be the primary: it may be a former one.
const OTHERS: Duration = Duration::from_millis(500);
/// The pause between two searches for the primary.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks a server for the identifier of its cluster, for its timeline, and whether it is a standby. A primary can be set to
/// read-only, as providers do when its disk is full: its answers are current, and it refuses writes itself.
const WHO: &str = "SELECT (SELECT system_identifier FROM pg_control_system()), \
     CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END, \
     pg_is_in_recovery()";

/// A state of a database that only grows: a failover begins another timeline. Its number is hexadecimal and of fixed
/// length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    system: i64,
    timeline: String,
}

/// Drives a connection.
pub(crate) type Driver = tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The facts about the primary.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The address of the last primary, with everything else that a connection needs.
    pub(crate) server: Arc<Config>,
    pub(crate) history: History,
    /// Whether it answers, and otherwise why not.
    pub(crate) answers: Result<(), Arc<str>>,
    /// The time before which no connection may have been opened: nothing is known of their servers.
    pub(crate) valid_from: Instant,
    /// Increases when the history changes.
    pub(crate) generation: u64,
}

/// Asks the primary until it is dropped.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) state: watch::Receiver<State>,
    claim: watch::Sender<Claim>,
    _task: AbortOnDropHandle<()>,
}

/// A lock that the asking connection holds: two numbers, and whether it has it.
#[derive(Debug, Clone, Copy, Default)]
struct Claim {
    key: Option<(i32, i32)>,
    held: Option<bool>,
}

impl Primary {
    /// Finds the primary among the hosts.
    pub(crate) async fn find(config: &Config, tls: &MakeRustlsConnect) -> Result<Self, OpenError> {
        let found = find(config, tls, None).await.map_err(|missing| match missing {
            Missing::Standby => OpenError::Standby,
            Missing::Other(error) => OpenError::Unavailable(error.into()),
        })?;
        let (sender, state) = watch::channel(State {
            server: found.server.clone(),
            history: found.history.clone(),
            answers: Ok(()),
            valid_from: Instant::now(),
            generation: 1,
        });
        let claim = watch::Sender::default();
        let task = tokio::spawn(ask(config.clone(), tls.clone(), found, sender, claim.clone()));
        Ok(Self { state, claim, _task: AbortOnDropHandle::new(task) })
    }

    /// Takes a lock of the session that asks, again in each of its sessions, and returns whether it has the lock; `None`
    /// if the primary does not answer. There is one lock.
    pub(crate) async fn claim(&self, key: (i32, i32)) -> Option<bool> {
        let mut claims = self.claim.subscribe();
        self.claim.send_if_modified(|claim| {
            let is_other = claim.key != Some(key);
            if is_other {
                *claim = Claim { key: Some(key), held: None };
            }
            is_other
        });
        let answered = timeout(ASK + ANSWER, claims.wait_for(|claim| claim.held.is_some())).await;
        answered.ok()?.ok()?.held
    }
}

/// A connection to a primary.
struct Found {
    server: Arc<Config>,
    history: History,
    client: Client,
    who: Statement,
    _driver: AbortOnDropHandle<()>,
}

/// Why no primary was found.
enum Missing {
    /// All servers that answer are standbys.
    Standby,
    Other(String),
}

/// Reads an answer to [`WHO`]; an error if the server is not a primary.
fn history(row: &Row) -> Result<History, Missing> {
    let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    let (system, timeline, is_standby) = read().map_err(|error| Missing::Other(text(&error)))?;
    if is_standby { Err(Missing::Standby) } else { Ok(History { system, timeline }) }
}

/// Verifies that a new connection leads to the server that is known as the primary, and begins its session.
pub(crate) async fn verify(client: &Client, known: &History) -> Result<(), String> {
    session::begin(client).await?;
    let row = client.query_one(WHO, &[]).await.map_err(|error| text(&error))?;
    match history(&row) {
        Ok(found) if found == *known => Ok(()),
        Ok(_) => Err("the server is not the current primary".into()),
        Err(Missing::Standby) => Err("the server is a standby".into()),
        Err(Missing::Other(error)) => Err(error),
    }
}

/// Asks all servers, and returns the primary. `known` is the history of the last primary, whose former timelines are
/// refused.
async fn find(config: &Config, tls: &MakeRustlsConnect, known: Option<&History>) -> Result<Found, Missing> {
    let (servers, mut error) = servers(config).await;
    let mut asked: FuturesUnordered<_> = servers.into_iter().map(|server| ask_one(server, tls)).collect();
    let mut best: Option<Found> = None;
    let mut standbys = false;
    let mut until = tokio::time::Instant::now() + ANSWER * 2;
    while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
        match answer {
            Ok(found) if is_former(&found.history, known) => {
                error = Some("the server that answers was replaced by another primary".to_owned());
            }
            Ok(found) => {
                until = until.min(tokio::time::Instant::now() + OTHERS);
                if best.as_ref().is_none_or(|best| is_former(&best.history, Some(&found.history))) {
                    best = Some(found);
                }
            }
            Err(Missing::Standby) => standbys = true,
            Err(Missing::Other(other)) => error = Some(other),
        }
    }
    let missing = || match (standbys, error) {
        (true, None) => Missing::Standby,
        (_, error) => Missing::Other(error.unwrap_or_else(|| "no server has answered".into())),
    };
    best.ok_or_else(missing)
}

/// Returns whether a history ended before another one of its cluster.
fn is_former(history: &History, other: Option<&History>) -> bool {
    other.is_some_and(|other| history.system == other.system && history.timeline < other.timeline)
}

async fn ask_one(server: Config, tls: &MakeRustlsConnect) -> Result<Found, Missing> {
    let other = |error| Missing::Other(text(&error));
    let asked = async {
        let (client, driver) = server.connect(tls.clone()).await.map_err(other)?;
        // The errors of a connection are those of its calls.
        let driver = AbortOnDropHandle::new(tokio::spawn(async move { drop(driver.await) }));
        session::begin(&client).await.map_err(Missing::Other)?;
        let who = client.prepare(WHO).await.map_err(other)?;
        let history = History { system: 0, timeline: String::new() };
        let mut found = Found { server: Arc::new(server), history, client, who, _driver: driver };
        found.history = history_of(&found).await?;
        Ok(found)
    };
    timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(Missing::Other("a server does not answer".into())))
}

async fn history_of(found: &Found) -> Result<History, Missing> {
    let row = found.client.query_one(&found.who, &[]).await;
    history(&row.map_err(|error| Missing::Other(text(&error)))?)
}

/// Publishes what is known of the primary.
async fn ask(
    config: Config,
    tls: MakeRustlsConnect,
    found: Found,
    state: watch::Sender<State>,
    claim: watch::Sender<Claim>,
) {
    let mut found = Some(found);
    loop {
        if let Some(server) = &found {
            let lost = stay(server, &claim).await;
            state.send_modify(|state| state.answers = Err(lost.into()));
            claim.send_modify(|claim| claim.held = None);
        }
        let known = state.borrow().history.clone();
        found = match find(&config, &tls, Some(&known)).await {
            Ok(server) => {
                state.send_modify(|state| {
                    if server.history != state.history {
                        (state.generation, state.valid_from) = (state.generation + 1, Instant::now());
                        state.history = server.history.clone();
                    }
                    state.server = server.server.clone();
                    state.answers = Ok(());
                });
                Some(server)
            }
            Err(missing) => {
                let why: Arc<str> = match missing {
                    Missing::Standby => "no server is the primary".into(),
                    Missing::Other(error) => error.into(),
                };
                state.send_modify(|state| {
                    (state.answers, state.valid_from) = (Err(why), Instant::now());
                });
                sleep(PAUSE).await;
                None
            }
        };
    }
}

/// Asks a server until it does not answer, or is not the primary. Returns why.
async fn stay(server: &Found, claim: &watch::Sender<Claim>) -> String {
    let mut claims = claim.subscribe();
    claims.mark_changed();
    loop {
        let asked = async {
            let wanted = *claims.borrow_and_update();
            if let Some((one, two)) = wanted.key.filter(|_| wanted.held != Some(true)) {
                let held = server.client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&one, &two]).await;
                let held = held.and_then(|row| row.try_get(0)).map_err(|error| Missing::Other(text(&error)))?;
                // Another call may have changed the claim.
                claim.send_if_modified(|claim| {
                    let is_new = claim.key == wanted.key && claim.held != Some(held);
                    if is_new {
                        claim.held = Some(held);
                    }
                    is_new
                });
                claims.mark_unchanged();
            }
            history_of(server).await
        };
        match timeout(ANSWER, asked).await {
            Ok(Ok(history)) if history == server.history => {}
            Ok(Ok(_) | Err(Missing::Standby)) => return "the server is no longer the primary".into(),
            Ok(Err(Missing::Other(error))) => return error,
            Err(_) => return format!("the database has not answered for {} s", ANSWER.as_secs()),
        }
        tokio::select! {
            () = sleep(ASK) => {}
            // The channel lives as long as its sender, which is this function's.
            changed = claims.changed() => drop(changed),
        }
    }
}

/// Returns a configuration for each address of the hosts, and why hosts have none.
async fn servers(config: &Config) -> (Vec<Config>, Option<String>) {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let (mut servers, mut missing) = (Vec::new(), None);
    for at in 0..hosts.len().max(addresses.len()) {
        let port = config.get_ports().get(at).or(config.get_ports().first()).copied().unwrap_or(5432);
        let mut server = without_hosts(config);
        server.port(port);
        match (hosts.get(at), addresses.get(at)) {
            (host, Some(address)) => {
                if let Some(Host::Tcp(name)) = host {
                    server.host(name);
                }
                server.hostaddr(*address);
                servers.push(server);
            }
            (Some(Host::Tcp(name)), None) => {
                let found = timeout(ANSWER, tokio::net::lookup_host((name.as_str(), port))).await;
                match found {
                    Ok(Ok(found)) => servers.extend(found.map(|address| {
                        let mut server = server.clone();
                        // The name is that of the certificate.
                        server.host(name).hostaddr(address.ip());
                        server
                    })),
                    Ok(Err(error)) => missing = Some(format!("the host `{name}` is not found: {error}")),
                    Err(_) => missing = Some(format!("the name server does not answer for the host `{name}`")),
                }
            }
            #[cfg(unix)]
            (Some(Host::Unix(path)), None) => {
                server.host_path(path);
                servers.push(server);
            }
            (None, None) => {}
        }
    }
    (servers, missing)
}

/// Returns the configuration of a connection to any server: the driver cannot remove hosts from one.
fn without_hosts(config: &Config) -> Config {
    let mut server = Config::new();
    config.get_user().map(|user| server.user(user));
    config.get_password().map(|password| server.password(password));
    config.get_dbname().map(|name| server.dbname(name));
    config.get_options().map(|options| server.options(options));
    config.get_application_name().map(|name| server.application_name(name));
    config.get_connect_timeout().map(|time| server.connect_timeout(*time));
    config.get_tcp_user_timeout().map(|time| server.tcp_user_timeout(*time));
    config.get_keepalives_interval().map(|time| server.keepalives_interval(time));
    config.get_keepalives_retries().map(|count| server.keepalives_retries(count));
    server
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        // It is asked instead, so that a standby can say that it is one.
        .target_session_attrs(TargetSessionAttrs::Any);
    server
}

impl State {
    /// Returns the failure of a call that does not find the primary.
    pub(crate) fn failure(&self) -> Failure {
        Failure::Lost(self.answers.as_ref().err().map_or("the database does not answer", |why| why).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(system: i64, timeline: &str) -> History {
        History { system, timeline: timeline.into() }
    }

    #[test]
    fn a_server_of_an_earlier_timeline_of_the_cluster_is_a_former_primary() {
        let known = history(1, "0000000B");
        assert!(is_former(&history(1, "0000000A"), Some(&known)));
        assert!(is_former(&history(1, "00000009"), Some(&known)));
        assert!(!is_former(&known, Some(&known)));
        assert!(!is_former(&history(1, "0000000C"), Some(&known)));
        // Another cluster, such as one that was restored from a dump.
        assert!(!is_former(&history(2, "00000001"), Some(&known)));
        assert!(!is_former(&history(1, "00000001"), None));
    }

    #[tokio::test]
    async fn each_address_of_each_host_is_asked() {
        let config: Config = "host=localhost,b,/tmp hostaddr=127.0.0.1,192.0.2.1,::1 port=1,2,3".parse().unwrap();
        let (found, missing) = servers(&config).await;
        let places: Vec<_> = found.iter().map(|one| (one.get_hosts(), one.get_hostaddrs(), one.get_ports())).collect();
        assert_eq!((places.len(), missing), (3, None));
        assert_eq!(places[1], (&[Host::Tcp("b".into())][..], &["192.0.2.1".parse().unwrap()][..], &[2][..]));
        let config: Config = "postgres://me:secret@%2Ftmp,127.0.0.1:7,no.invalid/p?sslmode=disable".parse().unwrap();
        let (found, missing) = servers(&config).await;
        assert_eq!(found.len(), 2);
        assert!(missing.unwrap().contains("`no.invalid`"));
        for one in found {
            assert_eq!((one.get_user(), one.get_password()), (Some("me"), Some(&b"secret"[..])));
            assert_eq!((one.get_dbname(), one.get_ports().len()), (Some("p"), 1));
        }
    }
}
