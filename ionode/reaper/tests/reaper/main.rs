//! The reaper as its users meet it: the real binary, real processes, mounts and signals, as root and as an ordinary user.

mod case;
mod entering;
mod holding;
mod linking;
mod running;
mod wire;
