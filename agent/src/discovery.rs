//! Where the members of a pool come from besides the configuration itself: files that list them,
//! and names in the DNS.
//!
//! A [`Source`] says where; what it says is an [`Answer`]. `list`, `file_sd` and `dns` turn bytes
//! and records into one, and are pure; `file` reads, `resolver` asks, `watch` notices. One thread
//! ([`Discovery`]) does all of that, and leaves the last good answer of each source on the
//! [`Blackboard`], where the main thread finds it. Nothing here touches a pool.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::Newcomer;

/// What every source says now, and what is wrong with it.
mod blackboard;
/// Names: what is asked, and what records come to.
mod dns;
/// Files: their text, whichever form they have.
pub(crate) mod file;
/// Prometheus' form of a file, in JSON and YAML.
mod file_sd;
/// Answers that outlive the agent.
mod kept;
/// The plain form of a file.
pub(crate) mod list;
/// The DNS itself.
mod resolver;
/// The thread.
mod thread;
/// Files that change.
mod watch;

pub use self::blackboard::{Blackboard, Standing};
pub use self::dns::{Question, Records};
pub use self::file::answer_of;
pub use self::thread::{Discovery, Wanted};

/// What a source says: who belongs to the pool, in the source's order.
pub type Answer = Arc<[Newcomer]>;

/// The last good answers.
pub type Answers = BTreeMap<Source, Answer>;

/// Where members of a pool come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A file that lists them.
    File {
        /// Where it is.
        path: PathBuf,
        /// Whether one that lists nobody is meant so.
        may_be_empty: bool,
    },
    /// A name in the DNS.
    Name(Question),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "file {}", crate::config::shown(path)),
            Self::Name(question) => write!(f, "name {question}"),
        }
    }
}

/// A source of a pool, and the answer that its members are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// Where.
    pub source: Source,
    /// What it said; `None` = nothing yet.
    pub answer: Option<Answer>,
}
