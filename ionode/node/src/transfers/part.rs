//! A part of a file: the stripes of it that one node fetches, as this node reads them while they come. Knows how to ask, not what is kept.
//!
//! The one rule: a stripe whose part is complete is given only if it is as it was noted when it came there.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKey;
use stager_core::stripes::Layout;
use stager_origins::Sink;

use super::table::Transfers;
use crate::blocking::blocking;
use crate::context::Cause;
use crate::failure::at;
use crate::fingerprints::Fingerprints;
use crate::metrics::{self, Moved, OTHER};
use crate::peers::link::{Link, Term};
use crate::peers::source::Source;
use crate::replicas::{open_content, read_manifest};
use crate::stripes::{chaining_value, from_hex, StripeManifest};
use crate::wire::SourceAnswer;

/// Nodes are asked for their parts and for what is made of them side by side: one may be asked for its part last.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// A node that is still receiving it may wait for its origin, and gives up before this.
const STALL: Duration = Duration::from_secs(90);
const CHECKED_WAIT: Duration = Duration::from_secs(20);

pub(super) struct Part {
    pub share: Layout,
    pub key: ReplicaKey,
    /// `None`: this node has it.
    pub link: Option<Arc<Link>>,
    pub term: Term,
    /// Once all of it is there.
    noted: Mutex<Option<StripeManifest>>,
}

impl Part {
    pub fn new(share: Layout, key: ReplicaKey, link: Option<Arc<Link>>, term: Term) -> Self {
        Self { share, key, link, term, noted: Mutex::default() }
    }

    fn whose(&self) -> String {
        self.link.as_ref().map_or("this node".to_string(), |link| link.name())
    }

    async fn source(&self, transfers: &Transfers, wait: bool) -> Result<SourceAnswer, ApiError> {
        match &self.link {
            Some(link) => link.source(self.term, &self.key, wait).await,
            None => super::source(transfers, &self.key, if wait { CHECKED_WAIT } else { Duration::ZERO }).await,
        }
    }

    /// Returns when it comes, or is there.
    pub async fn comes(&self, transfers: &Transfers, token: &str) -> Result<(), ApiError> {
        let asked = Instant::now();
        let answer = loop {
            match self.source(transfers, false).await {
                Err(error) if error.code == Code::ReplicaBusy => {}
                Err(error) if error.code == Code::ReplicaUnknown && asked.elapsed() < KNOWN_WITHIN => {}
                outcome => break outcome?,
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        };
        if answer.stripes != Some(self.share) {
            let message = format!("{} has other stripes as {} than those that were asked for", self.whose(), self.key);
            return Err(ApiError::new(Code::StripeNotHere, &self.key.file_id, message));
        }
        if answer.blake3.is_some() {
            self.note(transfers, &answer, token).await?;
        }
        Ok(())
    }

    async fn note(&self, transfers: &Transfers, answer: &SourceAnswer, token: &str) -> Result<(), ApiError> {
        if answer.token.as_deref() != Some(token) {
            let message = format!("{} has stripes of another content of {} than the one with {token}", self.whose(), self.key);
            return Err(ApiError::new(Code::SourceChanged, &self.key.file_id, message));
        }
        let bytes = match &self.link {
            Some(link) => link.manifest(self.term, &self.key).await?,
            None => {
                let (context, key) = (transfers.context.clone(), self.key.clone());
                blocking(move || read_manifest(&context, &key)).await?.into()
            }
        };
        let noted = StripeManifest::parse(&bytes, &self.key.file_id)?;
        if noted.layout != self.share {
            let message = format!("{} has notes of other stripes for {}", self.whose(), self.key);
            return Err(ApiError::new(Code::StripeNotHere, &self.key.file_id, message));
        }
        *self.noted.lock().expect("nobody panics here") = Some(noted);
        Ok(())
    }

    /// Returns when all of it was checked there.
    pub async fn checked(&self, transfers: &Transfers, token: &str) -> Result<(), ApiError> {
        if self.is_noted() {
            return Ok(());
        }
        loop {
            let answer = self.source(transfers, true).await?;
            if answer.blake3.is_some() {
                return self.note(transfers, &answer, token).await;
            }
        }
    }

    pub fn is_noted(&self) -> bool {
        self.noted.lock().expect("nobody panics here").is_some()
    }

    /// `None`: nothing is noted of it yet.
    pub fn is_as_noted(&self, n: u64, value: [u8; 32]) -> Option<bool> {
        let noted = self.noted.lock().expect("nobody panics here");
        let stripe = noted.as_ref()?.stripes.get((n / self.share.count) as usize);
        Some(stripe.and_then(|stripe| from_hex(&stripe.blake3_cv)) == Some(value))
    }

    /// These bytes, which lie in one stripe; with its chaining value if they are all of it.
    pub async fn stripe(&self, transfers: &Transfers, range: &Range<u64>) -> Result<(Bytes, Option<[u8; 32]>), ApiError> {
        let reading = async {
            match &self.link {
                Some(link) => self.read_there(link, range).await,
                None => self.read_here(transfers, range).await,
            }
        };
        let stalled = || {
            let message = format!("{} gave nothing of {} for {} s", self.whose(), self.key, STALL.as_secs());
            ApiError::new(Code::Timeout, &self.key.file_id, message)
        };
        let bytes = tokio::time::timeout(STALL, reading).await.map_err(|_| stalled())??;
        let n = range.start / self.share.stripe_bytes;
        if self.share.range(n) != *range {
            return Ok((bytes, None));
        }
        let (share, hashed) = (self.share, bytes.clone());
        let value = blocking(move || Ok(chaining_value(&share, n, &hashed))).await?;
        match self.is_as_noted(n, value) {
            Some(false) => {
                let message = format!("stripe {n} of {} has changed on {} since it came there", self.key, self.whose());
                Err(ApiError::new(Code::ChecksumMismatch, &self.key.file_id, message))
            }
            _ => Ok((bytes, Some(value))),
        }
    }

    async fn read_there(&self, link: &Link, range: &Range<u64>) -> Result<Bytes, ApiError> {
        let sink = Collected(Mutex::new(BytesMut::with_capacity((range.end - range.start) as usize)));
        let source = Source { link, key: self.key.clone(), member: None, size_bytes: self.share.file_bytes, term: self.term };
        source.ordered(range.clone(), &sink).await?;
        let bytes = sink.0.into_inner().expect("nobody panics here").freeze();
        metrics::counts().moved.get_or_create_owned(&Moved { origin: OTHER.to_string(), direction: "in" }).inc_by(bytes.len() as u64);
        Ok(bytes)
    }

    async fn read_here(&self, transfers: &Transfers, range: &Range<u64>) -> Result<Bytes, ApiError> {
        let position = self.share.position(range.start).expect("only stripes of this share are asked for");
        let length = (range.end - range.start) as usize;
        let content = open_content(&transfers.context, &self.key, None)?;
        if let Some(mut in_flight) = content.in_flight {
            let gone = || ApiError::new(Code::ConnectionLost, &self.key.file_id, format!("this node stopped fetching {}", self.key));
            in_flight.reach(position + length as u64).await.ok_or_else(gone)?;
        }
        blocking(move || {
            let mut bytes = vec![0; length];
            content.file.read_exact_at(&mut bytes, position).map_err(at("reading", &content.path))?;
            Ok(bytes.into())
        })
        .await
    }

    /// Was it its disk? Then it quarantines the part, and tells.
    pub fn have_verified(&self, fingerprints: &Arc<Fingerprints>, cause: &Cause) {
        let (key, link, term) = (self.key.clone(), self.link.clone(), self.term);
        let (fingerprints, cause) = (fingerprints.clone(), cause.clone());
        tokio::spawn(async move {
            let outcome = match link {
                Some(link) => link.ask_verify(term, &key).await.map(drop),
                None => fingerprints.verify(&cause, &key).await.map(drop),
            };
            if let Err(error) = outcome {
                tracing::warn!(replica = %key, %error, "a part that gave a wrong stripe could not be verified");
            }
        });
    }
}

/// Blocks come in order and without gaps.
struct Collected(Mutex<BytesMut>);

#[async_trait]
impl Sink for Collected {
    async fn write_at(&self, _offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        self.0.lock().expect("nobody panics here").extend_from_slice(&chunk);
        Ok(())
    }
}
