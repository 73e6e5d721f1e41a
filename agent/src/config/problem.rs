//! What is wrong with a configuration, and where: one line each, with the way to mend it.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use super::source::Source;

/// Problems that are shown; a file of garbage need not scroll the screen away.
const SHOWN_MAX: usize = 100;
/// Errors after which no more are looked for: a file of garbage need not fill the memory either.
pub(super) const ERRORS_MAX: usize = 500;

/// One thing that is wrong, or that will disappoint.
///
/// Shown as `FILE:LINE:COLUMN: DOTTED.PATH: what is wrong; how to mend it`. Everything that came
/// from a file is escaped, so that a problem is always one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file, as it was named; or the command line's flag.
    pub file: String,
    /// Line, from 1; 0 when the problem is with the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 when the line is.
    pub column: usize,
    /// The key, dotted from the top, such as `probe.web.window`; empty when there is none.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// How to mend it.
    pub mend: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line != 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}; {}", self.problem, self.mend)
    }
}

/// Why a configuration cannot be used: every error that was found, in the file's order.
///
/// Its text has one line per error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The errors, at least one.
    pub errors: Vec<Problem>,
    /// Warnings that were found on the way.
    pub warnings: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().take(SHOWN_MAX).enumerate() {
            if index != 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.errors.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => {
                let stop = if self.errors.len() < ERRORS_MAX { "" } else { ", perhaps others" };
                write!(f, "\nand {more} more errors{stop}; mend these first")
            }
        }
    }
}

/// One step of the way from the top of the file to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'p> {
    /// Into the table, to this key.
    Key(&'p str),
    /// Into the array, to this element.
    Index(usize),
}

impl<'p> From<&'p str> for Step<'p> {
    fn from(key: &'p str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Collects the problems of one configuration while it is read and validated.
pub(super) struct Report<'s> {
    source: &'s Source<'s>,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Paths that have an error: what follows from it is not reported as well.
    marred: HashSet<String>,
}

impl<'s> Report<'s> {
    pub(super) fn new(source: &'s Source<'s>) -> Self {
        Self { source, errors: Vec::new(), warnings: Vec::new(), marred: HashSet::new() }
    }

    /// An error of the value at `place`.
    pub(super) fn error(
        &mut self,
        place: &[Step<'_>],
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        if self.is_full() {
            return;
        }
        let offset = self.source.offset(place);
        self.error_at_offset(offset, place, problem, mend);
    }

    /// An error of what stands at byte `offset`, which belongs to `place`.
    pub(super) fn error_at_offset(
        &mut self,
        offset: usize,
        place: &[Step<'_>],
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        if self.is_full() {
            return;
        }
        let problem = self.problem(offset, place, problem.into(), mend.into());
        self.marred.insert(problem.path.clone());
        self.errors.push(problem);
    }

    /// An error that does not stand in the configuration file itself.
    pub(super) fn error_elsewhere(&mut self, problem: Problem) {
        if self.is_full() {
            return;
        }
        self.marred.insert(problem.path.clone());
        self.errors.push(problem);
    }

    /// A warning about the value at `place`.
    pub(super) fn warn(
        &mut self,
        place: &[Step<'_>],
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let offset = self.source.offset(place);
        let problem = self.problem(offset, place, problem.into(), mend.into());
        self.warnings.push(problem);
    }

    /// Marks the value at `place` as the one that an error elsewhere is about.
    pub(super) fn mar(&mut self, place: &[Step<'_>]) {
        self.marred.insert(dotted(place));
    }

    /// Whether the value at `place` has an error already.
    pub(super) fn is_marred(&self, place: &[Step<'_>]) -> bool {
        !self.marred.is_empty() && self.marred.contains(&dotted(place))
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Whether there are so many errors that no more are kept: whoever looks for them may stop.
    pub(super) fn is_full(&self) -> bool {
        ERRORS_MAX <= self.errors.len()
    }

    /// The line that the value at `place` stands on.
    pub(super) fn line(&self, place: &[Step<'_>]) -> usize {
        self.source.position(self.source.offset(place)).0
    }

    /// The whole number at `place` if it lies in `range`; else an error that names the range.
    pub(super) fn whole(
        &mut self,
        place: &[Step<'_>],
        value: i64,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<u32> {
        let (low, high) = (*range.start(), *range.end());
        if range.contains(&value) {
            return u32::try_from(value).ok();
        }
        let mend = format!("write a whole number from {low} to {high}");
        self.error(place, format!("{value} is out of range"), mend);
        None
    }

    /// The warnings when there was no error, else everything as an error; both in file order.
    pub(super) fn finish(mut self) -> Result<Vec<Problem>, ConfigError> {
        self.errors.sort();
        self.errors.dedup();
        self.warnings.sort();
        if self.errors.is_empty() {
            Ok(self.warnings)
        } else {
            Err(ConfigError { errors: self.errors, warnings: self.warnings })
        }
    }

    fn problem(&self, offset: usize, place: &[Step<'_>], problem: String, mend: String) -> Problem {
        let (line, column) = self.source.position(offset);
        let file = self.source.name.clone();
        Problem { file, line, column, path: dotted(place), problem, mend }
    }
}

/// The path as an operator would write it: `pool.web.backends[3]`, odd keys quoted and escaped,
/// long ones cut.
pub(super) fn dotted(place: &[Step<'_>]) -> String {
    let mut path = String::new();
    for step in place {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if (1..=QUOTED_MAX).contains(&key.len()) && key.chars().all(bare) {
                    path.push_str(key);
                } else {
                    path.push_str(&quoted(key));
                }
            }
        }
    }
    path
}

/// Characters of a text that are shown of it.
const QUOTED_MAX: usize = 80;

/// Text from a file in quotes, escaped, and cut when it is long: it cannot break the line or move
/// the cursor of a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::from("\"");
    for (index, character) in text.chars().enumerate() {
        if index == QUOTED_MAX {
            shown.push('…');
            break;
        }
        shown.extend(character.escape_debug());
    }
    shown.push('"');
    shown
}

/// The known name that `name` may be a slip of.
pub(super) fn slip_of<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Names are short and few; what compares each with each must not take long where they are not.
    const CANDIDATES_MAX: usize = 1000;
    if QUOTED_MAX < name.len() {
        return None;
    }
    let distance_max = name.chars().count() / 3 + 1;
    known
        .into_iter()
        .take(CANDIDATES_MAX)
        .filter(|candidate| candidate.len() <= QUOTED_MAX)
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The hint that names the known name nearest to `name`, or else lists what there is.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    const LISTED_MAX: usize = 20;
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(best) = slip_of(name, known.iter().copied()) {
        return format!("did you mean {}?", quoted(best));
    }
    if known.is_empty() {
        return "none is defined".to_owned();
    }
    let mut list: Vec<String> = known.iter().take(LISTED_MAX).map(|name| quoted(name)).collect();
    if LISTED_MAX < known.len() {
        list.push("…".to_owned());
    }
    format!("known are {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_are_quoted_and_escaped_in_paths() {
        let place = [Step::from("pool"), Step::from("a\nb"), Step::from("backends"), 3.into()];
        assert_eq!(dotted(&place), "pool.\"a\\nb\".backends[3]");
    }

    #[test]
    fn terminal_escapes_are_shown_as_text() {
        assert_eq!(quoted("\u{1b}[2J"), "\"\\u{1b}[2J\"");
    }

    #[test]
    fn nearest_name_is_offered_only_when_it_is_near() {
        assert_eq!(nearest("treshold", ["threshold", "window"]), "did you mean \"threshold\"?");
        assert_eq!(nearest("colour", ["rise"]), "known are \"rise\"");
    }
}
