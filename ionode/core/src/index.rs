//! The index: replicas and their states, partials, leases, the epoch, and the space they take. May know nothing of disks or time.
//!
//! The one rule: `apply` is the only way a record changes the index, at a restart as in live work.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::error::{ApiError, Code};
use crate::record::{Partial, Record, Source};
use crate::replica::{Replica, ReplicaKey, ReplicaState};
use crate::space::{Holder, NoSpace, Space};

#[derive(Clone, Debug)]
struct Slot {
    replica: Replica,
    leases: u32,
    /// Deleted in the log, bytes not gone yet: they count as used and nobody may see the replica.
    leaving: bool,
}

/// How many replicas there are of each state; what is being deleted is leaving, whatever it was before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub present: usize,
    pub quarantined: usize,
    pub leaving: usize,
}

impl Census {
    fn of(&mut self, slot: &Slot) -> &mut usize {
        match (slot.leaving, slot.replica.state) {
            (true, _) => &mut self.leaving,
            (false, ReplicaState::Present) => &mut self.present,
            (false, ReplicaState::Quarantined) => &mut self.quarantined,
        }
    }
}

#[derive(Clone, Debug)]
struct PartialSlot {
    partial: Partial,
    /// A transfer works on it; its bytes are inside that transfer's reservation.
    claimed: bool,
    age: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    pub space: Space,
    epoch: u64,
    slots: BTreeMap<ReplicaKey, Slot>,
    /// Invariant: counts `slots`.
    census: Census,
    partials: BTreeMap<ReplicaKey, PartialSlot>,
    leases: BTreeMap<String, Vec<ReplicaKey>>,
    next_age: u64,
}

/// What a new epoch means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochCheck {
    Same,
    Newer,
    Stale,
}

impl Index {
    pub fn new(capacity_bytes: u64) -> Self {
        Self { space: Space::new(capacity_bytes), ..Self::default() }
    }
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn check_epoch(&self, epoch: u64) -> EpochCheck {
        match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => EpochCheck::Stale,
            std::cmp::Ordering::Equal => EpochCheck::Same,
            std::cmp::Ordering::Greater => EpochCheck::Newer,
        }
    }

    /// Folds one record. For commits the space is counted as used without a reservation; live commits use `commit`.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Commit { replicas } => replicas.iter().for_each(|replica| {
                self.space.adopt_used(replica.size_bytes);
                self.insert(replica.clone());
            }),
            Record::Delete { key } => self.remove(key),
            Record::Quarantine { key } => self.change(key, |slot| slot.replica.state = ReplicaState::Quarantined),
            Record::Epoch { epoch } => self.epoch = self.epoch.max(*epoch),
            Record::Partial(partial) => self.put_partial(partial.clone(), false),
            Record::PartialGone { key } => self.drop_partial(key),
        }
    }

    /// The smallest log that folds to this index.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Epoch { epoch: self.epoch }];
        records.extend(self.partials.values().map(|slot| Record::Partial(slot.partial.clone())));
        for slot in self.slots.values().filter(|slot| !slot.leaving) {
            records.push(Record::Commit { replicas: vec![slot.replica.clone()] });
        }
        records
    }

    /// A live commit: the bytes leave the holder's reservation.
    pub fn commit(&mut self, holder: &Holder, replicas: &[Replica]) {
        self.space.commit(holder, replicas.iter().map(|replica| replica.size_bytes).sum());
        replicas.iter().for_each(|replica| self.insert(replica.clone()));
    }

    fn insert(&mut self, replica: Replica) {
        self.remove(&replica.key());
        let slot = Slot { replica, leases: 0, leaving: false };
        *self.census.of(&slot) += 1;
        self.slots.insert(slot.replica.key(), slot);
    }

    fn remove(&mut self, key: &ReplicaKey) {
        if let Some(slot) = self.slots.remove(key) {
            *self.census.of(&slot) -= 1;
            self.space.free_used(slot.replica.size_bytes);
        }
    }

    fn change(&mut self, key: &ReplicaKey, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(key) {
            *self.census.of(slot) -= 1;
            change(slot);
            *self.census.of(slot) += 1;
        }
    }

    pub fn replica(&self, key: &ReplicaKey) -> Option<&Replica> {
        self.slots.get(key).filter(|slot| !slot.leaving).map(|slot| &slot.replica)
    }

    /// Deleted in the log while its bytes are still being removed: the key cannot be made again yet.
    pub fn is_leaving(&self, key: &ReplicaKey) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.leaving)
    }

    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.slots.values().filter(|slot| !slot.leaving).map(|slot| &slot.replica)
    }

    pub fn census(&self) -> Census {
        self.census
    }

    /// The next `limit` replicas behind a key, in the order of keys: for those who go through all of them and let others in between.
    pub fn replicas_behind(&self, key: Option<&ReplicaKey>, limit: usize) -> impl Iterator<Item = &Replica> {
        let behind = key.map_or(Bound::Unbounded, Bound::Excluded);
        let slots = self.slots.range((behind, Bound::Unbounded));
        slots.map(|(_, slot)| slot).filter(|slot| !slot.leaving).map(|slot| &slot.replica).take(limit)
    }

    /// The replica if it may be read.
    pub fn readable(&self, key: &ReplicaKey) -> Result<&Replica, ApiError> {
        let replica = self.replica(key).ok_or_else(|| unknown(key))?;
        if replica.state == ReplicaState::Present {
            return Ok(replica);
        }
        Err(ApiError::new(
            Code::ChecksumMismatch,
            &key.file_id,
            format!("replica {key} is quarantined; make it again from its origin, a peer or its producer"),
        ))
    }

    /// Hides a replica that is about to be deleted. `false`: there was none.
    pub fn begin_delete(&mut self, key: &ReplicaKey) -> Result<bool, ApiError> {
        let Some(slot) = self.slots.get(key) else { return Ok(false) };
        if slot.leases > 0 {
            let message = format!("replica {key} is open under {} leases; delete it again when they have been released", slot.leases);
            return Err(ApiError::new(Code::ReplicaBusy, &key.file_id, message));
        }
        if slot.leaving {
            return Ok(false);
        }
        self.change(key, |slot| slot.leaving = true);
        Ok(true)
    }

    /// A delete that could not be logged: the replica is seen again.
    pub fn abandon_delete(&mut self, key: &ReplicaKey) {
        self.change(key, |slot| slot.leaving = false);
    }

    /// All or none: an attempt's leases name every replica it may read.
    pub fn lease(&mut self, attempt_id: &str, keys: &[ReplicaKey]) -> Result<(), ApiError> {
        for key in keys {
            self.readable(key)?;
        }
        self.end_lease(attempt_id);
        self.adopt_lease(attempt_id, keys);
        Ok(())
    }

    /// Takes a lease over from before a restart, on replicas in whatever state they are.
    pub fn adopt_lease(&mut self, attempt_id: &str, keys: &[ReplicaKey]) {
        for key in keys {
            if let Some(slot) = self.slots.get_mut(key) {
                slot.leases += 1;
            }
        }
        self.leases.insert(attempt_id.to_string(), keys.to_vec());
    }

    pub fn end_lease(&mut self, attempt_id: &str) {
        for key in self.leases.remove(attempt_id).unwrap_or_default() {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.leases = slot.leases.saturating_sub(1);
            }
        }
    }

    pub fn leases(&self) -> impl Iterator<Item = (&String, &Vec<ReplicaKey>)> {
        self.leases.iter()
    }

    /// Grants a reservation; the keys returned are idle partials whose bytes it took: remove them from disk.
    pub fn reserve(&mut self, holder: Holder, bytes: u64) -> Result<Vec<ReplicaKey>, NoSpace> {
        let mut short = self.space.shortfall(&holder, bytes)?;
        let mut dropped = Vec::new();
        while short > 0 {
            let oldest =
                self.partials.iter().filter(|(_, slot)| !slot.claimed && slot.partial.watermark_bytes > 0).min_by_key(|(_, slot)| slot.age);
            let key = oldest.map(|(key, _)| key.clone()).expect("idle bytes belong to an idle partial");
            self.drop_partial(&key);
            dropped.push(key);
            short = self.space.shortfall(&holder, bytes)?;
        }
        self.space.reserve(holder, bytes)?;
        Ok(dropped)
    }

    /// An idle partial of the same content, whatever generation began it.
    pub fn idle_partial(&self, file_id: &str, source: &Source, size_bytes: u64) -> Option<&Partial> {
        let from = ReplicaKey::new(file_id, "");
        let same = |slot: &&PartialSlot| !slot.claimed && slot.partial.source == *source && slot.partial.size_bytes == size_bytes;
        self.partials.range(from..).take_while(|(key, _)| key.file_id == file_id).map(|(_, slot)| slot).find(same).map(|slot| &slot.partial)
    }

    /// A transfer goes on with it: its bytes are from now on inside that transfer's reservation.
    pub fn claim_partial(&mut self, key: &ReplicaKey) -> Option<Partial> {
        let slot = self.partials.get_mut(key).filter(|slot| !slot.claimed)?;
        slot.claimed = true;
        self.space.free_idle(slot.partial.watermark_bytes);
        Some(slot.partial.clone())
    }

    /// A checkpoint of a running transfer (`claimed`), or what a stopped one leaves behind.
    pub fn put_partial(&mut self, partial: Partial, claimed: bool) {
        self.drop_partial(&partial.key);
        if !claimed {
            self.space.adopt_idle(partial.watermark_bytes);
        }
        self.next_age += 1;
        self.partials.insert(partial.key.clone(), PartialSlot { partial, claimed, age: self.next_age });
    }

    pub fn drop_partial(&mut self, key: &ReplicaKey) {
        if let Some(slot) = self.partials.remove(key) {
            if !slot.claimed {
                self.space.free_idle(slot.partial.watermark_bytes);
            }
        }
    }

    pub fn partial(&self, key: &ReplicaKey) -> Option<&Partial> {
        self.partials.get(key).map(|slot| &slot.partial)
    }
    pub fn partials(&self) -> impl Iterator<Item = &Partial> {
        self.partials.values().map(|slot| &slot.partial)
    }

    /// Derives every count from scratch and compares. For tests and for a sampled check in service.
    pub fn check(&self) -> Result<(), String> {
        let used: u64 = self.slots.values().map(|slot| slot.replica.size_bytes).sum();
        let idle: u64 = self.partials.values().filter(|slot| !slot.claimed).map(|slot| slot.partial.watermark_bytes).sum();
        let reserved: u64 = self.space.reservations().map(|(_, bytes)| bytes).sum();
        let found = (self.space.used_bytes(), self.space.idle_bytes(), self.space.reserved_bytes());
        if found != (used, idle, reserved) {
            return Err(format!("space says {found:?}, the parts sum to {:?}", (used, idle, reserved)));
        }
        let mut census = Census::default();
        self.slots.values().for_each(|slot| *census.of(slot) += 1);
        if census != self.census {
            return Err(format!("the census says {:?}, the slots count {census:?}", self.census));
        }
        for (key, slot) in &self.slots {
            let leases = self.leases.values().flatten().filter(|leased| *leased == key).count();
            if leases != slot.leases as usize {
                return Err(format!("{key} counts {} leases, {leases} name it", slot.leases));
            }
        }
        Ok(())
    }
}

fn unknown(key: &ReplicaKey) -> ApiError {
    ApiError::new(Code::ReplicaUnknown, &key.file_id, format!("there is no replica {key} on this node; fetch or copy it first"))
}
