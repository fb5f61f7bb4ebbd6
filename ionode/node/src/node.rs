//! What all calls share: the accounting, the store, the origins, the events. Knows no HTTP.
//!
//! The one rule: the accounting is locked for bookkeeping only, never over I/O and never over an await.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_core::events::EventBuffer;
use stager_core::index::{EpochCheck, Index};
use stager_core::record::{Partial, Record};
use stager_core::replica::ReplicaKey;
use stager_core::space::Holder;
use stager_mounts::{Mounts, Timing};
use stager_objects::Objects;
use stager_origins::{Origin, SftpConfig};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::attempts::Attempts;
use crate::failure::{bad_request, no_space};
use crate::fingerprints::Fingerprints;
use crate::in_flight::InFlightReplicas;
use crate::packs::Packs;
use crate::peers::Peers;
use crate::store::recovery::Opened;
use crate::store::Store;
use crate::transfers::Transfers;
use crate::wire::{Event, EventsAnswer, Fact, NodeStatus, Reservation, SpaceAnswer};

pub const API: u32 = 1;
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
    /// Kind, host and base, hashed: what partials are joined by. Credentials are not part of it.
    pub identity: String,
    /// What metrics call it.
    pub label: String,
    /// What it is mounted by, for jobs that read in place.
    pub mountable: Option<SftpConfig>,
}

pub struct Node {
    pub node_id: String,
    pub incarnation: String,
    pub store: Store,
    pub can_link: bool,
    pub can_reflink: bool,
    pub transfers: Transfers,
    pub attempts: Attempts,
    pub fingerprints: Fingerprints,
    pub peers: Peers,
    pub in_flight: Arc<InFlightReplicas>,
    pub packs: Packs,
    pub mounts: Arc<Mounts>,
    pub shutdown: CancellationToken,
    pub started: Instant,
    pub started_at_s: u64,
    /// Of the S3 endpoint, where there is one.
    pub objects: OnceLock<Objects>,
    accounting: Mutex<Accounting>,
    origins: RwLock<HashMap<String, OpenOrigin>>,
    newest_event: watch::Sender<u64>,
    draining: AtomicBool,
    last_call: Mutex<Instant>,
    calls_open: AtomicUsize,
    /// Of those, calls that change something.
    calls_working: AtomicUsize,
    /// Epochs are raised one at a time, each on disk before the first call under it is served.
    epoch_lock: tokio::sync::Mutex<()>,
}

impl Node {
    pub fn new(node_id: String, opened: Opened, can_link: bool) -> Self {
        let incarnation = rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let can_reflink = crate::sandbox::copy::can_reflink(opened.store.root());
        let node = Self {
            node_id,
            incarnation,
            can_link,
            can_reflink,
            mounts: Arc::new(Mounts::new(&opened.store.root().join("mounts"), Timing::default())),
            store: opened.store,
            transfers: Transfers::default(),
            attempts: Attempts::default(),
            fingerprints: Fingerprints::default(),
            peers: Peers::default(),
            in_flight: Arc::default(),
            packs: Packs::default(),
            shutdown: CancellationToken::new(),
            started: Instant::now(),
            started_at_s: crate::scrub::now_s(),
            objects: OnceLock::new(),
            accounting: Mutex::new(Accounting { index: opened.index, events: EventBuffer::new(EVENTS_KEPT_MAX) }),
            origins: RwLock::default(),
            newest_event: watch::Sender::new(0),
            draining: AtomicBool::new(false),
            last_call: Mutex::new(Instant::now()),
            calls_open: AtomicUsize::new(0),
            calls_working: AtomicUsize::new(0),
            epoch_lock: tokio::sync::Mutex::default(),
        };
        for key in &opened.lost {
            node.emit_corrupt(&Cause::default(), key, "was gone or had another size when the node started");
        }
        node
    }

    pub fn accounting(&self) -> MutexGuard<'_, Accounting> {
        self.accounting.lock().unwrap_or_else(|_| give_up("the accounting"))
    }

    pub fn status(&self) -> NodeStatus {
        let space = self.space();
        NodeStatus {
            api: API,
            node_id: self.node_id.clone(),
            incarnation: self.incarnation.clone(),
            epoch: self.accounting().index.epoch(),
            version: stager_core::VERSION.to_string(),
            store_format: crate::store::FORMAT,
            pid: std::process::id(),
            capacity_bytes: space.capacity_bytes,
            used_bytes: space.used_bytes,
            reserved_bytes: space.reserved_bytes,
            can_link: self.can_link,
            can_reflink: self.can_reflink,
            draining: self.is_draining(),
        }
    }

    pub fn space(&self) -> SpaceAnswer {
        let accounting = self.accounting();
        let space = &accounting.index.space;
        SpaceAnswer { capacity_bytes: space.capacity_bytes(), used_bytes: space.used_bytes(), reserved_bytes: space.reserved_bytes() }
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

    /// To be held for as long as an authenticated call is answered.
    pub fn open_call(self: &Arc<Self>, works: bool) -> OpenCall {
        self.calls_open.fetch_add(1, Ordering::Relaxed);
        self.calls_working.fetch_add(usize::from(works), Ordering::Relaxed);
        OpenCall { node: self.clone(), works }
    }

    /// Whether a call that an ordered end waits for is under way: one that changes something, or a reader of content.
    pub fn is_working(&self) -> bool {
        self.calls_working.load(Ordering::Relaxed) > 0
    }

    /// How long nobody has called; zero while a call is answered.
    pub fn quiet_for(&self) -> Duration {
        match self.calls_open.load(Ordering::Relaxed) {
            0 => self.last_call.lock().expect("nobody panics here").elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// A higher epoch is obeyed from here on, and remembered over a restart; a lower one is refused.
    pub async fn obey_epoch(&self, epoch: u64) -> Result<(), ApiError> {
        loop {
            let (check, ours) = {
                let accounting = self.accounting();
                (accounting.index.check_epoch(epoch), accounting.index.epoch())
            };
            match check {
                EpochCheck::Same => return Ok(()),
                EpochCheck::Stale => {
                    let message =
                        format!("this node obeys epoch {ours} and the call came from epoch {epoch}; another scheduler has taken over");
                    return Err(ApiError::new(Code::StaleEpoch, epoch.to_string(), message));
                }
                EpochCheck::Newer => {}
            }
            let _locked = self.epoch_lock.lock().await;
            if self.accounting().index.check_epoch(epoch) == EpochCheck::Newer {
                self.store.write(vec![Record::Epoch { epoch }], Vec::new()).await?;
                self.accounting().index.apply(&Record::Epoch { epoch });
            }
        }
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
        crate::metrics::counts().quarantines.inc();
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

    pub fn acknowledge(&self, seq: u64) {
        self.accounting().events.ack(seq);
        self.transfers.forget_through(seq);
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

pub struct OpenCall {
    node: Arc<Node>,
    works: bool,
}

impl OpenCall {
    /// From now on an ordered end waits for it.
    pub fn works(mut self) -> Self {
        self.node.calls_working.fetch_add(usize::from(!self.works), Ordering::Relaxed);
        self.works = true;
        self
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        *self.node.last_call.lock().expect("nobody panics here") = Instant::now();
        self.node.calls_open.fetch_sub(1, Ordering::Relaxed);
        self.node.calls_working.fetch_sub(usize::from(self.works), Ordering::Relaxed);
    }
}

/// Bookkeeping that broke off half-way is worth nothing: the log is the truth, and a restart reads it.
pub fn give_up(what: &str) -> ! {
    tracing::error!(what, "a bug broke the node's bookkeeping; it ends at once and recovers from its log when started again");
    std::process::abort()
}

/// An absolute, clean path given by the scheduler for a place outside the store.
pub fn checked_directory(path: &str, store: &Path) -> Result<PathBuf, ApiError> {
    let clean = path.strip_prefix('/').is_some_and(stager_core::ids::is_relative_path);
    if !clean {
        return Err(bad_request(path, format!("the sandbox {path:?} is no clean absolute path; write it as /a/b/c")));
    }
    let path_buf = PathBuf::from(path);
    if path_buf.starts_with(store) || store.starts_with(&path_buf) {
        return Err(bad_request(
            path,
            format!("the sandbox {path} and the store {} contain one another; keep them apart", store.display()),
        ));
    }
    Ok(path_buf)
}
