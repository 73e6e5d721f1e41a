//! The subcommands, one file each, named after it.

/// `sickbay backend`: list backends, set their health.
pub mod backend;
/// What the listing subcommands share: which agent is asked, how its answer is written.
pub mod listing;
/// `sickbay probe`: probe from the command line, without root.
pub mod probe;
/// `sickbay service`: list services and their counters.
pub mod service;
/// `sickbay status`: the agent itself.
pub mod status;
/// Tables for people.
pub mod table;
