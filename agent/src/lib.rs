//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// Where something is that can be connected to: an IP address with its port, or a unix socket.
pub mod address;
/// The mmapped maps where verdicts, histories and heartbeats stand.
pub mod board;
/// What the binary can be asked, one file per subcommand.
pub mod cli;
/// From a TOML file to a fleet, with every mistake named.
pub mod config;
/// What a running agent gives up: capabilities, system calls, files.
pub mod confine;
/// The control plane: the admin socket, its client, the journal of transitions.
pub mod control;
/// Where members of pools come from besides the configuration: files and names in the DNS.
pub mod discovery;
/// The loop that carries out what the core asks for: one ring, one thread.
pub mod engine;
/// What an agent leaves to the next one, and what that one takes up of it.
pub mod estate;
/// Validated configuration, with every index given out.
pub mod fleet;
/// A flow as an operator names it, as a packet.
pub mod flow;
/// The register graph of varnishadm's `backend.list -p`.
pub mod graph;
/// Holding the last verdicts when a fault looks like this host's own.
pub mod guard;
/// What this host must have: checked at start, refused by name, with the remedy.
pub mod host;
/// The kernel side: load the programs, pin the maps, attach, detach, read the counters.
pub mod kernel;
/// This host's links and gateways: told when one is lost.
pub mod links;
/// The log: text or JSON, for a terminal, a file or the journal.
pub mod log;
/// Who belongs to a pool, and what follows for the tables of its services.
pub mod membership;
/// Next hops: by which MAC and interface each backend is reached, kept fresh.
pub mod neighbours;
/// Questions to the kernel's routing netlink: interfaces, XDP in force, routes, neighbours.
pub mod netlink;
/// The allocator: large arrays on huge pages.
pub mod pages;
/// Text that may stand on a terminal, in a log and in a file, whatever it was.
pub mod plain;
/// From the core's changes to the board: verdict bits, target records, heartbeats, transitions.
pub mod publish;
/// `sickbay run`: the order in which the parts start and stop.
pub mod run;
/// From services to the keys that the kernel looks them up by.
pub mod service_keys;
/// Targets over cores: one pinned thread, one engine and one plan each.
pub mod shard;
/// Small files that outlive the agent.
mod state_file;
/// Varnish's configuration language, as far as probing goes.
pub mod vcl;
