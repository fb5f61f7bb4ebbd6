//! The scrubber's walk through the objects of the S3 endpoint: by their names, all of them once in the time that one replica has.
//!
//! The one rule: replicas go first. Where the walk is, is not kept over a restart: it begins anew.

use std::time::{Duration, Instant};

use stager_objects::{Name, Objects, Verdict};

use super::{Round, ONCE_MORE_AFTER, ORDER_FOR, REST_MAX, REST_MIN};
use crate::clock::now_s;
use crate::metrics::{self, Finding};

const NAMES_AT_ONCE: usize = 1000;

#[derive(Default)]
pub struct Walk {
    begun_s: u64,
    last: Option<Name>,
}

impl Round {
    /// For a while; returns when it wants to go on.
    pub fn check_objects(&mut self) -> Duration {
        let Some(objects) = self.objects.clone() else { return REST_MAX };
        if self.walk.last.is_none() {
            match (self.walk.begun_s + self.manner.every_s).saturating_sub(now_s()) {
                0 => self.walk.begun_s = now_s(),
                wait_s => return Duration::from_secs(wait_s).min(REST_MAX),
            }
        }
        let begun = Instant::now();
        loop {
            let names = match objects.names_behind(self.walk.last.as_ref(), NAMES_AT_ONCE) {
                Ok(names) => names,
                Err(error) => {
                    tracing::warn!(%error, "the names of objects could not be read; they are verified later");
                    return REST_MAX;
                }
            };
            if names.is_empty() {
                self.walk.last = None;
                return Duration::from_secs(self.manner.every_s).clamp(REST_MIN, REST_MAX);
            }
            for name in names {
                if self.is_over() || begun.elapsed() >= ORDER_FOR {
                    return REST_MIN;
                }
                self.check_object(&objects, &name);
                self.walk.last = Some(name);
            }
        }
    }

    fn check_object(&mut self, objects: &Objects, name: &Name) {
        self.reading.begin(None);
        let result = match objects.verify(name, &mut self.reading) {
            _ if self.is_over() => return,
            Ok(Verdict::Gone) => return,
            Ok(Verdict::Sound) => "sound",
            Ok(Verdict::Damaged(_)) => "corrupt",
            Err(error) => {
                tracing::warn!(object = %name, %error, "an object could not be verified now; the scrubber reads it again in the next round");
                self.rest(ONCE_MORE_AFTER);
                "unreadable"
            }
        };
        metrics::counts().scrub_objects.get_or_create(&Finding { result }).inc();
    }
}
