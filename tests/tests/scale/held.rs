//! What this process holds of the machine: memory, descriptors, sockets.

/// Resident memory of this process, in KiB.
pub(super) fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Descriptors of this process.
pub(super) fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// TCP sockets of this thread's network namespace, in any state but TIME_WAIT.
pub(super) fn sockets_in_use() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/sockstat").expect("/proc is mounted");
    let line = text.lines().find(|line| line.starts_with("TCP:")).expect("a line for TCP");
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "alloc").expect("a count of sockets");
    words[at + 1].parse().expect("a number")
}
