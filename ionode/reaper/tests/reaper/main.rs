//! The reaper as its users meet it: the real binary, real processes, mounts and signals, as root and as an ordinary user.

mod case;
mod confined;
mod contained;
mod entering;
mod grouped;
mod holding;
mod linking;
mod memory;
mod running;
mod wire;
