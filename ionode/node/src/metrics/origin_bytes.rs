//! The meter of one origin: its part of `transferred_bytes_total`. Knows its label.
//!
//! The one rule: two descriptions with one label are counted together.

use prometheus_client::metrics::counter::Counter;
use stager_origins::Meter;

use super::{counts, Moved};

pub struct OriginBytes {
    arrived: Counter,
    sent: Counter,
}

impl OriginBytes {
    pub fn new(origin: &str) -> Self {
        let moved = |direction| counts().moved.get_or_create_owned(&Moved { origin: origin.to_string(), direction });
        Self { arrived: moved("in"), sent: moved("out") }
    }
}

impl Meter for OriginBytes {
    fn arrived(&self, bytes: u64) {
        self.arrived.inc_by(bytes);
    }
    fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }
}
