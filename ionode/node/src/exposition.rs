//! What `/metrics` tells: what was counted, and what the accounting says when a scraper asks: space, replicas, transfers, lanes, readiness.
//!
//! The one rule: the accounting is held for as long as sums take that exist already, never for a walk through all replicas.

use std::collections::BTreeMap;
use std::fmt::{self, Error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::health;
use crate::metrics::labels::{Build, OfKindAndState, OfOrigin, OfOriginAndState, OfReason, OfState};
use crate::metrics::{counts, process, PREFIX};
use crate::node::Node;
use crate::store::FORMAT;

/// The whole exposition, in OpenMetrics text.
pub fn exposition(node: &Arc<Node>) -> String {
    let mut now = Registry::with_prefix(PREFIX);
    now.register_collector(Box::new(Now(node.clone())));
    let mut plain = Registry::default();
    plain.register_collector(Box::new(process::Process));
    let mut text = String::new();
    for registry in [&counts().registry, &now, &plain] {
        encode_registry(&mut text, registry).expect("writing into a string");
    }
    encode_eof(&mut text).expect("writing into a string");
    text
}

struct Now(Arc<Node>);

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the accounting of {}", self.0.context.node_id)
    }
}

impl Collector for Now {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut told = Told(encoder);
        self.space(&mut told)?;
        self.replicas(&mut told)?;
        self.transfers(&mut told)?;
        self.log(&mut told)?;
        self.objects(&mut told)?;
        self.lanes(&mut told)?;
        let reasons = health::unready(&self.0.context);
        let of = |reason| (OfReason { reason }, f64::from(u8::from(reasons.contains(&reason))));
        told.family("not_ready", "Why this node takes no new work: 1 where it holds", health::REASONS.map(of))?;
        let uptime_s = self.0.context.started.elapsed().as_secs_f64();
        told.one("uptime", "Since this incarnation began", Some(Unit::Seconds), uptime_s)?;
        let build = Info::new(Build { version: stager_core::VERSION, store_format: FORMAT.to_string() });
        build.encode(told.0.encode_descriptor("build", "The program and the format of its store.", None, MetricType::Info)?)
    }
}

impl Now {
    fn space(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let (capacity, used, reserved, idle) = {
            let accounting = self.0.context.accounting();
            let space = &accounting.index.space;
            (space.capacity_bytes(), space.used_bytes(), space.reserved_bytes(), space.idle_bytes())
        };
        told.bytes("space_capacity", "Space that replicas and reservations may take together", capacity)?;
        told.bytes("space_used", "Space that replicas take", used)?;
        told.bytes("space_reserved", "Space set aside before bytes move", reserved)?;
        told.bytes("space_idle", "Space of partial fetches that nobody works on, given up when it is needed", idle)?;
        match health::disk_available_bytes(self.0.context.store.root()) {
            Some(available) => told.bytes("disk_available", "Free on the file system under the store", available),
            None => Ok(()),
        }
    }

    fn replicas(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let census = self.0.context.accounting().index.census();
        let states = [("present", census.present), ("quarantined", census.quarantined), ("leaving", census.leaving)];
        told.family("replicas", "Replicas by state", states.map(|(state, count)| (OfState { state }, count as f64)))
    }

    fn transfers(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let counted = self.0.transfers.census();
        let of = |((kind, state), count): (&(&'static str, &'static str), &usize)| (OfKindAndState { kind, state }, *count as f64);
        told.family(
            "transfers",
            "Transfers by kind and state; those that ended count until their end is acknowledged",
            counted.iter().map(of),
        )
    }

    fn log(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let log = &self.0.context.store.log;
        let counts = log.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        told.count("log_frames", "Frames written to the log, each with all writes that waited", None, count(&counts.frames))?;
        told.count("log_entries", "Entries written to the log", None, count(&counts.entries))?;
        told.count("log_written", "Bytes written to the log", Some(Unit::Bytes), count(&counts.log_bytes))?;
        told.count("log_fsyncs", "Times the log was synced", None, count(&counts.syncs))?;
        told.count("log_fsync_time", "Spent syncing the log", Some(Unit::Seconds), count(&counts.sync_ns) / 1e9)?;
        told.count("log_moved", "Bytes moved to give segments back", Some(Unit::Bytes), count(&counts.moved_bytes))?;
        told.count("log_segments_dropped", "Segments given back", None, count(&counts.segments_dropped))?;
        let (segments_bytes, index_bytes) = log.disk_bytes();
        told.bytes("log_disk", "Bytes of the log's segments on disk", segments_bytes)?;
        told.bytes("log_live", "Bytes of the log that still count", log.live_bytes())?;
        told.bytes("log_index_disk", "Bytes of the index on disk", index_bytes)
    }

    fn objects(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let Some(objects) = self.0.objects.get() else { return Ok(()) };
        let counts = objects.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        told.bytes("s3_share", "Space that the objects of the S3 endpoint may take", objects.share_bytes())?;
        told.bytes("s3_used", "Space that they take, writes under way included", objects.used_bytes())?;
        told.one("s3_objects", "Objects of the S3 endpoint", None, objects.count() as f64)?;
        told.count("s3_objects_written", "Objects written through the S3 endpoint", None, count(&counts.objects_written))?;
        told.count("s3_written", "Bytes of them", Some(Unit::Bytes), count(&counts.written_bytes))?;
        told.count("s3_objects_read", "Objects read through the S3 endpoint", None, count(&counts.objects_read))?;
        told.count("s3_read", "Bytes of them", Some(Unit::Bytes), count(&counts.read_bytes))?;
        told.count("s3_objects_deleted", "Objects deleted through the S3 endpoint", None, count(&counts.objects_deleted))?;
        told.count("s3_objects_corrupt", "Objects found damaged", None, count(&counts.objects_corrupt))?;
        told.count("s3_refused_full", "Writes refused because the share was full", None, count(&counts.refused_full))
    }

    /// By the origins' names: several descriptions of one host add up.
    fn lanes(&self, told: &mut Told<'_>) -> Result<(), Error> {
        let mut lanes: BTreeMap<String, (usize, usize, f64)> = BTreeMap::new();
        for (origin_id, running, waiting, limit) in self.0.transfers.lanes() {
            let Ok(origin) = self.0.context.origin(&origin_id) else { continue };
            let lane = lanes.entry(origin.label).or_default();
            *lane = (lane.0 + running, lane.1 + waiting, lane.2.max(limit));
        }
        let both = lanes.iter().flat_map(|(origin, lane)| [(origin, "running", lane.0), (origin, "waiting", lane.1)]);
        let labelled = both.map(|(origin, state, count)| (OfOriginAndState { origin: origin.clone(), state }, count as f64));
        told.family("lane_transfers", "Transfers in the lanes of each origin", labelled)?;
        let limits = lanes.iter().map(|(origin, lane)| (OfOrigin { origin: origin.clone() }, lane.2));
        told.family("lane_limit", "Transfers at once that an origin was found to bear", limits)
    }
}

struct Told<'a>(DescriptorEncoder<'a>);

impl Told<'_> {
    fn bytes(&mut self, name: &str, help: &str, bytes: u64) -> Result<(), Error> {
        self.one(name, help, Some(Unit::Bytes), bytes as f64)
    }

    fn one(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) -> Result<(), Error> {
        let value = ConstGauge::new(value);
        value.encode(self.0.encode_descriptor(name, &format!("{help}."), unit.as_ref(), value.metric_type())?)
    }

    fn count(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) -> Result<(), Error> {
        let value = ConstCounter::new(value);
        value.encode(self.0.encode_descriptor(name, &format!("{help}."), unit.as_ref(), value.metric_type())?)
    }

    fn family<L: EncodeLabelSet>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (L, f64)>) -> Result<(), Error> {
        let mut encoder = self.0.encode_descriptor(name, &format!("{help}."), None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
