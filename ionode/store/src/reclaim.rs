//! Collecting garbage: segments that hold little move what still counts to the end of the log and are dropped.
//!
//! The one rule: a segment goes only when nothing in the index points into it and what it held is on disk elsewhere.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use stager_core::error::ApiError;
use tokio::sync::oneshot;

use crate::failure::at;
use crate::format::SEGMENT_HEADER_BYTES;
use crate::segments::{Scanner, Segment};
use crate::writer::{gone, Message, Moving};
use crate::writer_lease::WriterLeases;
use crate::Shared;

/// From so much of it being garbage on, a segment is worth moving: so no byte is moved more than once for each byte that comes back.
const GARBAGE_SHARE: f64 = 0.5;
/// Moved at once; foreground writes go in between.
const MOVE_BYTES: u64 = 1 << 20;
/// The newest segment is ended early, for its garbage, from this part of its size on.
const ROLL_OVER_FROM_PART: u64 = 16;
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Tells the collector to end, in its pause too.
#[derive(Default)]
pub struct Stopping {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    pub fn stop(&self) {
        *self.stopped.lock().expect("nobody panics here") = true;
        self.changed.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.stopped.lock().expect("nobody panics here")
    }

    fn wait(&self, most: Duration) -> bool {
        let stopped = self.stopped.lock().expect("nobody panics here");
        *self.changed.wait_timeout_while(stopped, most, |stopped| !*stopped).expect("nobody panics here").0
    }
}

pub fn start(shared: Arc<Shared>, leases: Arc<WriterLeases>, stopping: Arc<Stopping>) -> Result<std::thread::JoinHandle<()>, ApiError> {
    let directory = shared.directory.clone();
    let work = move || {
        while !stopping.wait(LOOK_EVERY) {
            if let Err(error) = round(&shared, &leases, &stopping) {
                tracing::warn!(%error, "a round of collecting garbage stopped early; the next one continues");
            }
        }
    };
    std::thread::Builder::new().name("reclaim".into()).spawn(work).map_err(at("starting the collector of", &directory))
}

/// Gives back every segment that is worth it.
pub fn round(shared: &Shared, leases: &WriterLeases, stopping: &Stopping) -> Result<(), ApiError> {
    if newest_is_garbage(shared)? {
        ask(leases, |answer| Message::RollOver { answer })?;
    }
    while let Some(segment) = victim(shared)? {
        if !empty(shared, leases, stopping, &segment)? {
            return Ok(());
        }
        ask(leases, |answer| Message::Drop { segment: segment.header.number, answer })?;
    }
    Ok(())
}

fn ask(leases: &WriterLeases, message: impl FnOnce(oneshot::Sender<Result<(), ApiError>>) -> Message) -> Result<(), ApiError> {
    let (answer, answered) = oneshot::channel();
    leases.send(message(answer))?;
    answered.blocking_recv().map_err(|_| gone())?
}

/// And large enough to be worth a file of its own.
fn newest_is_garbage(shared: &Shared) -> Result<bool, ApiError> {
    let Some(newest) = shared.segments.newest() else { return Ok(false) };
    let uses = shared.index_counters.lock().expect("nobody panics here").uses.get(&newest.header.number).copied().unwrap_or_default();
    let total_bytes = newest.length()?;
    let large = total_bytes >= shared.options.segment_bytes / ROLL_OVER_FROM_PART;
    Ok(large && (uses.live_bytes + uses.mark_bytes) as f64 <= total_bytes as f64 * (1.0 - GARBAGE_SHARE))
}

/// The segment with the largest share of garbage, if it is worth the work; never the newest. The oldest one needs no marks.
fn victim(shared: &Shared) -> Result<Option<Arc<Segment>>, ApiError> {
    let all = shared.segments.from(0);
    let Some((_, sealed)) = all.split_last() else { return Ok(None) };
    let uses = shared.index_counters.lock().expect("nobody panics here").uses.clone();
    let mut best: Option<(f64, Arc<Segment>)> = None;
    for (at, segment) in sealed.iter().enumerate() {
        let used = uses.get(&segment.header.number).copied().unwrap_or_default();
        let kept_bytes = used.live_bytes + if at == 0 { 0 } else { used.mark_bytes };
        let total_bytes = segment.length()?.saturating_sub(SEGMENT_HEADER_BYTES).max(1);
        let share = 1.0 - kept_bytes as f64 / total_bytes as f64;
        if share >= GARBAGE_SHARE && best.as_ref().is_none_or(|(most, _)| share > *most) {
            best = Some((share, segment.clone()));
        }
    }
    Ok(best.map(|(_, segment)| segment))
}

/// Moves what still counts; `false`: it was told to stop.
fn empty(shared: &Shared, leases: &WriterLeases, stopping: &Stopping, segment: &Segment) -> Result<bool, ApiError> {
    let number = segment.header.number;
    let used = shared.index_counters.lock().expect("nobody panics here").uses.get(&number).copied().unwrap_or_default();
    if used.live_bytes == 0 && shared.segments.oldest_number() == Some(number) {
        return Ok(true);
    }
    let index = shared.index()?;
    let mut scanner = Scanner::new(segment)?;
    let mut offset = SEGMENT_HEADER_BYTES;
    let (mut moving, mut bytes) = (Vec::new(), 0);
    while let Some(frame) = scanner.frame_at(offset)? {
        offset = frame.end;
        for (entry, range) in frame.entries {
            let now = index.get(entry.table, &entry.key)?;
            let newest = now.as_ref().is_some_and(|now| (now.segment, now.offset, now.version) == (number, range.start, entry.version));
            let value = match newest {
                true => Bytes::from(segment.read(range.start, entry.value_bytes as usize)?),
                // A put that is not the newest is garbage; marks have no value.
                false if entry.kind == crate::format::Kind::Put => continue,
                false => Bytes::new(),
            };
            bytes += entry.log_bytes();
            moving.push(Moving { entry, value, segment: number, offset: range.start });
            if bytes >= MOVE_BYTES {
                hand_over(leases, std::mem::take(&mut moving))?;
                bytes = 0;
            }
        }
        if stopping.is_set() {
            return Ok(false);
        }
    }
    hand_over(leases, moving)?;
    Ok(true)
}

fn hand_over(leases: &WriterLeases, moving: Vec<Moving>) -> Result<(), ApiError> {
    ask(leases, |answer| Message::Move { moving, answer })
}
