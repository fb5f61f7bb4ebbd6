//! Keys that packs are putting right now: between a pack's look at what is there and its write, nobody else makes them. Knows keys only.
//!
//! The one rule: a key is claimed once, and free again when its claim is dropped.

use std::collections::HashSet;
use std::sync::Mutex;

use stager_core::replica::ReplicaKey;

#[derive(Default)]
pub struct PackedKeys(Mutex<HashSet<ReplicaKey>>);

/// Keys that nobody else makes meanwhile.
pub struct Claims<'a> {
    packed: &'a PackedKeys,
    keys: Vec<ReplicaKey>,
}

impl PackedKeys {
    pub fn is_making(&self, key: &ReplicaKey) -> bool {
        self.0.lock().expect("nobody panics here").contains(key)
    }

    pub fn claims(&self) -> Claims<'_> {
        Claims { packed: self, keys: Vec::new() }
    }
}

impl Claims<'_> {
    /// Which of them were free until now.
    pub fn claim(&mut self, keys: &[&ReplicaKey]) -> Vec<bool> {
        let mut making = self.packed.0.lock().expect("nobody panics here");
        let fresh: Vec<bool> = keys.iter().map(|key| making.insert((*key).clone())).collect();
        drop(making);
        self.keys.extend(keys.iter().zip(&fresh).filter(|(_, fresh)| **fresh).map(|(key, _)| (*key).clone()));
        fresh
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let mut making = self.packed.0.lock().expect("nobody panics here");
        for key in &self.keys {
            making.remove(key);
        }
    }
}
