//! `stager-ionode serve`: puts the node together, tells where it is, ends it in order.
//!
//! The one rule: the rendezvous is written when calls are answered, and is gone when they no longer are.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, ValueEnum};
use stager_core::error::ApiError;
use stager_core::ids::check_id;
use stager_mounts::{Mounts, Timing};
use tokio::net::{TcpListener, UnixListener};

use crate::attempts::Attempts;
use crate::context::NodeContext;
use crate::failure::{at, bad_request};
use crate::fingerprints::Fingerprints;
use crate::node::Node;
use crate::packs::Packs;
use crate::peers::forgotten::Kept;
use crate::peers::Peers;
use crate::s3::{self, S3Options};
use crate::sandbox::copy::can_reflink;
use crate::scrub::{Manner, Scrubber};
use crate::store::durability::Durability;
use crate::store::files::write_whole;
use crate::store::recovery::{self, Unopened};
use crate::store::StoreSettings;
use crate::tls::forgotten::Forgotten;
use crate::tls::Tls;
use crate::transfers::Transfers;
use crate::wire::{Rendezvous, S3Place, API};
use crate::{http, lines, logging, scrub, shutdown};

pub const EXIT_LOCKED: i32 = 3;
const EXIT_FAULT: i32 = 1;
const SOCKET_PATH_BYTES_MAX: usize = 107;
const LAST_MOUNTS_WITHIN: Duration = Duration::from_secs(5);
const LAST_TRANSFERS_WITHIN: Duration = Duration::from_secs(30);
/// Each running fetch keeps a thread that hashes, and needs others to write: more than lanes can ever run at once.
const BLOCKING_THREADS_MAX: usize = 4096;
const PROBE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub struct ServeOptions {
    /// Directory of the store; made if it is not there
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Space that replicas and reservations may take together
    #[arg(long, value_name = "BYTES")]
    capacity: u64,
    /// Name of this node in events and messages
    #[arg(long, value_name = "ID")]
    node_id: String,
    /// Unix socket to listen on (mode 0600)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Address to listen on as well, loopback unless --trust-network is given; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT")]
    tcp: Option<SocketAddr>,
    /// Serve --tcp by TLS, on any address: DIR holds ca.pem, cert.pem and key.pem (mode 0600), and callers need a certificate of that
    /// authority. What is renewed there is taken up by itself, and at once on SIGHUP
    #[arg(long, value_name = "DIR", requires = "tcp")]
    tls_dir: Option<PathBuf>,
    /// Let --tcp and --s3-listen be addresses that other hosts reach. Calls carry this node's token or a signature, but nothing is
    /// encrypted: whoever can listen to that network can read tokens and files, and with a token do all that the scheduler can
    #[arg(long)]
    trust_network: bool,
    #[command(flatten)]
    s3: S3Options,
    /// End when no call came for so many seconds and no transfer runs
    #[arg(long, value_name = "SECONDS")]
    idle_exit_s: Option<u64>,
    /// How fast the scrubber reads all replicas again and again; 0 turns it off
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    scrub_bytes_per_s: u64,
    /// The least time between two readings of the scrubber at one replica
    #[arg(long, value_name = "SECONDS", default_value_t = 7 * 86_400)]
    scrub_every_s: u64,
    /// How long SIGTERM lets running transfers and calls go on; what is left then is cut off and can be resumed
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain_s: u64,
    /// Off is for benchmarks only: a power loss may then take what was acknowledged
    #[arg(long, value_enum, default_value_t = Switch::On)]
    fsync: Switch,
    /// Files up to this size are kept in the log itself, without a file of their own
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    inline_bytes_max: u64,
    /// Least severe log lines written to stderr: error, warn, info, debug
    #[arg(long, default_value = "info")]
    log: tracing::Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Returns the exit code.
pub fn run(options: ServeOptions) -> i32 {
    logging::start(options.log);
    // Memory that is free goes back to the system, also that of threads which rest. A thread of its own does it: not before this, since
    // `run` forks.
    #[cfg(feature = "jemalloc")]
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "memory that is free is given back late");
    }
    // Everything this process keeps is its owner's alone; what it writes to an origin has the rights its starter's umask gives.
    let inherited = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    stager_origins::rights::set_umask(inherited.bits());
    let outcome = start(options);
    match outcome {
        Ok(()) => 0,
        Err(Unopened::Locked(message)) => {
            eprintln!("stager-ionode: {message}");
            EXIT_LOCKED
        }
        Err(Unopened::Fault(error)) => {
            eprintln!("stager-ionode: {error}");
            EXIT_FAULT
        }
    }
}

fn start(options: ServeOptions) -> Result<(), Unopened> {
    check_id("node id", &options.node_id)?;
    check_addresses(&options)?;
    let forgotten = Arc::new(Forgotten::default());
    let open = |dir| Tls::open(dir, Some(&options.node_id), forgotten.clone());
    let tls = options.tls_dir.as_deref().map(open).transpose()?.map(Arc::new);
    let s3 = options.s3.checked(options.trust_network)?;
    raise_open_files();
    let settings = StoreSettings { durability: Durability(options.fsync == Switch::On), inline_bytes_max: options.inline_bytes_max };
    let opened = recovery::open(&options.store, options.capacity, settings)?;
    withdraw(&opened.store.rendezvous_path())?;
    let kept = Kept::open(opened.store.root(), opened.store.durability, forgotten)?;
    let node = Arc::new(compose(NodeContext::new(options.node_id.clone(), opened), tls.clone(), kept));
    node.attempts.adopt()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(at("starting threads for", &options.store))?;
    runtime.block_on(serve(node, &options, s3, tls))?;
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

/// Each subsystem with what it works with, the lower ones first.
fn compose(context: NodeContext, tls: Option<Arc<Tls>>, forgotten: Kept) -> Node {
    let context = Arc::new(context);
    let root = context.store.root();
    let mounts = Arc::new(Mounts::new(&root.join("mounts"), Timing::default()));
    let peers = Arc::new(Peers::new(tls, forgotten));
    let fingerprints = Arc::new(Fingerprints::new(context.clone()));
    let transfers = Arc::new(Transfers::new(context.clone(), fingerprints.clone(), peers.clone()));
    let packs = Arc::new(Packs::new(context.clone(), fingerprints.clone(), peers.clone(), transfers.clone()));
    let attempts = Arc::new(Attempts::new(context.clone(), fingerprints.clone(), transfers.clone(), packs.clone(), mounts.clone()));
    Node {
        can_link: can_link(),
        can_reflink: can_reflink(root),
        calls: Arc::default(),
        objects: OnceLock::new(),
        context,
        peers,
        fingerprints,
        transfers,
        packs,
        mounts,
        attempts,
    }
}

fn check_addresses(options: &ServeOptions) -> Result<(), ApiError> {
    let socket = options.socket.display().to_string();
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        return Err(bad_request(
            &socket,
            format!("the socket path {socket} is longer than {SOCKET_PATH_BYTES_MAX} bytes, which the system allows; name a shorter one"),
        ));
    }
    let is_closed = options.trust_network || options.tls_dir.is_some();
    match options.tcp.filter(|address| !address.ip().is_loopback() && !is_closed) {
        Some(address) => Err(bad_request(
            address.to_string(),
            format!(
                "{address} is no loopback address and calls are not encrypted; name a --tls-dir, use 127.0.0.1 or [::1], or add \
                 --trust-network if you trust everybody who can listen on that network"
            ),
        )),
        None => Ok(()),
    }
}

/// Many sandboxes, transfers and connections are open at once; the soft limit is often 1024.
fn raise_open_files() {
    use nix::sys::resource::{getrlimit, setrlimit, Resource};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}

/// Whether the reaper can mount here, asked of the reaper itself in a process of its own.
fn can_link() -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let spawned = Command::new(program).args(["run", "--probe"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = spawned else { return false };
    let deadline = std::time::Instant::now() + PROBE_WITHIN;
    while std::time::Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return false,
        }
    }
    let _ = child.kill();
    let printed = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&printed).is_ok_and(|answer| answer["can_link"] == true)
}

async fn serve(node: Arc<Node>, options: &ServeOptions, s3: Option<s3::Checked>, tls: Option<Arc<Tls>>) -> Result<(), ApiError> {
    let socket = listen(&options.socket).await?;
    let tcp = match options.tcp {
        Some(address) => Some(listen_tcp(address).await.map_err(at("listening on", Path::new(&address.to_string())))?),
        None => None,
    };
    let tcp_address = tcp.as_ref().and_then(|listener| listener.local_addr().ok()).map(|address| address.to_string());
    let s3 = match s3 {
        Some(s3) => Some(s3.start(&node).await?),
        None => None,
    };
    announce(&node, &options.socket, tcp_address.clone(), s3.as_ref().map(|s3| s3.place.clone()))?;
    let socket_path = options.socket.display().to_string();
    tracing::info!(
        node_id = node.context.node_id,
        incarnation = node.context.incarnation,
        socket = socket_path,
        tcp = tcp_address,
        "the node listens"
    );
    tokio::spawn(logging::tell_left_out());
    tokio::spawn(shutdown::watch_signals(node.clone(), Duration::from_secs(options.drain_s)));
    tokio::spawn(shutdown::watch_store(node.clone()));
    if let Some(idle_s) = options.idle_exit_s {
        tokio::spawn(watch_idleness(node.clone(), Duration::from_secs(idle_s)));
    }
    if let Some(tls) = tls.clone() {
        tokio::spawn(tls.watch());
    }
    let scrubber = scrubber(&node, options)?;
    http::serve(node.clone(), socket, tcp, tls).await;
    if let Some(s3) = s3 {
        let _ = s3.ended.await;
    }
    for path in [node.context.store.rendezvous_path(), options.socket.clone()] {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "could not be removed at the end");
        }
    }
    let mounts = node.mounts.clone();
    let ended = tokio::task::spawn_blocking(move || mounts.end());
    if tokio::time::timeout(LAST_MOUNTS_WITHIN, ended).await.is_err() {
        tracing::warn!("mounts did not end in time; the next start on this store sweeps them");
    }
    if tokio::time::timeout(LAST_TRANSFERS_WITHIN, node.transfers.join()).await.is_err() {
        tracing::warn!("transfers did not end in time and are cut off; they resume from their checkpoints");
    }
    if let Some(scrubber) = scrubber {
        scrubber.join().await;
    }
    tracing::info!(node_id = node.context.node_id, "the node has ended");
    Ok(())
}

fn scrubber(node: &Arc<Node>, options: &ServeOptions) -> Result<Option<Scrubber>, ApiError> {
    let manner = Manner { bytes_per_s: options.scrub_bytes_per_s, every_s: options.scrub_every_s };
    match manner.bytes_per_s {
        0 => Ok(None),
        _ => scrub::start(node.transfers.clone(), node.objects.get().cloned(), manner)
            .map(Some)
            .map_err(at("starting the scrubber of", node.context.store.root())),
    }
}

async fn listen(path: &Path) -> Result<UnixListener, ApiError> {
    if tokio::net::UnixStream::connect(path).await.is_ok() {
        let subject = path.display().to_string();
        return Err(bad_request(&subject, format!("another process answers on {subject}; end it first or name another socket")));
    }
    if path.symlink_metadata().is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())) {
        std::fs::remove_file(path).map_err(at("removing the stale socket", path))?;
    }
    let listener = UnixListener::bind(path).map_err(at("listening on", path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(at("closing to others", path))?;
    Ok(listener)
}

async fn listen_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    lines::watch(&listener)?;
    Ok(listener)
}

/// What a killed node left would send callers to nobody.
fn withdraw(rendezvous: &Path) -> Result<(), ApiError> {
    match std::fs::remove_file(rendezvous) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at::<std::io::Error>("removing", rendezvous)(error)),
        _ => Ok(()),
    }
}

fn announce(node: &Node, socket: &Path, tcp: Option<String>, s3: Option<S3Place>) -> Result<(), ApiError> {
    let rendezvous = Rendezvous {
        api: API,
        node_id: node.context.node_id.clone(),
        incarnation: node.context.incarnation.clone(),
        pid: std::process::id(),
        socket: std::path::absolute(socket).map_err(at("looking for", socket))?.display().to_string(),
        tcp,
        token_file: node.context.store.token_path().display().to_string(),
        s3,
    };
    let bytes = serde_json::to_vec(&rendezvous).expect("a rendezvous is plain values");
    write_whole(&node.context.store.rendezvous_path(), &bytes, Durability(false))
}

async fn watch_idleness(node: Arc<Node>, idle: Duration) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1).min(idle.max(Duration::from_millis(100))));
    loop {
        ticks.tick().await;
        if node.calls.quiet_for() >= idle && node.transfers.is_idle() {
            tracing::info!(idle_s = idle.as_secs(), "nobody called for long enough; the node ends itself");
            return shutdown::shut_down(node, Duration::ZERO);
        }
    }
}
