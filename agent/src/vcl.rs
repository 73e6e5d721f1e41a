//! Varnish's configuration language, as far as probing goes: `probe` and `backend` definitions are
//! taken out of a full production VCL, everything else is skipped.
//!
//! The rules and the words are those of Varnish's compiler (7.1), the effective parameters those of
//! its run time; a test compares both with `varnishd -C`. Where this reading differs, on purpose:
//!
//! * what is skipped (subroutines, ACLs, imports) is cut into tokens and balanced, not understood;
//! * inline C is skipped, as if `vcc_allow_inline_c` were on;
//! * later versions' fields are known (`.expect_close`, `.via`, …), and abstract unix sockets;
//! * names are not looked up here, but where they are probed; a port has to be 1 to 65535;
//! * an include is confined to the folder of the first file, and takes no flags.
//!
//! Nothing recurses, and memory grows with the text alone, which is bounded.

mod backend;
mod endpoint;
mod listing;
mod number;
mod probe;
mod program;
mod rule;
mod source;
mod stream;
mod token;

use std::path::Path;

use serde::Serialize;

pub use self::backend::Backend;
pub use self::endpoint::{Endpoint, Network};
pub use self::listing::Listing;
pub use self::probe::{Parameters, Probe, Question};
pub use self::rule::{Located, Probing};

use self::program::Reading;
use self::source::Source;
use crate::config::{ConfigError, Problem};

/// The probes and backends of a VCL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcl {
    /// Every probe in the order of the files: named ones, `default` ones, and those that stand in
    /// backends.
    pub probes: Vec<Probe>,
    /// Every backend in the order of the files.
    pub backends: Vec<Backend>,
    /// What is allowed and may disappoint.
    pub warnings: Vec<Problem>,
    /// Probes and backends that nothing refers to: errors for Varnish, unless its parameter
    /// `vcc_err_unref` is off.
    pub unused: Vec<Problem>,
}

/// Where a definition stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file as it is shown.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Reads the VCL at `path` and what it includes.
///
/// # Errors
///
/// What is wrong with it, with file, line and column. Of a file that cannot be read only the name
/// is told.
pub fn load(path: &Path) -> Result<Vcl, ConfigError> {
    let source = Source::open(path).map_err(|why| ConfigError {
        errors: vec![Problem {
            file: source::shown(path),
            line: 0,
            column: 0,
            path: String::new(),
            problem: format!("cannot be read: {why}"),
            mend: "name a file that this user may read".to_owned(),
        }],
        warnings: Vec::new(),
    })?;
    program::read(source)
}

/// Reads the text of a VCL that includes nothing. `name` is its name in errors.
///
/// # Errors
///
/// What is wrong with it, with line and column.
pub fn parse(name: &str, text: &[u8]) -> Result<Vcl, ConfigError> {
    program::read(Source::of_text(name, text.to_vec()))
}
