//! `sickbay run`: the order in which the parts start and stop, and nothing else.
//!
//! Start: check the host, claim the instance, load the maps, lay the fleet out, probe, answer the
//! admin socket; attach when every target has a first verdict. A failure on the way leaves nothing
//! behind. Stop: the other way round; what is attached stays attached unless it is told otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use std::os::fd::AsFd as _;

use crate::board::Board;
use crate::config::ConfigError;
use crate::control::claim::Claim;
use crate::control::host::Host as _;
use crate::control::journal::Journal;
use crate::control::server::{ControlServer, Options as ControlOptions};
use crate::engine::monotonic_now;
use crate::fleet::Fleet;
use crate::guard::Guards;
use crate::host;
use crate::kernel::{self, Attached, Datapath, Sizes};
use crate::neighbours::Neighbours;
use crate::publish::Publisher;
use crate::shard::{self, ShardPlan, Shards};

use answers::{Answers, Source};
use lookout::Lookout;
use parts::Parts;

/// What an operator is to be told at once.
mod alarms;

/// What the control plane is told of the running agent.
mod answers;
/// What the agent before this one left, as this one takes it up.
mod heritage;
/// From the fleet to the kernel's maps.
mod layout;
/// What the main thread looks at several times a second.
mod lookout;
/// Who belongs to the pools.
mod members;
/// Whether a service would take the answers to this host's own probes.
mod own_traffic;
/// What the control plane and the members share.
mod parts;
/// Backends without a probe.
mod unprobed;

/// Between two looks at verdicts, shards and signals.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Descriptors besides those of the rings: maps, programs, links, sockets, logs.
const OTHER_DESCRIPTORS: u64 = 128;

/// How the agent behaves besides its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the programs are detached and the maps removed when the agent stops.
    pub detach_on_exit: bool,
}

/// Runs the agent until SIGINT or SIGTERM, or until a part of it fails. SIGHUP, or an operator's
/// `reload`, has it read its fleet again from `source`, and take its members and weights.
///
/// # Errors
///
/// What this host lacks, what the kernel refused, or what failed; in one line with the remedy.
pub fn run(
    fleet: Fleet,
    source: impl Fn() -> Result<Fleet, ConfigError> + Send + Sync + 'static,
    options: Options,
) -> anyhow::Result<()> {
    // Blocked before any thread starts, so that every thread inherits the mask.
    let signals = Signals::block()?;
    let shard_count = shard::shard_count(&fleet);
    let descriptors = shard_count as u64 * 8 + OTHER_DESCRIPTORS;
    host::require(&host::Needs { pin_directory: Some(fleet.pin_directory.clone()), descriptors })?;
    crate::engine::probe_features()?;
    own_traffic::check(&fleet)?;
    // After the host's privileges, whose lack is told better than a directory's refusal.
    let claim = Claim::new(&fleet.run_directory, &fleet.instance)?;
    let (instance, pin_directory) = (fleet.instance.clone(), fleet.pin_directory.clone());

    let mut agent = Agent::start(fleet, Box::new(source), shard_count, claim)?;
    let ran = agent.serve(&signals);
    let attached = agent.stop();
    if options.detach_on_exit {
        kernel::detach(&pin_directory).context("cannot detach at exit")?;
    } else if attached {
        tracing::info!(
            "steering stays attached by the last verdicts; `sickbay detach --instance {instance}` \
             removes it"
        );
    }
    ran
}

/// The parts of a running agent, in the order in which they start.
struct Agent {
    fleet: Arc<Fleet>,
    datapath: Option<Datapath>,
    parts: Arc<Parts>,
    answers: Arc<Answers>,
    lookout: Lookout,
    control: ControlServer,
    attached: bool,
}

impl Agent {
    fn start(
        fleet: Fleet,
        source: Source,
        shard_count: usize,
        claim: Claim,
    ) -> anyhow::Result<Self> {
        let (fleet, left) = heritage::take_up(fleet, monotonic_now()).context(
            "what an agent before this one left cannot be taken up; it goes on steering, and \
             `sickbay detach` removes it",
        )?;
        let (heritage, seating) = left.unzip();
        let fleet = Arc::new(fleet);
        let mut plans = shard::split(&fleet, shard_count);
        if let Some(heritage) = &heritage {
            heritage.give(&fleet, &mut plans);
        }
        let shards = u32::try_from(plans.len()).expect("at most 256 shards");
        let sizes = Sizes::of(&fleet, shards);
        let keep = heritage.as_ref().map(|heritage| heritage.estate.kept_maps(&fleet));
        let keep = keep.unwrap_or_default();
        let mut datapath = Datapath::load(kernel::object()?, &sizes, &fleet.pin_directory, &keep)?;
        datapath.check(&fleet.attachments)?;
        let board = Arc::new(datapath.board()?);
        let owners = shard_of_backends(&fleet, &plans);
        let mut members = layout::memberships(&fleet, seating);
        let heritage = heritage.as_ref();
        let fresh = heritage.map(|heritage| heritage.fresh(&members)).unwrap_or_default();
        let place = layout::Place { shards, members: &mut members, shard_of: &owners, heritage };
        layout::lay_out(&fleet, &mut datapath, &board, place)?;
        let journal = Arc::new(Journal::default());
        let parts = Arc::new(Parts::new(
            Arc::clone(&fleet),
            Arc::clone(&board),
            Arc::clone(&journal),
            datapath.counters()?,
        ));
        let answers = Arc::new(Answers::new(source, Arc::clone(&parts), members));
        let lookout = Lookout::new(&parts, &answers, datapath.take_drops()?)?;
        parts.set_neighbours(start_neighbours(&fleet, &board)?);
        let control = ControlServer::start(
            claim,
            Arc::clone(&answers) as _,
            Arc::clone(&journal),
            ControlOptions::default(),
        )?;
        let guards = answers.guards();
        parts.set_shards(start_shards(&fleet, &board, &journal, guards, plans)?);
        answers.members().begin(&fresh)?;
        let datapath = Some(datapath);
        Ok(Self { fleet, datapath, parts, answers, lookout, control, attached: false })
    }

    /// Attaches when the verdicts are there, then waits for a signal; ends drains meanwhile.
    fn serve(&mut self, signals: &Signals) -> anyhow::Result<()> {
        let limit = Instant::now() + Duration::from_nanos(self.fleet.start_timeout_ns);
        loop {
            self.lookout.look(&self.parts, &self.answers);
            if !self.attached && self.may_attach(limit) {
                self.attach()?;
            }
            match signals.wait(LOOK_INTERVAL)? {
                None => {}
                Some(Signal::SIGHUP) => self.reload(),
                Some(signal) => {
                    tracing::info!("stopping on {signal}");
                    return Ok(());
                }
            }
            self.answers.members().tick();
            if let Some(Some(error)) = self.parts.with_shards(Shards::failure) {
                return Err(error).context("a probing thread ended");
            }
        }
    }

    /// As an operator's `reload`; what comes of it is for the log.
    fn reload(&self) {
        match self.answers.reload() {
            Ok(reloaded) => tracing::info!("read again: {}", reloaded.summary()),
            Err(error) => tracing::error!("not read again: {error}"),
        }
    }

    /// Whether every target has a first verdict, or there was time enough.
    fn may_attach(&self, limit: Instant) -> bool {
        let warming = self.parts.with_shards(|shards| shards.warming_count()).unwrap_or(0);
        if warming == 0 {
            return true;
        }
        let over = limit <= Instant::now();
        if over {
            tracing::warn!(
                "{warming} of {} backends have no first verdict after start_timeout; they take no \
                 traffic until they have",
                self.fleet.backends.len()
            );
        }
        over
    }

    fn attach(&mut self) -> anyhow::Result<()> {
        let datapath = self.datapath.as_mut().expect("the datapath is there until stop");
        self.answers.members().begin_panics();
        let attached = datapath.attach(&self.fleet.attachments)?;
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
    fn stop(self) -> bool {
        if let Some(shards) = self.parts.take_shards()
            && let Err(error) = shards.stop()
        {
            tracing::error!("{error}");
        }
        self.parts.set_neighbours(None);
        self.control.stop();
        drop(self.datapath);
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
    if backends.is_empty() {
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

/// SIGINT, SIGTERM and SIGHUP, taken when we look for them.
struct Signals(SignalFd);

impl Signals {
    fn block() -> anyhow::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGHUP);
        set.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags).context("cannot make a signalfd")?))
    }

    /// Waits for a signal, `limit` at most.
    fn wait(&self, limit: Duration) -> anyhow::Result<Option<Signal>> {
        let timeout = PollTimeout::try_from(limit).expect("a look is shorter than a minute");
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(errno).context("cannot wait for signals"),
        }
        let Some(info) = self.0.read_signal().context("cannot read a signal")? else {
            return Ok(None);
        };
        let number = i32::try_from(info.ssi_signo).context("a signal number")?;
        Ok(Some(Signal::try_from(number).context("a signal number")?))
    }
}
