//! What `/metrics` tells of what happened: counted here while it happens. Knows names and labels, decides nothing.
//!
//! The one rule: a label has few values. No path, no file, no id of a transfer or a job, and nothing of what an origin was described with
//! but its host or bucket.

pub mod format;
pub mod labels;
mod origin_bytes;
pub mod process;

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{exponential_buckets, Histogram};
use prometheus_client::registry::{Registry, Unit};

pub use labels::{origin, Call, Failure, Finding, Moved, OfKind, OfListener, OfRoute, TransferEnd, OTHER};
pub use origin_bytes::OriginBytes;

pub const PREFIX: &str = "stager_node";

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// From a microsecond's work to a slow disk's second.
fn quick() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 4.0, 10))
}

/// From a small file on the next host to a terabyte behind a slow link.
fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 4.0, 11))
}

/// One process is one node: its counts are the process's.
pub fn counts() -> &'static Counts {
    static COUNTS: LazyLock<Counts> = LazyLock::new(Counts::new);
    &COUNTS
}

pub struct Counts {
    pub registry: Registry,
    pub transfers_ended: Family<TransferEnd, Counter>,
    pub transfers_failed: Family<Failure, Counter>,
    pub transfer_duration: Histograms<OfKind>,
    pub moved: Family<Moved, Counter>,
    pub quarantines: Counter,
    pub scrub_replicas: Family<Finding, Counter>,
    pub scrub_objects: Family<Finding, Counter>,
    pub scrub_read: Counter,
    pub scrub_due: Gauge,
    pub scrub_rounds: Counter,
    pub scrub_oldest: Gauge,
    pub calls: Family<Call, Counter>,
    pub call_duration: Histograms<OfRoute>,
    pub connections: Family<OfListener, Gauge>,
}

impl Counts {
    fn new() -> Self {
        let mut counts = Self {
            registry: Registry::with_prefix(PREFIX),
            transfers_ended: Family::default(),
            transfers_failed: Family::default(),
            transfer_duration: Family::new_with_constructor(long),
            moved: Family::default(),
            quarantines: Counter::default(),
            scrub_replicas: Family::default(),
            scrub_objects: Family::default(),
            scrub_read: Counter::default(),
            scrub_due: Gauge::default(),
            scrub_rounds: Counter::default(),
            scrub_oldest: Gauge::default(),
            calls: Family::default(),
            call_duration: Family::new_with_constructor(quick),
            connections: Family::default(),
        };
        let mut registry = std::mem::take(&mut counts.registry);
        counts.register_work(&mut registry);
        counts.register_calls(&mut registry);
        counts.registry = registry;
        counts
    }

    fn register_work(&self, to: &mut Registry) {
        to.register("transfers_ended", "Transfers that ended, by kind and outcome", self.transfers_ended.clone());
        to.register("transfers_failed", "Transfers that failed, by kind and error code", self.transfers_failed.clone());
        let help = "From the start of a transfer to its end, waiting in its lane left out";
        to.register_with_unit("transfer_duration", help, Unit::Seconds, self.transfer_duration.clone());
        let help = "Payload moved between this node and an origin (in: to the node), read-back for verifying included";
        to.register_with_unit("transferred", help, Unit::Bytes, self.moved.clone());
        to.register("quarantines", "Replicas found damaged or gone, by whomever", self.quarantines.clone());
        to.register("scrub_replicas", "Replicas the scrubber has read, by what it found", self.scrub_replicas.clone());
        to.register("scrub_objects", "Objects of the S3 endpoint the scrubber has read, by what it found", self.scrub_objects.clone());
        to.register_with_unit("scrub_read", "Bytes the scrubber has read", Unit::Bytes, self.scrub_read.clone());
        let help = "Time since the longest unverified replica was verified, or since the start where that is unknown";
        to.register_with_unit("scrub_oldest", help, Unit::Seconds, self.scrub_oldest.clone());
        to.register("scrub_rounds", "Times the scrubber went through all replicas that were due", self.scrub_rounds.clone());
        to.register("scrub_due_replicas", "Replicas that the scrubber is due to read", self.scrub_due.clone());
    }

    fn register_calls(&self, to: &mut Registry) {
        to.register("http_requests", "Answered HTTP requests", self.calls.clone());
        let help = "From a request's head to its answer's; bodies of content follow after that";
        to.register_with_unit("http_request_duration", help, Unit::Seconds, self.call_duration.clone());
        to.register("http_connections", "Open HTTP connections", self.connections.clone());
    }
}
