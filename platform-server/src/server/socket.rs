//! The socket of a server.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use anyhow::{Result, anyhow};
use tokio::net::{TcpListener, TcpSocket};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Binds a socket. Clients cannot connect to it before it listens.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpSocket> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of an earlier server in TIME_WAIT must not prevent a restart.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bind().map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("{address} is in use by another program: stop it, or choose another address with --listen")
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    }
}

/// Lets clients connect.
pub(crate) fn listen(socket: TcpSocket, address: SocketAddr) -> Result<TcpListener> {
    socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))
}
