//! What names may look like. They stand in paths, in patterns and on terminals.

use super::problem::{Report, Step, quoted};

/// Characters of a name.
const CHARACTERS_MAX: usize = 64;

/// Why `text` cannot be an instance's name; `None` when it can. It is a folder's name on a BPF file
/// system, which refuses dots (`bpf_lookup` in kernel/bpf/inode.c).
pub(super) fn instance_fault(text: &str) -> Option<String> {
    fault(text, "-_")
}

/// Reports the name of a probe, pool or service that is none: letters, digits, `-` and `_` (a dot
/// separates the pool from the backend in `POOL.BACKEND`).
pub(super) fn check_section(report: &mut Report<'_>, place: &[Step<'_>], name: &str) {
    if let Some(fault) = fault(name, "-_") {
        let mend = "name it with 1 to 64 letters, digits, \"-\", \"_\"";
        report.error(place, fault, mend);
    }
}

/// Why `text` cannot be a backend's name; `None` when it can.
pub(crate) fn backend_fault(text: &str) -> Option<String> {
    fault(text, "-_.:")
}

/// Reports an interface name that the kernel would not take (`dev_valid_name` in
/// net/core/dev.c: at most 15 bytes, no slash, colon or space).
pub(super) fn check_interface(report: &mut Report<'_>, place: &[Step<'_>], name: &str) {
    const BYTES_MAX: usize = 15;
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let dots = name == "." || name == "..";
    if name.is_empty() || BYTES_MAX < name.len() || dots || name.contains(odd) {
        let problem = format!("{} is no interface name", quoted(name));
        report.error(place, problem, "write one that `ip link` shows");
    }
}

fn fault(text: &str, allowed: &str) -> Option<String> {
    if text.is_empty() {
        return Some("the name is empty".to_owned());
    }
    if CHARACTERS_MAX < text.chars().count() {
        return Some(format!("{} has more than {CHARACTERS_MAX} characters", quoted(text)));
    }
    let odd = text.chars().find(|c| !c.is_ascii_alphanumeric() && !allowed.contains(*c))?;
    Some(format!("{} has the odd character {}", quoted(text), quoted(&odd.to_string())))
}
