//! What the main thread looks at several times a second: alarms, holds of the guard, samples of
//! dropped packets.

use std::net::IpAddr;
use std::sync::Arc;

use crate::board::coarse_now_ns;
use crate::control::journal::{Transition, Why};
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::Fleet;
use crate::guard::{Evidence, Guards, Happening};
use crate::kernel::DropRing;
use crate::links::Links;
use crate::netlink::NetlinkError;

use super::alarms::Alarms;
use super::answers::Answers;
use super::parts::Parts;

/// Samples taken at one look at most, so that a flood of them holds up no signal.
const DROPS_PER_LOOK_MAX: usize = 1024;

/// The main thread's side of it.
#[derive(Debug)]
pub(super) struct Lookout {
    alarms: Alarms,
    drops: DropRing,
    /// Kept for its thread; `None` without a guard, and until it begins.
    links: Option<Links>,
}

impl Lookout {
    /// Looks when it is told to; no thread is started yet.
    pub(super) fn new(parts: &Parts, drops: DropRing) -> Self {
        Self { alarms: Alarms::new(&parts.fleet(), &parts.board), drops, links: None }
    }

    /// Is told of links that are lost from now on, where there is a guard to know of them.
    ///
    /// # Errors
    ///
    /// The kernel does not tell of links.
    pub(super) fn begin(&mut self, fleet: &Fleet, answers: &Answers) -> Result<(), NetlinkError> {
        self.links = answers.guards().map(|guards| watch_links(fleet, guards)).transpose()?;
        Ok(())
    }

    /// Looks once.
    pub(super) fn look(&mut self, parts: &Parts, answers: &Answers) {
        for alarm in self.alarms.look(&parts.fleet(), &parts.board, coarse_now_ns()) {
            alarm.log();
            parts.journal.push(alarm.transition());
        }
        for _ in 0..DROPS_PER_LOOK_MAX {
            let Some(record) = self.drops.take() else { break };
            answers.keep_drop(&record);
        }
        if let Some(guards) = answers.guards() {
            for happening in guards.on_time(monotonic_now()) {
                parts.journal.push(transition(happening));
            }
        }
    }
}

/// Tells the guards of links and gateways that are lost.
fn watch_links(fleet: &Fleet, guards: &Arc<Guards>) -> Result<Links, NetlinkError> {
    let guards = Arc::clone(guards);
    let inet = fleet.targets.iter().filter_map(|target| target.address.inet());
    let addresses: Vec<IpAddr> = inet.map(|address| address.ip()).collect();
    Links::watch(addresses.into_iter(), move |lost| {
        tracing::warn!("{lost}");
        guards.sign(Evidence::Link, monotonic_now());
    })
}

/// As it goes into the journal: told of the pool, whose backends' verdicts are as they were.
fn transition(happening: Happening) -> Transition {
    let Happening { pool, text, at_ns } = happening;
    Transition {
        name: pool.into(),
        from: ProbeState::Unknown,
        to: ProbeState::Unknown,
        why: Why::Guard,
        cause: text,
        good: 0,
        rule: None,
        at_ns,
        member: None,
    }
}
