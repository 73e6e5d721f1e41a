//! One line per probe, close to Varnish's `Backend_health` record, and the summary.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde_json::json;
use sickbay_core::command::{Report, Verdict};
use sickbay_core::record::VarnishRecord;
use sickbay_core::register::{HAPPY, Registers, low_bits};
use sickbay_core::text::{Bits, OutcomeText};

use super::tally::Tally;
use super::target::Settings;
use super::{Output, timestamp};
use crate::engine::OutcomeKind;

/// What stands before a record in `varnishlog -g raw`: the transaction, the tag, the direction.
const VARNISHLOG: &str = "0 Backend_health - ";

/// One probe, as the shard's thread saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// When it ended.
    pub(super) time: SystemTime,
    /// What it came to.
    pub(super) report: Report,
    /// The target's registers after it.
    pub(super) registers: Registers,
    /// The average of its good probes after it, in s.
    pub(super) average_s: f64,
    /// How long its reception took, 0 when it had none.
    pub(super) last_ns: u64,
    /// The target's verdict after it.
    pub(super) verdict: Verdict,
    /// Whether the verdict before it was another one.
    pub(super) changed: bool,
    /// Whether it turned healthy, or ceased to be.
    pub(super) turned: bool,
}

/// Prints lines and the summary.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    output: Output,
    settings: &'a Settings,
    names: Vec<String>,
    name_width: usize,
}

impl<'a> Printer<'a> {
    pub(super) fn new(output: Output, settings: &'a Settings) -> Self {
        let names: Vec<String> =
            settings.names.iter().map(|name| name.escape_debug().to_string()).collect();
        let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
        Self { output, settings, names, name_width }
    }

    /// What stands above the lines.
    pub(super) fn header(&self, output: &mut impl Write) -> io::Result<()> {
        if self.output != Output::Text {
            return Ok(());
        }
        writeln!(
            output,
            "{:24}  {:width$}  {:13}  {:8}  {:>8}  {:>11}  RESULT",
            "TIME",
            "TARGET",
            "VERDICT",
            "BITS",
            "GOOD",
            "TOOK",
            width = self.name_width,
        )
    }

    /// One probe.
    pub(super) fn probe(&mut self, output: &mut impl Write, line: &Line) -> io::Result<()> {
        let target = line.report.target.0 as usize;
        let own = self.settings.of(target);
        let text = OutcomeText::of(&line.report, own.probing.timeout_ns, own.compat);
        let (threshold, window) = (own.probing.threshold, own.probing.window);
        let good = (line.registers[HAPPY] & low_bits(window)).count_ones();
        let bits = Bits(&line.registers).to_string();
        let verdict = name(line.verdict);
        let milliseconds = milliseconds(line.report.duration_ns);
        match self.output {
            Output::Varnishlog => {
                let record = VarnishRecord {
                    name: &self.names[target],
                    changed: line.turned,
                    healthy: line.verdict == Verdict::Healthy,
                    registers: &line.registers,
                    threshold,
                    window,
                    last_ns: line.last_ns,
                    average_s: line.average_s,
                    text: Some(text),
                };
                writeln!(output, "{VARNISHLOG}{record}")
            }
            Output::Text => writeln!(
                output,
                "{}  {:width$}  {:13}  {bits}  {:>8}  {milliseconds:>8.3} ms  {text}",
                timestamp(line.time),
                self.names[target],
                format!("{} {verdict}", if line.changed { "Went" } else { "Still" }),
                format!("{good}/{threshold}/{window}"),
                width = self.name_width,
            ),
            Output::Json => writeln!(
                output,
                "{}",
                json!({
                    "type": "probe",
                    "time": timestamp(line.time),
                    "target": self.settings.names[target],
                    "verdict": verdict,
                    "changed": line.changed,
                    "bits": bits,
                    "good": good,
                    "threshold": threshold,
                    "window": window,
                    "duration_ms": milliseconds,
                    "outcome": OutcomeKind::from(line.report.outcome).name(),
                    "text": text.to_string(),
                })
            ),
        }
    }

    /// What it all came to.
    pub(super) fn summary(&self, output: &mut impl Write, tallies: &[Tally]) -> io::Result<()> {
        if self.output == Output::Varnishlog {
            // Records, and nothing else; what is missing among them is told elsewhere.
            let unprinted: u64 =
                tallies.iter().map(|tally| tally.unprinted.load(Ordering::Acquire)).sum();
            if 0 < unprinted {
                eprintln!("sickbay probe: {unprinted} records not shown: standard output is slow");
            }
            return Ok(());
        }
        for (target, tally) in tallies.iter().enumerate() {
            let load = |counter: &AtomicU64| counter.load(Ordering::Acquire);
            let (good, bad) = (load(&tally.good), load(&tally.bad));
            let indeterminate = load(&tally.indeterminate);
            let probes = good + bad + indeterminate;
            let mean = milliseconds(load(&tally.sum_ns).checked_div(good + bad).unwrap_or(0));
            let longest = milliseconds(load(&tally.max_ns));
            let unprinted = load(&tally.unprinted);
            let verdict = match (tally.is_healthy(), probes) {
                (true, _) => "healthy",
                (false, 0) => "unknown",
                (false, _) => "sick",
            };
            if self.output == Output::Json {
                let summary = json!({
                    "type": "summary",
                    "target": self.settings.names[target],
                    "verdict": verdict,
                    "probes": probes,
                    "good": good,
                    "bad": bad,
                    "indeterminate": indeterminate,
                    "mean_ms": mean,
                    "max_ms": longest,
                    "unprinted": unprinted,
                });
                writeln!(output, "{summary}")?;
                continue;
            }
            write!(
                output,
                "{}: {verdict}; {}: {good} good, {bad} bad, {indeterminate} not counted; \
                 mean {mean:.3} ms, longest {longest:.3} ms",
                self.names[target],
                if probes == 1 { "1 probe".to_owned() } else { format!("{probes} probes") },
            )?;
            if 0 < unprinted {
                write!(output, "; {unprinted} not shown, the terminal was too slow")?;
            }
            writeln!(output)?;
        }
        Ok(())
    }
}

const fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Warming => "warming",
        Verdict::Healthy => "healthy",
        Verdict::Sick => "sick",
    }
}

fn milliseconds(duration_ns: u64) -> f64 {
    // Whole microseconds: what is printed in JSON is what is meant.
    (duration_ns / 1000) as f64 / 1000.0
}
