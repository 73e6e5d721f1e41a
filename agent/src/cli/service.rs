//! `sickbay service`: list services, how their pools are, and the kernel's counters.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::listing::{InstanceArgs, OutputFormat, Screen, write_json, write_text};
use super::table::{Cell, Column, Table, Tint};
use crate::control::view::{AttachedView, ServiceView};

/// Arguments of `sickbay service`.
#[derive(Clone, Debug, Args)]
pub struct ServiceArgs {
    /// What to do
    #[command(subcommand)]
    pub command: ServiceCommand,
}

/// Subcommands of `sickbay service`.
#[derive(Clone, Debug, Subcommand)]
pub enum ServiceCommand {
    /// List services: mode, health of the pool, where the kernel meets their packets, counters
    List(ListArgs),
}

/// Arguments of `sickbay service list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Columns:
  Healthy    backends that take new flows / all of the pool, + the same of its backup pool;
             panics: so few that new flows are given to all
  New flows  flows given a backend; in mode `observe`: that would have been
  Skipped    of these, flows whose first choice was sick
  All sick   flows that came when no backend took any (given one all the same, or dropped)
All counters are in `-o json`.")]
pub struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay service`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &ServiceArgs) -> anyhow::Result<ExitCode> {
    run_on(args, Screen::of_stdout(), &mut io::stdout().lock())
}

/// Runs `sickbay service`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &ServiceArgs, screen: Screen, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let ServiceCommand::List(list) = &args.command;
    let views = list.instance.client()?.services()?;
    match list.output {
        OutputFormat::Json => write_json(out, &views)?,
        OutputFormat::Text => write_text(out, &table(&views).render(screen))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(views: &[ServiceView]) -> Table {
    let steered = views.iter().any(|view| view.counters.is_some());
    let mut columns = vec![
        Column::cuttable("Service"),
        Column::text("Address"),
        Column::text("Proto"),
        Column::text("Mode"),
        Column::cuttable("Pool"),
        Column::number("Healthy"),
        Column::cuttable("Attached"),
    ];
    if steered {
        columns
            .extend(["New flows", "Skipped", "All sick", "Packets", "Bytes"].map(Column::number));
    }
    let mut table = Table::new(columns);
    for view in views {
        let mut cells = vec![
            view.name.as_str().into(),
            address_text(view).into(),
            view.protocol.as_str().into(),
            view.mode.as_str().into(),
            view.pool.as_str().into(),
            healthy(view),
            attached_text(&view.attached).into(),
        ];
        if steered {
            let counters = view.counters.unwrap_or_default();
            cells.push(counters.new_flows.into());
            cells.push(counters.skipped.into());
            cells.push((counters.all_sick_open + counters.all_sick_dropped).into());
            cells.push(counters.steered_packets.into());
            cells.push(counters.steered_bytes.into());
        }
        table.push(cells, String::new());
    }
    table
}

/// `198.51.100.1:80`, `[2001:db8::/48]:80,8000-8099`, `192.0.2.0/24:any`; a protocol without ports
/// has none.
fn address_text(view: &ServiceView) -> String {
    let address = &view.address;
    match view.protocol.as_str() {
        "tcp" | "udp" | "any" if address.contains(':') => format!("[{address}]:{}", view.ports),
        "tcp" | "udp" | "any" => format!("{address}:{}", view.ports),
        _ => address.clone(),
    }
}

/// `7/8`; `0/8 +2/2` with a backup pool; `1/8 panics`.
fn healthy(view: &ServiceView) -> Cell {
    let ServiceView { healthy, total, backup_healthy, backup_total, .. } = *view;
    let tint = match healthy {
        0 => Tint::Bad,
        some if some < total => Tint::Odd,
        _ => Tint::Good,
    };
    let mut text = format!("{healthy}/{total}");
    if view.backup.is_some() {
        text.push_str(&format!(" +{backup_healthy}/{backup_total}"));
    }
    if view.panics {
        text.push_str(" panics");
    }
    Cell::tinted(&text, tint)
}

/// `eth0 xdp/native, eth1 tc/tcx`, or `no`.
pub(super) fn attached_text(attached: &[AttachedView]) -> String {
    if attached.is_empty() {
        return "no".to_owned();
    }
    let texts: Vec<String> = attached
        .iter()
        .map(|place| format!("{} {}/{}", place.interface, place.program, place.mode))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Screen, table};
    use crate::control::view::{AttachedView, ServiceCountersView, ServiceView};

    fn web() -> ServiceView {
        ServiceView {
            name: "web".to_owned(),
            address: "2001:db8::80".to_owned(),
            ports: "80".to_owned(),
            protocol: "tcp".to_owned(),
            pool: "nginx".to_owned(),
            backup: None,
            mode: "dsr".to_owned(),
            all_sick: "open".to_owned(),
            healthy: 7,
            total: 8,
            panics: false,
            backup_healthy: 0,
            backup_total: 0,
            slots: 1021,
            attached: Vec::new(),
            counters: None,
        }
    }

    #[test]
    fn service_that_is_not_attached_shows_no_counters() {
        assert_eq!(
            table(&[web()]).render(Screen::default()),
            "\
Service  Address            Proto  Mode  Pool   Healthy  Attached
web      [2001:db8::80]:80  tcp    dsr   nginx      7/8  no
"
        );
    }

    #[test]
    fn backup_and_panic_stand_beside_the_healthy() {
        let backup = Some("sorry".to_owned());
        let view =
            ServiceView { backup, backup_healthy: 2, backup_total: 2, panics: true, ..web() };
        let text = table(&[view]).render(Screen::default());
        assert!(text.contains("  7/8 +2/2 panics  no\n"), "{text}");
    }

    #[test]
    fn address_has_its_ports_unless_the_protocol_has_none() {
        let shown = |address: &str, ports: &str, protocol: &str| {
            let (address, ports) = (address.to_owned(), ports.to_owned());
            super::address_text(&ServiceView { address, ports, protocol: protocol.into(), ..web() })
        };
        assert_eq!(shown("192.0.2.0/24", "80,8000-8099", "tcp"), "192.0.2.0/24:80,8000-8099");
        assert_eq!(shown("2001:db8::/48", "any", "any"), "[2001:db8::/48]:any");
        assert_eq!(shown("192.0.2.1", "any", "gre"), "192.0.2.1");
    }

    #[test]
    fn attached_service_shows_where_and_what_the_kernel_did() {
        let place = |interface: &str, program: &str, mode: &str| AttachedView {
            interface: interface.to_owned(),
            program: program.to_owned(),
            mode: mode.to_owned(),
        };
        let view = ServiceView {
            attached: vec![place("eth0", "xdp", "native"), place("eth1", "tc", "tcx")],
            counters: Some(ServiceCountersView {
                steered_packets: 500,
                steered_bytes: 40_000,
                new_flows: 100,
                skipped: 12,
                all_sick_open: 2,
                all_sick_dropped: 1,
                ..Default::default()
            }),
            ..web()
        };
        let text = table(&[view]).render(Screen::default());
        let row: Vec<&str> = text.lines().nth(1).expect("a row").split("  ").collect();
        let cells: Vec<&str> =
            row.iter().map(|cell| cell.trim()).filter(|c| !c.is_empty()).collect();
        assert_eq!(cells[6..], ["eth0 xdp/native, eth1 tc/tcx", "100", "12", "3", "500", "40000"]);
    }
}
