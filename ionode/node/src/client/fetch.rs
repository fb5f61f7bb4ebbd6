//! A replica, or the stripes of one on several nodes, into one file: each part from a node that holds it, from all of them at once.
//!
//! The one rule: a part that a node does not give rightly is asked of another node that holds it; only when none does, the fetch fails.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use blake3::hazmat::HasherExt;
use bytes::Bytes;
use futures::future::join_all;
use serde::Serialize;
use stager_core::error::{ApiError, Class, Code};
use stager_core::ids::check_id;
use stager_core::replica::{ReplicaKey, ReplicaKind};
use stager_core::stripes::{Layout, Share};
use stager_origins::stalled;
use stager_origins::Sink;
use tokio::sync::Notify;

use super::part::{Heading, Known, PartFile};
use super::{link, FetchOptions};
use crate::blocking::blocking;
use crate::failure::{at, bad_request};
use crate::peers::link::{Link, Term};
use crate::peers::source::Source;
use crate::stripes::{from_hex, hex, merged, StripeManifest};

/// How a file that nobody has in stripes is cut.
const PART_BYTES: u64 = 8 << 20;
/// A node that is still receiving the file itself may wait for its origin.
const STALL: Duration = Duration::from_secs(90);

#[derive(Serialize)]
pub struct Fetched {
    path: String,
    size_bytes: u64,
    blake3: String,
    pub(super) bytes_moved: u64,
    duration_s: f64,
    /// Bytes by node.
    nodes: BTreeMap<String, u64>,
    /// What nodes did wrong, where others made up for it.
    faults: Vec<String>,
}

/// One node and what it has of the file.
struct Holder {
    link: Link,
    name: String,
    size_bytes: u64,
    /// `None`: all of it.
    stripes: Option<Layout>,
    /// Of all of it, once it is known there.
    blake3: Option<String>,
    /// What it noted of its stripes when they came; not there while they come.
    noted: Option<StripeManifest>,
    moved: AtomicU64,
}

impl Holder {
    fn holds(&self, part: u64) -> bool {
        self.stripes.is_none_or(|layout| part % layout.count == layout.index)
    }

    fn as_noted(&self, noted: &StripeManifest, key: &ReplicaKey, part: u64, value: [u8; 32]) -> Result<(), ApiError> {
        let stripe = noted.stripes.get((part / noted.layout.count) as usize);
        if stripe.and_then(|stripe| from_hex(&stripe.blake3_cv)) == Some(value) {
            return Ok(());
        }
        let message =
            format!("stripe {part} of {key} has changed on the node {} since it came there; verify it there, and fetch it anew", self.name);
        Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message))
    }
}

pub async fn run(options: FetchOptions) -> Result<Fetched, ApiError> {
    check_id("file id", &options.file)?;
    check_id("generation", &options.generation)?;
    if options.to.symlink_metadata().is_ok() {
        let target = options.to.display().to_string();
        return Err(bad_request(&target, format!("{target} is there already; name another file or remove it")));
    }
    let started = Instant::now();
    let key = ReplicaKey::new(&options.file, &options.generation);
    let mut faults = Vec::new();
    let mut holders = Vec::new();
    for asked in join_all(options.nodes.iter().map(|node| ask(node, &key))).await {
        match asked {
            Ok(holder) => holders.push(holder),
            Err(error) if error.class == Class::InvalidInput && error.code == Code::BadRequest => return Err(error),
            Err(error) => faults.push(error),
        }
    }
    let layout = cut(&key, &holders, &faults)?;
    let heading = Heading { file_id: key.file_id.clone(), generation: key.generation.clone(), layout };
    let target = options.to.clone();
    let (part_file, there) = blocking(move || PartFile::open(&target, &heading)).await?;
    let work = Work::new(&key, layout, holders, Arc::new(part_file), &there);
    work.run(options.connections).await?;
    let Work { holders, state, part_file, .. } = work;
    let state = state.into_inner().expect("nobody panics here");
    let blake3 = judge(&key, &layout, &holders, &state, options.blake3.as_deref()).await;
    let part_file = Arc::into_inner(part_file).expect("all parts are done");
    let blake3 = match blake3 {
        Ok(blake3) => blake3,
        Err(error) => {
            part_file.drop_all()?;
            return Err(error);
        }
    };
    blocking(move || part_file.finish()).await?;
    let nodes: BTreeMap<String, u64> = holders.iter().map(|holder| (holder.name.clone(), holder.moved.load(Ordering::Relaxed))).collect();
    faults.extend(state.faults);
    Ok(Fetched {
        path: options.to.display().to_string(),
        size_bytes: layout.file_bytes,
        blake3,
        bytes_moved: nodes.values().sum(),
        duration_s: started.elapsed().as_secs_f64(),
        nodes,
        faults: faults.into_iter().map(|fault| fault.message).collect(),
    })
}

async fn ask(node: &str, key: &ReplicaKey) -> Result<Holder, ApiError> {
    let link = link(node)?;
    let said = link.source(Term::Its, key, false).await?;
    if said.kind == ReplicaKind::Directory {
        return Err(bad_request(&key.file_id, format!("replica {key} is a directory; only files are fetched so")));
    }
    let name = link.identity().await?.node_id;
    let noted = match said.stripes.is_some() && said.blake3.is_some() {
        true => Some(noted(&link, key).await?),
        false => None,
    };
    let blake3 = said.blake3.filter(|_| said.stripes.is_none());
    Ok(Holder { link, name, size_bytes: said.size_bytes, stripes: said.stripes, blake3, noted, moved: AtomicU64::new(0) })
}

async fn noted(link: &Link, key: &ReplicaKey) -> Result<StripeManifest, ApiError> {
    StripeManifest::parse(&link.manifest(Term::Its, key).await?, &key.file_id)
}

/// One cut for all nodes: that of the stripes, if some have only those.
fn cut(key: &ReplicaKey, holders: &[Holder], faults: &[ApiError]) -> Result<Layout, ApiError> {
    let Some(first) = holders.first() else {
        return Err(faults.first().cloned().unwrap_or_else(|| bad_request(&key.file_id, "no node was named")));
    };
    let differs = |what: &str| {
        let message = format!("the nodes do not hold the same {key}: its {what} differ; name nodes that hold one content in one cut");
        Err(ApiError::new(Code::SourceChanged, &key.file_id, message))
    };
    let file_bytes = first.size_bytes;
    if holders.iter().any(|holder| holder.size_bytes != file_bytes) {
        return differs("sizes");
    }
    let cuts: Vec<u64> = holders.iter().filter_map(|holder| holder.stripes.map(|layout| layout.stripe_bytes)).collect();
    if cuts.windows(2).any(|pair| pair[0] != pair[1]) {
        return differs("stripes");
    }
    let share = Share { index: 0, count: 1, stripe_bytes: cuts.first().copied().unwrap_or(PART_BYTES) };
    let layout = Layout::new(share, file_bytes, &key.file_id)?;
    let missing: Vec<String> =
        layout.held().filter(|part| !holders.iter().any(|holder| holder.holds(*part))).map(|part| part.to_string()).collect();
    if missing.is_empty() {
        return Ok(layout);
    }
    let because = faults.first().map(|fault| format!(" ({})", fault.message)).unwrap_or_default();
    let message = format!(
        "no node that answers holds the stripes {} of {} of {key}{because}; fetch them to a node and name it",
        missing.join(", "),
        layout.total()
    );
    Err(ApiError::new(Code::StripeNotHere, &key.file_id, message))
}

#[derive(Default)]
struct State {
    pending: VecDeque<u64>,
    open: usize,
    /// (part, holder) that were tried in vain.
    tried: Vec<(u64, usize)>,
    /// By part: its chaining value, and who gave it.
    done: BTreeMap<u64, ([u8; 32], Option<usize>)>,
    faults: Vec<ApiError>,
    failed: Option<ApiError>,
}

struct Work {
    key: ReplicaKey,
    layout: Layout,
    holders: Vec<Holder>,
    part_file: Arc<PartFile>,
    state: Mutex<State>,
    changed: Notify,
}

impl Work {
    fn new(key: &ReplicaKey, layout: Layout, holders: Vec<Holder>, part_file: Arc<PartFile>, there: &[Known]) -> Self {
        let done: BTreeMap<_, _> = there.iter().map(|(part, value)| (*part, (*value, None))).collect();
        let pending = layout.held().filter(|part| !done.contains_key(part)).collect();
        let state = Mutex::new(State { pending, done, ..State::default() });
        Self { key: key.clone(), layout, holders, part_file, state, changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics here")
    }

    async fn run(&self, connections: u8) -> Result<(), ApiError> {
        let workers = (0..self.holders.len()).flat_map(|holder| (0..connections).map(move |_| self.worker(holder)));
        join_all(workers).await;
        self.state().failed.take().map_or(Ok(()), Err)
    }

    /// Takes part after part that its node holds, until nothing can come back from another.
    async fn worker(&self, holder: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let part = {
                let mut state = self.state();
                if state.failed.is_some() || (state.pending.is_empty() && state.open == 0) {
                    break;
                }
                let mine = |part: &u64| self.holders[holder].holds(*part) && !state.tried.contains(&(*part, holder));
                let found = state.pending.iter().position(mine);
                found.and_then(|at| state.pending.remove(at)).inspect(|_| state.open += 1)
            };
            match part {
                Some(part) => {
                    let outcome = self.part(holder, part).await;
                    self.settle(holder, part, outcome);
                    self.changed.notify_waiters();
                }
                None => changed.await,
            }
        }
        self.changed.notify_waiters();
    }

    fn settle(&self, holder: usize, part: u64, outcome: Result<[u8; 32], ApiError>) {
        let mut state = self.state();
        state.open -= 1;
        let error = match outcome.and_then(|value| self.part_file.note(part, value).map(|()| value)) {
            Ok(value) => {
                state.done.insert(part, (value, Some(holder)));
                return;
            }
            Err(error) => error,
        };
        state.tried.push((part, holder));
        let left = (0..self.holders.len()).any(|other| self.holders[other].holds(part) && !state.tried.contains(&(part, other)));
        match left {
            true => {
                state.pending.push_front(part);
                state.faults.push(error);
            }
            false => state.failed = Some(error),
        }
    }

    async fn part(&self, holder: usize, part: u64) -> Result<[u8; 32], ApiError> {
        let (holder, range) = (&self.holders[holder], self.layout.range(part));
        let hasher = match self.layout.total() {
            1 => blake3::Hasher::new(),
            _ => {
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(range.start);
                hasher
            }
        };
        let sink = PartSink {
            file: self.part_file.file.clone(),
            path: self.part_file.path.clone(),
            hasher: Mutex::new(hasher),
            came: AtomicU64::new(0),
            moved: &holder.moved,
        };
        let source =
            Source { link: &holder.link, key: self.key.clone(), member: None, size_bytes: self.layout.file_bytes, term: Term::Its };
        tokio::select! {
            outcome = source.ordered(range, &sink) => outcome?,
            () = stalled(&sink.came, STALL) => {
                return Err(holder.link.lost(&format!("no byte of stripe {part} came for {} s", STALL.as_secs())));
            }
        }
        let hasher = sink.hasher.into_inner().expect("nobody panics here");
        let value = if self.layout.total() == 1 { *hasher.finalize().as_bytes() } else { hasher.finalize_non_root() };
        holder.noted.as_ref().map_or(Ok(()), |noted| holder.as_noted(noted, &self.key, part, value))?;
        Ok(value)
    }
}

/// Bytes of one part come in order.
struct PartSink<'a> {
    file: Arc<File>,
    path: PathBuf,
    hasher: Mutex<blake3::Hasher>,
    came: AtomicU64,
    moved: &'a AtomicU64,
}

#[async_trait]
impl Sink for PartSink<'_> {
    async fn write_at(&self, offset: u64, chunk: Bytes) -> Result<(), ApiError> {
        self.hasher.lock().expect("nobody panics here").update(&chunk);
        let (file, path, length) = (self.file.clone(), self.path.clone(), chunk.len() as u64);
        blocking(move || file.write_all_at(&chunk, offset).map_err(at("writing", &path))).await?;
        self.came.fetch_add(length, Ordering::Relaxed);
        self.moved.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

/// The BLAKE3 of what came, if it is what the nodes, and who asked, say it is.
async fn judge(key: &ReplicaKey, layout: &Layout, holders: &[Holder], state: &State, wanted: Option<&str>) -> Result<String, ApiError> {
    // Of stripes that were still coming to their node.
    for (n, holder) in holders.iter().enumerate().filter(|(_, holder)| holder.stripes.is_some() && holder.noted.is_none()) {
        while holder.link.source(Term::Its, key, true).await?.blake3.is_none() {}
        let noted = noted(&holder.link, key).await?;
        let mut came = state.done.iter().filter(|(_, (_, from))| *from == Some(n));
        came.try_for_each(|(part, (value, _))| holder.as_noted(&noted, key, *part, *value))?;
    }
    let values: Vec<[u8; 32]> = state.done.values().map(|(value, _)| *value).collect();
    let found = hex(merged(&values, layout.stripe_bytes, layout.file_bytes));
    let said = holders.iter().filter_map(|holder| holder.blake3.as_deref().map(|blake3| (holder.name.as_str(), blake3)));
    match said.chain(wanted.map(|wanted| ("the call", wanted))).find(|(_, said)| !said.eq_ignore_ascii_case(&found)) {
        None => Ok(found),
        Some((who, said)) => {
            let message =
                format!("the fetched content of {key} has the BLAKE3 {found}, but {who} says {said}; nothing was kept, fetch it again");
            Err(ApiError::new(Code::ChecksumMismatch, &key.file_id, message))
        }
    }
}
