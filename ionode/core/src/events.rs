//! Events until they are acknowledged: numbered from 1, bounded, never silently lost. May know nothing of what an event says.
//!
//! The one rule: a reader that asks after a number below what was dropped is told of the gap.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct EventBuffer<E> {
    kept: VecDeque<(u64, E)>,
    next_seq: u64,
    /// Everything up to here is gone, acknowledged or not.
    gone_through: u64,
    limit: usize,
}

impl<E: Clone> EventBuffer<E> {
    pub fn new(limit: usize) -> Self {
        assert!(limit > 0, "an event buffer must hold something");
        Self { kept: VecDeque::new(), next_seq: 1, gone_through: 0, limit }
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The maker gets the number, since an event carries its own.
    pub fn push(&mut self, make: impl FnOnce(u64) -> E) -> E {
        let seq = self.next_seq;
        self.next_seq += 1;
        let event = make(seq);
        self.kept.push_back((seq, event.clone()));
        if self.kept.len() > self.limit {
            self.forget_first();
        }
        event
    }

    /// At most `limit` events with a number above `after`, and whether some above it are lost.
    pub fn after(&self, after: u64, limit: usize) -> (Vec<E>, bool) {
        let skip = self.kept.partition_point(|(seq, _)| *seq <= after);
        let events = self.kept.iter().skip(skip).take(limit).map(|(_, event)| event.clone()).collect();
        (events, after < self.gone_through)
    }

    pub fn ack(&mut self, through: u64) {
        while self.kept.front().is_some_and(|(seq, _)| *seq <= through) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((seq, _)) = self.kept.pop_front() {
            self.gone_through = seq;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_events_go_and_late_readers_learn_it() {
        let mut buffer = EventBuffer::new(10);
        for _ in 0..3 {
            buffer.push(|seq| seq);
        }
        assert_eq!(buffer.after(0, 2), (vec![1, 2], false));
        buffer.ack(2);
        assert_eq!(buffer.after(2, 10), (vec![3], false));
        assert_eq!(buffer.after(1, 10), (vec![3], true));
        assert_eq!(buffer.next_seq(), 4);
    }

    #[test]
    fn the_oldest_goes_when_nobody_acknowledges() {
        let mut buffer = EventBuffer::new(2);
        for _ in 0..5 {
            buffer.push(|seq| seq);
        }
        assert_eq!(buffer.after(0, 10), (vec![4, 5], true));
        assert_eq!(buffer.after(3, 10), (vec![4, 5], false));
    }
}
