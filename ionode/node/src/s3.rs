//! The S3 endpoint of this node: its options, and how it hangs on the store. What it does is in `stager-s3` and `stager-objects`.
//!
//! The one rule: its share of the space is apart from the capacity that the scheduler manages; neither ever takes from the other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use stager_core::error::ApiError;
use stager_objects::{Objects, Options, INLINE_BYTES_MAX};
use stager_s3::{Credentials, EndpointSettings, Guard};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::failure::{at, bad_request};
use crate::lines;
use crate::node::Node;
use crate::wire::S3Place;

#[derive(Args, Debug)]
pub struct S3Options {
    /// Address of an S3-compatible endpoint, loopback unless --trust-network is given; without it there is none
    #[arg(long, value_name = "IP:PORT", requires_all = ["s3_credentials", "s3_share"])]
    s3_listen: Option<SocketAddr>,
    /// Where that port is taken, listen on any that is free; rendezvous.json says which
    #[arg(long, requires = "s3_listen")]
    s3_any_port: bool,
    /// File with the one key of the endpoint, {"access_key_id": "...", "secret_access_key": "..."}, or with the secret by which keys are
    /// issued, {"issuer_secret": "..."}; mode 0600
    #[arg(long, value_name = "FILE", requires = "s3_listen")]
    s3_credentials: Option<PathBuf>,
    /// Space for what is written through the endpoint, on top of --capacity
    #[arg(long, value_name = "BYTES", requires = "s3_listen")]
    s3_share: Option<u64>,
}

/// What can be found wrong before the store is opened was not.
pub struct Checked {
    address: SocketAddr,
    any_port: bool,
    credentials: Credentials,
    share_bytes: u64,
}

impl S3Options {
    pub fn checked(&self, trust_network: bool) -> Result<Option<Checked>, ApiError> {
        let (Some(address), Some(credentials), Some(share_bytes)) = (self.s3_listen, &self.s3_credentials, self.s3_share) else {
            return Ok(None);
        };
        if !address.ip().is_loopback() && !trust_network {
            let message = format!(
                "{address} is no loopback address and S3 requests are signed but not encrypted; use 127.0.0.1 or [::1], or add \
                 --trust-network if you trust everybody on that network"
            );
            return Err(bad_request(address.to_string(), message));
        }
        Ok(Some(Checked { address, any_port: self.s3_any_port, credentials: Credentials::read(credentials)?, share_bytes }))
    }
}

/// An endpoint that listens.
pub struct Started {
    pub place: S3Place,
    pub ended: JoinHandle<()>,
}

impl Checked {
    /// Listens; answers until the node ends.
    pub async fn start(self, node: &Arc<Node>) -> Result<Started, ApiError> {
        let store = &node.context.store;
        let options = Options { share_bytes: self.share_bytes, fsync: store.durability.0, inline_bytes_max: INLINE_BYTES_MAX };
        let objects = Objects::open(store.log.clone(), store.root(), options)?;
        sweep(objects.clone())?;
        let place = self.address.to_string();
        let listener = self.listen().await.map_err(at("listening on", Path::new(&place)))?;
        let address = listener.local_addr().map_err(at("listening on", Path::new(&place)))?.to_string();
        // Set once: a node starts one endpoint.
        let _ = node.objects.set(objects.clone());
        tracing::info!(s3 = &address, share_bytes = self.share_bytes, used_bytes = objects.used_bytes(), "the S3 endpoint listens");
        let (held, shutdown) = (node.clone(), node.context.shutdown.clone());
        let guard = Arc::new(move || (!held.context.is_draining()).then(|| Box::new(held.calls.open(true)) as Guard));
        let place = S3Place { address, share_bytes: self.share_bytes };
        let ended = tokio::spawn(stager_s3::serve(EndpointSettings { objects, credentials: self.credentials, guard }, listener, shutdown));
        Ok(Started { place, ended })
    }

    async fn listen(&self) -> std::io::Result<TcpListener> {
        let listener = match TcpListener::bind(self.address).await {
            Err(error) if self.any_port && error.kind() == std::io::ErrorKind::AddrInUse => {
                TcpListener::bind(SocketAddr::new(self.address.ip(), 0)).await?
            }
            bound => bound?,
        };
        lines::watch_idle(&listener)?;
        Ok(listener)
    }
}

/// What there is is looked at before the first request; telling what of it is garbage takes longer, and is done beside everything else.
fn sweep(objects: Objects) -> Result<(), ApiError> {
    let swept = objects.find_garbage()?;
    let work = move || {
        if let Err(error) = objects.remove_garbage(swept) {
            tracing::warn!(%error, "the search for content files that no object names failed; the next start tries again");
        }
    };
    std::thread::Builder::new().name("sweep".into()).spawn(work).map(|_| ()).map_err(at("starting a thread for", Path::new("objects")))
}
