//! What became of transitions, counted: per pool and state, since the start.

use std::collections::BTreeMap;

use super::{TransitionView, Why};
use crate::control::view::ProbeState;

/// Verdicts that changed, by pool and by what they changed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pools: BTreeMap<String, [u64; ProbeState::ALL.len()]>,
}

impl Tally {
    /// Counts one, if it tells of a verdict: events of members, holds of the guard and alarms do not.
    pub(super) fn count(&mut self, view: &TransitionView) {
        if view.member.is_some() || matches!(view.why, Why::Guard | Why::Alarm) {
            return;
        }
        let pool = view.name.split_once('.').map_or(view.name.as_str(), |(pool, _)| pool);
        // Pools are named by the configuration: there are no more of them than it has.
        let counts = match self.pools.get_mut(pool) {
            Some(counts) => counts,
            None => self.pools.entry(pool.to_owned()).or_default(),
        };
        counts[view.to as usize] += 1;
    }

    /// Each pool's counts, in the order of [`ProbeState::ALL`].
    pub fn pools(&self) -> impl Iterator<Item = (&str, &[u64; ProbeState::ALL.len()])> {
        self.pools.iter().map(|(pool, counts)| (pool.as_str(), counts))
    }
}
