//! A job's sandbox as the node sees it: folders, what is in them, copies. Knows nothing of replicas, leases or the network.
//!
//! The one rule: a job may have put anything there, so nothing is followed and everything is looked at before it is touched.

pub mod copy;
pub mod folder;
pub mod survey;
