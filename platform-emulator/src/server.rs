//! An emulator on a port of this machine.

use std::{net::SocketAddr, ops::Deref, sync::mpsc, thread};

use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

use crate::{StartError, emulator::Emulator};

/// An emulator on a free port, with threads of its own, so that it works in tests with and without a runtime. Dropping
/// it stops it.
#[derive(Debug)]
pub struct Server {
    emulator: Emulator,
    /// Dropped to stop the server.
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts an emulator on a free port of 127.0.0.1, and waits until it listens.
    ///
    /// # Errors
    /// When there is no free port, or threads cannot be started.
    pub fn start() -> Result<Self, StartError> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts an emulator at an address, as [`Server::start`] does.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_at(address: SocketAddr) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(StartError::of)?;
        let (started, starting) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("platform-emulator".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let listening = async {
                        let listener = TcpListener::bind(address).await.map_err(StartError::of)?;
                        let address = listener.local_addr().map_err(StartError::of)?;
                        let emulator = Emulator::new(&format!("http://{address}")).await?;
                        Ok::<_, StartError>((listener, emulator))
                    };
                    match listening.await {
                        Ok((listener, emulator)) => {
                            // A receiver that is gone does not want the server any more.
                            let _ = started.send(Ok(emulator.clone()));
                            // Connections that are still open end with the server.
                            tokio::select! {
                                served = emulator.serve(listener, std::future::pending()) => drop(served),
                                stopped = stopped => drop(stopped),
                            }
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(StartError::of)?;
        let emulator = starting.recv().map_err(StartError::of)??;
        Ok(Self { emulator, _stop: stop })
    }
}

impl Deref for Server {
    type Target = Emulator;

    fn deref(&self) -> &Emulator {
        &self.emulator
    }
}
