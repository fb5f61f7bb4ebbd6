//! Connections of a port that anyone can reach: how many there are, and how long one may stay that has shown no key. Knows no requests.
//!
//! The one rule: whoever has shown a key never waits for those who have not: of these there are few, and the oldest gives way.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stager_objects::Owner;
use tokio_util::sync::CancellationToken;

/// Of a request's head; what comes without an end is cut off there, so this times `UNKNOWN_MAX` is all that unauthenticated connections can fill.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// From the first moment of a connection until a request on it was found good.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
const UNKNOWN_MAX: usize = 128;
/// Of one owner's, where keys are issued to several.
const OF_OWNER_MAX: usize = 1024;
/// What may be held in memory of one owner's bodies: documents, and chunks until their signature was compared.
const HELD_OF_OWNER_MAX: u64 = 512 << 20;

/// Of one port. Cheap to clone.
#[derive(Clone)]
pub struct Connections {
    open: Arc<Mutex<Open>>,
    known_within: Duration,
}

#[derive(Default)]
struct Open {
    accepted: u64,
    unknown: BTreeMap<u64, CancellationToken>,
    by_owner: HashMap<Owner, usize>,
    held_bytes: HashMap<Owner, u64>,
}

/// What of a body is in memory; given back when it is dropped.
pub struct Held {
    caller: Arc<Caller>,
    /// Nobody's where no key has been shown: nothing of such a body is read.
    owner: Option<Owner>,
    bytes: u64,
}

/// Who is at the other end of one connection; there for as long as that is open.
pub struct Caller {
    number: u64,
    connections: Connections,
    pushed_out: CancellationToken,
    owner: Mutex<Option<Owner>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { open: Arc::default(), known_within: KNOWN_WITHIN }
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a connection that was just accepted. Where too many are unknown the oldest of them ends.
    pub fn accepted(&self) -> Arc<Caller> {
        let mut open = self.open();
        let (number, pushed_out) = (open.accepted, CancellationToken::new());
        open.accepted += 1;
        open.unknown.insert(number, pushed_out.clone());
        if open.unknown.len() > UNKNOWN_MAX {
            if let Some((_, oldest)) = open.unknown.pop_first() {
                oldest.cancel();
            }
        }
        Arc::new(Caller { number, connections: self.clone(), pushed_out, owner: Mutex::default() })
    }
}

impl Caller {
    /// A request of it was found good.
    pub fn is_known(&self) {
        self.connections.open().unknown.remove(&self.number);
    }

    /// As `is_known`, by a key of this owner; false where that owner has too many connections: then it stays unknown, and ends soon. One that
    /// owners share, as a proxy's, is counted for the last of them.
    pub fn is_known_as(&self, owner: &Owner) -> bool {
        let mut own = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if own.as_ref() == Some(owner) {
            return true;
        }
        let mut open = self.connections.open();
        let count = open.by_owner.entry(owner.clone()).or_default();
        if *count >= OF_OWNER_MAX {
            return false;
        }
        *count += 1;
        open.unknown.remove(&self.number);
        if let Some(before) = own.replace(owner.clone()) {
            open.forget(&before);
        }
        true
    }

    /// Ends when the connection has to: it is unknown, and its time is over or others came.
    pub async fn overstayed(&self) {
        tokio::select! {
            () = self.pushed_out.cancelled() => return,
            () = tokio::time::sleep(self.connections.known_within) => {}
        }
        if !self.connections.open().unknown.contains_key(&self.number) {
            std::future::pending().await
        }
    }
}

impl Open {
    fn forget(&mut self, owner: &Owner) {
        if let Some(count) = self.by_owner.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

impl Held {
    pub fn none(caller: Arc<Caller>) -> Self {
        Self { caller, owner: None, bytes: 0 }
    }

    /// In place of what was held before; false where the owner holds too much already.
    pub fn set(&mut self, bytes: u64) -> bool {
        self.give_back();
        let owner = self.caller.owner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(owner) = owner.filter(|_| bytes > 0) else { return true };
        let mut open = self.caller.connections.open();
        let held = open.held_bytes.entry(owner.clone()).or_default();
        if *held + bytes > HELD_OF_OWNER_MAX {
            return false;
        }
        *held += bytes;
        (self.owner, self.bytes) = (Some(owner), bytes);
        true
    }

    pub fn add(&mut self, bytes: u64) -> bool {
        self.set(self.bytes + bytes)
    }

    fn give_back(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let mut open = self.caller.connections.open();
        if let Some(held) = open.held_bytes.get_mut(&owner) {
            *held -= self.bytes;
            if *held == 0 {
                open.held_bytes.remove(&owner);
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.unknown.remove(&self.number);
        if let Some(owner) = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take() {
            open.forget(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn who_shows_no_key_goes_soon_and_who_did_stays() {
        let connections = Connections { known_within: Duration::from_millis(20), ..Connections::default() };
        let (unauthenticated, known) = (connections.accepted(), connections.accepted());
        known.is_known();
        unauthenticated.overstayed().await;
        assert!(tokio::time::timeout(3 * connections.known_within, known.overstayed()).await.is_err());
    }

    #[tokio::test]
    async fn the_oldest_unauthenticated_connection_gives_way_and_nobody_else() {
        let connections = Connections::default();
        let known = connections.accepted();
        known.is_known();
        let unauthenticated: Vec<_> = (0..UNKNOWN_MAX + 2).map(|_| connections.accepted()).collect();
        let gone: Vec<_> = unauthenticated.iter().map(|one| one.overstayed().now_or_never().is_some()).collect();
        assert_eq!(gone.iter().position(|gone| !gone), Some(2));
        assert!(gone[2..].iter().all(|gone| !gone) && known.overstayed().now_or_never().is_none());
        drop(unauthenticated);
        assert!(connections.open().unknown.is_empty());
    }

    #[test]
    fn an_owner_has_so_many_connections_and_takes_none_of_others() {
        let connections = Connections::default();
        let (alice, bob) = (Owner::named("alice").unwrap(), Owner::named("bob").unwrap());
        let mut of_alice: Vec<_> = (0..OF_OWNER_MAX).map(|_| connections.accepted()).collect();
        assert!(of_alice.iter().all(|caller| caller.is_known_as(&alice) && caller.is_known_as(&alice)));
        let one_more = connections.accepted();
        assert!(!one_more.is_known_as(&alice) && connections.open().unknown.len() == 1, "it has to go");
        assert!(one_more.is_known_as(&bob) && connections.open().unknown.is_empty());
        of_alice.pop();
        assert!(one_more.is_known_as(&alice), "a connection that is shared is counted for the last of its owners");
        drop((of_alice, one_more));
        assert!(connections.open().by_owner.is_empty());
    }

    #[test]
    fn an_owner_holds_so_much_in_memory_and_takes_none_of_others() {
        let connections = Connections::default();
        let held_by = |name: &str| {
            let caller = connections.accepted();
            assert!(caller.is_known_as(&Owner::named(name).unwrap()));
            Held::none(caller)
        };
        let (mut first, mut second, mut of_bob) = (held_by("alice"), held_by("alice"), held_by("bob"));
        assert!(first.set(HELD_OF_OWNER_MAX - 1) && second.set(1) && !second.add(1), "what is refused holds nothing");
        assert!(of_bob.set(HELD_OF_OWNER_MAX) && second.set(1));
        assert!(first.set(0) && second.add(HELD_OF_OWNER_MAX - 1));
        drop((first, second, of_bob));
        assert!(connections.open().held_bytes.is_empty());
    }
}
