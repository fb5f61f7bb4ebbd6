//! What the node says on stderr: a JSON object a line, with the ids of the call or transfer it is about. Knows lines, not what they say.
//!
//! The one rule: a fault that repeats is told a few times and then counted, so that it never fills the disk that it may be about.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::Layer;

const WINDOW: Duration = Duration::from_secs(10);
/// Of one line of the program, in one window.
const LINES_MAX: u64 = 20;

static LINES: LazyLock<Mutex<HashMap<Identifier, CallSite>>> = LazyLock::new(Mutex::default);

pub fn start(level: Level) {
    let lines = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).with_current_span(true).with_span_list(false);
    tracing_subscriber::registry().with(lines.with_filter(Limit(level))).init();
}

/// Says now and then how much was not said.
pub async fn tell_left_out() {
    loop {
        tokio::time::sleep(WINDOW).await;
        for (place, left_out) in take_left_out() {
            tracing::warn!(left_out, place, "this line would have come more often; it was left out");
        }
    }
}

fn take_left_out() -> Vec<(String, u64)> {
    let mut lines = LINES.lock().expect("nobody panics here");
    let told = lines.values_mut().filter(|line| line.left_out > 0);
    told.map(|line| (line.place.clone(), std::mem::take(&mut line.left_out))).collect()
}

struct CallSite {
    place: String,
    since: Instant,
    said: u64,
    left_out: u64,
}

impl CallSite {
    fn may_be_said(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= WINDOW {
            (self.since, self.said) = (now, 0);
        }
        let may = self.said < LINES_MAX;
        *(if may { &mut self.said } else { &mut self.left_out }) += 1;
        may
    }
}

struct Limit(Level);

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        // The S3 library calls an error what a client did wrong, and says more of signatures than a log should hold.
        // What libraries tell through the `log` crate is of use to who looks for a fault, not every day.
        let most = if metadata.target() == "log" && self.0 <= Level::INFO { self.0.min(Level::WARN) } else { self.0 };
        *metadata.level() <= most && !metadata.target().starts_with("s3s")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.into())
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        let (metadata, now) = (event.metadata(), Instant::now());
        let mut lines = LINES.lock().expect("nobody panics here");
        let line = lines.entry(metadata.callsite()).or_insert_with(|| CallSite {
            place: format!("{}:{}", metadata.target(), metadata.line().unwrap_or(0)),
            since: now,
            said: 0,
            left_out: 0,
        });
        line.may_be_said(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_so_often_in_each_window_and_counted_beyond() {
        let start = Instant::now();
        let mut line = CallSite { place: String::new(), since: start, said: 0, left_out: 0 };
        let said = |line: &mut CallSite, at: Instant| (0..50).filter(|_| line.may_be_said(at)).count() as u64;
        assert_eq!((said(&mut line, start), line.left_out), (LINES_MAX, 30));
        assert_eq!((said(&mut line, start + WINDOW), line.left_out), (LINES_MAX, 60));
    }
}
