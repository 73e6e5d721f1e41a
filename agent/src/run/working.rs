//! One configuration in force: its maps, shards and next hops, from its start to its end.
//!
//! [`Working::prepare`] makes everything that may fail, [`Working::begin`] starts the probes, and
//! the programs are attached when the verdicts are there. Stopped, it leaves the programs attached
//! by the last verdicts, for the one after it to take over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::board::Board;
use crate::control::journal::Journal;
use crate::engine::monotonic_now;
use crate::estate::Remaining;
use crate::fleet::Fleet;
use crate::guard::Guards;
use crate::kernel::{Attached, Datapath, Sizes};
use crate::neighbours::Neighbours;
use crate::publish::Publisher;
use crate::shard::{self, ShardPlan, Shards};

use super::answers::Answers;
use super::giving_up;
use super::heritage;
use super::layout;
use super::lookout::Lookout;
use super::own_traffic;
use super::parts::{Lasting, Parts};

/// One configuration in force.
pub(super) struct Working {
    /// As it was read, without those who are leaving.
    configured: Fleet,
    fleet: Arc<Fleet>,
    datapath: Datapath,
    parts: Arc<Parts>,
    answers: Arc<Answers>,
    lookout: Lookout,
    /// Until the probes begin.
    plans: Vec<ShardPlan>,
    /// Backends that use an index for the first time.
    fresh: Vec<u32>,
    /// Nothing has to be waited for before it is attached.
    is_ready: bool,
    /// When it is attached at the latest.
    attach_limit: Instant,
    attached: bool,
}

impl Working {
    /// Makes all of it but the probes; what was left in force goes on.
    ///
    /// # Errors
    ///
    /// What was left has another layout, or the kernel refuses. Then nothing was changed.
    pub(super) fn prepare(
        configured: Fleet,
        lasting: &Lasting,
        remaining: Remaining,
    ) -> anyhow::Result<Self> {
        let taken = heritage::take_up(configured.clone(), remaining, monotonic_now());
        let (fleet, left) =
            taken.context("what an agent before this one left cannot be taken up")?;
        let (heritage, seating) = left.unzip();
        let fleet = Arc::new(fleet);
        let mut plans = shard::split(&fleet, shard::shard_count(&fleet));
        let heritage = heritage.as_ref();
        let is_ready = heritage.is_some_and(|heritage| heritage.give(&fleet, &mut plans));
        let shards = u32::try_from(plans.len()).expect("at most 256 shards");
        let sizes = Sizes::of(&fleet, shards);
        let keep = heritage.map(|it| it.estate.kept_maps(&fleet)).unwrap_or_default();
        let mut datapath = Datapath::load(&lasting.object, &sizes, &fleet.pin_directory, &keep)?;
        datapath.check(&fleet.attachments)?;
        let board = Arc::new(datapath.board()?);
        let owners = shard_of_backends(&fleet, &plans);
        let mut members = layout::memberships(&fleet, seating);
        let fresh = heritage.map(|heritage| heritage.fresh(&members)).unwrap_or_default();
        let place = layout::Place { shards, members: &mut members, shard_of: &owners, heritage };
        layout::lay_out(&fleet, &mut datapath, &board, place)?;
        let counters = datapath.counters()?;
        let journal = Arc::clone(&lasting.journal);
        let parts = Arc::new(Parts::new(Arc::clone(&fleet), board, journal, counters));
        let answers = Arc::new(Answers::new(Arc::clone(&parts), members, lasting));
        let lookout = Lookout::new(&parts, datapath.take_drops()?);
        let attach_limit = Instant::now() + Duration::from_nanos(fleet.start_timeout_ns);
        Ok(Self {
            configured,
            fleet,
            datapath,
            parts,
            answers,
            lookout,
            plans,
            fresh,
            is_ready,
            attach_limit,
            attached: false,
        })
    }

    /// Begins to probe: here the first thread is started.
    ///
    /// # Errors
    ///
    /// A thread or a ring cannot be had.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        let Self { fleet, parts, answers, lookout, .. } = self;
        lookout.begin(fleet, answers)?;
        parts.set_neighbours(start_neighbours(fleet, &parts.board)?);
        let plans = std::mem::take(&mut self.plans);
        let guards = answers.guards();
        parts.set_shards(start_shards(fleet, &parts.board, &parts.journal, guards, plans)?);
        answers.members().begin(&self.fresh)?;
        Ok(())
    }

    /// What the control plane is answered from.
    pub(super) fn answers(&self) -> Arc<Answers> {
        Arc::clone(&self.answers)
    }

    /// What runs.
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Whether its programs steer.
    pub(super) const fn is_attached(&self) -> bool {
        self.attached
    }

    /// As it was read.
    pub(super) const fn configured(&self) -> &Fleet {
        &self.configured
    }

    /// When the drains that are under way end.
    pub(super) fn remaining(&self) -> Remaining {
        self.answers.members().remaining()
    }

    /// Whether another configuration can be expected to be put in the place of this one.
    ///
    /// # Errors
    ///
    /// An interface that will not do, a service that would take the answers to our own probes, or a
    /// directory of pins that is gone and cannot be made any more.
    pub(super) fn check(&self, wanted: &Fleet) -> anyhow::Result<()> {
        giving_up::check_pins(wanted)?;
        own_traffic::check(wanted)?;
        self.datapath.check(&wanted.attachments)?;
        Ok(())
    }

    /// Looks at everything once: attaches when it is time, and ends what has come to its end.
    ///
    /// # Errors
    ///
    /// A part of it failed.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        self.lookout.look(&self.parts, &self.answers);
        if !self.attached && self.may_attach() {
            self.attach()?;
        }
        self.answers.members().tick();
        match self.parts.with_shards(Shards::failure) {
            Some(Some(error)) => Err(error).context("a probing thread ended"),
            _ => Ok(()),
        }
    }

    /// Whether every target has a first verdict or goes on with the one it had, or there was time
    /// enough.
    fn may_attach(&self) -> bool {
        let warming = self.parts.with_shards(|shards| shards.warming_count()).unwrap_or(0);
        if warming == 0 || self.is_ready {
            return true;
        }
        let over = self.attach_limit <= Instant::now();
        if over {
            tracing::warn!(
                "{warming} of {} backends have no first verdict after start_timeout; until they have, \
                 they take no traffic, unless an agent before this one had given them some",
                self.fleet.backends.len()
            );
        }
        over
    }

    /// Attaches, or turns what is attached to this configuration's programs.
    ///
    /// # Errors
    ///
    /// The kernel refuses; what was in force goes on.
    pub(super) fn attach(&mut self) -> anyhow::Result<()> {
        self.answers.members().begin_panics();
        let attached = self.datapath.attach(&self.fleet.attachments)?;
        self.attached = true;
        for program in &attached {
            if let Some(note) = &program.note {
                tracing::warn!("{}: {note}", program.interface);
            }
        }
        tracing::info!(
            "ready: {} of {} backends healthy, {} {}, {}",
            self.parts.healthy_count(),
            self.fleet.backends.len(),
            self.fleet.services.len(),
            if self.fleet.services.len() == 1 { "service" } else { "services" },
            attached_text(&attached),
        );
        self.answers.set_attached(attached);
        Ok(())
    }

    /// Stops every part; whether programs are attached.
    pub(super) fn stop(self) -> bool {
        if let Some(shards) = self.parts.take_shards()
            && let Err(error) = shards.stop()
        {
            tracing::error!("{error}");
        }
        self.parts.set_neighbours(None);
        self.attached
    }
}

fn start_shards(
    fleet: &Arc<Fleet>,
    board: &Arc<Board>,
    journal: &Arc<Journal>,
    guards: Option<&Arc<Guards>>,
    plans: Vec<ShardPlan>,
) -> anyhow::Result<Shards> {
    let (fleet, board, journal) = (Arc::clone(fleet), Arc::clone(board), Arc::clone(journal));
    let guards = guards.cloned();
    let shards = Shards::start(plans, move |shard, plan| {
        let shard = u32::try_from(shard).expect("at most 256 shards");
        let (board, journal) = (Arc::clone(&board), Arc::clone(&journal));
        Publisher::new(board, journal, &fleet, shard, plan, guards.clone())
    })?;
    Ok(shards)
}

/// Next hops of every backend that a service may choose. In `observe` too, though nothing is sent:
/// what would be done includes "dropped, because its next hop is not known".
fn start_neighbours(fleet: &Fleet, board: &Arc<Board>) -> anyhow::Result<Option<Neighbours>> {
    let pools = 0..fleet.pools.len();
    let serves: Vec<bool> = pools.map(|pool| layout::serves(fleet, pool)).collect();
    let backends: Vec<_> = fleet
        .backends
        .iter()
        .filter(|backend| serves[backend.pool])
        .filter_map(|backend| Some((backend.index, backend.address.inet()?.ip())))
        .collect();
    // A pool without members may have some later.
    if !serves.contains(&true) {
        return Ok(None);
    }
    let board = Arc::clone(board);
    let neighbours = Neighbours::start(backends, move |backend, resolution| {
        if let Err(unresolved) = &resolution {
            tracing::warn!("{unresolved}");
        }
        board.set_next_hop(backend, resolution.ok());
    })?;
    Ok(Some(neighbours))
}

/// The shard of each backend, by fleet backend.
fn shard_of_backends(fleet: &Fleet, plans: &[ShardPlan]) -> Vec<usize> {
    let mut shard_of = vec![layout::UNPROBED_SHARD; fleet.backends.len()];
    for (shard, plan) in plans.iter().enumerate() {
        for &backend in &plan.judges {
            shard_of[backend] = shard;
        }
    }
    shard_of
}

fn attached_text(attached: &[Attached]) -> String {
    if attached.is_empty() {
        return "attached to no interface (no [[attach]] in the configuration)".to_owned();
    }
    let each = attached.iter().map(|one| format!("{} ({})", one.interface, one.mode));
    format!("attached to {}", each.collect::<Vec<_>>().join(", "))
}
