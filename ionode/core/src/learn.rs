//! How many transfers at once an origin is worth, learned from what they bring. Knows counts, bytes and the time it is told; no clock.
//!
//! The one rule: more is kept only where it brought more, and an overload halves it at once, once for all that were under way.

use std::time::Duration;

pub const START: usize = 16;
/// Where nothing else is known, what begins with more apart.
pub const MAX: usize = 256;
/// Opening a file costs about as much as this many bytes of it: so empty files count too.
const WORK_OF_A_FILE_BYTES: u64 = 32 << 10;
/// A round that is judged is not shorter than this.
const ROUND_TRANSFERS_MIN: usize = 8;
const ROUND_MIN: Duration = Duration::from_millis(200);
/// Those that began together end together: a round of one such wave may hold all of it, or the ends of two.
const ROUND_WAVES_MIN: usize = 2;
/// Twice as many must bring this much more to be worth doubling again; a small step, a part of what it would bring if nothing was full.
const WORTH_DOUBLING: f64 = 1.2;
const STEP_PART: usize = 8;
/// Rounds to stay after a step that brought nothing; the next attempt waits twice as long, up to the most.
const STAY_ROUNDS: u32 = 4;
const STAY_ROUNDS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Failed, for a reason that says nothing about the load.
    Neutral,
    Success,
    Overload,
}

/// One transfer that has ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub outcome: Outcome,
    pub bytes: u64,
    /// Since any fixed moment.
    pub at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Doubling,
    /// Tried one step more.
    Stepping {
        from: usize,
    },
    Staying {
        rounds: u32,
    },
}

#[derive(Debug)]
pub struct Learner {
    limit: usize,
    most: usize,
    mode: Mode,
    /// Of the round before the last change.
    rate_before: Option<f64>,
    stay_rounds: u32,
    /// Ends still to come of transfers that were under way at the last change: they say nothing of it.
    old: usize,
    round: Round,
}

#[derive(Debug, Default)]
struct Round {
    began: Option<Duration>,
    transfers: usize,
    work_bytes: u64,
}

impl Default for Learner {
    fn default() -> Self {
        Self::beginning_with(START)
    }
}

impl Learner {
    pub fn beginning_with(limit: usize) -> Self {
        Self {
            limit,
            most: MAX.max(limit),
            mode: Mode::Doubling,
            rate_before: None,
            stay_rounds: STAY_ROUNDS,
            old: 0,
            round: Round::default(),
        }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// `running`: of those left under way; `more`: others wait for a place, so that the limit is what holds them.
    pub fn ended(&mut self, end: End, running: usize, more: bool) {
        let is_old = self.old > 0;
        self.old = self.old.saturating_sub(1);
        match end.outcome {
            Outcome::Neutral => {}
            Outcome::Overload if is_old => {}
            Outcome::Overload => self.overloaded(running),
            Outcome::Success if !more => self.round = Round::default(),
            Outcome::Success if is_old => {}
            Outcome::Success => self.count(end, running),
        }
    }

    fn overloaded(&mut self, running: usize) {
        (self.stay_rounds, self.rate_before) = (STAY_ROUNDS, None);
        self.set((self.limit / 2).max(1), Mode::Staying { rounds: STAY_ROUNDS }, running);
    }

    fn set(&mut self, limit: usize, mode: Mode, running: usize) {
        (self.limit, self.mode) = (limit.clamp(1, self.most), mode);
        self.old = running;
        self.round = Round::default();
    }

    /// The first end only begins the round: how long it took is not known.
    fn count(&mut self, end: End, running: usize) {
        let Some(began) = self.round.began else {
            self.round.began = Some(end.at);
            return;
        };
        self.round.transfers += 1;
        self.round.work_bytes += end.bytes + WORK_OF_A_FILE_BYTES;
        let took = end.at.saturating_sub(began);
        if self.round.transfers >= (ROUND_WAVES_MIN * self.limit).max(ROUND_TRANSFERS_MIN) && took >= ROUND_MIN {
            let rate = self.round.work_bytes as f64 / took.as_secs_f64();
            self.judge(rate, running);
        }
    }

    fn judge(&mut self, rate: f64, running: usize) {
        let before = self.rate_before.replace(rate);
        match (self.mode, before) {
            (Mode::Doubling, Some(before)) if rate < before * WORTH_DOUBLING => {
                self.set(self.limit * 5 / 8, Mode::Staying { rounds: self.stay_rounds }, running);
            }
            (Mode::Doubling, _) if self.limit < self.most => self.set(self.limit * 2, Mode::Doubling, running),
            (Mode::Doubling, _) => self.mode = Mode::Staying { rounds: self.stay_rounds },
            (Mode::Stepping { from }, Some(before)) => self.judge_step(from, rate / before, running),
            (Mode::Staying { rounds }, _) if rounds > 1 => {
                self.mode = Mode::Staying { rounds: rounds - 1 };
                self.round = Round::default();
            }
            _ => self.step(running),
        }
    }

    fn step(&mut self, running: usize) {
        let step = (self.limit / STEP_PART).max(1);
        self.set(self.limit + step, Mode::Stepping { from: self.limit }, running);
    }

    fn judge_step(&mut self, from: usize, gain: f64, running: usize) {
        let hoped = self.limit as f64 / from as f64;
        if gain >= 1.0 + (hoped - 1.0) / 2.0 {
            self.stay_rounds = STAY_ROUNDS;
            return self.step(running);
        }
        let stay = Mode::Staying { rounds: self.stay_rounds };
        self.stay_rounds = (self.stay_rounds * 2).min(STAY_ROUNDS_MAX);
        self.set(from, stay, running);
    }
}
