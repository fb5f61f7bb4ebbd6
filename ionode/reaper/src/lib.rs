//! Starts, measures and ends one job's process tree.
