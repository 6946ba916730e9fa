//! Sessions: settings that a role has or a pooler drops, and connections that are not used.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use platform_engine::store::Store;
use platform_store_postgres::{OpenError, Options, PostgresStore};
use platform_testkit::postgres::Cluster;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, UnixStream},
};
use tokio_postgres::config::Host;

use crate::common::{client, empty, puts, thing};

/// Starts a pooler that drops the startup parameter `options`, and returns its address. It closes connections that
/// prepare a statement: one that shares sessions between clients refuses the statement if another one has its name.
async fn pooler(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move {
                // The length of the message, the version of the protocol, and names and values that end with a zero each.
                let len = client.read_u32().await? as usize;
                let mut message = vec![0; len - 4];
                client.read_exact(&mut message).await?;
                let (version, parameters) = message.split_at(4);
                let parts: Vec<_> = parameters.split(|byte| *byte == 0).collect();
                let kept = parts.chunks(2).filter(|pair| pair.first() != Some(&&b"options"[..]));
                let kept = kept.map(|pair| pair.join(&0)).collect::<Vec<_>>().join(&0);
                server.write_u32(kept.len() as u32 + 8).await?;
                server.write_all(&[version, &kept].concat()).await?;
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.split(), server.split());
                let requests = async {
                    loop {
                        let (kind, len) = (from_client.read_u8().await?, from_client.read_u32().await?);
                        if kind == b'P' {
                            return io::Result::<u64>::Ok(0);
                        }
                        let mut message = vec![0; len as usize - 4];
                        from_client.read_exact(&mut message).await?;
                        to_server.write_u8(kind).await?;
                        to_server.write_u32(len).await?;
                        to_server.write_all(&message).await?;
                    }
                };
                tokio::select! {
                    done = requests => done,
                    done = copy(&mut from_server, &mut to_client) => done,
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_drops_the_settings_of_sessions_is_refused() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "pooler").await;
    let config: tokio_postgres::Config = url.parse().unwrap();
    let [Host::Unix(directory)] = config.get_hosts() else { panic!("{url}") };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let pooler = pooler(directory.join(format!(".s.PGSQL.{port}"))).await;
    let (user, rest) = url.split_once('@').unwrap();
    let pooled = format!("{user}@{pooler}/{}", rest.split_once('/').unwrap().1);
    for refused in [
        PostgresStore::open(&pooled, Options::default()).await.err(),
        PostgresStore::migrate(&pooled, &Options::default()).await.err(),
        PostgresStore::layout(&pooled, &Options::default()).await.err(),
    ] {
        let Some(OpenError::Unavailable(error)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("drops the startup parameter `options`"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_role_have_no_effect() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "role").await;
    let setup = client(&url).await;
    let settings = "lock_timeout = '1ms'; ALTER ROLE limited SET statement_timeout = '1ms'; \
         ALTER ROLE limited SET synchronous_commit = off; ALTER ROLE limited SET enable_seqscan = on";
    let create = format!("CREATE ROLE limited SUPERUSER LOGIN; ALTER ROLE limited SET {settings}");
    setup.batch_execute(&create).await.unwrap();
    let user = url.parse::<tokio_postgres::Config>().unwrap().get_user().unwrap().to_owned();
    let limited = url.replacen(&format!("//{user}@"), "//limited@", 1);
    assert_ne!(limited, url);
    let store = PostgresStore::open(&limited, Options::default()).await.unwrap();
    store.commit(puts([thing("a/1")])).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_used_are_closed() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "idle").await + "&application_name=idle";
    let options = Options::default().connections(9).idle(Duration::from_millis(20));
    let store = PostgresStore::open(&url, options).await.unwrap();
    let observer = client(&url.replace("application_name=idle", "application_name=observer")).await;
    for number in 0..20 {
        store.commit(puts([thing(&format!("a/{number}"))])).await.unwrap();
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idle'";
    let closed = async {
        // The connection that asks the primary is left.
        while observer.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 1 {}
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.unwrap();
    store.commit(puts([thing("a/again")])).await.unwrap();
}
