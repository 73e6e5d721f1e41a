//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The mmapped maps where verdicts, histories and heartbeats stand.
pub mod board;
/// What the binary can be asked, one file per subcommand.
pub mod cli;
/// From a TOML file to a fleet, with every mistake named.
pub mod config;
/// Validated configuration, with every index given out.
pub mod fleet;
/// What this host must have: checked at start, refused by name, with the remedy.
pub mod host;
/// The kernel side: load the programs, pin the maps, attach, detach, read the counters.
pub mod kernel;
/// Questions to the kernel's routing netlink: interfaces, XDP in force, routes, neighbours.
pub mod netlink;
