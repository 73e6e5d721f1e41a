//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The command line: one module per subcommand.
pub mod cli;
/// `sickbay run`: the order in which the parts start and stop.
pub mod run;
/// Validated configuration, with every index given out.
pub mod fleet;
/// What this host must have: checked at start, refused by name, with the remedy.
pub mod host;
/// Targets over cores: one pinned thread, one engine and one plan each.
pub mod shard;
/// The loop that carries out what the core asks for: one ring, one thread.
pub mod engine;
/// From the core's changes to the board: verdict bits, target records, heartbeats, transitions.
pub mod publish;
/// The mmapped maps where verdicts, histories and heartbeats stand.
pub mod board;
/// The kernel side: load the programs, pin the maps, attach, detach, read the counters.
pub mod kernel;
/// Next hops: by which MAC and interface each backend is reached, kept fresh.
pub mod neighbours;
/// Questions to the kernel's routing netlink: interfaces, XDP in force, routes, neighbours.
pub mod netlink;
/// The control plane: the admin socket, its client, the journal of transitions.
pub mod control;
/// The register graph of varnishadm's `backend.list -p`.
pub mod graph;
