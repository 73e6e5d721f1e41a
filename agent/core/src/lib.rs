//! The deciding part of sickbay: registers, verdicts, schedule and the prober that joins them.
//!
//! Sans-IO: it opens nothing and learns the time only as the last argument of its methods; what it
//! wants done comes out as [`command::Command`]s, what happened goes in as [`command::Event`]s.
//! After [`prober::Prober::new`] it allocates nothing.
#![forbid(unsafe_code)]

/// The bounds that everything here obeys.
pub mod limits;
/// What is to be probed and by which rule: the validated input of a prober.
pub mod plan;
/// What a prober asks for, what it is told, and what it reports.
pub mod command;
/// The prober of one shard: what joins the rest.
pub mod prober;
