//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The command line: one module per subcommand.
pub mod cli {
    /// `sickbay probe`.
    pub mod probe;
}
/// Validated configuration, with every index given out.
pub mod fleet;
/// What this host must have: checked at start, refused by name, with the remedy.
pub mod host;
/// Targets over cores: one pinned thread, one engine and one plan each.
pub mod shard;
/// The loop that carries out what the core asks for: one ring, one thread.
pub mod engine;
/// The mmapped maps where verdicts, histories and heartbeats stand.
pub mod board;
/// The kernel side: load the programs, pin the maps, attach, detach, read the counters.
pub mod kernel;
/// Next hops: by which MAC and interface each backend is reached, kept fresh.
pub mod neighbours;
/// Questions to the kernel's routing netlink: interfaces, XDP in force, routes, neighbours.
pub mod netlink;
