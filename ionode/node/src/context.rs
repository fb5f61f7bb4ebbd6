//! What all subsystems share: the store, the accounting, the events, the origins, files in flight, the end. Knows no subsystem and no HTTP.
//!
//! The one rule: the accounting is locked for bookkeeping only, never over I/O and never over an await.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_core::events::EventBuffer;
use stager_core::index::{EpochCheck, Index};
use stager_core::record::{Partial, Record};
use stager_core::replica::{Replica, ReplicaKey};
use stager_core::space::Holder;
use stager_origins::{Origin, OriginConfig, SftpConfig};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::now_s;
use crate::failure::no_space;
use crate::in_flight::InFlightReplicas;
use crate::metrics;
use crate::store::recovery::Opened;
use crate::store::Store;
use crate::wire::{Event, EventsAnswer, Fact, Reservation, SpaceAnswer};

const EVENTS_KEPT_MAX: usize = 100_000;
const EVENTS_PER_CALL_MAX: usize = 1_000;

/// Who asked for something: goes into its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub epoch: u64,
    pub command_id: Option<String>,
}

impl Cause {
    /// Every line that is written for a call names it. A call that mostly has nothing to tell makes one when it has.
    pub fn span(&self, method: &'static str, path: &'static str) -> tracing::Span {
        tracing::info_span!("call", method, path, command_id = self.command_id, epoch = self.epoch)
    }
}

pub struct Accounting {
    pub index: Index,
    pub events: EventBuffer<Event>,
}

/// An origin as the scheduler described it last.
#[derive(Clone)]
pub struct OpenOrigin {
    pub origin: Arc<dyn Origin>,
    pub config: OriginConfig,
    /// Kind, host and base, hashed: what partials are joined by. Credentials are not part of it.
    pub identity: String,
    /// What metrics call it.
    pub label: String,
    /// What it is mounted by, for jobs that read in place.
    pub mountable: Option<SftpConfig>,
}

pub struct NodeContext {
    pub node_id: String,
    pub incarnation: String,
    pub store: Store,
    pub in_flight: Arc<InFlightReplicas>,
    pub shutdown: CancellationToken,
    pub started: Instant,
    pub started_at_s: u64,
    accounting: Mutex<Accounting>,
    origins: RwLock<HashMap<String, OpenOrigin>>,
    newest_event: watch::Sender<u64>,
    draining: AtomicBool,
    /// Epochs are raised one at a time, each on disk before the first call under it is served.
    epoch_lock: tokio::sync::Mutex<()>,
}

impl NodeContext {
    pub fn new(node_id: String, opened: Opened) -> Self {
        let context = Self {
            node_id,
            incarnation: rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect(),
            store: opened.store,
            in_flight: Arc::default(),
            shutdown: CancellationToken::new(),
            started: Instant::now(),
            started_at_s: now_s(),
            accounting: Mutex::new(Accounting { index: opened.index, events: EventBuffer::new(EVENTS_KEPT_MAX) }),
            origins: RwLock::default(),
            newest_event: watch::Sender::new(0),
            draining: AtomicBool::new(false),
            epoch_lock: tokio::sync::Mutex::default(),
        };
        for key in &opened.lost {
            context.emit_corrupt(&Cause::default(), key, "was gone or had another size when the node started");
        }
        context
    }

    pub fn accounting(&self) -> MutexGuard<'_, Accounting> {
        self.accounting.lock().unwrap_or_else(|_| give_up("the accounting"))
    }

    pub fn space(&self) -> SpaceAnswer {
        let accounting = self.accounting();
        let space = &accounting.index.space;
        SpaceAnswer { capacity_bytes: space.capacity_bytes(), used_bytes: space.used_bytes(), reserved_bytes: space.reserved_bytes() }
    }

    pub fn replica(&self, key: &ReplicaKey) -> Result<Replica, ApiError> {
        self.accounting().index.replica(key).cloned().ok_or_else(|| {
            ApiError::new(Code::ReplicaUnknown, &key.file_id, format!("there is no replica {key} on this node; fetch or copy it first"))
        })
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn refuse_if_draining(&self, subject: &str) -> Result<(), ApiError> {
        if !self.is_draining() {
            return Ok(());
        }
        Err(ApiError::new(
            Code::Draining,
            subject,
            format!("the node {} is ending and takes no new work; use another node or start it again", self.node_id),
        ))
    }

    /// A higher epoch is obeyed from here on, and remembered over a restart; a lower one is refused.
    pub async fn obey_epoch(&self, epoch: u64) -> Result<(), ApiError> {
        loop {
            if self.refuse_stale_epoch(epoch)? == EpochCheck::Same {
                return Ok(());
            }
            let _locked = self.epoch_lock.lock().await;
            if self.accounting().index.check_epoch(epoch) == EpochCheck::Newer {
                self.store.write(vec![Record::Epoch { epoch }], Vec::new()).await?;
                self.accounting().index.apply(&Record::Epoch { epoch });
            }
        }
    }

    /// An epoch that is newer is let pass, and not obeyed.
    pub fn refuse_stale_epoch(&self, epoch: u64) -> Result<EpochCheck, ApiError> {
        let (check, ours) = {
            let accounting = self.accounting();
            (accounting.index.check_epoch(epoch), accounting.index.epoch())
        };
        if check == EpochCheck::Stale {
            let message = format!("this node obeys epoch {ours} and the call came from epoch {epoch}; another scheduler has taken over");
            return Err(ApiError::new(Code::StaleEpoch, epoch.to_string(), message));
        }
        Ok(check)
    }

    pub fn emit(&self, cause: &Cause, fact: Fact) -> Event {
        let mut accounting = self.accounting();
        let event = accounting.events.push(|seq| Event { seq, epoch: cause.epoch, command_id: cause.command_id.clone(), fact });
        drop(accounting);
        self.newest_event.send_modify(|newest| *newest = (*newest).max(event.seq));
        event
    }

    /// As many of one cause, one after the other.
    pub fn emit_all(&self, cause: &Cause, facts: impl Iterator<Item = Fact>) {
        let mut accounting = self.accounting();
        let event = |seq, fact| Event { seq, epoch: cause.epoch, command_id: cause.command_id.clone(), fact };
        let last = facts.map(|fact| accounting.events.push(|seq| event(seq, fact)).seq).last();
        drop(accounting);
        if let Some(last) = last {
            self.newest_event.send_modify(|newest| *newest = (*newest).max(last));
        }
    }

    pub fn emit_corrupt(&self, cause: &Cause, key: &ReplicaKey, what: &str) {
        let message = format!("replica {key} {what}; it is quarantined and has to be made again");
        let error = ApiError::new(Code::ChecksumMismatch, &key.file_id, message);
        tracing::warn!(replica = %key, what, "quarantined a replica");
        metrics::counts().quarantines.inc();
        self.emit(cause, Fact::ReplicaCorrupt { file_id: key.file_id.clone(), generation: key.generation.clone(), error });
    }

    /// Waits until there is an event after `after`, the time is up or the node ends.
    pub async fn events(&self, after: u64, wait: Duration) -> EventsAnswer {
        self.event_after(after, wait).await;
        let accounting = self.accounting();
        let (events, gap) = accounting.events.after(after, EVENTS_PER_CALL_MAX);
        EventsAnswer { incarnation: self.incarnation.clone(), events, next_seq: accounting.events.next_seq(), gap }
    }

    pub fn newest_event(&self) -> u64 {
        *self.newest_event.borrow()
    }

    /// As `events` waits, without reading them.
    pub async fn event_after(&self, after: u64, wait: Duration) {
        let mut newest = self.newest_event.subscribe();
        let wanted = newest.wait_for(|newest| *newest > after);
        tokio::select! {
            _ = tokio::time::timeout(wait, wanted) => {}
            () = self.shutdown.cancelled() => {}
        }
    }

    /// Grants space; partials that nobody works on are evicted for it.
    pub fn reserve(&self, holder: Holder, subject: &str, bytes: u64) -> Result<(), ApiError> {
        self.reserve_with(holder, subject, bytes, |_| None).map(drop)
    }

    /// As `reserve`, for who has no span unless there is something to tell.
    pub fn reserve_in(&self, span: impl FnOnce() -> tracing::Span, holder: Holder, subject: &str, bytes: u64) -> Result<(), ApiError> {
        let granted = self.accounting().index.reserve(holder, bytes);
        let given_up = granted.map_err(|short| no_space(&self.node_id, subject, short))?;
        if !given_up.is_empty() {
            span().in_scope(|| given_up.iter().for_each(|key| self.forget_partial_file(key)));
        }
        Ok(())
    }

    /// As `reserve`, after a partial was claimed; it is idle again if there is no space.
    pub fn reserve_with(
        &self,
        holder: Holder,
        subject: &str,
        bytes: u64,
        claim: impl FnOnce(&mut Index) -> Option<Partial>,
    ) -> Result<Option<Partial>, ApiError> {
        let mut accounting = self.accounting();
        let claimed = claim(&mut accounting.index);
        let granted = accounting.index.reserve(holder, bytes);
        if let (Err(_), Some(partial)) = (&granted, &claimed) {
            accounting.index.put_partial(partial.clone(), false);
        }
        drop(accounting);
        for key in granted.map_err(|short| no_space(&self.node_id, subject, short))? {
            self.forget_partial_file(&key);
        }
        Ok(claimed)
    }

    fn forget_partial_file(&self, key: &ReplicaKey) {
        let path = self.store.partial_path(key);
        tracing::info!(partial = %key, "evicted a partial transfer to free space");
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "a partial cannot be removed; a restart removes it");
        }
    }

    pub fn set_reservation(&self, id: &str, bytes: u64) -> Result<Reservation, ApiError> {
        self.reserve(Holder::Named(id.to_string()), id, bytes)?;
        Ok(Reservation { id: id.to_string(), bytes })
    }

    pub fn put_origin(&self, origin_id: &str, origin: OpenOrigin) {
        self.origins.write().expect("nobody panics here").insert(origin_id.to_string(), origin);
    }

    pub fn origin(&self, origin_id: &str) -> Result<OpenOrigin, ApiError> {
        let found = self.origins.read().expect("nobody panics here").get(origin_id).cloned();
        found.ok_or_else(|| {
            ApiError::new(
                Code::OriginUnknown,
                origin_id,
                format!("the origin {origin_id} was not described to this node since it started; put it first"),
            )
        })
    }

    /// Logs the quarantine, then says so.
    pub async fn quarantine(&self, cause: &Cause, key: &ReplicaKey, what: &str) -> Result<(), ApiError> {
        let record = Record::Quarantine { key: key.clone() };
        self.store.write(vec![record.clone()], Vec::new()).await?;
        self.accounting().index.apply(&record);
        self.emit_corrupt(cause, key, what);
        Ok(())
    }
}

/// Bookkeeping that broke off half-way is worth nothing: the log is the truth, and a restart reads it.
pub fn give_up(what: &str) -> ! {
    tracing::error!(what, "a bug broke the node's bookkeeping; it ends at once and recovers from its log when started again");
    std::process::abort()
}
