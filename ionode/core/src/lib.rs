//! The node's bookkeeping without any I/O: space, reservations, replicas and their states, leases, events. It may know nothing of disks, networks or clocks.
//!
//! The one rule: `used + reserved <= capacity`, always.

pub mod error;
pub mod events;
pub mod ids;
pub mod index;
pub mod learn;
pub mod queue;
pub mod record;
pub mod replica;
pub mod space;
pub mod stripes;
pub mod watermark;

/// What the node calls itself: the version of the wheel where a wheel is built, else that of the crates, which stays, so that no commit
/// compiles all of them again.
pub const VERSION: &str = match option_env!("STAGER_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
