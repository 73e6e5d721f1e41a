//! The memory that the ring's operations point into: addresses, requests, buffers. Allocated with the
//! ring, and alive until every operation that may touch it is over.
//!
//! There may be a million targets, so what many of them have in common stands here once.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::endpoint::{Endpoint, RawAddress, RawOption, raw_options, raw_source};
use super::kept::SocketKind;
use crate::fleet::{CloseMode, SocketOptions};

/// Bytes of one receive: a probe's response fits as a rule; longer ones take several receives.
pub(super) const RECEIVE_BYTES: usize = 2048;
/// Bytes that one discard throws away at most: what a burst leaves in a receive queue.
pub(super) const BIN_BYTES: usize = 256 * 1024;

/// The memory that operations point into. Never moved: boxes of fixed length, and a vector that has
/// room for all from the beginning.
pub(super) struct Arenas {
    /// One is replaced only while no operation of its target is under way. Those that were never set
    /// stand at the end, in memory that was never touched, or are not there yet.
    targets: Vec<Option<TargetMemory>>,
    /// The requests of the first targets, one after the other: a box for each would cost more than
    /// many a request.
    requests: Box<[u8]>,
    /// What sockets are told, once for all that are told the same. Nothing is ever taken out.
    settings: HashMap<(SocketOptions, CloseMode), Arc<Settings>>,
    pub(super) buffers: Box<[Buffer]>,
    /// Where bytes go that nobody wants: one for all slots.
    pub(super) bin: Box<UnsafeCell<[u8; BIN_BYTES]>>,
}

/// What the ring is told of one target.
pub(super) struct TargetMemory {
    pub(super) address: RawAddress,
    pub(super) settings: Arc<Settings>,
    request: Request,
}

// With the prober's 272 bytes, and room for twice as many targets, below 640 for each.
const _: () = assert!(size_of::<Option<TargetMemory>>() <= 56);

/// What a target's sockets are told.
pub(super) struct Settings {
    pub(super) source: Option<RawAddress>,
    pub(super) options: Box<[RawOption]>,
    pub(super) close: CloseMode,
}

/// Where a request stands.
enum Request {
    /// In [`Arenas::requests`].
    Among { start: u32, length: u32 },
    /// By itself, because its target was added later.
    Own(Box<[u8]>),
}

/// The kernel writes here between a receive and its completion, and nobody reads.
pub(super) struct Buffer(pub(super) UnsafeCell<[u8; RECEIVE_BYTES]>);

impl Arenas {
    pub(super) fn new(slots: u32, places: &[Option<&Endpoint>]) -> Self {
        let length = places.iter().flatten().map(|place| place.request.len()).sum();
        let mut requests = Vec::with_capacity(length);
        let mut settings = HashMap::new();
        let target = |place: &Option<&Endpoint>| {
            place.map(|endpoint| {
                let request = Request::among(&mut requests, &endpoint.request);
                TargetMemory::new(endpoint, request, &mut settings)
            })
        };
        let mut targets = Vec::with_capacity(places.len());
        let set = places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        targets.extend(places[..set].iter().map(target));
        let buffers = (0..slots).map(|_| Buffer(UnsafeCell::new([0; RECEIVE_BYTES]))).collect();
        let bin = Box::new(UnsafeCell::new([0; BIN_BYTES]));
        Self { targets, requests: requests.into(), settings, buffers, bin }
    }

    pub(super) fn target(&self, place: u32) -> &TargetMemory {
        let memory = self.targets[place as usize].as_ref();
        memory.expect("a target that is started has been set")
    }

    /// What a target is sent.
    pub(super) fn request(&self, place: u32) -> &[u8] {
        match &self.target(place).request {
            Request::Among { start, length } => {
                &self.requests[*start as usize..][..*length as usize]
            }
            Request::Own(bytes) => bytes,
        }
    }

    /// Another target stands here from now on.
    pub(super) fn set(&mut self, place: u32, endpoint: &Endpoint) {
        let request = Request::Own(endpoint.request.as_slice().into());
        let memory = TargetMemory::new(endpoint, request, &mut self.settings);
        let place = place as usize;
        assert!(place < self.targets.capacity(), "a vector that grows would move");
        if self.targets.len() <= place {
            self.targets.resize_with(place + 1, || None);
        }
        self.targets[place] = Some(memory);
    }
}

impl TargetMemory {
    fn new(
        endpoint: &Endpoint,
        request: Request,
        settings: &mut HashMap<(SocketOptions, CloseMode), Arc<Settings>>,
    ) -> Self {
        let told = (endpoint.socket.clone(), endpoint.close);
        let settings = settings.entry(told).or_insert_with(|| {
            Arc::new(Settings {
                source: endpoint.socket.source.map(raw_source),
                options: raw_options(&endpoint.socket),
                close: endpoint.close,
            })
        });
        let address = RawAddress::from(&endpoint.address);
        Self { address, settings: Arc::clone(settings), request }
    }

    /// What its sockets may be kept as; `None` = they may not. An option or a source is not looked
    /// at again: an interface of the same name may be another one by then.
    pub(super) fn kept_kind(&self, acks_late: bool) -> Option<SocketKind> {
        let Settings { source, options, close } = &*self.settings;
        let plain = source.is_none() && options.is_empty() && *close == CloseMode::Rst;
        let ipv6 = self.address.leaves_nothing().filter(|_| plain)?;
        Some(SocketKind { ipv6, acks_late })
    }

    /// Whether a TCP connection to it is one on which this side begins.
    pub(super) fn speaks_first(&self) -> bool {
        let is_empty = match &self.request {
            Request::Among { length, .. } => *length == 0,
            Request::Own(bytes) => bytes.is_empty(),
        };
        !is_empty && self.address.is_inet()
    }
}

impl Request {
    /// Appends a request to the others; one that would not fit into 4 GiB stands by itself.
    fn among(requests: &mut Vec<u8>, bytes: &[u8]) -> Self {
        match (u32::try_from(requests.len()), u32::try_from(bytes.len())) {
            (Ok(start), Ok(length)) => {
                requests.extend_from_slice(bytes);
                Self::Among { start, length }
            }
            _ => Self::Own(bytes.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    #[test]
    fn requests_stand_where_they_are_looked_for() {
        let endpoint = |port: u16, request: &[u8]| Endpoint {
            address: std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(),
            second: None,
            request: request.to_vec(),
            proxy_v1: false,
            close: CloseMode::Rst,
            socket: SocketOptions::default(),
        };
        let (one, two, three) = (endpoint(1, b"one"), endpoint(2, b""), endpoint(3, b"three"));
        let mut arenas = Arenas::new(1, &[Some(&one), Some(&two), None, Some(&three)]);
        let requests = |arenas: &Arenas| [0, 1, 3].map(|place| arenas.request(place).to_vec());
        assert_eq!(requests(&arenas), [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
        assert!(arenas.target(0).speaks_first() && !arenas.target(1).speaks_first());
        arenas.set(2, &endpoint(4, b"added"));
        arenas.set(0, &endpoint(5, b"another"));
        assert_eq!(requests(&arenas), [b"another".to_vec(), b"".to_vec(), b"three".to_vec()]);
        assert_eq!(arenas.request(2), b"added");
        // All are told the same, so it stands there once.
        assert_eq!(Arc::strong_count(&arenas.target(2).settings), 5);
    }

    #[test]
    fn only_sockets_are_kept_that_nothing_sticks_to() {
        let plain = Endpoint {
            address: "192.0.2.1:80".parse::<std::net::SocketAddr>().expect("an address").into(),
            second: None,
            request: Vec::new(),
            proxy_v1: false,
            close: CloseMode::Rst,
            socket: SocketOptions::default(),
        };
        let at = |text: &str| {
            let address = text.parse::<std::net::SocketAddr>().expect("an address").into();
            Endpoint { address, ..plain.clone() }
        };
        let told = |socket| Endpoint { socket, ..plain.clone() };
        let with = |text: &str| Some(text.to_owned());
        let cases = [
            (plain.clone(), Some(false)),
            (at("[2001:db8::1]:80"), Some(true)),
            (at("[::ffff:192.0.2.1]:80"), None),
            (at("[fe80::1%3]:80"), None),
            (Endpoint { close: CloseMode::Fin, ..plain.clone() }, None),
            (told(SocketOptions { mark: Some(7), ..SocketOptions::default() }), None),
            (told(SocketOptions { interface: with("eth0"), ..SocketOptions::default() }), None),
            (
                told(SocketOptions {
                    source: Some([127, 0, 0, 2].into()),
                    ..SocketOptions::default()
                }),
                None,
            ),
            (Endpoint { address: Address::unix("@name").expect("it fits"), ..plain.clone() }, None),
        ];
        for (endpoint, ipv6) in cases {
            let arenas = Arenas::new(1, &[Some(&endpoint)]);
            let kind = |acks_late| ipv6.map(|ipv6| SocketKind { ipv6, acks_late });
            for acks_late in [false, true] {
                assert_eq!(arenas.target(0).kept_kind(acks_late), kind(acks_late), "{endpoint:?}");
            }
        }
    }
}
