//! What a link has open at its server. Knows links.
//!
//! The one rule: what was opened is closed, whatever becomes of the call that it was opened for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::FutureExt;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::link::Link;
use super::session::Held;

/// For a file that is written over one of the links, until it is closed.
pub struct PlaceToWrite {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl PlaceToWrite {
    /// `freed` is told when the place is free again.
    pub fn new(permit: OwnedSemaphorePermit, freed: Arc<Notify>) -> Self {
        Self { permit: Some(permit), freed }
    }
}

impl Drop for PlaceToWrite {
    fn drop(&mut self) {
        let places = self.permit.take().map_or(1, |permit| permit.num_permits());
        // The places are free by now, and each may be taken by another file.
        (0..places).for_each(|_| self.freed.notify_one());
    }
}

/// An open file or directory of a link; closed when dropped, also by a cancelled caller. Its places are free when the close was sent: a
/// server takes requests in the order they were sent in, so it has the handle free again before it opens what comes behind.
pub struct Opened {
    pub link: Arc<Link>,
    pub handle: Held,
    places: Option<(OwnedSemaphorePermit, Option<PlaceToWrite>)>,
}

impl Opened {
    pub async fn file(link: &Arc<Link>, path: &str, flags: OpenFlags, permissions: Option<u32>) -> Result<Self, SftpError> {
        Self::file_in(link.places.for_handle().await, link, path, flags, permissions).await
    }

    /// None: the server has no place to spare for it now.
    pub async fn file_if_spare(link: &Arc<Link>, path: &str, flags: OpenFlags) -> Option<Result<Self, SftpError>> {
        Some(Self::file_in(link.places.spare_for_handle()?, link, path, flags, None).await)
    }

    async fn file_in(
        place: OwnedSemaphorePermit,
        link: &Arc<Link>,
        path: &str,
        flags: OpenFlags,
        permissions: Option<u32>,
    ) -> Result<Self, SftpError> {
        let (at, path) = (link.clone(), path.to_owned());
        let attributes = FileAttributes { permissions, ..FileAttributes::empty() };
        Self::detached(place, link, async move { at.sftp.open(path, flags, attributes).await }).await
    }

    /// A file or directory that is to be put on the disk with what was renamed or removed there before.
    pub async fn to_sync(link: &Arc<Link>, path: &str) -> Result<Self, SftpError> {
        let (at, path) = (link.clone(), path.to_owned());
        Self::detached(link.places.for_handle().await, link, async move { at.sftp.open_behind(path).await }).await
    }

    pub async fn directory(link: &Arc<Link>, path: &str) -> Result<Self, SftpError> {
        let (at, path) = (link.clone(), path.to_owned());
        Self::detached(link.places.for_handle().await, link, async move { at.sftp.opendir(path).await }).await
    }

    /// In a task of its own: a handle that arrives after its caller was cancelled is closed all the same.
    async fn detached(
        place: OwnedSemaphorePermit,
        link: &Arc<Link>,
        opening: impl Future<Output = Result<Held, SftpError>> + Send + 'static,
    ) -> Result<Self, SftpError> {
        let link = link.clone();
        let task = tokio::spawn(async move { opening.await.map(|handle| Self { link, handle, places: Some((place, None)) }) });
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

    /// Whether it is on the server's disk. Closed in the same breath.
    pub async fn sync(self) -> bool {
        let (link, handle) = (self.link.clone(), self.handle.clone());
        let (synced, _) = futures::join!(link.sftp.fsync(handle), self.close());
        synced.is_ok()
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
        if !self.handle.is_none() && self.link.is_alive() {
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

/// Whether what is at `path` is on the server's disk. Of a directory, too: OpenSSH opens one like a file where its system does.
pub async fn put_on_disk(link: &Arc<Link>, path: &str) -> bool {
    if !link.offers.fsync {
        return false;
    }
    match Opened::to_sync(link, path).await {
        Ok(opened) => opened.sync().await,
        Err(_) => false,
    }
}
