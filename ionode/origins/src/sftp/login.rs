//! From a host's name to a connection that serves SFTP: TCP, host key, login, the sftp channel. Knows russh, and what comes before a link.
//!
//! The one rule: each step ends within its time.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, Handle, Msg};
use russh::keys::Algorithm;
use russh::{cipher, Channel, Preferred};
use stager_core::error::{ApiError, Code};
use tokio::net::TcpStream;

use super::credentials::{authenticate, expanded};
use super::host_key::{Client, LinkError};
use super::known::KnownKeys;
use super::link::Link;
use super::session::Session;
use crate::config::SftpConfig;

const WINDOW_BYTES: u32 = 16 << 20;
/// When to come again to a server that hangs up on who comes.
const TURNED_AWAY_S: f64 = 5.0;

/// How long to wait for what; the defaults suit a slow WAN.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub connect_s: u64,
    pub request_s: u64,
    pub keepalive_s: u64,
    /// After a further connection was refused (MaxStartups, a firewall).
    pub grow_again: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { connect_s: 30, request_s: 60, keepalive_s: 10, grow_again: Duration::from_secs(30) }
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
