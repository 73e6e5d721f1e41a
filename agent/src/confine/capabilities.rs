//! Capabilities: which a running agent keeps, why, and how it lets go of the others. The only file
//! that names the crate `caps`.

use std::collections::HashSet;

use caps::{CapSet, CapsHashSet};

pub use caps::Capability;

/// What a running agent keeps, and what for. The systemd unit gives no more than these; a test
/// holds it to this list.
pub const KEPT: [(Capability, &str); 3] = [
    (
        Capability::CAP_NET_ADMIN,
        "attach the programs, turn and detach them; have the kernel ask for neighbours; mark probes",
    ),
    (
        Capability::CAP_PERFMON,
        "have the verifier take the programs that a reload loads (they subtract packet pointers)",
    ),
    (Capability::CAP_BPF, "load those, make their maps, read counters and entries"),
];

/// Instead of CAP_PERFMON and CAP_BPF, where an agent was started with this one alone.
const INSTEAD: Capability = Capability::CAP_SYS_ADMIN;

/// What is kept of `permitted` when `besides` is to be kept too.
#[must_use]
pub fn kept(permitted: &HashSet<Capability>, besides: &[Capability]) -> HashSet<Capability> {
    let wanted = KEPT.iter().map(|(capability, _)| *capability);
    let has_all = wanted.clone().all(|capability| permitted.contains(&capability));
    let instead = (!has_all).then_some(INSTEAD);
    let wanted = wanted.chain(besides.iter().copied()).chain(instead);
    wanted.filter(|capability| permitted.contains(capability)).collect()
}

/// This thread's permitted capabilities.
///
/// # Errors
///
/// The kernel does not tell.
pub fn permitted() -> Result<HashSet<Capability>, caps::errors::CapsError> {
    caps::read(None, CapSet::Permitted)
}

/// Takes every other capability from this thread, and from those that it starts: none can be had
/// again. Without CAP_SETPCAP the bounding set stays as it is, which `sickbay status` shows; with
/// no_new_privs nothing can be gained by it.
///
/// # Errors
///
/// The kernel refuses.
pub(super) fn keep_only(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::runtime::thread_all_supported().difference(kept) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    // Effective before permitted: the one may not have what the other has not.
    caps::set(None, CapSet::Effective, kept)?;
    caps::set(None, CapSet::Permitted, kept)?;
    caps::clear(None, CapSet::Inheritable)
}

/// A capability by its name, as `CAP_BPF`.
#[must_use]
pub fn by_name(name: &str) -> Option<Capability> {
    name.parse().ok()
}

/// The names of all that are known, sorted.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = caps::all().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

/// The names of the capabilities whose bits are set in `mask`, by number; one that is not known
/// here is `CAP_` and its number.
#[must_use]
pub fn names_in(mask: u64) -> Vec<String> {
    let known = caps::all();
    let name = |number: u8| {
        let found = known.iter().find(|capability| capability.index() == number);
        found.map_or_else(|| format!("CAP_{number}"), ToString::to_string)
    };
    (0..64).filter(|number| mask >> number & 1 == 1).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_reload_needs_is_kept_of_everything() {
        // 12, 38 and 39 in capability.h.
        let expected = 1_u64 << 12 | 1 << 38 | 1 << 39;
        let mask = |set: HashSet<Capability>| set.iter().fold(0, |sum, it| sum | it.bitmask());
        assert_eq!(mask(kept(&caps::all(), &[])), expected);
        let besides = [Capability::CAP_DAC_OVERRIDE];
        assert_eq!(mask(kept(&caps::all(), &besides)), expected | 1 << 1);
    }

    #[test]
    fn nothing_is_kept_that_was_not_there() {
        let few = HashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_CHOWN]);
        let besides = [Capability::CAP_DAC_OVERRIDE];
        assert_eq!(kept(&few, &besides), HashSet::from([Capability::CAP_NET_ADMIN]));
    }

    #[test]
    fn agent_that_lives_by_sys_admin_keeps_it() {
        let old = HashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN]);
        assert_eq!(kept(&old, &[]), old);
    }

    #[test]
    fn names_are_told_by_number_even_those_of_a_later_kernel() {
        assert_eq!(names_in(1 | 1 << 39 | 1 << 63), ["CAP_CHOWN", "CAP_BPF", "CAP_63"]);
        assert_eq!(by_name("CAP_BPF"), Some(Capability::CAP_BPF));
        assert_eq!(by_name("CAP_BFP"), None);
        assert!(names().contains(&"CAP_SYS_ADMIN".to_owned()));
    }
}
