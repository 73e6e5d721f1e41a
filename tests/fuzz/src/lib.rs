//! What is fuzzed: every parser of bytes that others wrote, with what must hold of it.
//!
//! A target takes any bytes and panics when something does not hold: that splits change nothing,
//! that an independent reading agrees, that memory stays within a bound of the input. `cargo xtask
//! fuzz` lets libFuzzer look for such bytes; the corpus it keeps is replayed by the unit suite.

/// What a piece of work allocates.
pub mod memory;

// The targets, one file each.

/// Requests to the admin socket, and its answers as clients read them.
pub mod admin;
/// Configuration files.
pub mod config;
/// Headers, lengths and chunks: where a response ends.
pub mod framing;
/// Files of backends.
pub mod lists;
/// A response as Varnish's probe reads it.
pub mod reply;
/// The status line, strictly.
pub mod status;
/// Varnish's configuration language.
pub mod vcl;

/// How bytes come in pieces.
mod pieces;
/// HTTP/1 read from a whole message at once, by other code than what is fuzzed.
mod reference;

/// Names the target that the fuzzer runs.
pub const TARGET_VARIABLE: &str = "SICKBAY_FUZZ_TARGET";

/// Something that takes bytes which others wrote.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called; its corpus's directory as well.
    pub name: &'static str,
    /// Panics when something does not hold.
    pub check: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "status", check: status::check },
    Target { name: "framing", check: framing::check },
    Target { name: "reply", check: reply::check },
    Target { name: "vcl", check: vcl::check },
    Target { name: "config", check: config::check },
    Target { name: "admin", check: admin::check },
    Target { name: "lists", check: lists::check },
];
