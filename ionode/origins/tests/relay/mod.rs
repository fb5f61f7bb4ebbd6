//! A TCP relay that misbehaves on demand: cuts, stalls or flips bytes between a client and a real server.
#![allow(dead_code)]

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

pub struct Relay {
    pub port: u16,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    target: u16,
    /// Bytes that still pass before the mischief; negative: it is over, or was never asked for.
    fuse_bytes: AtomicI64,
    plan: std::sync::Mutex<(Mischief, Way)>,
    /// What each piece waits on its way: a long line.
    latency_ms: AtomicU64,
    connections: AtomicUsize,
    struck: AtomicUsize,
}

impl Relay {
    pub async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            target,
            fuse_bytes: AtomicI64::new(-1),
            plan: std::sync::Mutex::new((Mischief::Cut, Way::Down)),
            latency_ms: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            struck: AtomicUsize::new(0),
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
    pub fn arm(&self, mischief: Mischief, way: Way, after_bytes: i64) {
        *self.state.plan.lock().unwrap() = (mischief, way);
        self.state.fuse_bytes.store(after_bytes, Ordering::SeqCst);
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

async fn pump(state: &State, way: Way, mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let (mischief, struck_way) = *state.plan.lock().unwrap();
        if way == struck_way && strikes(state, count) {
            match mischief {
                Mischief::Cut => return,
                Mischief::Stall => return std::future::pending().await,
                Mischief::Flip => buffer[count / 2] ^= 0x40,
            }
        }
        match state.latency_ms.load(Ordering::SeqCst) {
            0 => {}
            latency_ms => tokio::time::sleep(std::time::Duration::from_millis(latency_ms)).await,
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn strikes(state: &State, count: usize) -> bool {
    let left = state.fuse_bytes.load(Ordering::SeqCst);
    if left < 0 {
        return false;
    }
    let after = left - count as i64;
    state.fuse_bytes.store(after.max(-1), Ordering::SeqCst);
    if after < 0 {
        state.struck.fetch_add(1, Ordering::SeqCst);
    }
    after < 0
}
