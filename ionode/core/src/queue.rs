//! Which transfer starts next: a lane per origin, a learned number of transfers at once in each. May know nothing of what a transfer does.
//!
//! The one rule: a lane that fails, is full or is empty never holds back another.

use std::collections::{BTreeMap, BTreeSet, HashMap};

const LIMIT_START: f64 = 8.0;
const LIMIT_MAX: f64 = 64.0;
/// Priorities below this are demand: a job waits for them.
pub const DEMAND_BELOW: i64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes moved, or it failed for a reason that says nothing about the load.
    Neutral,
    Success,
    Overload,
}

#[derive(Debug)]
struct Lane {
    limit: f64,
    running: usize,
    waiting: BTreeSet<(i64, u64, String)>,
}

/// How one lane stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneState<'a> {
    pub origin_id: &'a str,
    pub running: usize,
    pub waiting: usize,
    pub limit: f64,
}

impl Lane {
    fn new() -> Self {
        Self { limit: LIMIT_START, running: 0, waiting: BTreeSet::new() }
    }

    /// One place is kept for demand, so that a job never waits behind a lane full of prefetches.
    fn may_start(&self, priority: i64) -> bool {
        let limit = self.limit as usize;
        let allowed = if priority < DEMAND_BELOW || limit < 2 { limit } else { limit - 1 };
        self.running < allowed.max(1)
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    lanes: BTreeMap<String, Lane>,
    waiting: HashMap<String, (String, i64, u64)>,
    next_seq: u64,
}

impl Queue {
    pub fn push(&mut self, origin_id: &str, transfer_id: &str, priority: i64) {
        assert!(!self.waiting.contains_key(transfer_id), "a transfer waits once");
        self.next_seq += 1;
        self.waiting.insert(transfer_id.to_string(), (origin_id.to_string(), priority, self.next_seq));
        let lane = self.lanes.entry(origin_id.to_string()).or_insert_with(Lane::new);
        lane.waiting.insert((priority, self.next_seq, transfer_id.to_string()));
    }

    /// Takes all that wait out of the queue: nothing starts any more.
    pub fn clear(&mut self) -> Vec<String> {
        self.lanes.values_mut().for_each(|lane| lane.waiting.clear());
        self.waiting.drain().map(|(transfer_id, _)| transfer_id).collect()
    }

    /// `false`: it does not wait here (it runs, or is done).
    pub fn remove(&mut self, transfer_id: &str) -> bool {
        let Some((origin_id, priority, seq)) = self.waiting.remove(transfer_id) else { return false };
        let lane = self.lanes.get_mut(&origin_id).expect("a waiting transfer has a lane");
        lane.waiting.remove(&(priority, seq, transfer_id.to_string()))
    }

    pub fn set_priority(&mut self, transfer_id: &str, priority: i64) {
        let Some((origin_id, old, seq)) = self.waiting.get(transfer_id).cloned() else { return };
        let lane = self.lanes.get_mut(&origin_id).expect("a waiting transfer has a lane");
        lane.waiting.remove(&(old, seq, transfer_id.to_string()));
        lane.waiting.insert((priority, seq, transfer_id.to_string()));
        self.waiting.insert(transfer_id.to_string(), (origin_id, priority, seq));
    }

    /// Takes all that may start now out of the queue.
    pub fn start(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        for lane in self.lanes.values_mut() {
            while let Some(first) = lane.waiting.first().filter(|first| lane.may_start(first.0)).cloned() {
                lane.waiting.remove(&first);
                lane.running += 1;
                self.waiting.remove(&first.2);
                started.push(first.2);
            }
        }
        started
    }

    pub fn finished(&mut self, origin_id: &str, outcome: Outcome) {
        let lane = self.lanes.get_mut(origin_id).expect("a running transfer has a lane");
        let was_full = lane.running + 1 >= lane.limit as usize;
        lane.running -= 1;
        match outcome {
            Outcome::Neutral => {}
            Outcome::Success if was_full => lane.limit = (lane.limit + 1.0 / lane.limit).min(LIMIT_MAX),
            Outcome::Success => {}
            Outcome::Overload => lane.limit = (lane.limit / 2.0).max(1.0),
        }
    }

    pub fn running(&self) -> usize {
        self.lanes.values().map(|lane| lane.running).sum()
    }
    pub fn lanes(&self) -> impl Iterator<Item = LaneState<'_>> {
        self.lanes.iter().map(|(origin_id, lane)| LaneState {
            origin_id,
            running: lane.running,
            waiting: lane.waiting.len(),
            limit: lane.limit,
        })
    }
    pub fn limit(&self, origin_id: &str) -> Option<f64> {
        self.lanes.get(origin_id).map(|lane| lane.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_first_then_age_and_one_place_is_kept_for_demand() {
        let mut queue = Queue::default();
        for n in 0..9 {
            queue.push("lab", &format!("p{n}"), 10);
        }
        assert_eq!(queue.start(), (0..7).map(|n| format!("p{n}")).collect::<Vec<_>>());
        queue.push("lab", "d0", 0);
        queue.push("lab", "d1", 0);
        assert_eq!(queue.start(), ["d0"]);
        queue.set_priority("p8", 1);
        queue.finished("lab", Outcome::Neutral);
        assert_eq!(queue.start(), ["d1"]);
        queue.finished("lab", Outcome::Neutral);
        assert_eq!(queue.start(), ["p8"]);
    }

    #[test]
    fn a_failing_lane_narrows_to_one_and_widens_again_and_others_go_on() {
        let mut queue = Queue::default();
        for n in 0..8 {
            queue.push("bad", &format!("b{n}"), 0);
        }
        assert_eq!(queue.start().len(), 8);
        for _ in 0..8 {
            queue.finished("bad", Outcome::Overload);
        }
        assert_eq!(queue.limit("bad"), Some(1.0));
        queue.push("bad", "x", 0);
        queue.push("bad", "y", 0);
        queue.push("good", "g", 20);
        assert_eq!(queue.start(), ["x", "g"]);
        queue.finished("bad", Outcome::Success);
        assert_eq!(queue.limit("bad"), Some(2.0));
    }

    #[test]
    fn what_is_cancelled_never_starts() {
        let mut queue = Queue::default();
        queue.push("lab", "a", 0);
        assert!(queue.remove("a"));
        assert!(!queue.remove("a"));
        assert!(queue.start().is_empty());
    }

    #[test]
    fn a_cleared_queue_starts_nothing_and_goes_on() {
        let mut queue = Queue::default();
        for n in 0..10 {
            queue.push("lab", &format!("t{n}"), 0);
        }
        queue.start();
        let lane = |queue: &Queue| queue.lanes().map(|lane| (lane.running, lane.waiting)).collect::<Vec<_>>();
        assert_eq!(lane(&queue), [(8, 2)]);
        let mut cleared = queue.clear();
        cleared.sort();
        assert_eq!((cleared, lane(&queue)), (vec!["t8".to_string(), "t9".to_string()], vec![(8, 0)]));
        queue.finished("lab", Outcome::Neutral);
        assert!(queue.start().is_empty());
    }
}
