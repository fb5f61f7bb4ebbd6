//! Objects over a real log on a real disk.

mod against_a_map;
mod damage;
mod racing;
mod shop;
mod space;
mod tags;
mod uploads;
mod verify;
