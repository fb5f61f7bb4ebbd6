//! Checksums of the ranges of one large file, computed by the server's own shell while the rest of it is on its way. Knows one constant
//! command.
//!
//! The one rule: a range is asked for when the server has confirmed all writes to it, and the file is proven only if each of its ranges is.
//!
//! A server's `sha256sum` takes most of a minute for 10 GB. That minute would come after the last byte; so it has gone by when that is there.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FusedFuture, Shared};
use futures::FutureExt;
use russh::client::{Handle, Msg};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::checksum::{ended_by_nul, line_of, parsed, started, timeout, Sum, LINE_BYTES_MAX};
use super::host_key::Client;
use crate::local::Source;

/// Four words of each range: the file, the size of a block, how many blocks come before it, and how many it has. A name is a word among
/// others that the script is given, and no part of the script.
const COMMAND: &str = r#"xargs -0 -n 4 sh -c 'dd if="$1" bs="$2" skip="$3" count="$4" 2>/dev/null | sha256sum || echo none' sh"#;

/// What the shell said of all ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    Same,
    Other,
    /// No shell, no such command, or it took too long.
    Nothing,
    /// The server opened none for the command, which says nothing of the shell.
    NoChannel,
}

/// Of one file that is being written.
pub struct RangeSums {
    range_bytes: u64,
    /// Of each range, the bytes whose writes the server has not confirmed.
    left_bytes: Vec<AtomicU64>,
    left_ranges: AtomicUsize,
    /// Until the last one is. None as well when all this is gone: then who asks ends by itself, and with it the command.
    written: Mutex<Option<UnboundedSender<Written>>>,
    asking: Shared<BoxFuture<'static, Answered>>,
}

struct Written {
    range: u64,
    sum: Sum,
}

impl RangeSums {
    pub fn begin(ssh: Arc<Handle<Client>>, place: OwnedSemaphorePermit, remote: &str, source: &Source, size_bytes: u64) -> Self {
        let (written, come) = unbounded_channel();
        let range_bytes = source.range_bytes();
        let bytes_of = |range: u64| AtomicU64::new(range_bytes.min(size_bytes - range * range_bytes));
        let (left_bytes, left_ranges) = ((0..source.ranges()).map(bytes_of).collect(), AtomicUsize::new(source.ranges() as usize));
        let file = File { remote: remote.to_owned(), block_bytes: source.read_bytes(), range_bytes };
        let asking = tokio::spawn(async move {
            let _place = place;
            ask(&ssh, &file, come).await
        });
        let asking = asking.map(|said| said.expect("asking does not panic")).boxed().shared();
        Self { range_bytes, left_bytes, left_ranges, written: Mutex::new(Some(written)), asking }
    }

    /// The server has confirmed this piece, which lies in one range.
    pub async fn piece_written(&self, source: &Source, offset: u64, length: u64) {
        let range = offset / self.range_bytes;
        if self.left_bytes[range as usize].fetch_sub(length, Ordering::AcqRel) == length {
            let sum = source.range_sha256(range).await;
            let mut written = self.written.lock().expect("no holder panics");
            // Who asks may have had its answer already.
            written.as_ref().map(|written| written.send(Written { range, sum }).ok());
            if self.left_ranges.fetch_sub(1, Ordering::AcqRel) == 1 {
                *written = None;
            }
        }
    }

    /// When all ranges are told of, or as soon as one is no proof.
    pub async fn said(&self) -> Answered {
        self.asking.clone().await
    }
}

struct File {
    remote: String,
    block_bytes: u64,
    range_bytes: u64,
}

impl File {
    fn question(&self, range: u64) -> Vec<u8> {
        let blocks = self.range_bytes / self.block_bytes;
        let words = [self.remote.clone(), self.block_bytes.to_string(), (range * blocks).to_string(), blocks.to_string()];
        words.iter().flat_map(|word| ended_by_nul(word)).collect()
    }

    fn timeout(&self) -> Duration {
        timeout(self.range_bytes)
    }
}

async fn ask(ssh: &Handle<Client>, file: &File, written: UnboundedReceiver<Written>) -> Answered {
    let Ok(Ok(channel)) = tokio::time::timeout(timeout(0), ssh.channel_open_session()).await else { return Answered::NoChannel };
    let Ok(Some(channel)) = tokio::time::timeout(timeout(0), started(channel, COMMAND)).await else { return Answered::Nothing };
    let (answers, questions) = channel.split();
    let said = compared(file, written, &questions, answers).await;
    questions.eof().await.ok();
    said
}

/// Answers are taken while a question is sent, as in `checksum`.
async fn compared(
    file: &File,
    mut written: UnboundedReceiver<Written>,
    questions: &ChannelWriteHalf<Msg>,
    mut answers: ChannelReadHalf,
) -> Answered {
    let (mut expected, mut since, mut rest) = (VecDeque::<Sum>::new(), Instant::now(), Vec::new());
    let (mut sending, mut is_all_asked) = (Fuse::terminated(), false);
    while !(is_all_asked && expected.is_empty()) {
        let may_ask = sending.is_terminated() && !is_all_asked;
        let answer_due = since + file.timeout();
        tokio::select! {
            next = written.recv(), if may_ask => match next {
                Some(Written { range, sum }) => {
                    if expected.is_empty() {
                        since = Instant::now();
                    }
                    expected.push_back(sum);
                    sending = questions.data_bytes(file.question(range)).boxed().fuse();
                }
                None => is_all_asked = true,
            },
            sent = &mut sending => if sent.is_err() {
                return Answered::Nothing;
            },
            message = answers.wait() => match message {
                Some(ChannelMsg::Data { data }) => {
                    rest.extend_from_slice(&data);
                    while let Some(line) = line_of(&mut rest) {
                        match parsed(&line).zip(expected.pop_front()) {
                            Some((found, wanted)) if found == wanted => since = Instant::now(),
                            Some(_) => return Answered::Other,
                            None => return Answered::Nothing,
                        }
                    }
                    if rest.len() > LINE_BYTES_MAX {
                        return Answered::Nothing;
                    }
                }
                None | Some(ChannelMsg::Failure | ChannelMsg::Eof | ChannelMsg::Close | ChannelMsg::ExitStatus { .. }) => return Answered::Nothing,
                Some(_) => {}
            },
            () = tokio::time::sleep_until(answer_due), if !expected.is_empty() => return Answered::Nothing,
        }
    }
    Answered::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_and_no_part_of_the_script() {
        let file = File { remote: "/lab/'; rm -r $(HOME)".to_owned(), block_bytes: 4 << 20, range_bytes: 16 << 20 };
        assert_eq!(file.question(3), b"/lab/'; rm -r $(HOME)\x004194304\x0012\x004\0");
    }
}
