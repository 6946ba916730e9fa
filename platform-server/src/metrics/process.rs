//! Metrics of the process, with the names that Prometheus recommends for all programs. From `/proc`, so on Linux alone.
//!
//! Written as text: the counters of the crate `metrics` are whole numbers, which is too coarse for processor time.

use std::{
    fmt::{Display, Write},
    fs,
};

/// Name, type and description of each metric.
pub(super) const ALL: [(&str, &str, &str); 3] = [
    ("process_cpu_seconds_total", "counter", "Processor time of the process, in user and system mode"),
    ("process_resident_memory_bytes", "gauge", "Resident memory of the process"),
    ("process_open_fds", "gauge", "Open file descriptors of the process"),
];

/// Clock ticks a second in `/proc`, which are the same on all machines that Rust supports.
const TICKS: f64 = 100.0;

/// Returns the metrics in the text format.
pub(super) fn render() -> String {
    let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ticks(&stat));
    let kibibytes = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status));
    let files = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    let values: [Option<Box<dyn Display>>; 3] = [
        ticks.map(|ticks| Box::new(ticks as f64 / TICKS) as _),
        kibibytes.map(|kibibytes| Box::new(kibibytes * 1024) as _),
        files.map(|files| Box::new(files) as _),
    ];
    let mut text = String::new();
    for ((name, kind, about), value) in ALL.iter().zip(values) {
        let Some(value) = value else { continue };
        // Writing into a string does not fail.
        let _ = write!(text, "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n\n");
    }
    text
}

/// Returns the processor time in `/proc/self/stat`. The name of the program, in parentheses, may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some(user + system)
}

/// Returns the resident memory in `/proc/self/status`, in KiB.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_and_memory_are_read_from_the_files_of_linux() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(resident("Name:\tx\nVmRSS:\t  1234 kB\n"), Some(1234));
        assert_eq!((cpu_ticks("7 (a"), resident("")), (None, None));
    }
}
