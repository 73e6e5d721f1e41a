//! What is probed: targets of the farm, as the engine wants them and as the peers do.

use sickbay::engine::Endpoint;
use sickbay::fleet::{CloseMode, SocketOptions};
use sickbay_core::hash;
use sickbay_core::plan::{
    Compat, Family, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec,
    Room, Rule, TargetIndex, TargetSpec,
};
use sickbay_lab::farm::Farm;
use sickbay_lab::network;

/// What is asked of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A response with status 200.
    Http,
    /// A connection.
    Tcp,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }

    pub(crate) const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp)
    }
}

/// The request that every prober sends.
pub(crate) fn request(index: u32) -> String {
    let address = Farm::address(network::Family::V4, index);
    format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

/// So many targets of one pool, each a backend's, as an agent would have them: room for twice as
/// many included.
pub(crate) fn plan(count: u32, kind: Kind, interval_ns: Nanos, slot_count: u32) -> Plan {
    let probe_kind = match kind {
        Kind::Http => ProbeKind::http(200),
        Kind::Tcp => ProbeKind::Tcp,
    };
    let target = |index: u32| TargetSpec {
        identity: hash::identity(&index.to_be_bytes(), 8080, request(index).as_bytes()),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second: None,
        initial: 2,
    };
    let judge = |index| JudgeSpec {
        target: TargetIndex(index),
        rule: Rule::Window { window: 8, threshold: 3 },
        on_unknown: OnUnknown::Keep,
    };
    Plan {
        probes: vec![ProbeSpec {
            interval_ns,
            timeout_ns: 1_000_000_000,
            kind: probe_kind,
            pace: Pace::STEADY,
            compat: Compat::Off,
        }],
        targets: (0..count).map(target).collect(),
        judges: (0..count).map(judge).collect(),
        slot_count,
        phase_seed: 1,
        past: Vec::new(),
        room: Room { targets: count, judges: count },
    }
}

/// Where these targets are.
pub(crate) fn endpoints(count: u32, kind: Kind) -> Vec<Endpoint> {
    let endpoint = |index| Endpoint {
        address: Farm::address(network::Family::V4, index).into(),
        second: None,
        request: if kind.is_tcp() { Vec::new() } else { request(index).into_bytes() },
        proxy_v1: false,
        close: CloseMode::Rst,
        socket: SocketOptions::default(),
    };
    (0..count).map(endpoint).collect()
}
