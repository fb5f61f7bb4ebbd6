//! Read-only sshfs mounts of ssh origins, watched: for jobs that read in place. Knows sshfs, the mount table and threads, nothing of the store.
//!
//! The one rule: whoever reads through a mount gets bytes or, within a bounded time, an error; whatever blocks on a dead link is a thread
//! made for it, never a caller.

mod session;
mod ssh_config;
mod table;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stager_core::error::ApiError;
use stager_origins::SftpConfig;

use watch::Watch;

/// How long a dead link may look alive; tests have less patience.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the start of sshfs to a mount that answers.
    pub mount_within: Duration,
    pub probe_every: Duration,
    /// A busy link may need long for one small query.
    pub probe_within: Duration,
    /// ssh's own look at a silent server; three in vain end it.
    pub alive_every: Duration,
    /// Before the first try to mount again; it doubles up to a minute.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            mount_within: Duration::from_secs(30),
            probe_every: Duration::from_secs(5),
            probe_within: Duration::from_secs(30),
            alive_every: Duration::from_secs(5),
            pause: Duration::from_secs(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Mounted,
    /// The link is dead; it is mounted again when the origin answers.
    Away,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Mounted => "mounted",
            Self::Away => "away",
        }
    }
}

/// One mount as it is now. The path stays the same over every new mount of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub origin_id: String,
    pub path: PathBuf,
    pub state: State,
    /// Why it is away.
    pub message: Option<String>,
}

pub struct Mounts {
    root: PathBuf,
    timing: Timing,
    watches: Mutex<BTreeMap<String, Arc<Watch>>>,
    /// One change at a time: a mount takes seconds, and looking at the table must not wait for it.
    changing: Mutex<()>,
}

impl Mounts {
    /// `root` is ours alone: what a process that was killed left mounted below it is taken away.
    pub fn new(root: &Path, timing: Timing) -> Self {
        // As the kernel's table spells it. What is mounted there may be dead, so only its parent is looked at.
        let parent = root.parent().and_then(|parent| parent.canonicalize().ok());
        let root = parent.zip(root.file_name()).map_or(root.to_owned(), |(parent, name)| parent.join(name));
        table::sweep(&root);
        Self { root, timing, watches: Mutex::default(), changing: Mutex::default() }
    }

    /// Blocks until it is mounted, or cannot be. The same configuration again changes nothing.
    pub fn put(&self, origin_id: &str, config: &SftpConfig) -> Result<Mount, ApiError> {
        let _locked = self.changing.lock().expect("no holder panics");
        if let Some(watch) = self.watch(origin_id) {
            if watch.is_for(config) {
                return Ok(watch.look());
            }
            self.take(origin_id);
        }
        let watch = Watch::start(&self.root, origin_id, config, self.timing)?;
        let mount = watch.look();
        self.watches.lock().expect("no holder panics").insert(origin_id.to_owned(), Arc::new(watch));
        Ok(mount)
    }

    /// `false`: there was none.
    pub fn remove(&self, origin_id: &str) -> bool {
        let _locked = self.changing.lock().expect("no holder panics");
        self.take(origin_id)
    }

    pub fn get(&self, origin_id: &str) -> Option<Mount> {
        self.watch(origin_id).map(|watch| watch.look())
    }

    pub fn list(&self) -> Vec<Mount> {
        self.watches.lock().expect("no holder panics").values().map(|watch| watch.look()).collect()
    }

    /// Unmounts all, at the end.
    pub fn end(&self) {
        let _locked = self.changing.lock().expect("no holder panics");
        let all = std::mem::take(&mut *self.watches.lock().expect("no holder panics"));
        all.values().for_each(|watch| watch.end());
    }

    fn watch(&self, origin_id: &str) -> Option<Arc<Watch>> {
        self.watches.lock().expect("no holder panics").get(origin_id).cloned()
    }

    fn take(&self, origin_id: &str) -> bool {
        let taken = self.watches.lock().expect("no holder panics").remove(origin_id);
        taken.is_some_and(|watch| {
            watch.end();
            true
        })
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.end();
    }
}
