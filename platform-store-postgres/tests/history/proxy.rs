//! A proxy between stores and a database that breaks connections in the middle of commits.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
};
use tokio_postgres::config::Host;

/// One of this many commits is cut, after the first ones, which prepare a history.
const ONE_IN: usize = 12;
const FIRST: usize = 80;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    commits: AtomicUsize,
    cuts: AtomicUsize,
}

impl Counts {
    /// Returns whether the next of these events is to be cut.
    fn cut(&self) -> bool {
        let count = self.commits.fetch_add(1, Ordering::SeqCst);
        let cut = count >= FIRST && count.is_multiple_of(ONE_IN);
        self.cuts.fetch_add(usize::from(cut), Ordering::SeqCst);
        cut
    }
}

impl Proxy {
    /// Starts a proxy to the socket of this URL, on a free port.
    pub(crate) async fn start(url: &str) -> io::Result<Self> {
        let config: tokio_postgres::Config = url.parse().map_err(io::Error::other)?;
        let Some(Host::Unix(directory)) = config.get_hosts().first() else {
            return Err(io::Error::other("the database has no socket"));
        };
        let socket = directory.join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, counts) = (listener.local_addr()?, Arc::new(Counts::default()));
        let shared = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, socket.clone(), Arc::clone(&shared)));
            }
        });
        Ok(Self { address, counts })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that were cut.
    pub(crate) fn cuts(&self) -> usize {
        self.counts.cuts.load(Ordering::SeqCst)
    }
}

/// Carries one connection until it ends or is cut: before the writes of a transaction arrive, or after its end, which
/// the client then does not hear of.
async fn carry(client: TcpStream, socket: PathBuf, counts: Arc<Counts>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let server = UnixStream::connect(socket).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_in_transaction = AtomicBool::new(false);
    let up = async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = from_client.read(&mut buffer).await?;
            // A transaction begins with reads. The first execution after their results is that of the writes.
            let is_execution = buffer.first() == Some(&b'B');
            let is_write = is_execution && is_in_transaction.swap(false, Ordering::SeqCst);
            if count == 0 || is_write && counts.cut() {
                return Ok::<(), io::Error>(());
            }
            to_server.write_all(&buffer[..count]).await?;
        }
    };
    let down = async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = from_server.read(&mut buffer).await?;
            let has = |tag: &[u8]| buffer[..count].windows(tag.len()).any(|part| part == tag);
            is_in_transaction.fetch_or(has(b"BEGIN\0"), Ordering::SeqCst);
            if count == 0 || has(b"COMMIT\0") && counts.cut() {
                return Ok::<(), io::Error>(());
            }
            to_client.write_all(&buffer[..count]).await?;
        }
    };
    tokio::select! {
        done = up => done,
        done = down => done,
    }
}
