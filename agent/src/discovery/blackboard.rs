//! What every source says now, and what is wrong with it: written by the thread that looks, read by
//! whoever acts on it or shows it.
//!
//! An answer stays until the same source gives another one: whatever fails, the last good one holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Answer, Answers, Source, Sourced};
use crate::control::said::now_unix_ms;

/// What the sources say.
#[derive(Debug, Default)]
pub struct Blackboard {
    standings: Mutex<Standings>,
    /// Somebody may wait for a first word.
    told: Condvar,
    configuration_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct Standings {
    of: BTreeMap<Source, Standing>,
    /// Somebody else read another answer than stands here: they are to be looked at again.
    doubted: BTreeSet<Source>,
}

/// How one source stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The last good answer; `None` = there was none yet.
    pub answer: Option<Answer>,
    /// When that was given, or confirmed; `None` = it was found, not given.
    pub answered_unix_ms: Option<u64>,
    /// What is wrong since, in one line, and since when.
    pub fault: Option<(String, u64)>,
}

impl Blackboard {
    /// From now on these sources are looked at, and no others. What they were found to say when
    /// their pools were made is their answer.
    pub(super) fn replace<'a>(&self, sources: impl Iterator<Item = &'a Sourced>) {
        let mut standings = self.lock();
        let mut before = std::mem::take(&mut standings.of);
        for Sourced { source, answer } in sources {
            let mut standing = before.remove(source).unwrap_or_default();
            if let Some(answer) = answer
                && standing.answer.as_ref() != Some(answer)
            {
                standing.answer = Some(answer.clone());
                standings.doubted.insert(source.clone());
            }
            standings.of.insert(source.clone(), standing);
        }
        let Standings { of, doubted } = &mut *standings;
        doubted.retain(|source| of.contains_key(source));
    }

    /// Those that are to be looked at again; asked once.
    pub(super) fn take_doubted(&self) -> BTreeSet<Source> {
        std::mem::take(&mut self.lock().doubted)
    }

    /// What a source was found to say earlier, by an agent that is gone.
    pub(super) fn remember(&self, source: &Source, answer: Answer) {
        if let Some(standing) = self.lock().of.get_mut(source) {
            standing.answer.get_or_insert(answer);
        }
    }

    /// A source has been looked at; whether it says something else than before. What changes of its
    /// faults is logged, once.
    pub(super) fn tell(&self, source: &Source, said: Result<Answer, String>) -> bool {
        let mut standings = self.lock();
        let Some(standing) = standings.of.get_mut(source) else {
            return false;
        };
        let changes = standing.hear(source, said, now_unix_ms());
        drop(standings);
        self.told.notify_all();
        changes
    }

    /// Waits until each source has given an answer or failed to, `limit` at most.
    pub fn wait(&self, limit: Duration) {
        let is_silent =
            |standing: &Standing| standing.answered_unix_ms.is_none() && standing.fault.is_none();
        let silent = |standings: &mut Standings| {
            let mut names = standings.of.iter().filter(|(it, _)| matches!(it, Source::Name(_)));
            names.any(|(_, standing)| is_silent(standing))
        };
        // Whoever has said nothing by then is shown as silent.
        let _in_time = self.told.wait_timeout_while(self.lock(), limit, silent);
    }

    /// The last good answer of each source that gave one.
    #[must_use]
    pub fn answers(&self) -> Answers {
        let answer = |(source, standing): (&Source, &Standing)| {
            Some((source.clone(), standing.answer.clone()?))
        };
        self.lock().of.iter().filter_map(answer).collect()
    }

    /// The last good answer of a source.
    #[must_use]
    pub fn answer(&self, source: &Source) -> Option<Answer> {
        self.lock().of.get(source)?.answer.clone()
    }

    /// How a source stands; `None` = it is none of those that are looked at.
    #[must_use]
    pub fn standing(&self, source: &Source) -> Option<Standing> {
        self.lock().of.get(source).cloned()
    }

    /// The configuration file has changed.
    pub(super) fn tell_configuration(&self) {
        self.configuration_changed.store(true, Ordering::Release);
    }

    /// Whether the configuration file has changed since this was asked last.
    pub fn take_configuration_changed(&self) -> bool {
        self.configuration_changed.swap(false, Ordering::AcqRel)
    }

    fn lock(&self) -> MutexGuard<'_, Standings> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn hear(&mut self, source: &Source, said: Result<Answer, String>, unix_ms: u64) -> bool {
        match said {
            Ok(answer) => {
                if let Some((fault, _)) = self.fault.take() {
                    tracing::info!("{source} is well again; before: {fault}");
                }
                self.answered_unix_ms = Some(unix_ms);
                let changes = self.answer.as_ref() != Some(&answer);
                if changes {
                    self.answer = Some(answer);
                }
                changes
            }
            Err(fault) => {
                if self.fault.as_ref().is_none_or(|(known, _)| *known != fault) {
                    match &self.answer {
                        Some(answer) => tracing::error!(
                            "{source}: {fault}; its last answer, {} backends, holds",
                            answer.len()
                        ),
                        None => tracing::error!("{source}: {fault}; it has no backends so far"),
                    }
                    self.fault = Some((fault, unix_ms));
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::newcomer;

    fn source() -> Source {
        Source::File { path: "/x/web.list".into(), may_be_empty: false }
    }

    fn answer(address: &str) -> Answer {
        [newcomer(address, None, None).expect("an address")].into()
    }

    fn board(answer: Option<Answer>) -> Blackboard {
        let board = Blackboard::default();
        board.replace([Sourced { source: source(), answer }].iter());
        board
    }

    #[test]
    fn last_good_answer_holds_whatever_fails() {
        let board = board(Some(answer("192.0.2.1:80")));
        assert!(!board.tell(&source(), Err("is gone".to_owned())));
        let standing = board.standing(&source()).expect("it is looked at");
        assert_eq!(standing.answer, Some(answer("192.0.2.1:80")));
        assert_eq!(standing.fault.expect("it was told").0, "is gone");
        assert!(!board.tell(&source(), Ok(answer("192.0.2.1:80"))), "it says what it said");
        assert_eq!(board.standing(&source()).expect("it is looked at").fault, None);
        assert!(board.tell(&source(), Ok(answer("192.0.2.2:80"))));
        assert_eq!(board.answer(&source()), Some(answer("192.0.2.2:80")));
    }

    #[test]
    fn answer_that_stays_the_same_is_the_same_allocation() {
        let first = answer("192.0.2.1:80");
        let board = board(Some(first.clone()));
        board.tell(&source(), Ok(answer("192.0.2.1:80")));
        assert!(Answer::ptr_eq(&board.answer(&source()).expect("it has one"), &first));
    }

    #[test]
    fn source_that_was_read_otherwise_is_looked_at_again() {
        let board = board(Some(answer("192.0.2.1:80")));
        assert_eq!(board.take_doubted(), BTreeSet::from([source()]));
        let same = [Sourced { source: source(), answer: Some(answer("192.0.2.1:80")) }];
        board.replace(same.iter());
        assert_eq!(board.take_doubted(), BTreeSet::new());
        let other = [Sourced { source: source(), answer: Some(answer("192.0.2.2:80")) }];
        board.replace(other.iter());
        assert_eq!(board.take_doubted(), BTreeSet::from([source()]));
        assert_eq!(board.answer(&source()), Some(answer("192.0.2.2:80")));
    }

    #[test]
    fn source_that_is_wanted_no_more_is_heard_no_more() {
        let board = board(Some(answer("192.0.2.1:80")));
        board.replace([].iter());
        assert!(!board.tell(&source(), Ok(answer("192.0.2.2:80"))));
        assert_eq!(board.answers(), Answers::new());
    }

    #[test]
    fn what_was_remembered_gives_way_to_what_is_said() {
        let board = board(None);
        board.remember(&source(), answer("192.0.2.1:80"));
        assert_eq!(board.answer(&source()), Some(answer("192.0.2.1:80")));
        assert!(board.tell(&source(), Ok(answer("192.0.2.2:80"))));
        board.remember(&source(), answer("192.0.2.1:80"));
        assert_eq!(board.answer(&source()), Some(answer("192.0.2.2:80")));
    }
}
