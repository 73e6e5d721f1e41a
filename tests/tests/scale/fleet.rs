//! The targets, each a backend of its own, and the probe of all of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use sickbay::fleet::{
    Backend, CloseMode, Dns, Fleet, Judged, Observe, Origin, Pool, Probe, Request, SocketOptions,
    Steering, Target,
};
use sickbay::service_keys::ServiceKeys;
use sickbay_core::plan::{Compat, OnUnknown, Pace, ProbeKind, ProbeSpec, Rule};

use super::{INTERVAL_NS, SLOTS, TARGETS};

/// One pool of as many backends, each with its own target.
pub(super) fn fleet(addresses: &[SocketAddr]) -> Fleet {
    let probe = Probe {
        name: "http".into(),
        spec: ProbeSpec {
            interval_ns: INTERVAL_NS,
            timeout_ns: INTERVAL_NS,
            kind: ProbeKind::http(200),
            pace: Pace::STEADY,
            compat: Compat::Off,
        },
        rule: Rule::Window { window: 8, threshold: 3 },
        initial: 2,
        on_unknown: OnUnknown::Keep,
        close: CloseMode::Rst,
        request: Some(Request {
            method: "GET".into(),
            url: "/health".into(),
            host: None,
            headers: Vec::new(),
            body: None,
            raw: Vec::new(),
        }),
        send: Vec::new(),
        proxy_header: None,
        socket: SocketOptions::default(),
    };
    let target = |index: u32| {
        let address = addresses[index as usize];
        let request =
            format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        Target {
            identity: u128::from(index) << 64 | u128::from(index),
            address: address.into(),
            request: request.into_bytes(),
            probe: 0,
            initial: 2,
        }
    };
    let backend = |index: u32| Backend {
        name: format!("backend-{index}"),
        pool: 0,
        address: addresses[index as usize].into(),
        weight: 1,
        judged: [Judged { target: index as usize, probe: 0 }].into(),
        index,
        origin: Origin::Configured,
    };
    Fleet {
        instance: "scale".into(),
        pin_directory: PathBuf::new(),
        run_directory: PathBuf::new(),
        state_directory: PathBuf::new(),
        shards: 1,
        in_flight: SLOTS,
        start_timeout_ns: 0,
        probes: vec![probe],
        targets: (0..TARGETS).map(target).collect(),
        pools: vec![Pool {
            name: "farm".into(),
            probes: vec![0],
            own_probes: Some(vec![0]),
            probe_port: None,
            drain_ns: 0,
            backends: 0..TARGETS as usize,
            first_word: 0,
            word_count: 256,
            panic: None,
            may_be_empty: false,
            sources: Vec::new(),
        }],
        backends: (0..TARGETS).map(backend).collect(),
        services: Vec::new(),
        service_keys: ServiceKeys::default(),
        attachments: Vec::new(),
        steering: Steering::default(),
        guard: None,
        privilege: Default::default(),
        read_group: None,
        watch_config: false,
        dns: Dns::default(),
        observe: Observe::default(),
    }
}
