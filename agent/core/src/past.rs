//! What is known of a target from before its prober began: an agent before this one, or the same
//! one under another configuration, left it.

use crate::command::{Outcome, Verdict};
use crate::plan::{Nanos, TargetIndex};
use crate::register::Registers;

/// A target's history as it was left. Taken up as it is: the registers bit for bit, and the rules,
/// be they others by now, judge what is there.
///
/// Whoever gives it has seen to it that it is this target's, whole, and not too old to be believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// Whose.
    pub target: TargetIndex,
    /// Varnish's registers, newest result in bit 0.
    pub registers: Registers,
    /// What was said of it last, whatever an operator's word; a rule that finds neither health nor
    /// sickness leaves it so. [`Verdict::Warming`] = nothing yet.
    pub verdict: Verdict,
    /// Moving average of happy probes' times, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in ns; 0 when the last probe had none.
    pub last_ns: Nanos,
    /// When the last determinate result came, by the clock that the prober is told; 0 = none yet.
    pub last_result_ns: Nanos,
    /// What the last probe came to.
    pub outcome: Option<Outcome>,
    /// Probes that ended indeterminate since the last determinate one.
    pub indeterminate: u32,
}
