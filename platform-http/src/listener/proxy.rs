//! PROXY protocol version 2: a header with which a proxy that forwards bytes names the client
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2).

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
};

use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::timeout,
};

use crate::limits::{Limits, address::Peer, admission::Shares};

/// Length in bytes of the fixed part of a header. Its last two bytes are the length of the rest.
const FIXED_LENGTH: usize = 16;

/// Maximum length in bytes of the rest. Addresses take at most 216 bytes; the other fields describe TLS or the proxy's
/// network. Our choice.
const MAX_REST: usize = 4 << 10;

const CONFIG: ParseConfig = ParseConfig { include_tlvs: false, allow_v1: false, allow_v2: true };

/// Returns the remote end of a connection from `ip`. For a trusted proxy this is the source in its header, or `None`
/// when the header is invalid or does not arrive in time. Reads nothing after the header.
pub(super) async fn peer(
    stream: &mut (impl AsyncRead + Unpin),
    ip: IpAddr,
    limits: &Limits,
    shares: &Shares,
) -> Option<Peer> {
    if !limits.proxy_protocol || !limits.trusts(ip) {
        return Some(Peer::of(ip, limits));
    }
    let read = timeout(limits.head_time, source(stream)).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
    match read {
        Ok(source) => Some(Peer::forwarded(ip, source, limits)),
        Err(error) => {
            // A warning, because a misconfigured proxy loses all of its connections. A proxy that closes the connection
            // at once only checks whether the port is open, which does not deserve a warning.
            let is_misconfigured = matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::TimedOut);
            if is_misconfigured && shares.warnings.check(&"proxy").is_ok() {
                tracing::warn!(%ip, %error, "a trusted proxy did not send a valid PROXY protocol header");
            } else {
                tracing::debug!(%ip, %error, "a trusted proxy did not send a valid PROXY protocol header");
            }
            None
        }
    }
}

/// Reads a header and returns its source. Returns `None` for a connection of the proxy itself (LOCAL), and for a source
/// that is not an IP address.
async fn source(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut bytes = vec![0; FIXED_LENGTH];
    stream.read_exact(&mut bytes).await?;
    let mut parsed = ProxyHeader::parse(&bytes, CONFIG);
    if let (Err(Error::BufferTooShort), Some(length)) = (&parsed, bytes.last_chunk()) {
        let length = usize::from(u16::from_be_bytes(*length));
        if length > MAX_REST {
            return Err(invalid("the header is too long"));
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await?;
        bytes.append(&mut rest);
        parsed = ProxyHeader::parse(&bytes, CONFIG);
    }
    match parsed {
        Ok((header, _)) => Ok(header.proxied_address().map(|address| address.source.ip())),
        Err(_) if bytes.starts_with(b"PROXY ") => Err(invalid("the header has version 1, but version 2 is required")),
        Err(_) => Err(invalid("the bytes are not a PROXY protocol header")),
    }
}

fn invalid(rule: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, rule)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    /// Reads a header from a stream that carries one byte at a time. Also returns the bytes that remain after it.
    async fn read(bytes: Vec<u8>) -> (io::Result<Option<IpAddr>>, Vec<u8>) {
        let (mut proxy, mut server) = duplex(1);
        let send = tokio::spawn(async move { proxy.write_all(&bytes).await });
        let source = source(&mut server).await;
        let mut left = Vec::new();
        if source.is_ok() {
            server.read_to_end(&mut left).await.unwrap();
        }
        drop(server);
        let _ = send.await.unwrap();
        (source, left)
    }

    #[tokio::test]
    async fn a_header_is_read_in_any_fragmentation_and_nothing_after_it() {
        let v4 = [SIGNATURE, &[0x21, 0x11, 0, 12, 198, 51, 100, 7, 192, 0, 2, 1, 1, 2, 0, 80]].concat();
        // A vendor-specific type with three bytes.
        let with_more =
            [SIGNATURE, &[0x21, 0x11, 0, 18, 198, 51, 100, 7, 192, 0, 2, 1, 1, 2, 0, 80, 0xe0, 0, 3, 1, 2, 3]];
        for bytes in [v4, with_more.concat()] {
            let (source, left) = read([&bytes[..], b"GET /"].concat()).await;
            assert_eq!((source.unwrap(), &left[..]), (Some([198, 51, 100, 7].into()), &b"GET /"[..]));
        }
        let local = [SIGNATURE, &[0x20, 0, 0, 0]].concat();
        let (source, left) = read([&local[..], b"GET /"].concat()).await;
        assert_eq!((source.unwrap(), &left[..]), (None, &b"GET /"[..]));
    }

    #[tokio::test]
    async fn a_header_has_a_maximum_length() {
        let header = |length: usize| {
            let fixed = [SIGNATURE, &[0x21, 0x11], &u16::try_from(length).unwrap().to_be_bytes()].concat();
            [fixed, vec![0; length]].concat()
        };
        assert!(read(header(MAX_REST)).await.0.is_ok());
        assert_eq!(read(header(MAX_REST + 1)).await.0.unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn an_invalid_header_is_rejected_with_a_reason() {
        for (bytes, reason) in [
            (&b"PROXY TCP4 198.51.100.7 192.0.2.1 258 80\r\n"[..], "version 1"),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "not a PROXY protocol header"),
            (&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0], "not a PROXY protocol header"),
            (&SIGNATURE[..5], "eof"),
        ] {
            let error = read(bytes.to_vec()).await.0.unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
