//! Client that sends arbitrary bytes, over one connection while the server keeps it open.

use std::{net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::Answer;

/// Time after which a server that has not responded counts as hung.
const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Peer {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Peer {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends bytes and returns the response, which may arrive before all bytes are sent. Returns `None` when the server
    /// closes a new connection without a response.
    pub async fn send(&mut self, request: &[u8]) -> Option<Answer> {
        // A reused connection may have been closed by now, so the request is retried on a new one.
        if let Some(stream) = self.stream.take()
            && let Some(answer) = self.exchange(stream, request).await
        {
            return Some(answer);
        }
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.exchange(stream, request).await
    }

    async fn exchange(&mut self, mut stream: TcpStream, request: &[u8]) -> Option<Answer> {
        let (answer, sent) = timeout(TIMEOUT, exchange(&mut stream, request)).await.expect("the server hangs")?;
        let keeps = sent && answer.headers.get("connection").is_none_or(|value| value != "close");
        self.stream = keeps.then_some(stream);
        Some(answer)
    }
}

/// Returns the response, and whether the whole request was sent before it.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<(Answer, bool)> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    let mut sent = false;
    let mut sending = pin!(write.write_all(request));
    let mut answering = pin!(answer(&mut read));
    loop {
        tokio::select! {
            answer = &mut answering => return answer.map(|answer| (answer, sent)),
            // A server that has responded need not read the rest.
            _ = &mut sending, if !sent => sent = true,
        }
    }
}

async fn answer<R: tokio::io::AsyncBufRead + Unpin>(read: &mut R) -> Option<Answer> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    let status: u16 = line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = HeaderMap::new();
    loop {
        line.clear();
        read.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?);
    }
    let body = match headers.get("transfer-encoding") {
        Some(_) => chunks(read).await?,
        None => {
            let length = headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
            let mut body = vec![0; length];
            read.read_exact(&mut body).await.ok()?;
            body
        }
    };
    Some(Answer { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::from(body) })
}

/// Reads a chunked body.
async fn chunks<R: tokio::io::AsyncBufRead + Unpin>(read: &mut R) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        read.read_line(&mut line).await.ok()?;
        let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let begin = body.len();
        body.resize(begin + length + 2, 0);
        read.read_exact(&mut body[begin..]).await.ok()?;
        body.truncate(begin + length);
        if length == 0 {
            return Some(body);
        }
    }
}
