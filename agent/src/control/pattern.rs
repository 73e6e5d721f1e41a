//! Patterns over backend names, as varnishadm's: a glob over `pool.backend`.
//!
//! - A pattern with a dot is matched against `pool.backend`; `*` crosses dots (`web.*`, `*.b3`).
//! - A pattern without a dot is matched against the backend's own name, in any pool (`b3`, `b*`).
//!   It never means a pool: all of one is `web.*`, so that a slip does not force a pool sick.
//! - A pattern that is letter for letter a backend's name, or `pool.backend`, matches it. Backends
//!   without a name are called by their address, so `10.0.0.1:80` needs no pool before it.
//! - `[` opens a class (`b[1-3]`) unless a colon stands before its `]`: then it is the bracket of
//!   an IPv6 address (`web.[2001:db8::1]:*`).

use std::fmt::Write as _;

use globset::{GlobBuilder, GlobMatcher};

/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 512;

/// A checked pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    glob: GlobMatcher,
    over_full_name: bool,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// It is empty, too long, or not a glob.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if PATTERN_BYTES_MAX < text.len() {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        let glob = GlobBuilder::new(&with_addresses_literal(text))
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|error| PatternError::NotGlob {
                pattern: text.to_owned(),
                why: error.kind().to_string(),
            })?;
        Ok(Self {
            text: text.to_owned(),
            glob: glob.compile_matcher(),
            over_full_name: text.contains('.'),
        })
    }

    /// Whether the backend of this pool and name is meant.
    #[must_use]
    pub fn matches(&self, pool: &str, backend: &str) -> bool {
        let is_full_name = self
            .text
            .strip_prefix(pool)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|rest| rest == backend);
        if is_full_name || self.text == backend {
            return true;
        }
        if self.over_full_name {
            self.glob.is_match(format!("{pool}.{backend}"))
        } else {
            self.glob.is_match(backend)
        }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing was given.
    #[error("the pattern is empty: \"*\" matches all backends")]
    Empty,
    /// Longer than any name.
    #[error("the pattern has {bytes} bytes, the most is {PATTERN_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not a glob.
    #[error("{pattern:?} is not a glob: {why}; write a backslash before a character meant as such")]
    NotGlob {
        /// As written.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

/// `text` with the brackets around IPv6 addresses made literal; see the module.
fn with_addresses_literal(text: &str) -> String {
    let mut glob = String::with_capacity(text.len() + 4);
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let Some(length) = rest[open..].find(']') else {
            break;
        };
        let inside = &rest[open + 1..open + length];
        glob.push_str(&rest[..open]);
        if inside.contains(':') {
            write!(glob, "[[]{inside}[]]").expect("a String takes all text");
        } else {
            write!(glob, "[{inside}]").expect("a String takes all text");
        }
        rest = &rest[open + length + 1..];
    }
    glob.push_str(rest);
    glob
}

#[cfg(test)]
mod tests {
    use super::{PATTERN_BYTES_MAX, Pattern, PatternError};

    #[track_caller]
    fn check(pattern: &str, names: &[(&str, &str)], expected: &[&str]) {
        let pattern = Pattern::new(pattern).expect("a pattern");
        let matched: Vec<String> = names
            .iter()
            .filter(|(pool, backend)| pattern.matches(pool, backend))
            .map(|(pool, backend)| format!("{pool}.{backend}"))
            .collect();
        assert_eq!(matched, expected, "{}", pattern.as_str());
    }

    const NAMES: [(&str, &str); 4] = [("web", "b1"), ("web", "b2"), ("api", "b1"), ("api", "foo")];

    /// The patterns of varnishtest's c00048, and what they pick there, with pools for VCLs.
    #[test]
    fn globs_pick_what_varnishadm_picks() {
        check("*", &NAMES, &["web.b1", "web.b2", "api.b1", "api.foo"]);
        check("*.*", &NAMES, &["web.b1", "web.b2", "api.b1", "api.foo"]);
        check("*.foo", &NAMES, &["api.foo"]);
        check("web.*", &NAMES, &["web.b1", "web.b2"]);
        check("web.b1", &NAMES, &["web.b1"]);
        check("*.b1", &NAMES, &["web.b1", "api.b1"]);
        check("b?", &NAMES, &["web.b1", "web.b2", "api.b1"]);
        check("b[2-9]", &NAMES, &["web.b2"]);
        check("web.b[!1]", &NAMES, &["web.b2"]);
        check("WEB.*", &NAMES, &[]);
    }

    #[test]
    fn pattern_without_a_dot_is_a_backend_and_never_a_pool() {
        check("b1", &NAMES, &["web.b1", "api.b1"]);
        check("web", &NAMES, &[]);
        check("w*", &NAMES, &[]);
        check("web.", &NAMES, &[]);
    }

    const ADDRESSES: [(&str, &str); 4] = [
        ("web", "10.0.0.1:80"),
        ("web", "[2001:db8::1]:80"),
        ("web", "[2001:db8::1]:81"),
        ("web", "1:80"),
    ];

    #[test]
    fn addresses_match_as_they_are_written() {
        check("10.0.0.1:80", &ADDRESSES, &["web.10.0.0.1:80"]);
        check("web.10.0.0.1:80", &ADDRESSES, &["web.10.0.0.1:80"]);
        check("[2001:db8::1]:80", &ADDRESSES, &["web.[2001:db8::1]:80"]);
        check("web.[2001:db8::1]:80", &ADDRESSES, &["web.[2001:db8::1]:80"]);
        check("*.10.0.0.*", &ADDRESSES, &["web.10.0.0.1:80"]);
    }

    #[test]
    fn brackets_of_an_address_are_no_class_even_beside_wildcards() {
        let both = ["web.[2001:db8::1]:80", "web.[2001:db8::1]:81"];
        check("web.[2001:db8::1]:*", &ADDRESSES, &both);
        check("[2001:db8::*]:*", &ADDRESSES, &both);
        check("*.[2001:*]:8[1-9]", &ADDRESSES, &["web.[2001:db8::1]:81"]);
        check("[::1]:80", &ADDRESSES, &[]);
    }

    #[test]
    fn bad_patterns_are_refused_with_a_reason() {
        assert_eq!(Pattern::new("").expect_err("empty"), PatternError::Empty);
        let long = "x".repeat(PATTERN_BYTES_MAX + 1);
        assert_eq!(
            Pattern::new(&long).expect_err("too long"),
            PatternError::TooLong { bytes: PATTERN_BYTES_MAX + 1 }
        );
        let error = Pattern::new("web.b[1").expect_err("unclosed class").to_string();
        assert!(error.starts_with("\"web.b[1\" is not a glob: "), "{error}");
    }
}
