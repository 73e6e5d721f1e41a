//! How a register becomes a verdict: rules, warming, silence, overrides.
//!
//! A judge's **probed state** moves by determinate results alone:
//!
//! | probed state | a determinate result came, and | next |
//! |---|---|---|
//! | warming | the rule finds health | healthy |
//! | warming | not, and the results a faultless backend needs are had | sick |
//! | warming | otherwise | warming |
//! | healthy | the rule finds sickness | sick |
//! | healthy | otherwise | healthy |
//! | sick | the rule finds health | healthy |
//! | sick | otherwise | sick |
//!
//! The window rule always finds one of the two; the consecutive rule may find neither. A faultless
//! backend needs [`Rule::goods_to_healthy`] less the `initial` results assumed, at least one. When
//! those assumed are enough by themselves, the judge starts healthy, as Varnish does.
//!
//! The **verdict** is the first of these that applies:
//!
//! | override | target unknown | policy | verdict |
//! |---|---|---|---|
//! | healthy | any | any | healthy |
//! | sick | any | any | sick |
//! | auto | yes | sick | sick |
//! | auto | yes | keep | the probed state |
//! | auto | no | any | the probed state |
//!
//! Overrides and silence change nothing underneath: probing goes on, the register moves, and when
//! they end the probed state holds at once.

use crate::command::{Override, Verdict};
use crate::plan::{OnUnknown, Rule};
use crate::register::low_bits;

/// What a rule finds in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Health.
    Healthy,
    /// Sickness.
    Sick,
    /// Neither; things stay as they are.
    Undecided,
}

/// What `rule` finds in the happy register.
#[must_use]
pub const fn finding(rule: Rule, happy: u64) -> Finding {
    match rule {
        Rule::Window { window, threshold } => {
            if (happy & low_bits(window)).count_ones() >= threshold as u32 {
                Finding::Healthy
            } else {
                Finding::Sick
            }
        }
        Rule::Consecutive { fall, rise } => {
            if happy & low_bits(rise) == low_bits(rise) {
                Finding::Healthy
            } else if happy & low_bits(fall) == 0 {
                Finding::Sick
            } else {
                Finding::Undecided
            }
        }
    }
}

/// A judge's probed state: what the results alone say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    state: Verdict,
    /// Determinate results until the first verdict; 0 once there is one.
    warming_left: u8,
}

impl Probed {
    /// Before the first probe, with `happy` as prefilled.
    #[must_use]
    pub const fn new(rule: Rule, happy: u64) -> Self {
        // Every bit set now is an assumed one.
        let assumed = happy.count_ones() as u8;
        if assumed > 0 && matches!(finding(rule, happy), Finding::Healthy) {
            return Self { state: Verdict::Healthy, warming_left: 0 };
        }
        let needed = rule.goods_to_healthy().saturating_sub(assumed);
        let warming_left = if needed == 0 { 1 } else { needed };
        Self { state: Verdict::Warming, warming_left }
    }

    /// As [`Self::new`], after something was `said` of the same results, by this rule or another:
    /// what the rule finds now, and where it finds neither health nor sickness, what was said.
    #[must_use]
    pub const fn resume(rule: Rule, happy: u64, said: Verdict) -> Self {
        let state = match (said, finding(rule, happy)) {
            (Verdict::Warming, _) => return Self::new(rule, happy),
            (_, Finding::Healthy) => Verdict::Healthy,
            (_, Finding::Sick) => Verdict::Sick,
            (said, Finding::Undecided) => said,
        };
        Self { state, warming_left: 0 }
    }

    /// The next state, after a determinate result that is already in `happy`.
    #[must_use]
    pub const fn after_result(self, rule: Rule, happy: u64) -> Self {
        let finding = finding(rule, happy);
        let state = match (self.state, finding) {
            (_, Finding::Healthy) => Verdict::Healthy,
            (Verdict::Warming, _) if self.warming_left > 1 => {
                return Self { state: Verdict::Warming, warming_left: self.warming_left - 1 };
            }
            (Verdict::Warming, _) | (_, Finding::Sick) => Verdict::Sick,
            (state, Finding::Undecided) => state,
        };
        Self { state, warming_left: 0 }
    }

    /// The state.
    #[must_use]
    pub const fn state(self) -> Verdict {
        self.state
    }
}

/// The verdict: the override's word, else silence's, else the probed state.
#[must_use]
pub const fn verdict(
    probed: Verdict,
    word: Override,
    unknown: bool,
    on_unknown: OnUnknown,
) -> Verdict {
    match (word, unknown, on_unknown) {
        (Override::Healthy, _, _) => Verdict::Healthy,
        (Override::Sick, _, _) | (Override::Auto, true, OnUnknown::Sick) => Verdict::Sick,
        (Override::Auto, _, _) => probed,
    }
}

/// What several judges of one backend say together: each of them must find it healthy. One that
/// finds it sick decides; else one without a verdict does.
#[must_use]
pub fn all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    verdicts.into_iter().fold(Verdict::Healthy, |all, verdict| match (all, verdict) {
        (Verdict::Sick, _) | (_, Verdict::Sick) => Verdict::Sick,
        (Verdict::Warming, _) | (_, Verdict::Warming) => Verdict::Warming,
        (Verdict::Healthy, Verdict::Healthy) => Verdict::Healthy,
    })
}

#[cfg(test)]
mod tests;
