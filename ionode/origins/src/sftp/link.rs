//! One connection to an SFTP server: TCP, host key, login, the sftp channel. Knows russh and russh-sftp; nobody above sees their errors.
//!
//! The one rule: a link that lost a request is never given to new work, and every request ends within its time.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::FutureExt;
use russh::client::{self, Handle, Msg};
use russh::keys::{Algorithm, PublicKeyOrCertificate};
use russh::{cipher, Channel, Preferred};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::rawsession::Limits;
use russh_sftp::protocol::{FileAttributes, OpenFlags, Packet, StatusCode};
use stager_core::error::{ApiError, Code};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::checksum::Sums;
use super::credentials::{authenticate, expanded};
use super::known::KnownKeys;
use super::pool::PlaceToWrite;
use super::session::Session;
use super::Timing;
use crate::config::SftpConfig;
use crate::failure::{self, shown};

/// OpenSSH's own figures, used where the server does not say.
const IO_BYTES_DEFAULT: u64 = 32 * 1024;
const IO_BYTES_MAX: u64 = 255 * 1024;
/// russh-sftp reads handles as text, and OpenSSH's stop being that at 128.
const HANDLES_MAX: usize = 120;
const WINDOW_BYTES: u32 = 16 << 20;
/// When to come again to a server that hangs up on who comes.
const TURNED_AWAY_S: f64 = 5.0;
const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// What the server can do beyond SFTP version 3.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offers {
    pub fsync: bool,
    pub posix_rename: bool,
    pub hardlink: bool,
    pub statvfs: bool,
}

pub struct Link {
    pub ssh: Arc<Handle<Client>>,
    pub sftp: Session,
    pub offers: Offers,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub round_trip: Duration,
    /// Remote commands at once beside that of `sums`; sshd's MaxSessions is ten a connection.
    pub commands: Semaphore,
    pub(super) sums: Sums,
    pub(super) users: AtomicUsize,
    place: Arc<str>,
    handles: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    lost: AtomicBool,
}

/// Judges the host key; its error is the one the caller sees.
pub struct Client {
    known: KnownKeys,
}

#[derive(Debug)]
pub enum LinkError {
    Judged(ApiError),
    Ssh(russh::Error),
}

impl From<russh::Error> for LinkError {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

impl client::Handler for Client {
    type Error = LinkError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, LinkError> {
        self.known.check(&presented.public_key()).map(|()| true).map_err(LinkError::Judged)
    }
}

/// A connection that the server has let in: it opened a channel, so no login of ours is under way there any more.
pub struct Login {
    ssh: Handle<Client>,
    channel: Channel<Msg>,
}

impl Login {
    pub async fn new(config: &SftpConfig, place: &Arc<str>, timing: &Timing) -> Result<Self, ApiError> {
        in_time(place, timing, Self::connect(config, place, timing)).await
    }

    async fn connect(config: &SftpConfig, place: &Arc<str>, timing: &Timing) -> Result<Self, ApiError> {
        let stream =
            TcpStream::connect((config.host.as_str(), config.port)).await.map_err(|error| unreachable(place, &error).caused_by(error))?;
        stream.set_nodelay(true).ok();
        // A peer that vanished is noticed even while our own bytes wait to be sent.
        socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(Duration::from_secs(timing.request_s))).ok();
        let (known, ssh_config) = prepare(config, timing).await;
        let mut ssh = client::connect_stream(ssh_config, stream, Client { known }).await.map_err(|error| refused(place, error))?;
        authenticate(&mut ssh, config).await?;
        let channel = ssh.channel_open_session().await.map_err(|error| refused(place, error.into()))?;
        Ok(Self { ssh, channel })
    }

    pub async fn greet(self, place: &Arc<str>, timing: &Timing) -> Result<Link, ApiError> {
        let greeting = async {
            self.channel.request_subsystem(true, "sftp").await.map_err(|error| refused(place, error.into()))?;
            let settings = russh_sftp::client::Config { request_timeout_secs: timing.request_s, ..Default::default() };
            Link::greet(self.ssh, Session::new(self.channel.into_stream(), settings), place).await
        };
        in_time(place, timing, greeting).await
    }
}

async fn in_time<T>(place: &str, timing: &Timing, step: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = |_| unreachable(place, format!("no answer within {} s", timing.connect_s));
    tokio::time::timeout(Duration::from_secs(timing.connect_s), step).await.map_err(late)?
}

impl Link {
    async fn greet(ssh: Handle<Client>, mut sftp: Session, place: &Arc<str>) -> Result<Self, ApiError> {
        let no_sftp = |error: SftpError| {
            ApiError::new(Code::OriginUnreachable, &**place, format!("{place} accepted the login but does not speak SFTP ({error})."))
        };
        let version = sftp.init().await.map_err(no_sftp)?;
        let offered = |name: &str| version.extensions.contains_key(name);
        let offers = Offers {
            fsync: offered("fsync@openssh.com"),
            posix_rename: offered(POSIX_RENAME),
            hardlink: offered("hardlink@openssh.com"),
            statvfs: offered("statvfs@openssh.com"),
        };
        let started = Instant::now();
        // In one breath: each on its own would be another round trip before the first byte.
        let (limits, here) = tokio::join!(asked_limits(&sftp, offered("limits@openssh.com")), sftp.realpath("."));
        let round_trip = started.elapsed();
        here.map_err(no_sftp)?;
        let limits = limits.map_err(no_sftp)?;
        sftp.set_limits(limits);
        let handles = limits.open_handles.map_or(HANDLES_MAX, |n| HANDLES_MAX.min(n as usize)).max(1);
        let ssh = Arc::new(ssh);
        Ok(Self {
            sums: Sums::new(ssh.clone()),
            ssh,
            sftp,
            offers,
            read_bytes: limits.read_len.unwrap_or(IO_BYTES_DEFAULT).clamp(1, IO_BYTES_MAX),
            write_bytes: limits.write_len.unwrap_or(IO_BYTES_DEFAULT).clamp(1, IO_BYTES_MAX),
            round_trip,
            commands: Semaphore::new(4),
            users: AtomicUsize::new(0),
            place: place.clone(),
            handles: Arc::new(Semaphore::new(handles)),
            writing: Arc::new(Semaphore::new((handles * 4 / 5).max(1))),
            lost: AtomicBool::new(false),
        })
    }

    /// A place for one more file that is being written. There are fewer than handles: who reads, or puts names on the disk, waits behind no
    /// crowd of uploads.
    pub fn place_to_write(&self) -> Option<OwnedSemaphorePermit> {
        self.writing.clone().try_acquire_owned().ok()
    }

    pub fn has_place_to_write(&self) -> bool {
        self.writing.available_permits() > 0
    }

    pub fn is_alive(&self) -> bool {
        !self.lost.load(Ordering::Relaxed) && !self.ssh.is_closed()
    }

    /// In the contract's words; a lost answer marks the link.
    pub fn failure(&self, error: SftpError, path: &str) -> ApiError {
        if !matches!(error, SftpError::Status(_) | SftpError::Limited(_)) {
            self.lost.store(true, Ordering::Relaxed);
        }
        failure_of(error, path, &self.place)
    }

    pub fn lost(&self, path: &str) -> ApiError {
        connection_lost(path, &self.place, "it ended before the file could be looked at again")
    }

    pub async fn rename_over(&self, from: &str, to: &str) -> Result<(), SftpError> {
        let mut data = Vec::with_capacity(8 + from.len() + to.len());
        for text in [from, to] {
            data.extend((text.len() as u32).to_be_bytes());
            data.extend(text.as_bytes());
        }
        match self.sftp.extended(POSIX_RENAME, data).await? {
            Packet::Status(status) if status.status_code == StatusCode::Ok => Ok(()),
            Packet::Status(status) => Err(status.into()),
            _ => Err(SftpError::UnexpectedPacket),
        }
    }
}

impl Drop for Link {
    /// russh keeps an idle connection after its last handle is gone; an origin that was replaced must not.
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let ssh = self.ssh.clone();
            runtime.spawn(async move { ssh.disconnect(russh::Disconnect::ByApplication, "", "").await.ok() });
        }
    }
}

async fn asked_limits(sftp: &Session, offered: bool) -> Result<Limits, SftpError> {
    match offered {
        true => Ok(sftp.limits().await?.into()),
        false => Ok(Limits::default()),
    }
}

async fn prepare(config: &SftpConfig, timing: &Timing) -> (KnownKeys, Arc<client::Config>) {
    let (host, port, alias) = (config.host.clone(), config.port, config.host_key_alias.clone());
    let files: Vec<_> = config.known_hosts.iter().map(|file| expanded(file)).collect();
    let known = tokio::task::spawn_blocking(move || KnownKeys::load(&host, port, alias.as_deref(), &files))
        .await
        .expect("reading known_hosts does not panic");
    let settings = client::Config {
        window_size: WINDOW_BYTES,
        preferred: preferred(&known),
        keepalive_interval: Some(Duration::from_secs(timing.keepalive_s)),
        keepalive_max: 3,
        nodelay: true,
        ..Default::default()
    };
    (known, Arc::new(settings))
}

/// AES-GCM first (a fifth less work than chacha20), and host key types we can compare.
fn preferred(known: &KnownKeys) -> Preferred {
    let ciphers = vec![
        cipher::AES_128_GCM,
        cipher::AES_256_GCM,
        cipher::CHACHA20_POLY1305,
        cipher::AES_256_CTR,
        cipher::AES_192_CTR,
        cipher::AES_128_CTR,
    ];
    let comparable = known.algorithms();
    let plain =
        |algorithm: &Algorithm| if matches!(algorithm, Algorithm::Rsa { .. }) { Algorithm::Rsa { hash: None } } else { algorithm.clone() };
    let mut keys = Preferred::DEFAULT.key.to_vec();
    keys.sort_by_key(|algorithm| !comparable.iter().any(|known| plain(known) == plain(algorithm)));
    Preferred { cipher: Cow::Owned(ciphers), key: Cow::Owned(keys), ..Preferred::DEFAULT }
}

fn unreachable(place: &str, why: impl std::fmt::Display) -> ApiError {
    ApiError::new(Code::OriginUnreachable, place, format!("{place} cannot be reached ({why}); check the host, the port and the network."))
}

fn refused(place: &str, error: LinkError) -> ApiError {
    match error {
        LinkError::Judged(error) => error,
        LinkError::Ssh(russh::Error::NoCommonAlgo { kind, .. }) => ApiError::new(
            Code::Unsupported,
            place,
            format!("{place} offers no {kind:?} algorithm that is still considered safe; update its SSH server."),
        ),
        // The line was there and was closed before the login: so does a server with too many logins under way (MaxStartups).
        LinkError::Ssh(error @ (russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_))) => {
            let hung_up = unreachable(place, format!("it hung up before the login: {error}"));
            ApiError { retry_after_s: Some(TURNED_AWAY_S), ..hung_up.caused_by(error) }
        }
        LinkError::Ssh(error) => unreachable(place, &error).caused_by(error),
    }
}

fn connection_lost(path: &str, place: &str, why: &str) -> ApiError {
    let shown = shown(path);
    ApiError::new(Code::ConnectionLost, path, format!("The connection to {place} was lost while working on {shown} ({why})."))
}

pub fn failure_of(error: SftpError, path: &str, place: &str) -> ApiError {
    by_answer(error.clone(), path, place).caused_by(error)
}

fn by_answer(error: SftpError, path: &str, place: &str) -> ApiError {
    let shown = shown(path);
    let status = match error {
        SftpError::Status(status) => status,
        SftpError::Timeout => return ApiError::new(Code::Timeout, path, format!("{place} did not answer in time for {shown}.")),
        SftpError::Limited(what) => return ApiError::new(Code::IoError, path, format!("{shown} at {place} failed: {what}.")),
        other => return connection_lost(path, place, &other.to_string()),
    };
    match status.status_code {
        StatusCode::NoSuchFile => failure::not_found(path, place),
        StatusCode::PermissionDenied => failure::denied(path, place, "permission denied"),
        StatusCode::BadMessage => ApiError::new(Code::BadRequest, path, format!("{place} cannot hold the name {shown}.")),
        StatusCode::OpUnsupported => ApiError::new(Code::Unsupported, path, format!("{place} does not support what {shown} needs.")),
        StatusCode::NoConnection | StatusCode::ConnectionLost => connection_lost(path, place, "the server says so"),
        _ => ApiError::new(Code::IoError, path, format!("{shown} at {place} failed: the server says {:?}.", status.error_message)),
    }
}

/// An open file or directory of a link; closed when dropped, also by a cancelled caller. Its places are free when the close was sent: a
/// server takes requests in the order they were sent in, so it has the handle free again before it opens what comes behind.
pub struct Opened {
    pub link: Arc<Link>,
    pub handle: String,
    places: Option<(OwnedSemaphorePermit, Option<PlaceToWrite>)>,
}

impl Opened {
    pub async fn file(link: &Arc<Link>, path: &str, flags: OpenFlags, permissions: Option<u32>) -> Result<Self, SftpError> {
        let (at, path) = (link.clone(), path.to_owned());
        let attributes = FileAttributes { permissions, ..FileAttributes::empty() };
        Self::detached(link, async move { at.sftp.open(path, flags, attributes).await.map(|opened| opened.handle) }).await
    }

    pub async fn directory(link: &Arc<Link>, path: &str) -> Result<Self, SftpError> {
        let (at, path) = (link.clone(), path.to_owned());
        Self::detached(link, async move { at.sftp.opendir(path).await.map(|opened| opened.handle) }).await
    }

    /// In a task of its own: a handle that arrives after its caller was cancelled is closed all the same.
    async fn detached(
        link: &Arc<Link>,
        opening: impl Future<Output = Result<String, SftpError>> + Send + 'static,
    ) -> Result<Self, SftpError> {
        let (link, permit) = (link.clone(), link.handles.clone().acquire_owned().await.expect("never closed"));
        let task = tokio::spawn(async move { opening.await.map(|handle| Self { link, handle, places: Some((permit, None)) }) });
        task.await.expect("opening does not panic")
    }

    /// Until it is closed.
    pub fn holding(mut self, place: PlaceToWrite) -> Self {
        self.places = self.places.take().map(|(handle, _)| (handle, Some(place)));
        self
    }

    /// Where the answer to the close matters: some servers report write errors only here.
    pub async fn close(mut self) -> Result<(), SftpError> {
        self.closing().await
    }

    /// Its caller may be cancelled once it was asked for: then a task waits for the answer.
    fn closing(&mut self) -> Closing {
        let (handle, link, places) = (std::mem::take(&mut self.handle), self.link.clone(), self.places.take());
        let asked = async move {
            let mut answer = std::pin::pin!(link.sftp.close(handle));
            // It is sent when it is first polled.
            let at_once = futures::poll!(&mut answer);
            drop(places);
            match at_once {
                Poll::Ready(answer) => answer.map(|_| ()),
                Poll::Pending => answer.await.map(|_| ()),
            }
        };
        Closing(Some(asked.boxed()))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.handle.is_empty() && self.link.is_alive() {
            drop(self.closing());
        }
    }
}

struct Closing(Option<BoxFuture<'static, Result<(), SftpError>>>);

impl Future for Closing {
    type Output = Result<(), SftpError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let asked = self.0.as_mut().expect("it is not polled after its end");
        let polled = asked.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(asked) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(asked);
        }
    }
}
