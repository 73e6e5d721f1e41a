//! What the programs cost the kernel's verifier, and how long they are, against a baseline: a rule
//! that doubles either is seen by the one who adds it, and not by the kernel that refuses it.

use sickbay_shared::abi::{EXPLAIN_PROGRAM, TC_PROGRAM, XDP_PROGRAM};
use sickbay_tests::figures;
use sickbay_tests::steering::{Cost, Steering};

/// Kernel; program; the verifier's steps; instructions after it has rewritten them.
///
/// A change that is meant writes here what this test prints.
const BASELINE: [(&str, &str, u32, u32); 6] = [
    ("6.18.", XDP_PROGRAM, 203_095, 9_598),
    ("6.18.", TC_PROGRAM, 203_286, 9_645),
    ("6.18.", EXPLAIN_PROGRAM, 104_695, 7_329),
    // Debian 12's own.
    ("6.1.", XDP_PROGRAM, 268_860, 9_318),
    ("6.1.", TC_PROGRAM, 276_974, 9_363),
    ("6.1.", EXPLAIN_PROGRAM, 135_790, 7_329),
];
/// The verifier gives up at a million steps; other kernels may need more than those of the baseline.
const STEPS_MAX: u32 = 500_000;
/// What may be missed or exceeded unseen: compilers differ a little.
const TOLERANCE_PERCENT: u32 = 5;

#[test]
fn programs_cost_the_verifier_what_the_baseline_says() {
    let steering = Steering::load();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let mut missed = Vec::new();
    for Cost { program, steps, instructions } in *steering.costs() {
        let release = release.trim();
        figures::show(&format!(
            "{program} under {release}: {steps} steps of the verifier, {instructions} instructions"
        ));
        assert!(steps <= STEPS_MAX, "{program}: {steps} steps");
        let is_own = |line: &&(&str, &str, _, _)| release.starts_with(line.0) && line.1 == program;
        let Some(&(_, _, expected_steps, expected)) = BASELINE.iter().find(is_own) else {
            continue;
        };
        for (what, baseline, own) in
            [("steps", expected_steps, steps), ("instructions", expected, instructions)]
        {
            if baseline * TOLERANCE_PERCENT < baseline.abs_diff(own) * 100 {
                missed.push(format!("{program}: {own} {what}, the baseline says {baseline}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
