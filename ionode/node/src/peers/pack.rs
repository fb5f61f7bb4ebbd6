//! A pack as its client sends it, and what the node answers. Knows the call, not why it is made.
//!
//! The one rule: the answers are those of the entries, in their order, or errors; an entry without a whole answer is an error.

use std::time::Duration;

use bytes::Bytes;
use stager_core::error::{ApiError, Code};

use super::link::{bytes_body, is_outdated, Call, Link, Reply, Term};
use crate::blocks;
use crate::pack_format::{self, Answered, Ask, Reader, Writer, ENTRIES_MAX, ENTRY_HEAD_BYTES_MAX, MEDIA_TYPE, PACK_BYTES_MAX};
use crate::wire::ReplicasWanted;

/// The nodes that are to hold what a pack puts, as in the requests of transfers.
pub const REPLICAS: &str = "x-stager-replicas";
pub const WITHIN: Duration = Duration::from_secs(300);
/// What a pack that is sent in one call carries of contents, both ways; more would not be faster.
pub const CONTENT_BYTES: u64 = 8 << 20;
pub const ENTRIES: usize = 4096;

const PACKS: &str = "/v1/packs";

pub type Answers = Vec<Result<Answered, ApiError>>;

/// How many of them, from the first on, go into one call; `content_bytes` of each, there or back.
pub fn fitting(content_bytes: impl IntoIterator<Item = u64>) -> usize {
    let mut left = CONTENT_BYTES;
    let fits = |bytes: &u64| {
        let fits = *bytes <= left;
        left = left.saturating_sub(*bytes);
        fits
    };
    content_bytes.into_iter().take(ENTRIES).take_while(fits).count().max(1)
}

impl Link {
    /// `content_bytes`: what its gets may bring. All of a pack can be asked for again: what was done is then done already.
    pub async fn pack(&self, term: Term, asks: &[Ask], content_bytes: u64) -> Result<Answers, ApiError> {
        self.asked_of_pack(PACKS, term, asks, content_bytes, None).await
    }

    /// Puts that other nodes are to hold too.
    pub async fn puts(&self, term: Term, asks: &[Ask], replicas: Option<&ReplicasWanted>) -> Result<Answers, ApiError> {
        self.asked_of_pack(PACKS, term, asks, 0, replicas).await
    }

    /// Puts that are no replicas.
    pub async fn pack_at(&self, path: &str, asks: &[Ask]) -> Result<Answers, ApiError> {
        self.asked_of_pack(path, Term::Its, asks, 0, None).await
    }

    async fn asked_of_pack(
        &self,
        path: &str,
        term: Term,
        asks: &[Ask],
        content_bytes: u64,
        replicas: Option<&ReplicasWanted>,
    ) -> Result<Answers, ApiError> {
        let mut headers = vec![("content-type", MEDIA_TYPE.to_string())];
        headers.extend(replicas.map(|wanted| (REPLICAS, serde_json::to_string(wanted).expect("names are plain values"))));
        let mut writer = Writer::default();
        asks.iter().for_each(|ask| writer.ask(ask));
        let body = writer.whole();
        assert!(asks.len() <= ENTRIES_MAX && body.len() <= PACK_BYTES_MAX, "a pack has a largest size, and its maker knows it");
        let bytes_max = asks.len() * ENTRY_HEAD_BYTES_MAX + content_bytes as usize + blocks::HEADER_BYTES;
        let mut again = true;
        loop {
            match self.within(WITHIN, self.packed((path, term), headers.clone(), body.clone(), asks, bytes_max)).await {
                Err(error) if again && (is_outdated(&error, term) || error.code == Code::ConnectionLost) => again = false,
                outcome => return outcome,
            }
        }
    }

    async fn packed(
        &self,
        (path, term): (&str, Term),
        headers: Vec<(&'static str, String)>,
        body: Bytes,
        asks: &[Ask],
        bytes_max: usize,
    ) -> Result<Answers, ApiError> {
        let mut reply = self.send(Call { method: "POST", path: path.into(), headers, body: bytes_body(body), term }).await?;
        let entries = self.entries(&mut reply, bytes_max).await?;
        reply.done();
        self.judged(entries, asks)
    }

    /// The answers in the body of one, all of which has come.
    pub fn told(&self, body: &[u8], asks: &[Ask], bytes_max: usize) -> Result<Answers, ApiError> {
        let mut reader = Reader::new(bytes_max);
        reader.push(body).map_err(|no_pack| self.misbehaved(&no_pack.to_string()))?;
        self.judged(reader.finish().map_err(|_| self.lost("a pack was cut short"))?, asks)
    }

    fn judged(&self, entries: Vec<Option<Bytes>>, asks: &[Ask]) -> Result<Answers, ApiError> {
        if entries.len() != asks.len() {
            return Err(self.misbehaved(&format!("it answered {} entries of {}", entries.len(), asks.len())));
        }
        Ok(entries.into_iter().zip(asks).map(|(entry, ask)| self.said(entry, ask)).collect())
    }

    async fn entries(&self, reply: &mut Reply<'_>, bytes_max: usize) -> Result<Vec<Option<Bytes>>, ApiError> {
        let mut reader = Reader::new(bytes_max);
        while let Some(bytes) = reply.next().await {
            let bytes = bytes.map_err(|error| self.lost(&format!("the connection broke within a pack ({error})")))?;
            reader.push(&bytes).map_err(|no_pack| self.misbehaved(&no_pack.to_string()))?;
        }
        reader.finish().map_err(|_| self.lost("a pack was cut short"))
    }

    fn said(&self, entry: Option<Bytes>, ask: &Ask) -> Result<Answered, ApiError> {
        let key = ask.key();
        let Some(payload) = entry else {
            let message = format!("the answer of {} for {key} was damaged on its way; ask for it again", self.name());
            return Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message));
        };
        let said = pack_format::said(&payload).ok_or_else(|| self.misbehaved(&format!("its answer for {key} is not understood")))??;
        let fits = matches!(
            (ask, &said),
            (Ask::Put { .. }, Answered::Put { .. })
                | (Ask::Get(_), Answered::Got(..))
                | (Ask::Stat(_), Answered::Stat(_))
                | (Ask::Delete(_), Answered::Deleted)
        );
        match (fits, &said) {
            (true, Answered::Got(about, content)) if *blake3::hash(content).as_bytes() != about.blake3 => {
                let message = format!("{} sent a content of {key} with another BLAKE3 than it names; nothing of it was kept", self.name());
                Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message))
            }
            (true, _) => Ok(said),
            (false, _) => Err(self.misbehaved(&format!("its answer for {key} is that of another call"))),
        }
    }

    fn misbehaved(&self, what: &str) -> ApiError {
        let message = format!("{} does not answer a pack as it should: {what}; nothing of that was kept", self.name());
        ApiError::new(Code::PeerMisbehaves, self.address.to_string(), message)
    }
}
