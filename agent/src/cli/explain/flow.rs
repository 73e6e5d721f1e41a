//! `sickbay explain flow`: what would become of a flow's packet now, by the kernel's own program.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use crate::cli::listing::{InstanceArgs, OutputFormat, printable, write_json, write_text};
use crate::control::view::{FlowBackendView, FlowView, NOBODY};
use crate::fleet::Protocol;
use crate::flow::{Endpoint, FlowQuestion};

/// Say where a flow's packet would go now, and why: slot, backend, entry, skips
///
/// A packet of that flow is made and given to the program in the kernel, over the live maps. Nothing
/// is changed and nothing is counted by it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sickbay explain flow 192.0.2.7:40000 198.51.100.1:80 tcp
  sickbay explain flow 192.0.2.7:40000 198.51.100.1:80 tcp --established
  sickbay explain flow [2001:db8::7]:5000 [2001:db8:2::1]:53 udp -o json
  sickbay explain flow 192.0.2.7 198.51.100.1 gre")]
pub struct FlowArgs {
    /// The client: ADDRESS:PORT, IPv6 in brackets
    #[arg(value_name = "SRC:PORT")]
    pub source: Endpoint,
    /// Where it sends: ADDRESS:PORT
    #[arg(value_name = "DST:PORT")]
    pub destination: Endpoint,
    /// tcp, udp, or another by name or number
    #[arg(value_name = "PROTO", value_parser = protocol)]
    pub protocol: u8,
    /// A packet in the middle of the flow, not the SYN that opens it
    #[arg(long)]
    pub established: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay explain flow`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &FlowArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay explain flow`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &FlowArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let question = FlowQuestion {
        source: args.source,
        destination: args.destination,
        protocol: args.protocol,
        established: args.established,
    };
    // What can be told without an agent is told before one is looked for.
    question.frame()?;
    let view = args.instance.client()?.explain_flow(question)?;
    match args.output {
        OutputFormat::Json => write_json(out, &view)?,
        OutputFormat::Text => write_text(out, &text(&view))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn protocol(text: &str) -> Result<u8, String> {
    let named = || Protocol::of_name(text).and_then(Protocol::number);
    let number = text.parse::<u8>().ok().filter(|number| *number != 0);
    number.or_else(named).ok_or_else(|| "write tcp, udp, or another by name or number".to_owned())
}

fn text(view: &FlowView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<9}  {}", printable(&value)).expect("a String takes all text");
    };
    let verdict = if view.because.is_empty() {
        view.outcome.clone()
    } else {
        format!("{}: {}", view.outcome, view.because)
    };
    line("Outcome", verdict);
    if let Some(service) = &view.service {
        line("Service", format!("{}, {}: {}", service.name, service.mode, service.traffic));
        let mut pool = format!("{}: {} take new flows", service.pool, service.healthy);
        if service.panics {
            pool.push_str(", too few: it panics");
        }
        if let Some(backup) = &service.backup {
            write!(pool, "; backup {backup}: {}", service.backup_healthy)
                .expect("a String takes all text");
        }
        line("Pool", pool);
    }
    if let Some(slot) = &view.slot {
        let mut shown = format!("{} of {}: {}", slot.index, slot.count, state(&slot.backend));
        if let Some(age_ms) = slot.verdict_age_ms {
            write!(shown, "; its judge's last sign of life {age_ms} ms ago")
                .expect("a String takes all text");
        }
        if let Some(previous) = &slot.drains_from {
            write!(shown, "; drains: older flows are {previous}'s")
                .expect("a String takes all text");
        }
        line("Slot", shown);
        line(
            "Entry",
            match &view.entry {
                None => "none".to_owned(),
                Some(entry) => {
                    let embryonic = if entry.embryonic { "a SYN's, " } else { "" };
                    format!("{embryonic}of {}, {} ms old", state(&entry.backend), entry.age_ms)
                }
            },
        );
        if let Some(skipped) = &view.skipped {
            let tries = match view.try_that_finds {
                Some(number) => format!("; re-hashed try {number} finds one that takes new flows"),
                None => "; no re-hashed try finds one that takes new flows".to_owned(),
            };
            line("Skipped", format!("{skipped}{tries}"));
        }
    }
    if let Some(backend) = &view.backend {
        line("Backend", state(backend));
    }
    if view.outcome == "steered" {
        line(
            "Goes to",
            match (&view.next_hop, &view.interface) {
                (Some(mac), Some(interface)) => format!("{mac} by {interface}"),
                (Some(mac), None) => format!("{mac} by an interface that is gone"),
                (None, _) => "nowhere: the next hop is not known, so it is dropped".to_owned(),
            },
        );
        let change = match view.entry_change.as_str() {
            "untouched" => "nothing",
            "written" => "it is remembered whose the flow is",
            "refused" => "it cannot be remembered whose the flow is",
            "promoted" => "what its SYN left is kept for good",
            "deleted" => "what was remembered is forgotten: the flow follows its slot",
            other => other,
        };
        line("Leaves", change.to_owned());
    }
    if view.observe {
        line("Observe", "the service only observes: the packet is passed".to_owned());
    }
    text
}

fn state(backend: &FlowBackendView) -> String {
    if backend.name == NOBODY {
        return "nobody, for its pool has no members".to_owned();
    }
    let what = match (backend.takes_new, backend.serves_old, backend.allowed) {
        (true, ..) => "takes new flows",
        (false, true, _) => "takes no new flows, keeps those it has",
        (false, false, true) => "sick",
        (false, false, false) => "sick, and not to be chosen at all",
    };
    format!("{} ({what})", backend.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::view::{FlowServiceView, FlowSlotView};

    fn healthy(name: &str) -> FlowBackendView {
        let name = name.to_owned();
        FlowBackendView { name, takes_new: true, serves_old: true, allowed: true }
    }

    #[test]
    fn skip_is_told_from_slot_to_next_hop() {
        let sick = FlowBackendView { takes_new: false, serves_old: false, ..healthy("web.b3") };
        let view = FlowView {
            outcome: "steered".to_owned(),
            why: "rehashed".to_owned(),
            because: "its slot's backend takes no new flows, a re-hashed try finds this one".into(),
            service: Some(FlowServiceView {
                name: "web".to_owned(),
                traffic: "198.51.100.1 port 80 tcp".to_owned(),
                mode: "dsr".to_owned(),
                pool: "nginx".to_owned(),
                healthy: 7,
                ..FlowServiceView::default()
            }),
            slot: Some(FlowSlotView {
                index: 731,
                count: 1021,
                backend: sick,
                drains_from: None,
                verdict_age_ms: Some(12),
            }),
            entry_change: "written".to_owned(),
            backend: Some(healthy("web.b5")),
            skipped: Some("web.b3".to_owned()),
            try_that_finds: Some(1),
            next_hop: Some("02:00:00:00:00:15".to_owned()),
            interface: Some("eth0".to_owned()),
            ..FlowView::default()
        };
        assert_eq!(
            text(&view),
            "\
Outcome    steered: its slot's backend takes no new flows, a re-hashed try finds this one
Service    web, dsr: 198.51.100.1 port 80 tcp
Pool       nginx: 7 take new flows
Slot       731 of 1021: web.b3 (sick); its judge's last sign of life 12 ms ago
Entry      none
Skipped    web.b3; re-hashed try 1 finds one that takes new flows
Backend    web.b5 (takes new flows)
Goes to    02:00:00:00:00:15 by eth0
Leaves     it is remembered whose the flow is
"
        );
    }

    #[test]
    fn protocols_are_named_or_numbered() {
        assert_eq!((protocol("tcp"), protocol("gre"), protocol("50")), (Ok(6), Ok(47), Ok(50)));
        assert!(protocol("any").is_err() && protocol("0").is_err() && protocol("tpc").is_err());
    }
}
