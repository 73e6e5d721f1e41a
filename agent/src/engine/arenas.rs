//! The memory that the ring's operations point into: addresses, requests, buffers. Allocated with the
//! ring, and alive until every operation that may touch it is over.

use std::cell::UnsafeCell;

use super::endpoint::{Endpoint, RawAddress, RawOption, raw_options, raw_source};
use crate::fleet::CloseMode;

/// Bytes of one receive: a probe's response fits as a rule; longer ones take several receives.
pub(super) const RECEIVE_BYTES: usize = 2048;
/// Bytes that one discard throws away at most: what a burst leaves in a receive queue.
pub(super) const BIN_BYTES: usize = 256 * 1024;

/// The memory that operations point into. Never moved, never grown: boxes of fixed length.
pub(super) struct Arenas {
    /// One is replaced only while no operation of its target is under way.
    pub(super) targets: Box<[Option<TargetMemory>]>,
    pub(super) buffers: Box<[Buffer]>,
    /// Where bytes go that nobody wants: one for all slots.
    pub(super) bin: Box<UnsafeCell<[u8; BIN_BYTES]>>,
}

pub(super) struct TargetMemory {
    pub(super) address: RawAddress,
    pub(super) source: Option<RawAddress>,
    pub(super) options: Box<[RawOption]>,
    pub(super) request: Box<[u8]>,
    pub(super) close: CloseMode,
}

/// The kernel writes here between a receive and its completion, and nobody reads.
pub(super) struct Buffer(pub(super) UnsafeCell<[u8; RECEIVE_BYTES]>);

impl Arenas {
    pub(super) fn new(slots: u32, places: &[Option<&Endpoint>]) -> Self {
        let targets = places.iter().map(|place| place.map(TargetMemory::new)).collect();
        let buffers = (0..slots).map(|_| Buffer(UnsafeCell::new([0; RECEIVE_BYTES]))).collect();
        let bin = Box::new(UnsafeCell::new([0; BIN_BYTES]));
        Self { targets, buffers, bin }
    }

    pub(super) fn target(&self, place: u32) -> &TargetMemory {
        let memory = self.targets[place as usize].as_ref();
        memory.expect("a target that is started has been set")
    }
}

impl TargetMemory {
    /// Whether a TCP connection to it is one on which this side begins.
    pub(super) fn speaks_first(&self) -> bool {
        !self.request.is_empty() && !matches!(self.address, RawAddress::Unix(_))
    }

    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self {
            address: RawAddress::from(&endpoint.address),
            source: endpoint.socket.source.map(raw_source),
            options: raw_options(&endpoint.socket),
            request: endpoint.request.as_slice().into(),
            close: endpoint.close,
        }
    }
}
