//! Whether the server's own shell is asked for checksums. Knows links.
//!
//! The one rule: a shell that gave no answer is not asked again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::link::Link;
use super::range_sums::Answered;

pub struct Shell {
    usable: AtomicBool,
    /// It knows what the command for ranges needs besides.
    knows_ranges: AtomicBool,
}

impl Shell {
    pub fn new(allowed: bool) -> Self {
        Self { usable: AtomicBool::new(allowed), knows_ranges: AtomicBool::new(allowed) }
    }

    /// It may be used, and has answered so far.
    pub fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    pub fn takes_ranges(&self) -> bool {
        self.is_usable() && self.knows_ranges.load(Ordering::Relaxed)
    }

    /// It said this of the ranges of a file that is what was sent: from then on it is asked for whole files, without `dd` for one.
    pub fn was_no_help(&self, link: &Link, said: Answered) {
        let is_of_shell = matches!(said, Answered::Other | Answered::Nothing);
        if is_of_shell && link.is_alive() && self.knows_ranges.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                origin = &*link.place,
                "its shell gave no right checksums of ranges; it is asked for those of whole files from now on"
            );
        }
    }

    /// So that it runs when the first checksum is wanted.
    pub fn start(&self, link: &Link) {
        if self.is_usable() {
            link.sums.start();
        }
    }

    /// A line that broke says nothing of the shell behind it, nor does a server that opens no further channel now.
    pub async fn sha256(&self, link: &Link, remote: &str, size_bytes: u64) -> Option<[u8; 32]> {
        let Ok(found) = link.sums.sha256(remote, size_bytes).await else { return None };
        if found.is_none() {
            self.gave_none(link);
        }
        found
    }

    /// It said nothing of ranges: there may be none. Nobody waits for it.
    pub fn try_out(self: &Arc<Self>, link: &Arc<Link>) {
        let (shell, link) = (self.clone(), link.clone());
        tokio::spawn(async move {
            if link.sums.are_told().await == Some(false) {
                shell.gave_none(&link);
            }
        });
    }

    fn gave_none(&self, link: &Link) {
        if link.is_alive() && self.usable.swap(false, Ordering::Relaxed) {
            tracing::warn!(origin = &*link.place, "its shell gave no checksum; what is sent there is read back from now on");
        }
    }
}
