//! A TCP relay that misbehaves on demand: cuts, stalls or flips bytes between a client and a real server.
#![allow(dead_code)]

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// What is done to the bytes the server sends, or the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mischief {
    Cut,
    Stall,
    Flip,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Up,
    Down,
}

/// As much as a real line holds.
const PIECES_ON_THE_WAY: usize = 64;
/// What is smaller may be the head of a message: in many a byte of it nothing would be wrong with the content.
const FLIPPED_BYTES_MIN: usize = 4096;

pub struct Relay {
    pub port: u16,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    target: u16,
    /// Requests that begin so wait until they are let go.
    hold: Mutex<Option<Hold>>,
    /// Removed from deletes on their way, as by a server that does not know it.
    unknown_header: Mutex<Option<String>>,
    /// None: it is over, or was never asked for.
    plan: Mutex<Option<Plan>>,
    /// What each piece waits on its way: a long line.
    latency_ms: AtomicU64,
    connections: AtomicUsize,
    struck: AtomicUsize,
    down_bytes: AtomicUsize,
}

struct Hold {
    prefix: String,
    /// So many pass before.
    passing: usize,
    reached: oneshot::Sender<()>,
    let_go: oneshot::Receiver<()>,
}

/// A request on its way that waits.
pub struct Held {
    reached: oneshot::Receiver<()>,
    let_go: oneshot::Sender<()>,
}

impl Held {
    /// Lets it go when `meanwhile` is over.
    pub async fn then(self, meanwhile: impl Future<Output = ()>) {
        self.reached.await.unwrap();
        meanwhile.await;
        self.let_go.send(()).ok();
    }
}

/// All connections burn one fuse, so whoever looks at it holds it: two that are at its end at once are struck once.
struct Plan {
    mischief: Mischief,
    way: Way,
    /// Bytes that still pass before the mischief.
    fuse_bytes: usize,
}

impl Relay {
    pub async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            target,
            hold: Mutex::new(None),
            unknown_header: Mutex::new(None),
            plan: Mutex::new(None),
            latency_ms: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            struck: AtomicUsize::new(0),
            down_bytes: AtomicUsize::new(0),
        });
        let accepting = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(connection(accepting.clone(), client));
            }
        });
        Self { port, state, task }
    }

    /// Once, after so many more bytes on that way.
    pub fn arm(&self, mischief: Mischief, way: Way, after_bytes: usize) {
        *self.state.plan.lock().unwrap() = Some(Plan { mischief, way, fuse_bytes: after_bytes });
    }

    /// The request after `passing` others that begins with `prefix`.
    pub fn hold(&self, prefix: &str, passing: usize) -> Held {
        let ((reached, is_reached), (let_go, is_let_go)) = (oneshot::channel(), oneshot::channel());
        let hold = Hold { prefix: prefix.to_owned(), passing, reached, let_go: is_let_go };
        *self.state.hold.lock().unwrap() = Some(hold);
        Held { reached: is_reached, let_go }
    }

    pub fn is_unknown(&self, header: &str) {
        *self.state.unknown_header.lock().unwrap() = Some(header.to_owned());
    }

    pub fn lengthen(&self, latency_ms: u64) {
        self.state.latency_ms.store(latency_ms, Ordering::SeqCst);
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
    pub fn struck(&self) -> usize {
        self.state.struck.load(Ordering::SeqCst)
    }
    /// What the server has sent so far, over all connections.
    pub fn down_bytes(&self) -> usize {
        self.state.down_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(state: Arc<State>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", state.target)).await else { return };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = pump(&state, Way::Up, client_read, server_write) => {}
        () = pump(&state, Way::Down, server_read, client_write) => {}
    }
}

async fn pump(state: &State, way: Way, from: tokio::net::tcp::OwnedReadHalf, to: tokio::net::tcp::OwnedWriteHalf) {
    let (put, taken) = mpsc::channel(PIECES_ON_THE_WAY);
    let mut giving = std::pin::pin!(give_out(taken, to));
    tokio::select! {
        () = &mut giving => return,
        () = take_in(state, way, from, put) => {}
    }
    // What is on its way arrives.
    giving.await;
}

/// Each piece as late as the line is long, several on their way at a time.
async fn give_out(mut taken: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: tokio::net::tcp::OwnedWriteHalf) {
    while let Some((due, bytes)) = taken.recv().await {
        tokio::time::sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn take_in(state: &State, way: Way, mut from: tokio::net::tcp::OwnedReadHalf, put: mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if way == Way::Up {
            if let Some(hold) = held(state, &buffer[..count]) {
                hold.reached.send(()).ok();
                hold.let_go.await.ok();
            }
            rename_unknown(state, &mut buffer[..count]);
        } else {
            state.down_bytes.fetch_add(count, Ordering::SeqCst);
        }
        match strikes(state, way, count) {
            None => {}
            Some(Mischief::Cut) => return,
            Some(Mischief::Stall) => return std::future::pending().await,
            Some(Mischief::Flip) => buffer[count / 2] ^= 0x40,
        }
        let due = Instant::now() + Duration::from_millis(state.latency_ms.load(Ordering::SeqCst));
        if put.send((due, buffer[..count].to_vec())).await.is_err() {
            return;
        }
    }
}

fn held(state: &State, bytes: &[u8]) -> Option<Hold> {
    let mut armed = state.hold.lock().unwrap();
    let hold = armed.as_mut().filter(|hold| bytes.starts_with(hold.prefix.as_bytes()))?;
    if hold.passing > 0 {
        hold.passing -= 1;
        return None;
    }
    armed.take()
}

/// In a DELETE, whose condition is not signed: to a name of the same length that no server knows.
fn rename_unknown(state: &State, bytes: &mut [u8]) {
    let armed = state.unknown_header.lock().unwrap();
    let Some(header) = armed.as_ref().filter(|_| bytes.starts_with(b"DELETE ")) else { return };
    let found = bytes.windows(header.len()).position(|window| window.eq_ignore_ascii_case(header.as_bytes()));
    if let Some(at) = found {
        bytes[at..at + header.len()].fill(b'z');
    }
}

fn strikes(state: &State, way: Way, count: usize) -> Option<Mischief> {
    let mut armed = state.plan.lock().unwrap();
    let plan = armed.as_mut().filter(|plan| plan.way == way)?;
    let struck = plan.fuse_bytes < count && (plan.mischief != Mischief::Flip || count >= FLIPPED_BYTES_MIN);
    plan.fuse_bytes = plan.fuse_bytes.saturating_sub(count);
    if !struck {
        return None;
    }
    state.struck.fetch_add(1, Ordering::SeqCst);
    armed.take().map(|plan| plan.mischief)
}
