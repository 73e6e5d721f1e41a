//! The figures of a probe whose pace changes with what it finds.
//!
//! Each interval but the fast one has a grid of its own, and how two grids of a target lie to each
//! other follows from its identity: a rehearsal of one target says nothing of another. What came
//! before matters as well, since it tells on which grid the last probe was. So these figures are a
//! closed form, the sum of the extremes of each gap, over every target, every register and every
//! past of it, one just after a start of the agent and one that other rules judge too included.
//!
//! **A gap onto a grid.** The slot after a change of pace comes no sooner than the lesser of both
//! intervals after the last probe, and not before that one has ended (`prober/calendar.rs`). From
//! there to the first slot of the grid it is one interval of the new pace at most, and may be
//! nothing. Fast probes count from the last one and have no such spread. No probe that starts or ends
//! later makes the next one earlier, so the largest gaps and the longest answers add up to a bound.
//!
//! **The wait** before the first probe of a row is the largest gap that can follow the last probe
//! before the event, whatever change of pace that one brought:
//!
//! | the last result | the next slot is on the grid of | coming from |
//! |---|---|---|
//! | good, healthy | the interval | the fast pace; the sick one, if one good result can end sickness |
//! | bad, sick | the sick interval, else the interval | the interval, or else the fast pace |
//! | good, still sick | none if there is a fast pace, else the interval | the sick pace |
//!
//! **After it** the second probe of a death is at the fast pace or goes on in the grid of the first;
//! that of a recovery is at the fast pace, or else changes from the sick interval's grid to the
//! interval's. All others follow at one pace.

use super::row::{Before, Row, jitter_ns_max};
use crate::bound::{self, Pace, Times};
use crate::limits::FIRST_PROBE_NS_MAX;
use crate::plan::{Nanos, ProbeSpec, Rule};

/// A probe that has more than one pace; none is slower than the interval but the sick one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paces<'a> {
    spec: &'a ProbeSpec,
    rule: Rule,
    calm_ns: Nanos,
    fast_ns: Option<Nanos>,
    sick_ns: Option<Nanos>,
}

/// A time that is not the same for all targets.
#[derive(Clone, Copy, Debug)]
struct Span {
    least_ns: Nanos,
    most_ns: Nanos,
}

impl<'a> Paces<'a> {
    /// `None` when the interval holds whatever is found: then there is one grid.
    pub(super) fn of(spec: &'a ProbeSpec, rule: Rule) -> Option<Self> {
        let crate::plan::Pace { fast_ns, sick_ns, .. } = spec.pace;
        let several = fast_ns.is_some() || sick_ns.is_some();
        several.then_some(Self { spec, rule, calm_ns: spec.interval_ns, fast_ns, sick_ns })
    }

    /// Whether the pace can change before the last probe of this row.
    pub(super) const fn change_in(self, row: Row) -> bool {
        match row.before {
            Before::Probe | Before::Timeout => true,
            // Nothing is sick yet.
            Before::Start => 1 < row.count && self.fast_ns.is_some(),
        }
    }

    /// The figures of a row of one result or more. Worst: of no register that needs so many results
    /// or fewer is it longer. Typical: the mean over all targets and moments, when the pace before
    /// the event has been the same for long.
    pub(super) fn times(self, row: Row) -> Times {
        let rest = self.rest(row);
        Times {
            best_ns: rest.least_ns.saturating_sub(self.early_ns(row)),
            typical_ns: self.settled_ns(row) / 2 + rest.least_ns.midpoint(rest.most_ns),
            worst_ns: self.worst_ns(row),
        }
    }

    fn worst_ns(self, row: Row) -> Nanos {
        let recovery = row.good;
        let any_past = self.wait_ns_max(row, true) + self.rest_ns_max(row);
        let most = bound::failures_to_sick(self.rule).unwrap_or(0);
        if recovery || row.count < most || self.rule.goods_to_healthy() == 1 {
            return any_past;
        }
        // Where all failures are needed the newest results are good, more than one: the first of
        // them has ended the sick pace. After the last one a failure fewer does.
        let full = self.wait_ns_max(row, false) + self.rest_ns_max(row);
        if row.count == 1 {
            return full;
        }
        let fewer = Row { count: row.count - 1, ..row };
        full.max(self.wait_ns_max(fewer, true) + self.rest_ns_max(fewer))
    }

    /// From the event, just after the start of a probe, to that of the row's first one; before a
    /// death the probe may have ended sickness if `from_sick`.
    fn wait_ns_max(self, row: Row, from_sick: bool) -> Nanos {
        match row.before {
            Before::Start => self.calm_ns.min(FIRST_PROBE_NS_MAX),
            Before::Probe | Before::Timeout if row.good => {
                let after_good_ns = self.after_good_ns_max();
                if self.ends_bad(row) {
                    after_good_ns.max(self.after_bad_ns_max(row))
                } else {
                    after_good_ns
                }
            }
            Before::Probe | Before::Timeout => {
                let from_sick = from_sick && bound::boundary_ends_bad(self.rule);
                let paces = [self.fast_ns, self.sick_ns.filter(|_| from_sick)];
                let longest_ns = paces.into_iter().flatten().max().unwrap_or(0);
                self.onto_grid_ns_max(longest_ns, self.calm_ns, 0)
            }
        }
    }

    /// After a bad result of a sick target. The pace before it was the interval if this was its
    /// first probe or its first bad result; and the results still disagree if another rule says so.
    fn after_bad_ns_max(self, row: Row) -> Nanos {
        let ended_ns = self.ended_ns(row);
        let agreed_ns = match self.sick_ns {
            Some(sick_ns) => self.onto_grid_ns_max(self.calm_ns, sick_ns, ended_ns),
            None => self.onto_grid_ns_max(self.fast_ns.unwrap_or(0), self.calm_ns, ended_ns),
        };
        agreed_ns.max(self.onto_grid_ns_max(0, self.run_ns(), ended_ns))
    }

    /// After a good result, had at once, of a target that is still sick.
    fn after_good_ns_max(self) -> Nanos {
        match self.fast_ns {
            Some(fast_ns) => self.onto_grid_ns_max(0, fast_ns, 0),
            None => self.onto_grid_ns_max(self.sick_ns.unwrap_or(0), self.calm_ns, 0),
        }
    }

    /// From a probe that took `ended_ns` to the next, from a pace to the grid of another, with
    /// jitter. From a pace of 0: on the grid already.
    fn onto_grid_ns_max(self, from_ns: Nanos, onto_ns: Nanos, ended_ns: Nanos) -> Nanos {
        self.onto_grid(from_ns, onto_ns, ended_ns).most_ns + jitter_ns_max(self.spec, onto_ns)
    }

    fn onto_grid(self, from_ns: Nanos, onto_ns: Nanos, ended_ns: Nanos) -> Span {
        if self.spec.compat.is_varnish() {
            // The period runs from the end, and there is no grid.
            return Span::exactly(ended_ns + onto_ns);
        }
        let least_ns = from_ns.min(onto_ns).max(ended_ns);
        Span { least_ns, most_ns: least_ns + onto_ns }
    }

    /// From the start of the row's first probe to the end of its last, without jitter.
    fn rest(self, row: Row) -> Span {
        let duration_ns = row.duration_ns(self.spec);
        if row.count == 1 {
            return Span::exactly(duration_ns);
        }
        let second = self.second(row);
        let later_ns = Nanos::from(row.count - 2) * row.period_ns(self.spec, self.run_ns());
        Span {
            least_ns: second.least_ns + later_ns + duration_ns,
            most_ns: second.most_ns + later_ns + duration_ns,
        }
    }

    /// The most of [`Self::rest`], with what jitter and other rules add to it.
    fn rest_ns_max(self, row: Row) -> Nanos {
        let duration_ns = row.duration_ns(self.spec);
        if row.count == 1 {
            return duration_ns;
        }
        let run_ns = self.run_ns();
        let on_grid_ns = row.period_ns(self.spec, run_ns) + row.pushed_ns(self.spec, run_ns);
        if !self.turns(row) {
            return Nanos::from(row.count - 1) * on_grid_ns + duration_ns;
        }
        // Where another rule has kept it from the sick pace, its first result changes nothing.
        let second_ns = self.second(row).most_ns.max(on_grid_ns);
        // A change of pace begins at a probe that is late itself; on one grid the last alone counts.
        let late_ns = jitter_ns_max(self.spec, run_ns);
        second_ns + Nanos::from(row.count - 2) * on_grid_ns + late_ns + duration_ns
    }

    /// By how much jitter may shorten the rest: the first probe on its last grid may be as late as
    /// can be, and the last one not at all. Where a probe outlasts slots, one that would have been
    /// over by its end may be late enough to be used: then each can follow the last at once.
    fn early_ns(self, row: Row) -> Nanos {
        let (run_ns, duration_ns) = (self.run_ns(), row.duration_ns(self.spec));
        // Before a death the last result may be bad, and the pace the fast one already.
        let gaps = if row.good { self.gaps_on_grid(row) } else { row.count - 1 };
        match (gaps, jitter_ns_max(self.spec, run_ns)) {
            (0, _) | (_, 0) => 0,
            (_, late_ns) if duration_ns < run_ns => late_ns,
            (gaps, _) => Nanos::from(gaps) * (row.period_ns(self.spec, run_ns) - duration_ns),
        }
    }

    /// From the first probe to the second.
    fn second(self, row: Row) -> Span {
        let run_ns = self.run_ns();
        let period_ns = row.period_ns(self.spec, run_ns);
        if !self.turns(row) || self.spec.compat.is_varnish() {
            return Span::exactly(period_ns);
        }
        let recovery = row.good && row.before != Before::Start;
        let from_ns = if recovery { self.sick_ns.unwrap_or(self.calm_ns) } else { self.calm_ns };
        let duration_ns = row.duration_ns(self.spec);
        if self.fast_ns.is_none() {
            return self.onto_grid(from_ns, run_ns, duration_ns);
        }
        Span::exactly(first_fast_ns(from_ns.min(run_ns), run_ns, duration_ns))
    }

    /// Whether the row's first result changes the pace.
    const fn turns(self, row: Row) -> bool {
        let recovery = row.good && !matches!(row.before, Before::Start);
        self.fast_ns.is_some() || (recovery && self.sick_ns.is_some())
    }

    /// Gaps between the row's probes that no change of pace begins.
    const fn gaps_on_grid(self, row: Row) -> u32 {
        row.count.saturating_sub(if self.turns(row) { 2 } else { 1 })
    }

    /// The pace while the results disagree.
    fn run_ns(self) -> Nanos {
        self.fast_ns.unwrap_or(self.calm_ns)
    }

    /// The wait when the pace before it has long been the same.
    fn settled_ns(self, row: Row) -> Nanos {
        match row.before {
            Before::Start => self.calm_ns.min(FIRST_PROBE_NS_MAX),
            Before::Probe | Before::Timeout if !row.good => self.calm_ns,
            Before::Probe | Before::Timeout if !self.ends_bad(row) => self.run_ns(),
            Before::Probe => self.sick_ns.unwrap_or(self.calm_ns),
            Before::Timeout => {
                let failed = Row { good: false, pace: Pace::WholeTimeout, ..row };
                failed.period_ns(self.spec, self.sick_ns.unwrap_or(self.calm_ns))
            }
        }
    }

    /// Whether the last result before a recovery of this row can be bad.
    const fn ends_bad(self, row: Row) -> bool {
        1 < row.count || bound::boundary_ends_bad(self.rule)
    }

    /// From the start of the last probe before the row to its end.
    const fn ended_ns(self, row: Row) -> Nanos {
        match row.before {
            Before::Timeout => self.spec.timeout_ns,
            Before::Probe | Before::Start => 0,
        }
    }
}

impl Span {
    const fn exactly(span_ns: Nanos) -> Self {
        Self { least_ns: span_ns, most_ns: span_ns }
    }
}

/// When the first fast probe after a change starts: at the earliest moment, or as many fast
/// intervals after it as it takes to be past the end of the last.
const fn first_fast_ns(earliest_ns: Nanos, fast_ns: Nanos, ended_ns: Nanos) -> Nanos {
    if ended_ns < earliest_ns {
        return earliest_ns;
    }
    earliest_ns + fast_ns * ((ended_ns - earliest_ns) / fast_ns + 1)
}

#[cfg(test)]
mod tests;
