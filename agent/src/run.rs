//! `sickbay run`: the order in which the parts start and stop, and nothing else.
//!
//! Start: check the host, claim the instance, load the maps, lay the fleet out, probe, answer the
//! admin socket; attach when every target has a first verdict. A failure on the way leaves nothing
//! behind. Stop: the other way round; what is attached stays attached unless it is told otherwise.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crossbeam::channel::{Receiver, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use std::os::fd::AsFd as _;

use crate::control::claim::Claim;
use crate::control::host::ControlError;
use crate::control::members::Reloaded;
use crate::control::readers::Readers;
use crate::control::server::{Bound, ControlServer, Options as ControlOptions};
use crate::discovery::{self, Discovery, Sourced, Wanted};
use crate::estate::Remaining;
use crate::fleet::Fleet;
use crate::{host, kernel, shard};

pub use front::{Configured, Source};
use front::{Front, Reply, Step};
use giving_up::GivingUp;
use notify::Notifier;
use parts::Lasting;
use working::Working;

/// What an operator is to be told at once.
mod alarms;

/// What the control plane is told of the running agent.
mod answers;
/// The control plane's side, whichever configuration is in force.
mod front;
/// What the agent gives up once it has started.
mod giving_up;
/// What the agent before this one left, as this one takes it up.
mod heritage;
/// From the fleet to the kernel's maps.
mod layout;
/// What the main thread looks at several times a second.
mod lookout;
/// Who belongs to the pools.
mod members;
/// What the service manager is told.
mod notify;
/// Whether a service would take the answers to this host's own probes.
mod own_traffic;
/// What the control plane and the members share.
mod parts;
/// The slots of a pool's tables on the board.
mod slots;
/// Backends without a probe.
mod unprobed;
/// One configuration in force.
mod working;

/// Between two looks at verdicts, shards and signals.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Descriptors besides those of the rings: maps, programs, links, sockets, logs.
const OTHER_DESCRIPTORS: u64 = 128;
/// From a restart within the process that failed to the next one for the same reason.
const FOLLOW_AGAIN: Duration = Duration::from_secs(30);
/// A name's answer that comes at its limit is in place by then.
const ANSWER_MARGIN: Duration = Duration::from_millis(200);

/// How the agent behaves besides its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The eBPF object that is used in place of the embedded one.
    pub object: Option<PathBuf>,
    /// Directories that the configuration's files stand in.
    pub read: Vec<PathBuf>,
    /// Whether the programs are detached and the maps removed when the agent stops.
    pub detach_on_exit: bool,
}

/// Runs the agent until SIGINT or SIGTERM, or until a part of it fails. SIGHUP, or an operator's
/// `reload`, or a change of its file where that is watched, has it read its fleet again, and put it
/// in force. What files and names say of pools is followed meanwhile.
///
/// # Errors
///
/// What this host lacks, what the kernel refused, or what failed; in one line with the remedy.
pub fn run(fleet: Fleet, configured: Configured, options: &Options) -> anyhow::Result<()> {
    // Blocked before any thread starts, so that every thread inherits the mask.
    let signals = Signals::block()?;
    let descriptors = shard::shard_count(&fleet) as u64 * 8 + OTHER_DESCRIPTORS;
    host::require(&host::Needs {
        pin_directory: Some(fleet.pin_directory.clone()),
        descriptors,
        lasting: giving_up::lasting_capabilities(&fleet.privilege)?,
    })?;
    crate::engine::probe_features()?;
    // After the host's privileges, whose lack is told better than a directory's refusal.
    let claim = Claim::new(&fleet.run_directory, &fleet.instance)?;
    let pin_directory = fleet.pin_directory.clone();
    let object = kernel::object_of(options.object.as_deref())?;
    // Before anything is pinned, or what was left is looked at.
    kernel::self_check(&object)?;
    let mut discovery = Discovery::default();
    let fleet = ask_names(fleet, &configured, &mut discovery)?;
    own_traffic::check(&fleet)?;

    let lasting = Lasting::begin(object);
    let mut agent = Agent::start(fleet, lasting, (configured, discovery), claim, &options.read)?;
    let ran = agent.serve(&signals);
    let attached = agent.stop();
    if options.detach_on_exit {
        kernel::detach(&pin_directory).context("cannot detach at exit")?;
    } else if attached && let Some(stays) = kernel::by_hand::what_stays(&pin_directory) {
        tracing::info!("{stays}");
    }
    ran
}

/// The fleet with the backends that its names mean. Whoever does not answer in time is no reason to
/// wait longer: what an agent before this one was told holds, or the name has no backends yet. The
/// thread that asks is over by then: whatever thread goes on is to have given up what this one will.
fn ask_names(
    fleet: Fleet,
    configured: &Configured,
    discovery: &mut Discovery,
) -> anyhow::Result<Fleet> {
    let wanted = Wanted::by(&fleet, &configured.file);
    let is_name = |sourced: &Sourced| matches!(sourced.source, discovery::Source::Name(_));
    if !wanted.sourced.iter().any(is_name) {
        return Ok(fleet);
    }
    discovery.look_at(wanted).context("cannot start the thread that asks for names")?;
    let board = discovery.board();
    board.wait(Duration::from_nanos(fleet.dns.timeout_ns) + ANSWER_MARGIN);
    discovery.rest();
    Ok((configured.source)(&board.answers())?)
}

/// A running agent: what goes on whichever configuration is in force, and the one that is.
struct Agent {
    /// `None` when neither a new configuration nor the one before could be put in force.
    working: Option<Working>,
    lasting: Lasting,
    front: Arc<Front>,
    /// Sources are followed from then on.
    follow_from: Instant,
    reloads: Receiver<Reply>,
    notifier: Notifier,
    control: ControlServer,
}

impl Agent {
    /// What needs more than a running agent keeps comes first; then that is given up, and only then
    /// the first thread is started, so that none has it.
    fn start(
        fleet: Fleet,
        lasting: Lasting,
        (configured, mut discovery): (Configured, Discovery),
        claim: Claim,
        read: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let mut notifier = Notifier::from_environment();
        notifier.starting(fleet.start_timeout_ns);
        let (hand_over, reloads) = bounded(1);
        let given_up = GivingUp::of(&fleet, read);
        let followed = Wanted::by(&fleet, &configured.file);
        let observe = fleet.observe.clone();
        let readers = fleet.read_group.as_deref().map(Readers::named).transpose()?;
        let mut prepared = Working::prepare(fleet, &lasting, Remaining::default())?;
        let bound = Bound::new(claim, ControlOptions::observed(observe, readers))?;
        lasting.confined.set(given_up.carry_out()?).expect("it is given up once");
        discovery
            .look_at(followed)
            .context("cannot start the thread that follows files and names")?;
        let answers = prepared.answers();
        let front = Arc::new(Front::new(configured, discovery, answers, hand_over));
        let control = bound.serve(Arc::clone(&front) as _, Arc::clone(&lasting.journal))?;
        prepared.begin()?;
        let (working, follow_from) = (Some(prepared), Instant::now());
        Ok(Self { working, lasting, front, follow_from, reloads, notifier, control })
    }

    /// Attaches when the verdicts are there, then waits for signals and changes; ends drains
    /// meanwhile.
    fn serve(&mut self, signals: &Signals) -> anyhow::Result<()> {
        loop {
            let working = self.working.as_mut().context("no configuration is in force any more")?;
            working.look()?;
            self.notifier.look(working.parts(), working.is_attached());
            match signals.wait(LOOK_INTERVAL)? {
                None => {}
                Some(Signal::SIGHUP) => {
                    let _told_by_the_log = self.reload();
                }
                Some(signal) => {
                    tracing::info!("stopping on {signal}");
                    return Ok(());
                }
            }
            if self.front.is_to_reload() {
                tracing::info!("the configuration file has changed");
                let _told_by_the_log = self.reload();
            }
            self.follow();
            if let Ok(reply) = self.reloads.try_recv() {
                // Whoever asked may have stopped waiting; it is done all the same.
                let _asker_is_gone = reply.try_send(self.reload());
            }
        }
    }

    /// Has members follow their sources. What takes a restart within the process and fails is not
    /// tried again at once: each try interrupts the probes.
    fn follow(&mut self) {
        if Instant::now() < self.follow_from {
            return;
        }
        if let Some(wanted) = self.front.follow()
            && let Err(error) = self.succeed(*wanted)
        {
            tracing::error!("a pool does not follow its sources: {error}");
            self.follow_from = Instant::now() + FOLLOW_AGAIN;
        }
    }

    /// Reads the configuration again, whoever asked for it: the service manager is told, and the log
    /// has what came of it.
    fn reload(&mut self) -> Result<Reloaded, ControlError> {
        self.notifier.reloading();
        let done = self.front.step().and_then(|step| match step {
            Step::Done(reloaded) => Ok(reloaded),
            Step::Succeed { wanted, told } => self.succeed(*wanted).map(|()| told),
        });
        match &done {
            Ok(reloaded) => tracing::info!("read again: {}", reloaded.summary()),
            Err(error) => tracing::error!("not read again: {error}"),
        }
        done
    }

    /// Puts another configuration in force in the place of the one that is, or leaves that one:
    /// new maps and a new program, laid out as the old ones stood, and the links turned to it.
    fn succeed(&mut self, wanted: Fleet) -> Result<(), ControlError> {
        let Some(working) = self.working.take() else {
            return Err(ControlError::Failed { what: "no configuration is in force".to_owned() });
        };
        let privilege = working.configured().privilege.clone();
        let told = |error: anyhow::Error| {
            let what = format!("{error:#}");
            format!("{what}{}", giving_up::remedy(&privilege, &what))
        };
        let refuse = |error| ControlError::Refused { what: told(error) };
        if let Err(error) = working.check(&wanted) {
            self.working = Some(working);
            return Err(refuse(error));
        }
        let (before, remaining) = (working.configured().clone(), working.remaining());
        working.stop();
        match self.put_in_force(wanted, remaining.clone()) {
            Ok(()) => Ok(()),
            Err(error) => {
                let what = told(error);
                tracing::error!("the configuration cannot be put in force: {what}");
                if let Err(error) = self.put_in_force(before, remaining) {
                    tracing::error!("nor can the one before it: {error:#}");
                }
                Err(ControlError::Refused { what })
            }
        }
    }

    fn put_in_force(&mut self, fleet: Fleet, remaining: Remaining) -> anyhow::Result<()> {
        let mut working = Working::prepare(fleet, &self.lasting, remaining)?;
        self.front.replace(working.answers());
        self.front.look_at(working.configured());
        working.begin()?;
        working.attach()?;
        self.working = Some(working);
        Ok(())
    }

    /// Stops every part; whether programs are attached.
    fn stop(mut self) -> bool {
        self.notifier.stopping();
        let attached = self.working.is_some_and(Working::stop);
        // Whoever still waits for a reload is told that there will be none: the control plane stops
        // when all who ask have their answer.
        for reply in self.reloads.try_iter() {
            let what = "the agent is stopping".to_owned();
            let _asker_is_gone = reply.try_send(Err(ControlError::Busy { what }));
        }
        drop(self.reloads);
        self.control.stop();
        attached
    }
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
