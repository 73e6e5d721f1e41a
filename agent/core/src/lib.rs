//! The deciding part of sickbay: registers, verdicts, schedule and the prober that joins them.
//!
//! Sans-IO: it opens nothing and learns the time only as the last argument of its methods; what it
//! wants done comes out as [`command::Command`]s, what happened goes in as [`command::Event`]s.
//! After [`prober::Prober::new`] it allocates nothing.
#![forbid(unsafe_code)]

// In reading order.

// The bounds that everything here obeys.
pub mod limits;

// A set of HTTP statuses.
pub mod statuses;

// Finding a text in bytes that come in pieces.
pub mod pattern;

// What a response must hold besides its status.
pub mod content;

// What is to be probed and by which rule: the validated input of a prober.
pub mod plan;

// What is known of a target from before its prober began.
pub mod past;

// What a prober asks for, what it is told, and what it reports.
pub mod command;

// Hashes that are the same in every version and on every host.
pub mod hash;

// The eight registers of a target, as Varnish keeps them.
pub mod register;

// The moving average of happy probes' times.
pub mod average;

// How a register becomes a verdict.
pub mod verdict;

// How long a rule takes to see a death or a recovery: the closed forms.
pub mod bound;

// Where an HTTP/1 response ends, and with which status.
pub mod response;

// A response as Varnish's probe reads it.
pub mod reply;

// Timers: a hierarchical timing wheel over indices.
pub mod wheel;

// When a target is due.
pub mod schedule;

// The prober of one shard: what joins the rest.
pub mod prober;

// What is said of a probe.
pub mod text;

// Varnish's log record of a probe.
pub mod record;

// Which member of a pool a slot of its table belongs to.
pub mod maglev;

// A simulated engine and network around the prober, on a virtual clock.
pub mod sim;

// One target on the virtual clock, a result at a time.
pub mod rehearsal;

// How many seconds a probe takes, and by which results: from rehearsals.
pub mod answer;
