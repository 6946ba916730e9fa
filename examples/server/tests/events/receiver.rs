//! A receiver of events that can be stopped and restarted at the same address.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    listening: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

#[derive(Default)]
struct State {
    /// Head and body of each acknowledged request, in order of arrival.
    received: Mutex<Vec<(String, String)>>,
    status: AtomicU16,
    connections: AtomicUsize,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        Self::with_status(200)
    }

    /// Listens on a free port and responds with this status.
    pub(crate) fn with_status(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State { status: AtomicU16::new(status), ..State::default() };
        let mut receiver = Self { address: listener.local_addr().unwrap(), state: Arc::new(state), listening: None };
        receiver.listen(listener);
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn set_status(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn received(&self) -> Vec<(String, String)> {
        self.state.received.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the subjects of the acknowledged events in order, without duplicate deliveries.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let attribute = |head: &str, name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned()
        };
        let mut ids = HashSet::new();
        let mut subjects = Vec::new();
        for (head, _) in self.received() {
            if ids.insert(attribute(&head, "ce-id")) {
                subjects.push(attribute(&head, "ce-subject"));
            }
        }
        subjects
    }

    /// Stops listening, and closes connections without responding to requests in flight.
    pub(crate) fn stop(&mut self) {
        if let Some((stopped, thread)) = self.listening.take() {
            stopped.store(true, Ordering::SeqCst);
            let _ = TcpStream::connect(self.address);
            thread.join().unwrap();
        }
    }

    /// Listens again at the same address.
    pub(crate) fn restart(&mut self) {
        self.listen(TcpListener::bind(self.address).unwrap());
    }

    fn listen(&mut self, listener: TcpListener) {
        let stopped = Arc::<AtomicBool>::default();
        let (flag, state) = (Arc::clone(&stopped), Arc::clone(&self.state));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                state.connections.fetch_add(1, Ordering::SeqCst);
                let (flag, state) = (Arc::clone(&flag), Arc::clone(&state));
                thread::spawn(move || serve(&stream, &state, &flag));
            }
        });
        self.listening = Some((stopped, thread));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Responds to the requests of a connection until it is closed or the receiver stops.
fn serve(stream: &TcpStream, state: &State, stopped: &AtomicBool) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            head.push_str(&line.replace("\r\n", "\n"));
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if stopped.load(Ordering::SeqCst) {
            return None;
        }
        let status = state.status.load(Ordering::SeqCst);
        if (200..300).contains(&status) {
            state.received.lock().unwrap().push((head, String::from_utf8(body).ok()?));
        }
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}
