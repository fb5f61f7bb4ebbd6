//! The scrubber: reads every replica again and again, in the order of longest not verified, then objects, and acts on what it finds. Knows
//! replicas by `Fingerprints::matches_by` only, so where their bytes lie is none of its business.
//!
//! The one rule: it is in nobody's way. It takes no lease, holds no lock while it reads, keeps to its rate and leaves the page cache as it was.

pub mod cache;
mod memory;
mod objects;
mod reading;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stager_core::error::ApiError;
use stager_core::replica::{Replica, ReplicaKey, ReplicaState};
use stager_objects::Objects;
use tokio::runtime::Handle;

use crate::clock::now_s;
use crate::context::Cause;
use crate::fingerprints::Fingerprints;
use crate::metrics::{self, Finding};
use crate::transfers::Transfers;
use objects::Walk;
use reading::Reading;

/// How many keys are looked at under one hold of the accounting.
const KEYS_AT_ONCE: usize = 1000;
/// An order this old is made anew: replicas come and go.
const ORDER_FOR: Duration = Duration::from_secs(3600);
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(600);
const SAVE_EVERY: Duration = Duration::from_secs(600);
const ONCE_MORE_AFTER: Duration = Duration::from_secs(1);
const ENDS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Never 0.
    pub bytes_per_s: u64,
    /// The least time between two readings of one replica.
    pub every_s: u64,
}

pub struct Scrubber(JoinHandle<()>);

/// Runs until the node ends; slower while transfers run. `objects`: of the S3 endpoint, where there is one.
pub fn start(transfers: Arc<Transfers>, objects: Option<Objects>, manner: Manner) -> std::io::Result<Scrubber> {
    let fingerprints = transfers.fingerprints.clone();
    memory::recall(&fingerprints);
    let runtime = Handle::current();
    let work = move || {
        reading::be_humble();
        let reading = Reading::new(transfers, runtime.clone(), manner);
        Round { reading, fingerprints, objects, runtime, manner, saved: Instant::now(), walk: Walk::default() }.run();
    };
    std::thread::Builder::new().name("scrub".into()).spawn(work).map(Scrubber)
}

impl Scrubber {
    /// The node has ended: what is remembered is on its way to the disk. A disk that hangs is not waited for.
    pub async fn join(self) {
        let deadline = Instant::now() + ENDS_WITHIN;
        while !self.0.is_finished() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Round {
    fingerprints: Arc<Fingerprints>,
    objects: Option<Objects>,
    runtime: Handle,
    manner: Manner,
    reading: Reading,
    saved: Instant,
    walk: Walk,
}

/// Which replica is due, longest not verified first; and when the next one is if none is.
struct Order {
    due: Vec<(u64, ReplicaKey)>,
    next_in: Duration,
}

impl Round {
    fn run(&mut self) {
        while !self.is_over() {
            let (order, made) = (self.order(), Instant::now());
            let mut left = order.due.len();
            for (_, key) in &order.due {
                metrics::counts().scrub_due.set(left as i64);
                if self.is_over() || made.elapsed() >= ORDER_FOR {
                    break;
                }
                self.check(key);
                left -= 1;
                self.save_if(self.saved.elapsed() >= SAVE_EVERY);
            }
            metrics::counts().scrub_due.set(left as i64);
            metrics::counts().scrub_rounds.inc();
            self.save_if(!order.due.is_empty() && self.saved.elapsed() >= SAVE_EVERY);
            let next_object_in = self.check_objects();
            self.rest(order.next_in.min(next_object_in));
        }
        self.save_if(true);
    }

    fn is_over(&self) -> bool {
        self.fingerprints.context.shutdown.is_cancelled()
    }

    fn rest(&self, time: Duration) {
        let _ = self.runtime.block_on(async { tokio::time::timeout(time, self.fingerprints.context.shutdown.cancelled()).await });
    }

    fn order(&self) -> Order {
        let (mut due, mut oldest_s, now) = (Vec::new(), now_s(), now_s());
        // Who comes new was verified just now.
        let mut next_in = Duration::from_secs(self.manner.every_s).min(REST_MAX);
        let mut behind: Option<ReplicaKey> = None;
        loop {
            let page: Vec<(ReplicaKey, bool)> = {
                let accounting = self.fingerprints.context.accounting();
                let page = accounting.index.replicas_behind(behind.as_ref(), KEYS_AT_ONCE);
                page.map(|replica| (replica.key(), replica.state == ReplicaState::Present)).collect()
            };
            let Some((last, _)) = page.last() else { break };
            behind = Some(last.clone());
            for (key, _) in page.into_iter().filter(|(_, present)| *present) {
                let at_s = self.fingerprints.hashed_at_s(&key);
                oldest_s = oldest_s.min(at_s.unwrap_or(self.fingerprints.context.started_at_s));
                let at_s = at_s.unwrap_or(0);
                match (at_s + self.manner.every_s).saturating_sub(now) {
                    0 => due.push((at_s, key)),
                    wait_s => next_in = next_in.min(Duration::from_secs(wait_s)),
                }
            }
        }
        metrics::counts().scrub_oldest.set(now.saturating_sub(oldest_s) as i64);
        due.sort();
        Order { due, next_in: next_in.max(REST_MIN) }
    }

    fn check(&mut self, key: &ReplicaKey) {
        let Ok(replica) = self.fingerprints.context.accounting().index.readable(key).cloned() else { return };
        let (mut outcome, mut faulty) = self.read(&replica);
        if outcome.is_err() && faulty {
            self.rest(ONCE_MORE_AFTER);
            (outcome, faulty) = self.read(&replica);
        }
        match outcome {
            // Deleted meanwhile, or the node ends: what was found says nothing.
            _ if self.is_over() || self.fingerprints.context.accounting().index.readable(key).is_err() => {}
            Ok(true) => self.found("sound"),
            Ok(false) => self.act_on(key, "corrupt", "does not have the content it was committed with"),
            Err(error) if faulty => {
                tracing::error!(replica = %key, %error, "a replica cannot be read from the disk");
                self.act_on(key, "unreadable", "cannot be read from the node's disk");
            }
            Err(error) => {
                tracing::warn!(replica = %key, %error, "a replica could not be verified now; the scrubber reads it again later");
                self.found("unreadable");
                self.rest(ONCE_MORE_AFTER);
            }
        }
    }

    /// Whether it matches; and, where it cannot be told, whether the disk is why.
    fn read(&mut self, replica: &Replica) -> (Result<bool, ApiError>, bool) {
        self.reading.begin(Some(&replica.key()));
        let outcome = self
            .fingerprints
            .is_there(replica)
            .and_then(|there| Ok(there && self.fingerprints.matches_by(replica, &mut |file, path| self.reading.digests(file, path))?));
        let outcome = match outcome {
            Ok(matches) => self.reading.settle(replica.size_bytes).map(|()| matches),
            failed => failed,
        };
        (outcome, self.reading.disk_failed())
    }

    fn found(&self, result: &'static str) {
        metrics::counts().scrub_replicas.get_or_create(&Finding { result }).inc();
    }

    fn act_on(&self, key: &ReplicaKey, result: &'static str, what: &str) {
        self.found(result);
        if let Err(error) = self.runtime.block_on(self.fingerprints.context.quarantine(&Cause::default(), key, what)) {
            tracing::error!(replica = %key, %error, "a damaged replica could not be quarantined; the scrubber reads it again later");
            self.rest(ONCE_MORE_AFTER);
        }
    }

    fn save_if(&mut self, due: bool) {
        if due {
            self.saved = Instant::now();
            if let Err(error) = memory::save(&self.fingerprints) {
                tracing::warn!(%error, "the times of verification could not be saved; after a restart the scrubber reads all replicas anew");
            }
        }
    }
}
