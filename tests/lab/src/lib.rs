//! The lab: private networks of namespaces with real servers, clients and agents in them.
//!
//! For the demo, the tests and the benches. Everything here lives inside one private environment
//! ([`private`]) and vanishes with the process that made it, whatever ends that process.
//!
//! Modules in reading order.

/// Namespaces of mounts, processes and networks around a whole run.
pub mod private;

/// One unnamed network namespace.
pub mod namespace;

/// Client, host and backends around a bridge.
pub mod network;

/// Any number of synthetic backends behind one veth.
pub mod farm;

/// A real web server in a namespace.
pub mod nginx;

/// A real proxy in a namespace.
pub mod haproxy;

/// A DNS server in a namespace.
pub mod name_server;

/// The agent in a namespace.
pub mod agent;

/// Configurations of agents in the usual network.
pub mod configuration;

/// A network, its servers and an agent.
pub mod stage;

/// A kernel that lacks a system call, for one command.
pub mod missing;

/// What an agent has published.
pub mod board;

/// Watches one backend on an agent's board.
pub mod watch;

/// One HTTP connection of a client.
pub mod connection;

/// Datagrams of a client.
pub mod datagram;

/// A client's load, and the record of every connection it made.
pub mod load;

/// What came of a load: failures and moved flows.
pub mod record;

/// From a store into map memory to a program on another CPU: how long.
pub mod meter;

/// Monotonic time, and waiting with a limit.
pub mod clock;
