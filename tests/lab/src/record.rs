//! What came of a load: every connection with its times, and what can be said of them together.

use crate::connection::Failure;

/// One request: on a connection of its own, or on a kept one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// CLOCK_MONOTONIC just before the connection was opened (kept ones: the request sent).
    pub started_ns: u64,
    /// When the answer was there, or it was clear that none would come.
    pub finished_ns: u64,
    /// Who answered.
    pub result: Result<String, Failure>,
}

/// The requests of one 5-tuple, in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Client port.
    pub source_port: u16,
    /// Its requests. A kept connection ends with its first failure; a fixed port goes on.
    pub attempts: Vec<Attempt>,
}

impl Flow {
    /// Who answered first.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.attempts.iter().find_map(|attempt| attempt.result.as_deref().ok())
    }

    /// Whether it stayed with its owner: no other server answered, and none failed.
    #[must_use]
    pub fn stayed(&self) -> bool {
        let owner = self.owner();
        owner.is_some()
            && self.attempts.iter().all(|attempt| attempt.result.as_deref().ok() == owner)
    }
}

/// Everything that a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Connections of one request each, from ever new ports.
    pub short: Vec<Attempt>,
    /// Connections that are kept and ask again and again.
    pub kept: Vec<Flow>,
    /// Ports that are used again and again, each time for a new connection.
    pub fixed: Vec<Flow>,
}

impl Record {
    /// All connections that were opened for one request: short ones and those from fixed ports.
    pub fn connections(&self) -> impl Iterator<Item = &Attempt> {
        self.short.iter().chain(self.fixed.iter().flat_map(|flow| &flow.attempts))
    }

    /// Connections begun in `from_ns .. until_ns` that failed.
    #[must_use]
    pub fn failures(&self, from_ns: u64, until_ns: u64) -> Vec<&Attempt> {
        self.connections()
            .filter(|attempt| (from_ns..until_ns).contains(&attempt.started_ns))
            .filter(|attempt| attempt.result.is_err())
            .collect()
    }

    /// How many of them there are.
    #[must_use]
    pub fn failed_count(&self, from_ns: u64, until_ns: u64) -> usize {
        self.failures(from_ns, until_ns).len()
    }

    /// Connections begun in `from_ns .. until_ns` that `backend` answered.
    #[must_use]
    pub fn answered_count(&self, backend: &str, from_ns: u64, until_ns: u64) -> usize {
        self.connections()
            .filter(|attempt| (from_ns..until_ns).contains(&attempt.started_ns))
            .filter(|attempt| attempt.result.as_deref() == Ok(backend))
            .count()
    }

    /// The first connection begun at `from_ns` or later that `backend` answered.
    #[must_use]
    pub fn first_answer(&self, backend: &str, from_ns: u64) -> Option<&Attempt> {
        self.connections()
            .filter(|attempt| from_ns <= attempt.started_ns)
            .filter(|attempt| attempt.result.as_deref() == Ok(backend))
            .min_by_key(|attempt| attempt.started_ns)
    }

    /// Flows, kept or of a fixed port, whose owner is not `victim`.
    pub fn flows_of_living(&self, victim: &str) -> impl Iterator<Item = &Flow> {
        self.kept.iter().chain(&self.fixed).filter(move |flow| flow.owner() != Some(victim))
    }

    /// Of [`Record::flows_of_living`], those that changed their backend or failed.
    pub fn moved_flows<'record>(
        &'record self,
        victim: &'record str,
    ) -> impl Iterator<Item = &'record Flow> {
        self.flows_of_living(victim).filter(|flow| !flow.stayed())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::connection::Stage;

    fn attempt(started_ns: u64, backend: Option<&str>) -> Attempt {
        let refused = Failure { stage: Stage::Connect, kind: ErrorKind::ConnectionRefused };
        let result = backend.map(str::to_owned).ok_or(refused);
        Attempt { started_ns, finished_ns: started_ns + 1, result }
    }

    fn flow(backends: &[Option<&str>]) -> Flow {
        let attempts = (0..).zip(backends).map(|(at, backend)| attempt(at, *backend)).collect();
        Flow { source_port: 20_000, attempts }
    }

    #[test]
    fn flow_that_another_backend_answers_has_moved() {
        assert!(flow(&[Some("a"), Some("a")]).stayed());
        assert!(!flow(&[Some("a"), Some("b"), Some("a")]).stayed());
    }

    #[test]
    fn flow_that_fails_has_moved() {
        assert!(!flow(&[Some("a"), None]).stayed());
        assert!(!flow(&[None]).stayed());
    }

    #[test]
    fn only_flows_of_the_living_count_as_moved() {
        let record = Record {
            kept: vec![flow(&[Some("victim"), None]), flow(&[Some("a"), None])],
            fixed: vec![flow(&[Some("victim"), None, Some("b")]), flow(&[Some("b"), Some("b")])],
            ..Record::default()
        };
        assert_eq!(record.moved_flows("victim").count(), 1);
        assert_eq!(record.flows_of_living("victim").count(), 2);
    }

    #[test]
    fn failures_are_counted_by_when_the_connection_began() {
        let record = Record {
            short: vec![attempt(9, None), attempt(10, None), attempt(19, None), attempt(20, None)],
            fixed: vec![flow(&[None, Some("a")])],
            ..Record::default()
        };
        assert_eq!(record.failed_count(10, 20), 2);
        assert_eq!(record.failed_count(0, u64::MAX), 5);
        assert_eq!(record.answered_count("a", 0, 20), 1);
        assert_eq!(record.first_answer("a", 1), Some(&attempt(1, Some("a"))));
        assert_eq!(record.first_answer("a", 2), None);
    }
}
