//! What this process takes of its host, under the names that every Prometheus client uses. Reads /proc/self.
//!
//! The one rule: what cannot be read is left out, never told as zero.

use std::fmt::Error;

use nix::sys::resource::{getrlimit, Resource};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        if let Some(stat) = Stat::read() {
            counter(&mut encoder, "process_cpu_seconds", "Processor time of this process, user and system", stat.cpu_s)?;
            gauge(&mut encoder, "process_start_time_seconds", "When this process started, since the epoch", stat.started_s)?;
            gauge(&mut encoder, "process_resident_memory_bytes", "Memory of this process that is in RAM", stat.resident_bytes)?;
            gauge(&mut encoder, "process_virtual_memory_bytes", "Address space of this process", stat.virtual_bytes)?;
            gauge(&mut encoder, "process_threads", "Threads of this process", stat.threads)?;
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            gauge(&mut encoder, "process_open_fds", "Open file descriptors", open.count() as f64)?;
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            gauge(&mut encoder, "process_max_fds", "Most file descriptors that may be open", soft as f64)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> Result<(), Error> {
    let value = ConstGauge::new(value);
    value.encode(encoder.encode_descriptor(name, &format!("{help}."), None, value.metric_type())?)
}

fn counter(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> Result<(), Error> {
    let value = ConstCounter::new(value);
    value.encode(encoder.encode_descriptor(name, &format!("{help}."), None, value.metric_type())?)
}

struct Stat {
    cpu_s: f64,
    started_s: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot_s: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let per_s = sysconf(libc::_SC_CLK_TCK)?;
        Self::parse(&text, boot_s, per_s, sysconf(libc::_SC_PAGESIZE)?)
    }

    /// proc(5); the name of the program may hold blanks and parentheses, so fields are counted from its end.
    fn parse(text: &str, boot_s: f64, ticks_per_s: f64, page_bytes: f64) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_s: (field(14)? + field(15)?) / ticks_per_s,
            threads: field(20)?,
            started_s: boot_s + field(22)? / ticks_per_s,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_bytes,
        })
    }
}

fn sysconf(name: libc::c_int) -> Option<f64> {
    // SAFETY: takes a number, gives a number.
    let value = unsafe { libc::sysconf(name) };
    (value > 0).then_some(value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_an_odd_name() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 1000000 300 18446744073709551615 1";
        let stat = Stat::parse(text, 1000.0, 100.0, 4096.0).unwrap();
        assert_eq!((stat.cpu_s, stat.threads, stat.started_s), (3.0, 9.0, 1123.45));
        assert_eq!((stat.virtual_bytes, stat.resident_bytes), (1_000_000.0, 300.0 * 4096.0));
    }
}
