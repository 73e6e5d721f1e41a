//! `sickbay probe`: probes what it is given and prints what comes, without root and without eBPF.
//!
//! It runs the agent's own engine on one shard. The shard's thread never waits for the terminal:
//! lines go through a bounded queue, and those that find it full are counted, not printed. The
//! summary does not depend on them.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use sickbay_core::plan::Compat;

use crate::config::settings::CompatSetting;
use crate::shard::Shards;

/// One line per probe, and the summary.
mod line;
/// What the shard's thread says to the one that prints.
mod tally;
/// What a target's text means.
mod target;
/// The backends of a VCL as targets.
mod vcl;

use line::Line;
use tally::{LineSink, Tally};
use target::{Settings, UsageError};

/// Lines that wait for the terminal at most.
const LINES_MAX: usize = 4096;
/// How often the printing thread looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// What a VCL says and the command line then does not.
const VCL_SAYS: [&str; 8] =
    ["interval", "timeout", "window", "threshold", "initial", "expect", "host", "proxy_header"];
/// The exit code of wrong usage, as clap's.
const EXIT_USAGE: u8 = 2;

/// Probe targets and print what comes of each probe; needs no root and no eBPF.
///
/// A verdict is reached as Varnish does it: a target is healthy while at least `threshold` of its
/// last `window` probes were good. The exit code is 0 when every target is healthy at the end, and
/// 1 when one is not.
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    /// What to probe: http://HOST[:PORT][/PATH], tcp://HOST:PORT or HOST:PORT (TCP), or a unix
    /// socket: unix:/FILE or unix:@NAME, with :/PATH behind it for HTTP. An IPv6 address stands in
    /// brackets. A name is resolved once, and its first address is taken.
    /// With --vcl: the names of backends; all of them when none is given.
    #[arg(required_unless_present = "vcl", value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Probe the backends of this VCL, each with its own probe.
    #[arg(long, value_name = "FILE", conflicts_with_all = VCL_SAYS)]
    pub vcl: Option<PathBuf>,
    /// With --vcl: of a host with an IPv4 and an IPv6 address, probe the IPv6 one.
    #[arg(long, requires = "vcl")]
    pub prefer_ipv6: bool,
    /// Stop after this many probes of each target; without it, at Ctrl-C.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// From one probe of a target to the next: 10ms to 24h.
    #[arg(short, long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub interval: Duration,
    /// One deadline for a whole probe, from connecting to the end of the response: 1ms to 1h.
    #[arg(short, long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
    /// How many of the newest results are looked at.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub window: u8,
    /// How many of them must be good.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub threshold: u8,
    /// Good results assumed at the start [default: threshold - 1].
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub initial: Option<u8>,
    /// The status that is good.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=999))]
    pub expect: u16,
    /// The Host header [default: the target's host and port as written].
    #[arg(long)]
    pub host: Option<String>,
    /// Send a PROXY header before the request: 1 with the connection's own address, as Varnish
    /// does, 2 as LOCAL. HTTP only.
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub proxy_header: Option<u8>,
    /// Decide, say and time as Varnish 7.1.1 does: the response ends when the peer closes, its
    /// first line is read leniently, and the interval runs from one probe's end to the next one's
    /// start. Without Varnish's bugs.
    #[arg(long, value_enum)]
    pub compat: Option<CompatSetting>,
    /// With --compat varnish: whether a peer that does not close in time has failed; if not, what
    /// has come by then is judged.
    #[arg(long, requires = "compat", default_value_t = true, action = clap::ArgAction::Set)]
    pub expect_close: bool,
    /// How to print: for people, one JSON object per line, or as varnishlog.
    #[arg(short, long, visible_alias = "format", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl ProbeArgs {
    /// Whose behaviour the probes have.
    #[must_use]
    pub const fn compat(&self) -> Compat {
        match self.compat {
            None => Compat::Off,
            Some(CompatSetting::Varnish) => Compat::Varnish { expect_close: self.expect_close },
        }
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Aligned, for people.
    Text,
    /// One object per line, for programs.
    Json,
    /// Varnish's Backend_health records, as `varnishlog -g raw` prints them: one per probe, and
    /// nothing else. Control bytes in a server's words are escaped, which Varnish does not do.
    Varnishlog,
}

/// Probes until the count is reached or a signal comes; prints each probe, then a summary.
///
/// # Errors
/// What this host lacks to run an engine, with the remedy; or an output that cannot be written.
/// Wrong usage is no error here: it is told on stderr, and the exit code is 2.
pub fn run(arguments: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let resolved = match &arguments.vcl {
        Some(path) => vcl::settings(path, arguments)?,
        None => Settings::resolve(arguments),
    };
    let settings = match resolved {
        Ok(settings) => settings,
        Err(error @ UsageError { .. }) => {
            eprintln!("sickbay probe: {error}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    for note in &settings.notes {
        eprintln!("sickbay probe: {note}");
    }
    let interrupted = catch_signals().context("signals cannot be caught")?;
    let tallies: Arc<[Tally]> = settings.names.iter().map(|_| Tally::default()).collect();
    let (lines, printed) = bounded(LINES_MAX);
    let count = arguments.count.map(u64::from);
    let for_shard = Arc::clone(&tallies);
    let healthy: Vec<bool> =
        (0..settings.names.len()).map(|target| settings.begins_healthy(target)).collect();
    let shards = Shards::start(vec![settings.plan()], move |_, _| {
        LineSink::new(Arc::clone(&for_shard), lines.clone(), count, healthy.clone())
    })?;
    let printer = line::Printer::new(arguments.output, &settings);
    let result = print(printer, &printed, &interrupted, &tallies, shards);
    match result {
        Err(error) if is_broken_pipe(&error) => {}
        result => result?,
    }
    let healthy = tallies.iter().all(Tally::is_healthy);
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints until every target had its probes or a signal came, then the summary.
fn print(
    mut printer: line::Printer<'_>,
    lines: &Receiver<Line>,
    interrupted: &Receiver<()>,
    tallies: &[Tally],
    mut shards: Shards,
) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    printer.header(&mut output)?;
    while interrupted.try_recv().is_err() {
        match lines.recv_timeout(LOOK) {
            Ok(line) => printer.probe(&mut output, &line)?,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(error) = shards.failure() {
                    return Err(error.into());
                }
                if tallies.iter().all(|tally| tally.done.load(Ordering::Acquire)) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        output.flush()?;
    }
    shards.stop()?;
    for line in lines.try_iter() {
        printer.probe(&mut output, &line)?;
    }
    printer.summary(&mut output, tallies)?;
    output.flush()?;
    Ok(())
}

/// A channel that gets an item when SIGINT or SIGTERM comes. Called before any thread is started,
/// so that all of them inherit the mask.
fn catch_signals() -> anyhow::Result<Receiver<()>> {
    let (caught, catches) = bounded(1);
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        // The receiver is gone when the process is about to end anyway.
        let _nobody_listens = signals.wait().map(|_| caught.send(()));
    })?;
    Ok(catches)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The wall clock's time as it is printed: UTC, milliseconds.
fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
