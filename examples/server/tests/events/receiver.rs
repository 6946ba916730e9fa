//! A receiver of events that can be ended and begun again at its address.

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
    /// Head and body of what was acknowledged, in the order in which it came.
    taken: Mutex<Vec<(String, String)>>,
    status: AtomicU16,
    connections: AtomicUsize,
}

impl Receiver {
    pub(crate) fn begin() -> Self {
        Self::answering(200)
    }

    /// Listens at a free port, and answers with this status.
    pub(crate) fn answering(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State { status: AtomicU16::new(status), ..State::default() };
        let mut receiver = Self { address: listener.local_addr().unwrap(), state: Arc::new(state), listening: None };
        receiver.listen(listener);
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn taken(&self) -> Vec<(String, String)> {
        self.state.taken.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the subjects of the events that were acknowledged, in their order, each event once.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let attribute = |head: &str, name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned()
        };
        let mut ids = HashSet::new();
        let mut subjects = Vec::new();
        for (head, _) in self.taken() {
            if ids.insert(attribute(&head, "ce-id")) {
                subjects.push(attribute(&head, "ce-subject"));
            }
        }
        subjects
    }

    /// Ends it: what it is being sent is not answered, and nobody listens any more.
    pub(crate) fn end(&mut self) {
        if let Some((ended, thread)) = self.listening.take() {
            ended.store(true, Ordering::SeqCst);
            let _ = TcpStream::connect(self.address);
            thread.join().unwrap();
        }
    }

    /// Listens again.
    pub(crate) fn again(&mut self) {
        self.listen(TcpListener::bind(self.address).unwrap());
    }

    fn listen(&mut self, listener: TcpListener) {
        let ended = Arc::<AtomicBool>::default();
        let (flag, state) = (Arc::clone(&ended), Arc::clone(&self.state));
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
        self.listening = Some((ended, thread));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

/// Answers the requests of a connection, until it or the receiver ends.
fn serve(stream: &TcpStream, state: &State, ended: &AtomicBool) -> Option<()> {
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
        if ended.load(Ordering::SeqCst) {
            return None;
        }
        let status = state.status.load(Ordering::SeqCst);
        if (200..300).contains(&status) {
            state.taken.lock().unwrap().push((head, String::from_utf8(body).ok()?));
        }
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}
