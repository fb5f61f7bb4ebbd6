//! The I/O node: the only place where bytes flow. Serves docs/formats/ionode-api.md over a store on disk.
//!
//! The one rule: what is acknowledged is on disk, hashed and in the log.

#![deny(clippy::undocumented_unsafe_blocks)]

pub mod attempts;
pub mod bench;
pub mod blocking;
pub mod blocks;
pub mod calls;
pub mod claims;
pub mod client;
pub mod clock;
pub mod context;
pub mod exposition;
pub mod failure;
pub mod fingerprints;
pub mod fsck;
pub mod hash;
pub mod health;
pub mod http;
pub mod in_flight;
pub mod lines;
pub mod logging;
pub mod metrics;
pub mod node;
pub mod origin_checksums;
pub mod pack_format;
pub mod packs;
pub mod peers;
pub mod replicas;
pub mod s3;
pub mod sandbox;
pub mod scrub;
pub mod serve;
pub mod shutdown;
pub mod store;
pub mod stripes;
pub mod tls;
pub mod transfer_agent;
pub mod transfers;
pub mod wire;
