//! Reading a replica of another node, as blocks over several connections.
//!
//! The one rule: nothing reaches the sink that is not a whole block with its checksum, at the place that was asked for.

use std::ops::Range;

use futures::stream::{self, StreamExt, TryStreamExt};
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE};
use hyper::StatusCode;
use stager_core::error::{ApiError, Code};
use stager_core::replica::ReplicaKey;
use stager_origins::Sink;

use super::link::{bytes_body, is_outdated, Call, Link, Reply, Term};
use crate::blocks::{Broken, Decoder, Piece, MEDIA_TYPE};

const RANGE_BYTES: u64 = 8 << 20;
const RANGES_AT_ONCE: usize = 4;

/// One content at one peer.
pub struct Source<'a> {
    pub link: &'a Link,
    pub key: ReplicaKey,
    pub member: Option<String>,
    pub size_bytes: u64,
    pub term: Term,
}

impl Source<'_> {
    pub async fn fetch(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let starts = (range.start..range.end).step_by(RANGE_BYTES as usize);
        let pieces: Vec<Range<u64>> = starts.map(|start| start..(start + RANGE_BYTES).min(range.end)).collect();
        stream::iter(pieces).map(|piece| self.piece(piece, sink)).buffer_unordered(RANGES_AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// As `fetch`, over one connection and in order.
    pub async fn ordered(&self, range: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        self.piece(range, sink).await
    }

    /// What broke on its way is asked for once more from where it broke: nothing of the bad block was kept. So is what was asked of the node
    /// that was there before.
    async fn piece(&self, mut piece: Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        let first = self.blocks(&mut piece, sink).await;
        match first {
            Err(error) if is_outdated(&error, self.term) || matches!(error.code, Code::ChecksumMismatch | Code::ConnectionLost) => {
                tracing::warn!(peer = self.link.name(), %error, "a range is asked for once more");
                self.blocks(&mut piece, sink).await
            }
            outcome => outcome,
        }
    }

    /// Moves the start of `rest` behind each block that the sink has.
    async fn blocks(&self, rest: &mut Range<u64>, sink: &dyn Sink) -> Result<(), ApiError> {
        if rest.is_empty() {
            return Ok(());
        }
        let mut reply = self.ask(rest).await?;
        let mut decoder = Decoder::default();
        loop {
            while let Some(piece) = decoder.take().map_err(|broken| self.broken(broken))? {
                match piece {
                    Piece::Block { offset, payload } => {
                        let end = offset.checked_add(payload.len() as u64).filter(|end| *end <= rest.end && offset == rest.start);
                        let end =
                            end.ok_or_else(|| self.misbehaved(&format!("it sent a block at byte {offset} that was not asked for")))?;
                        sink.write_at(offset, payload).await?;
                        rest.start = end;
                    }
                    Piece::End { offset } if offset == rest.end && rest.is_empty() => {}
                    Piece::End { offset } => {
                        return Err(self.misbehaved(&format!("it called byte {offset} the end of a range up to {}", rest.end)))
                    }
                }
            }
            match reply.next().await {
                Some(Ok(bytes)) => decoder.push(&bytes),
                Some(Err(error)) => {
                    return Err(self.link.lost(&format!("the connection broke at byte {} of {} ({error})", rest.start, self.key)))
                }
                None if decoder.is_whole() => break,
                None => return Err(self.link.lost(&format!("it ended at byte {} of {} without an end mark", rest.start, self.key))),
            }
        }
        reply.done();
        Ok(())
    }

    async fn ask(&self, range: &Range<u64>) -> Result<Reply<'_>, ApiError> {
        let mut path = format!("/v1/replicas/{}/{}/content", self.key.file_id, self.key.generation);
        if let Some(member) = &self.member {
            path.push_str(&format!("?member={}", percent_encoded(member)));
        }
        let headers = vec![("range", format!("bytes={}-{}", range.start, range.end - 1)), ("accept", MEDIA_TYPE.to_string())];
        let reply = self.link.send(Call { method: "GET", path, headers, body: bytes_body(bytes::Bytes::new()), term: self.term }).await?;
        let said =
            |name| reply.response.headers().get(name).and_then(|value: &hyper::header::HeaderValue| value.to_str().ok()).unwrap_or("");
        let expected = format!("bytes {}-{}/{}", range.start, range.end - 1, self.size_bytes);
        if reply.status() != StatusCode::PARTIAL_CONTENT || said(CONTENT_RANGE) != expected || said(CONTENT_TYPE) != MEDIA_TYPE {
            let message = format!("it answered {} with {:?} where {expected:?} was asked for", reply.status(), said(CONTENT_RANGE));
            return Err(self.misbehaved(&message));
        }
        Ok(reply)
    }

    fn broken(&self, broken: Broken) -> ApiError {
        let message = format!("{} sent replica {} damaged: {broken}; nothing of that was kept", self.link.name(), self.key);
        ApiError::new(Code::ChecksumMismatch, &self.key.file_id, message)
    }

    fn misbehaved(&self, what: &str) -> ApiError {
        let message = format!("{} does not send replica {} as it should: {what}; nothing of that was kept", self.link.name(), self.key);
        ApiError::new(Code::PeerMisbehaves, &self.key.file_id, message)
    }
}

pub fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn members_are_encoded_for_a_query() {
        assert_eq!(super::percent_encoded("a b/ä&=+%"), "a%20b/%C3%A4%26%3D%2B%25");
    }
}
