//! The index against a slow, obvious model: lists that are searched and summed anew for every query.
//!
//! The one rule: after every operation both answer every query alike, and a grant never overfills the node.

use proptest::prelude::*;
use stager_core::index::Index;
use stager_core::record::{Partial, Record, Source};
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};
use stager_core::space::Holder;

#[derive(Clone, Debug)]
enum Op {
    SetCapacity(u64),
    Reserve(u8, u64),
    Release(u8),
    HandOver(u8, u8),
    Commit(u8, u8, u64),
    BeginDelete(u8),
    FinishDelete(u8),
    Quarantine(u8),
    Lease(u8, Vec<u8>),
    EndLease(u8),
    LeavePartial(u8, u64),
    Claim(u8),
    DropPartial(u8),
    Epoch(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0u8..6;
    let bytes = 0u64..60;
    prop_oneof![
        1 => (0u64..200).prop_map(Op::SetCapacity),
        6 => (id.clone(), bytes.clone()).prop_map(|(h, b)| Op::Reserve(h, b)),
        2 => id.clone().prop_map(Op::Release),
        2 => (id.clone(), id.clone()).prop_map(|(a, b)| Op::HandOver(a, b)),
        6 => (id.clone(), id.clone(), bytes.clone()).prop_map(|(h, k, b)| Op::Commit(h, k, b)),
        3 => id.clone().prop_map(Op::BeginDelete),
        3 => id.clone().prop_map(Op::FinishDelete),
        1 => id.clone().prop_map(Op::Quarantine),
        3 => (id.clone(), prop::collection::vec(0u8..6, 0..4)).prop_map(|(a, k)| Op::Lease(a, k)),
        2 => id.clone().prop_map(Op::EndLease),
        3 => (id.clone(), bytes).prop_map(|(k, b)| Op::LeavePartial(k, b)),
        2 => id.clone().prop_map(Op::Claim),
        1 => id.prop_map(Op::DropPartial),
        1 => (0u64..9).prop_map(Op::Epoch),
    ]
}

#[derive(Default)]
struct Model {
    capacity: u64,
    epoch: u64,
    holders: Vec<(u8, u64)>,
    /// Key, size, quarantined, leaving.
    replicas: Vec<(u8, u64, bool, bool)>,
    leases: Vec<(u8, Vec<u8>)>,
    /// Key, bytes, claimed; oldest first.
    partials: Vec<(u8, u64, bool)>,
}

impl Model {
    fn used(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.1).sum()
    }
    fn reserved(&self) -> u64 {
        self.holders.iter().map(|holder| holder.1).sum()
    }
    fn idle(&self) -> u64 {
        self.partials.iter().filter(|partial| !partial.2).map(|partial| partial.1).sum()
    }
    fn held(&self, id: u8) -> u64 {
        self.holders.iter().find(|holder| holder.0 == id).map_or(0, |holder| holder.1)
    }
    fn hold(&mut self, id: u8, bytes: u64) {
        self.holders.retain(|holder| holder.0 != id);
        self.holders.push((id, bytes));
    }
    fn is_leased(&self, key: u8) -> bool {
        self.leases.iter().any(|lease| lease.1.contains(&key))
    }
    /// Grants when all would fit after giving up the oldest idle partials, one by one.
    fn reserve(&mut self, id: u8, bytes: u64) -> Option<Vec<u8>> {
        let growth = bytes.saturating_sub(self.held(id));
        if growth > 0 && self.used() + self.reserved() + growth > self.capacity {
            return None;
        }
        let mut dropped = Vec::new();
        while growth > 0 && self.used() + self.reserved() + self.idle() + growth > self.capacity {
            let at = self.partials.iter().position(|partial| !partial.2 && partial.1 > 0).expect("idle bytes have an owner");
            dropped.push(self.partials.remove(at).0);
        }
        self.hold(id, bytes);
        Some(dropped)
    }
}

fn key(n: u8) -> ReplicaKey {
    ReplicaKey::new(format!("f{n}"), "g")
}
fn holder(n: u8) -> Holder {
    Holder::Named(format!("h{n}"))
}
fn source() -> Source {
    Source { origin: "o".into(), path: "p".into(), token: "t".into() }
}

fn replica(n: u8, size_bytes: u64) -> Replica {
    Replica {
        file_id: format!("f{n}"),
        generation: "g".into(),
        kind: ReplicaKind::File,
        size_bytes,
        blake3: String::new(),
        crc64nvme: String::new(),
        sha256: None,
        executable: false,
        members: None,
        token: None,
        state: ReplicaState::Present,
        stripes: None,
    }
}

fn partial(n: u8, watermark_bytes: u64) -> Partial {
    Partial { key: key(n), source: source(), size_bytes: 60, watermark_bytes, prefix_blake3: String::new() }
}

fn space_step(index: &mut Index, model: &mut Model, op: &Op) {
    match *op {
        Op::SetCapacity(bytes) => {
            index.space.set_capacity(bytes);
            model.capacity = bytes;
        }
        Op::Reserve(id, bytes) => {
            let before = (model.used() + model.reserved(), model.held(id));
            let granted = index.reserve(holder(id), bytes).ok();
            let expected = model.reserve(id, bytes);
            assert_eq!(granted, expected.map(|dropped| dropped.into_iter().map(key).collect::<Vec<_>>()));
            if granted.is_some() && bytes > before.1 {
                assert!(index.space.used_bytes() + index.space.reserved_bytes() + index.space.idle_bytes() <= model.capacity);
            }
        }
        Op::Release(id) => {
            index.space.release(&holder(id));
            model.holders.retain(|holder| holder.0 != id);
        }
        Op::HandOver(from, to) if from != to && model.held(from) > 0 => {
            let bytes = model.held(from).div_ceil(2);
            index.space.hand_over(&holder(from), &holder(to), bytes);
            model.hold(to, model.held(to) + bytes);
            model.hold(from, model.held(from) - bytes);
        }
        _ => {}
    }
}

fn replica_step(index: &mut Index, model: &mut Model, op: &Op) {
    match op {
        Op::Commit(id, k, bytes) if model.held(*id) >= *bytes && !model.replicas.iter().any(|replica| replica.0 == *k) => {
            index.commit(&holder(*id), &[replica(*k, *bytes)]);
            if *bytes > 0 {
                model.hold(*id, model.held(*id) - bytes);
            }
            model.replicas.push((*k, *bytes, false, false));
        }
        Op::BeginDelete(k) => {
            let expected = match model.replicas.iter_mut().find(|replica| replica.0 == *k) {
                None => Ok(false),
                Some(_) if model.leases.iter().any(|lease| lease.1.contains(k)) => Err(()),
                Some(found) => Ok(!std::mem::replace(&mut found.3, true)),
            };
            assert_eq!(index.begin_delete(&key(*k)).map_err(|error| assert_eq!(error.code.as_str(), "replica_busy")), expected);
        }
        Op::FinishDelete(k) if model.replicas.iter().any(|replica| replica.0 == *k && replica.3) => {
            index.apply(&Record::Delete { key: key(*k) });
            model.replicas.retain(|replica| replica.0 != *k);
        }
        Op::Quarantine(k) => {
            index.apply(&Record::Quarantine { key: key(*k) });
            model.replicas.iter_mut().filter(|replica| replica.0 == *k).for_each(|replica| replica.2 = true);
        }
        Op::Lease(id, keys) => {
            let mut keys = keys.clone();
            keys.sort_unstable();
            keys.dedup();
            let readable = |k: &u8| model.replicas.iter().any(|replica| replica.0 == *k && !replica.2 && !replica.3);
            let granted = keys.iter().all(readable);
            let names: Vec<ReplicaKey> = keys.iter().copied().map(key).collect();
            assert_eq!(index.lease(&format!("a{id}"), &names).is_ok(), granted);
            if granted {
                model.leases.retain(|lease| lease.0 != *id);
                model.leases.push((*id, keys));
            }
        }
        Op::EndLease(id) => {
            index.end_lease(&format!("a{id}"));
            model.leases.retain(|lease| lease.0 != *id);
        }
        Op::Epoch(epoch) => {
            index.apply(&Record::Epoch { epoch: *epoch });
            model.epoch = model.epoch.max(*epoch);
        }
        _ => {}
    }
}

fn partial_step(index: &mut Index, model: &mut Model, op: &Op) {
    match *op {
        Op::LeavePartial(k, bytes) => {
            index.put_partial(partial(k, bytes), false);
            model.partials.retain(|partial| partial.0 != k);
            model.partials.push((k, bytes, false));
        }
        Op::Claim(k) => {
            let found = model.partials.iter_mut().find(|partial| partial.0 == k && !partial.2);
            assert_eq!(index.idle_partial(&key(k).file_id, &source(), 60).is_some(), found.is_some());
            assert_eq!(index.claim_partial(&key(k)).is_some(), found.is_some());
            if let Some(found) = found {
                found.2 = true;
            }
        }
        Op::DropPartial(k) => {
            index.drop_partial(&key(k));
            model.partials.retain(|partial| partial.0 != k);
        }
        _ => {}
    }
}

fn compare(index: &Index, model: &Model) {
    index.check().expect("the index agrees with itself");
    assert_eq!(
        (index.space.used_bytes(), index.space.reserved_bytes(), index.space.idle_bytes(), index.epoch()),
        (model.used(), model.reserved(), model.idle(), model.epoch)
    );
    for n in 0..6 {
        let expected = model.replicas.iter().find(|replica| replica.0 == n && !replica.3);
        assert_eq!(index.replica(&key(n)).map(|found| found.size_bytes), expected.map(|found| found.1));
        assert_eq!(index.readable(&key(n)).is_ok(), expected.is_some_and(|found| !found.2));
        assert_eq!(index.leases().any(|(_, keys)| keys.contains(&key(n))), model.is_leased(n));
    }
}

/// Writing the index as records and folding them gives the same replicas, partials and space.
fn folds_back(index: &Index) {
    let mut again = Index::new(index.space.capacity_bytes());
    index.records().iter().for_each(|record| again.apply(record));
    again.check().expect("the folded index agrees with itself");
    assert_eq!(again.replicas().collect::<Vec<_>>(), index.replicas().collect::<Vec<_>>());
    assert_eq!(again.partials().collect::<Vec<_>>(), index.partials().collect::<Vec<_>>());
    assert_eq!(again.epoch(), index.epoch());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_index_agrees_with_the_model(capacity in 0u64..200, ops in prop::collection::vec(op(), 0..60)) {
        let mut index = Index::new(capacity);
        let mut model = Model { capacity, ..Model::default() };
        for op in &ops {
            space_step(&mut index, &mut model, op);
            replica_step(&mut index, &mut model, op);
            partial_step(&mut index, &mut model, op);
            compare(&index, &model);
        }
        folds_back(&index);
    }
}
