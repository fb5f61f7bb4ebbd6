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
