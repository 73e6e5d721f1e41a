//! The process itself, under the names that every Prometheus client library uses for it.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// The process at one moment; what cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_s: Option<f64>,
    /// Since the epoch.
    pub(super) started_s: Option<f64>,
}

/// Reads it from /proc.
pub(super) fn read() -> Process {
    let page_bytes = number_of(SysconfVar::PAGE_SIZE);
    let ticks_per_s = number_of(SysconfVar::CLK_TCK).map(|ticks| ticks as f64);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = Times::of(&stat);
    let boot_s = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time_s(&text));
    let seconds = |ticks: u64| ticks_per_s.map(|per_s| ticks as f64 / per_s);
    Process {
        // Less the one that the directory itself is read by.
        open_fds: fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64 - 1),
        max_fds: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft),
        resident_bytes: times.and_then(|it| Some(it.resident_pages * page_bytes?)),
        cpu_s: times.and_then(|it| seconds(it.cpu)),
        started_s: times.and_then(|it| Some(boot_s? as f64 + seconds(it.started)?)),
    }
}

fn number_of(variable: SysconfVar) -> Option<u64> {
    sysconf(variable).ok().flatten().and_then(|number| u64::try_from(number).ok())
}

/// What /proc/self/stat says (proc_pid_stat(5)), in ticks and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    cpu: u64,
    started: u64,
    resident_pages: u64,
}

impl Times {
    fn of(stat: &str) -> Option<Self> {
        // The name, in brackets, may hold anything. What follows begins with field 3.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu: field(14)? + field(15)?, started: field(22)?, resident_pages: field(24)? })
    }
}

fn boot_time_s(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_an_odd_name() {
        let stat = "7 (a) b 1 2) S 1 7 7 0 -1 4194560 100 0 3 0 50 25 0 0 20 0 4 0 9000 1000000 \
                    250 18446744073709551615 1 1 0 0";
        let expected = Times { cpu: 75, started: 9_000, resident_pages: 250 };
        assert_eq!(Times::of(stat), Some(expected));
        assert_eq!(Times::of("7 (a) S 1"), None);
        assert_eq!(boot_time_s("cpu 1 2\nbtime 1795973428\nctxt 3\n"), Some(1_795_973_428));
    }

    #[test]
    fn this_process_is_told() {
        let process = read();
        assert!(3 <= process.open_fds.unwrap() && process.open_fds <= process.max_fds);
        assert!(1_000_000 < process.resident_bytes.unwrap());
        let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age_s = now_s - process.started_s.unwrap();
        assert!((-2.0..3_600.0).contains(&age_s), "{age_s}");
        assert!(process.cpu_s.is_some());
    }
}
