//! Samples of dropped packets: taken out of the kernel's ring buffer by the main thread, kept for
//! whoever asks.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sickbay_shared::abi::{self, DropRecord};

use crate::fleet::Protocol;

/// Newest samples that are kept.
pub const KEPT_DROPS_MAX: usize = 4096;

/// A packet that was dropped or refused, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropView {
    /// Counts up from 1, without gaps; a gap a reader sees is what it came too late for.
    pub sequence: u64,
    /// When, in ms since 1970.
    pub at_unix_ms: u64,
    /// Where it came from: `192.0.2.1:40000`; without the port for a protocol that has none.
    pub source: String,
    /// Where it was going.
    pub destination: String,
    /// `tcp`, `udp`, or another by name or number.
    pub protocol: String,
    /// Bytes, link layer included.
    pub size_bytes: u32,
    /// The service; empty when it has none any more.
    pub service: String,
    /// `pool.backend`, where one was found.
    pub backend: Option<String>,
    /// Why, for programs: `none_takes_new` and its like.
    pub reason: String,
    /// The service only observes: the packet was passed.
    pub observe: bool,
}

impl DropView {
    /// How `record` is shown; its place in time and its names are the caller's.
    #[must_use]
    pub fn new(
        record: &DropRecord,
        at_unix_ms: u64,
        service: String,
        backend: Option<String>,
    ) -> Self {
        let protocol = Protocol::of_number(record.protocol);
        let endpoint = |address: [u8; 16], port: [u8; 2]| {
            let ip = ip(address, record.family);
            if !protocol.has_ports() {
                return ip.to_string();
            }
            SocketAddr::new(ip, u16::from_be_bytes(port)).to_string()
        };
        Self {
            sequence: 0,
            at_unix_ms,
            source: endpoint(record.source, record.source_port),
            destination: endpoint(record.destination, record.destination_port),
            protocol: protocol.to_string(),
            size_bytes: record.size_bytes,
            service,
            backend,
            reason: reason(record.reason).0.to_owned(),
            observe: record.observe != 0,
        }
    }

    /// Why, in an operator's words.
    #[must_use]
    pub fn why(&self) -> &str {
        let known = (1..=REASON_MAX).map(reason).find(|(word, _)| *word == self.reason);
        known.map_or(self.reason.as_str(), |(_, words)| words)
    }
}

/// The largest reason there is.
const REASON_MAX: u8 = abi::DROP_REPLY_OVER_BUDGET;

/// A reason's word for programs, and its words for people.
const fn reason(reason: u8) -> (&'static str, &'static str) {
    match reason {
        abi::DROP_NONE_TAKES_NEW => ("none_takes_new", "no backend takes new flows"),
        abi::DROP_NONE_TAKES_NEW_REFUSED => {
            ("none_takes_new_refused", "no backend takes new flows: refused")
        }
        abi::DROP_BACKEND_SICK_RESET => ("backend_sick_reset", "its backend is sick: flow reset"),
        abi::DROP_UNRESOLVED => ("unresolved", "its backend's next hop is not known"),
        abi::DROP_BROKEN_TABLE => ("broken_table", "the service's tables are broken: a bug"),
        abi::DROP_REPLY_OVER_BUDGET => {
            ("reply_over_budget", "an answer was due, and the budget for them is spent")
        }
        _ => ("unknown", "for a reason that this version does not know"),
    }
}

/// An address as the maps have it.
fn ip(address: [u8; 16], family: u8) -> IpAddr {
    if family == 4 {
        let [a, b, c, d, ..] = address;
        return IpAddr::from([a, b, c, d]);
    }
    IpAddr::from(address)
}

/// The newest samples.
#[derive(Debug, Default)]
pub struct Drops(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    views: VecDeque<DropView>,
    /// The sequence of the newest.
    newest: u64,
}

impl Drops {
    /// Keeps a sample; the oldest makes room for it. Its sequence is given here.
    pub fn keep(&self, view: DropView) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.views.len() == KEPT_DROPS_MAX {
            kept.views.pop_front();
        }
        kept.newest += 1;
        let sequence = kept.newest;
        kept.views.push_back(DropView { sequence, ..view });
    }

    /// The kept samples with a sequence above `after`, oldest first.
    #[must_use]
    pub fn since(&self, after: u64) -> Vec<DropView> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.views.iter().filter(|view| after < view.sequence).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> DropRecord {
        let mut source = [0; 16];
        source[..4].copy_from_slice(&[192, 0, 2, 1]);
        let mut destination = [0; 16];
        destination[..4].copy_from_slice(&[198, 51, 100, 1]);
        DropRecord {
            source,
            destination,
            source_port: 40_000_u16.to_be_bytes(),
            destination_port: 80_u16.to_be_bytes(),
            protocol: 6,
            family: 4,
            reason: abi::DROP_UNRESOLVED,
            size_bytes: 74,
            ..DropRecord::default()
        }
    }

    #[test]
    fn sample_is_shown_with_its_tuple_and_its_reason() {
        let view = DropView::new(&record(), 5, "web".to_owned(), Some("web.b1".to_owned()));
        assert_eq!(
            (view.source.as_str(), view.destination.as_str()),
            ("192.0.2.1:40000", "198.51.100.1:80")
        );
        assert_eq!((view.protocol.as_str(), view.reason.as_str()), ("tcp", "unresolved"));
        assert_eq!(view.why(), "its backend's next hop is not known");
        let gre = DropRecord { protocol: 47, ..record() };
        assert_eq!(DropView::new(&gre, 5, String::new(), None).source, "192.0.2.1");
        let mut address = [0; 16];
        address[0] = 0x20;
        address[15] = 1;
        let v6 = DropRecord { family: 6, source: address, protocol: 17, ..record() };
        assert_eq!(DropView::new(&v6, 5, String::new(), None).source, "[2000::1]:40000");
    }

    #[test]
    fn every_reason_of_the_abi_has_words() {
        for each in 1..=REASON_MAX {
            assert_ne!(reason(each).0, "unknown", "reason {each}");
        }
    }

    #[test]
    fn newest_samples_are_kept_and_numbered() {
        let drops = Drops::default();
        for _ in 0..KEPT_DROPS_MAX + 3 {
            drops.keep(DropView::new(&record(), 5, String::new(), None));
        }
        let kept = drops.since(0);
        assert_eq!((kept.len(), kept[0].sequence), (KEPT_DROPS_MAX, 4));
        assert_eq!(drops.since(KEPT_DROPS_MAX as u64 + 2).len(), 1);
    }
}
