//! Space accounting. May know nothing of what the bytes are.
//!
//! The one rule: whatever grows asks first, and no grant makes used + reserved + idle larger than the capacity.

use std::collections::BTreeMap;

/// Who holds a reservation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Named(String),
    Transfer(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace {
    pub needed_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Space {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Bytes of partials that no transfer works on: given up for any reservation.
    idle_bytes: u64,
    /// Invariant: the sum of `reservations`.
    reserved_bytes: u64,
    reservations: BTreeMap<Holder, u64>,
}

impl Space {
    pub fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, ..Self::default() }
    }
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }
    pub fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }
    pub fn held_by(&self, holder: &Holder) -> Option<u64> {
        self.reservations.get(holder).copied()
    }
    pub fn reservations(&self) -> impl Iterator<Item = (&Holder, u64)> {
        self.reservations.iter().map(|(holder, bytes)| (holder, *bytes))
    }

    /// Free if all idle bytes were given up.
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes.saturating_add(self.reserved_bytes))
    }

    /// How many idle bytes have to go before `holder` may hold `bytes`; an error if even all of them would not do.
    pub fn shortfall(&self, holder: &Holder, bytes: u64) -> Result<u64, NoSpace> {
        let held = self.held_by(holder).unwrap_or(0);
        let growth = bytes.saturating_sub(held);
        let free = self.free_bytes();
        if growth > free {
            return Err(NoSpace { needed_bytes: growth, free_bytes: free });
        }
        Ok(if growth == 0 { 0 } else { (growth + self.idle_bytes).saturating_sub(free) })
    }

    /// Sets what `holder` holds. The idle bytes that `shortfall` named must be gone by now.
    pub fn reserve(&mut self, holder: Holder, bytes: u64) -> Result<(), NoSpace> {
        let short = self.shortfall(&holder, bytes)?;
        if short > 0 {
            return Err(NoSpace { needed_bytes: short, free_bytes: 0 });
        }
        let held = self.reservations.insert(holder, bytes).unwrap_or(0);
        self.reserved_bytes = self.reserved_bytes - held + bytes;
        Ok(())
    }

    pub fn release(&mut self, holder: &Holder) -> u64 {
        let held = self.reservations.remove(holder).unwrap_or(0);
        self.reserved_bytes -= held;
        held
    }

    /// Moves reserved bytes from one holder to another. Panics if the first does not hold them: callers check first.
    pub fn hand_over(&mut self, from: &Holder, to: &Holder, bytes: u64) {
        let held = self.held_by(from).unwrap_or(0);
        assert!(held >= bytes, "only what is held can be handed over");
        if held == bytes {
            self.reservations.remove(from);
        } else {
            self.reservations.insert(from.clone(), held - bytes);
        }
        if bytes > 0 {
            *self.reservations.entry(to.clone()).or_insert(0) += bytes;
        }
    }

    /// Turns reserved bytes into used ones; the reservation shrinks by that. Panics if it is too small: callers check first.
    pub fn commit(&mut self, holder: &Holder, bytes: u64) {
        let held = self.reservations.get_mut(holder);
        match held {
            Some(held) => {
                assert!(*held >= bytes, "a commit must fit its reservation");
                *held -= bytes;
            }
            None => assert_eq!(bytes, 0, "a commit needs a reservation"),
        }
        self.reserved_bytes -= bytes;
        self.used_bytes += bytes;
    }

    /// What a log replay found to be there; it is a fact, not a request.
    pub fn adopt_used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
    }
    pub fn free_used(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }
    pub fn adopt_idle(&mut self, bytes: u64) {
        self.idle_bytes += bytes;
    }
    pub fn free_idle(&mut self, bytes: u64) {
        self.idle_bytes -= bytes;
    }
}
