//! Which transfer starts next: a lane per origin, a learned number of transfers at once in each. May know nothing of what a transfer does.
//!
//! The one rule: a lane that fails, is full or is empty never holds back another.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::learn::{End, Learner};

/// Priorities below this are demand: a job waits for them.
pub const DEMAND_BELOW: i64 = 10;

#[derive(Debug)]
struct Lane {
    learner: Learner,
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
    fn beginning_with(limit: usize) -> Self {
        Self { learner: Learner::beginning_with(limit), running: 0, waiting: BTreeSet::new() }
    }

    /// One place is kept for demand, so that a job never waits behind a lane full of prefetches.
    fn may_start(&self, priority: i64) -> bool {
        let limit = self.learner.limit();
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
    /// `begins_with`: so many at once where its lane is new.
    pub fn push(&mut self, origin_id: &str, transfer_id: &str, priority: i64, begins_with: usize) {
        assert!(!self.waiting.contains_key(transfer_id), "a transfer waits once");
        self.next_seq += 1;
        self.waiting.insert(transfer_id.to_string(), (origin_id.to_string(), priority, self.next_seq));
        let lane = self.lanes.entry(origin_id.to_string()).or_insert_with(|| Lane::beginning_with(begins_with));
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

    pub fn finished(&mut self, origin_id: &str, end: End) {
        let lane = self.lanes.get_mut(origin_id).expect("a running transfer has a lane");
        lane.running -= 1;
        lane.learner.ended(end, lane.running, !lane.waiting.is_empty());
    }

    pub fn running(&self) -> usize {
        self.lanes.values().map(|lane| lane.running).sum()
    }
    pub fn lanes(&self) -> impl Iterator<Item = LaneState<'_>> {
        self.lanes.iter().map(|(origin_id, lane)| LaneState {
            origin_id,
            running: lane.running,
            waiting: lane.waiting.len(),
            limit: lane.learner.limit() as f64,
        })
    }
    pub fn limit(&self, origin_id: &str) -> Option<usize> {
        self.lanes.get(origin_id).map(|lane| lane.learner.limit())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::learn::{Outcome, START};

    fn end(outcome: Outcome) -> End {
        End { outcome, bytes: 0, at: Duration::ZERO }
    }

    #[test]
    fn demand_first_then_age_and_one_place_is_kept_for_demand() {
        let mut queue = Queue::default();
        for n in 10..27 {
            queue.push("lab", &format!("p{n}"), 10, START);
        }
        assert_eq!(queue.limit("lab"), Some(16));
        assert_eq!(queue.start(), (10..25).map(|n| format!("p{n}")).collect::<Vec<_>>());
        queue.push("lab", "d0", 0, START);
        queue.push("lab", "d1", 0, START);
        assert_eq!(queue.start(), ["d0"]);
        queue.set_priority("p26", 1);
        queue.finished("lab", end(Outcome::Neutral));
        assert_eq!(queue.start(), ["d1"]);
        queue.finished("lab", end(Outcome::Neutral));
        assert_eq!(queue.start(), ["p26"]);
    }

    #[test]
    fn a_lane_that_fails_again_and_again_narrows_to_one_and_others_go_on() {
        let mut queue = Queue::default();
        for n in 0..100 {
            queue.push("bad", &format!("b{n}"), 0, START);
        }
        for expected in [8, 4, 2, 1, 1] {
            let started = queue.start().len();
            assert!(started > 0);
            while queue.running() > 0 {
                queue.finished("bad", end(Outcome::Overload));
            }
            assert_eq!(queue.limit("bad"), Some(expected), "{started} failed at once");
        }
        queue.push("good", "g", 20, START);
        assert_eq!(queue.start().len(), 2);
    }

    #[test]
    fn small_files_begin_many_at_once_and_wait_behind_no_large_ones() {
        let mut queue = Queue::default();
        for n in 0..200 {
            queue.push("lab", &format!("large{n}"), 10, START);
            queue.push("small:lab", &format!("small{n}"), 10, 128);
        }
        let started = queue.start();
        let count = |kind: &str| started.iter().filter(|id| id.starts_with(kind)).count();
        assert_eq!((count("large"), count("small")), (START - 1, 127));
        queue.finished("small:lab", end(Outcome::Overload));
        assert_eq!((queue.limit("small:lab"), queue.limit("lab")), (Some(64), Some(START)));
    }

    #[test]
    fn what_is_cancelled_never_starts() {
        let mut queue = Queue::default();
        queue.push("lab", "a", 0, START);
        assert!(queue.remove("a"));
        assert!(!queue.remove("a"));
        assert!(queue.start().is_empty());
    }

    #[test]
    fn a_cleared_queue_starts_nothing_and_goes_on() {
        let mut queue = Queue::default();
        for n in 0..18 {
            queue.push("lab", &format!("t{n}"), 0, START);
        }
        queue.start();
        let lane = |queue: &Queue| queue.lanes().map(|lane| (lane.running, lane.waiting)).collect::<Vec<_>>();
        assert_eq!(lane(&queue), [(16, 2)]);
        let mut cleared = queue.clear();
        cleared.sort();
        assert_eq!((cleared, lane(&queue)), (vec!["t16".to_string(), "t17".to_string()], vec![(16, 0)]));
        queue.finished("lab", end(Outcome::Neutral));
        assert!(queue.start().is_empty());
    }
}
