//! One connection to an SFTP server that has let us in. Knows russh and russh-sftp; nobody above sees their errors.
//!
//! The one rule: a link that lost a request is never given to new work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::client::Handle;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::rawsession::Limits;
use russh_sftp::protocol::{Packet, StatusCode};
use stager_core::error::{ApiError, Code};
use tokio::sync::Notify;

use super::checksum::Sums;
use super::host_key::Client;
use super::places::Places;
use super::session::Session;
use crate::failure::{self, shown};

/// OpenSSH's own figures, used where the server does not say.
const IO_BYTES_DEFAULT: u64 = 32 * 1024;
const IO_BYTES_MAX: u64 = 255 * 1024;
/// A server that says less is not believed: so many requests for a file would be too many to hold.
const IO_BYTES_MIN: u64 = 4 * 1024;
/// Which each server should take: section 3 of the protocol's draft.
const PACKET_BYTES_MIN: u64 = 34_000;
/// russh-sftp reads handles as text, and OpenSSH's stop being that at 128.
const HANDLES_MAX: usize = 120;
/// Of one connection for a crowd of uploads. Beside them there are the command for checksums, four at most that take one name, and two that
/// take ranges; MaxSessions is ten at a stock sshd.
const CHANNELS_MAX: usize = 3;
/// A server that opens no channel for so long opens none.
const WIDEN_MAX: Duration = Duration::from_secs(30);
const CLOSED_EVERY: Duration = Duration::from_millis(10);
const CLOSE_MAX: Duration = Duration::from_secs(5);
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
    ssh: Arc<Handle<Client>>,
    pub sftp: Session,
    pub offers: Offers,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub round_trip: Duration,
    pub sums: Sums,
    pub users: AtomicUsize,
    pub place: Arc<str>,
    pub places: Places,
    is_widened: AtomicBool,
    lost: AtomicBool,
}

impl Link {
    pub async fn greet(ssh: Handle<Client>, mut sftp: Session, place: &Arc<str>) -> Result<Self, ApiError> {
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
        let limits = believed(limits.map_err(no_sftp)?);
        let handles = limits.open_handles.map_or(HANDLES_MAX, |n| HANDLES_MAX.min(n as usize)).max(1);
        sftp.set_limits(limits, handles);
        let ssh = Arc::new(ssh);
        Ok(Self {
            sums: Sums::new(ssh.clone()),
            ssh,
            sftp,
            offers,
            read_bytes: limits.read_len.unwrap_or(IO_BYTES_DEFAULT).min(IO_BYTES_MAX),
            write_bytes: limits.write_len.unwrap_or(IO_BYTES_DEFAULT).min(IO_BYTES_MAX),
            round_trip,
            users: AtomicUsize::new(0),
            place: place.clone(),
            places: Places::new(handles),
            is_widened: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        })
    }

    /// Whether nobody was told so before.
    pub fn is_to_widen(&self) -> bool {
        !self.is_widened.swap(true, Ordering::Relaxed)
    }

    /// Opens further channels, which takes three round trips: a login takes ten and more. Tells `freed` of the places that they bring.
    pub async fn widen(self: Arc<Self>, freed: Arc<Notify>) {
        self.sums.has_channel().await;
        let adding = (1..CHANNELS_MAX).map(|_| async {
            let added = tokio::time::timeout(WIDEN_MAX, self.add_channel()).await.ok().flatten();
            freed.notify_waiters();
            added
        });
        let added = futures::future::join_all(adding).await;
        if added.contains(&None) {
            tracing::debug!(origin = &*self.place, "the server does not open as many channels as we want; the open ones are shared");
        }
        let (ended, link, ssh) = (self.sftp.one_ended(), Arc::downgrade(&self), self.ssh.clone());
        // The connection is not kept for the sake of this.
        drop(self);
        ended.await;
        if let Some(link) = link.upgrade() {
            link.lost.store(true, Ordering::Relaxed);
        }
        // As if the connection had ended: else the others would go on beside one that gives no answers.
        ssh.disconnect(russh::Disconnect::ByApplication, "", "").await.ok();
    }

    async fn add_channel(&self) -> Option<()> {
        let channel = self.ssh.channel_open_session().await.ok()?;
        channel.request_subsystem(true, "sftp").await.ok()?;
        self.sftp.add(channel.into_stream()).await.ok()?;
        self.places.add_channel();
        Some(())
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
        connection_lost(path, &self.place, "it ended before the file could be checked again")
    }

    /// Ends it under whoever uses it. Returns when it is closed, or the server does not answer.
    pub async fn close(&self) {
        self.lost.store(true, Ordering::Relaxed);
        let closed = async {
            self.ssh.disconnect(russh::Disconnect::ByApplication, "", "").await.ok();
            while !self.ssh.is_closed() {
                tokio::time::sleep(CLOSED_EVERY).await;
            }
        };
        tokio::time::timeout(CLOSE_MAX, closed).await.ok();
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

fn believed(limits: Limits) -> Limits {
    let at_least = |least: u64| move |said: u64| said.max(least);
    Limits {
        packet_len: limits.packet_len.map(at_least(PACKET_BYTES_MIN)),
        read_len: limits.read_len.map(at_least(IO_BYTES_MIN)),
        write_len: limits.write_len.map(at_least(IO_BYTES_MIN)),
        ..limits
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

#[cfg(test)]
mod tests {
    use russh_sftp::extensions::LimitsExtension;

    use super::*;

    #[test]
    fn tiny_limits_are_not_believed() {
        let said = |n| believed(LimitsExtension { max_packet_len: n, max_read_len: n, max_write_len: n, max_open_handles: n }.into());
        let lengths = |limits: Limits| (limits.packet_len, limits.read_len, limits.write_len, limits.open_handles);
        assert_eq!(lengths(said(1)), (Some(34_000), Some(4096), Some(4096), Some(1)));
        assert_eq!(lengths(said(40_000)), (Some(40_000), Some(40_000), Some(40_000), Some(40_000)));
        assert_eq!(lengths(said(0)), (None, None, None, None), "it says nothing");
    }
}
