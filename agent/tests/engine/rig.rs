//! An engine on the test's own thread, and servers for it to probe.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sickbay::engine::{Counters, Endpoint, Engine, Sink};
use sickbay::fleet::{CloseMode, SocketOptions};
use sickbay_core::command::{Change, Outcome, Report};
use sickbay_core::plan::{
    Compat, Family, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec,
    Room, Rule, TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;

/// Longest that any test here waits for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Every report.
    pub(crate) reports: Vec<Report>,
    /// Every change.
    pub(crate) changes: Vec<Change>,
    /// How many ticks.
    pub(crate) ticks: u64,
    /// Tells reports and changes apart in the order they came: true for a change.
    pub(crate) order: Vec<bool>,
}

impl Sink for Recorder {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        self.changes.push(*change);
        self.order.push(true);
    }

    fn on_report(&mut self, _: &Prober, report: &Report, _: Nanos) {
        self.reports.push(*report);
        self.order.push(false);
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {
        self.ticks += 1;
    }
}

/// What an engine is to probe, and how.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Targets: address, and whether it speaks HTTP.
    pub(crate) targets: Vec<(SocketAddr, bool)>,
    /// From one probe to the next.
    pub(crate) interval: Duration,
    /// One deadline.
    pub(crate) timeout: Duration,
    /// Places in flight.
    pub(crate) slots: u32,
    /// How connections are closed.
    pub(crate) close: CloseMode,
    /// Whether a PROXY header of version 1 is sent.
    pub(crate) proxy_v1: bool,
}

impl Setup {
    /// One target ten times a second, a timeout of one second.
    pub(crate) fn one(address: SocketAddr, http: bool) -> Self {
        Self {
            targets: vec![(address, http)],
            interval: Duration::from_millis(100),
            timeout: Duration::from_secs(1),
            slots: 4,
            close: CloseMode::Rst,
            proxy_v1: false,
        }
    }

    /// Its plan: the newest result decides.
    pub(crate) fn plan(&self) -> Plan {
        let spec = |kind| ProbeSpec {
            interval_ns: self.interval.as_nanos() as Nanos,
            timeout_ns: self.timeout.as_nanos() as Nanos,
            kind,
            pace: Pace::STEADY,
            compat: Compat::Off,
        };
        let target = |(index, (address, http)): (usize, &(SocketAddr, bool))| TargetSpec {
            identity: index as u128,
            probe: ProbeIndex(u32::from(*http)),
            family: if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 },
            second: None,
            initial: 0,
        };
        let judge = |index| JudgeSpec {
            target: TargetIndex(index),
            rule: Rule::Window { window: 1, threshold: 1 },
            on_unknown: OnUnknown::Keep,
        };
        Plan {
            probes: vec![spec(ProbeKind::Tcp), spec(ProbeKind::http(200))],
            targets: self.targets.iter().enumerate().map(target).collect(),
            judges: (0..self.targets.len() as u32).map(judge).collect(),
            slot_count: self.slots,
            phase_seed: 0,
            past: Vec::new(),
            room: Room::NONE,
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let endpoint = |(address, http): &(SocketAddr, bool)| Endpoint {
            address: (*address).into(),
            second: None,
            request: if *http {
                b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".to_vec()
            } else {
                Vec::new()
            },
            proxy_v1: self.proxy_v1,
            close: self.close,
            socket: SocketOptions::default(),
        };
        self.targets.iter().map(endpoint).collect()
    }
}

/// An engine and its counters.
pub(crate) struct Rig {
    /// Driven by the test.
    pub(crate) engine: Engine<Recorder>,
    /// Its counters.
    pub(crate) counters: Arc<Counters>,
}

impl Rig {
    /// An engine that has not turned yet.
    pub(crate) fn new(setup: &Setup) -> Self {
        let counters = Arc::new(Counters::default());
        let sink = Recorder::default();
        let engine = Engine::new(&setup.plan(), &setup.endpoints(), sink, Arc::clone(&counters))
            .expect("this host runs engines");
        Self { engine, counters }
    }

    /// Turns the engine until the predicate holds of it.
    #[track_caller]
    pub(crate) fn turn_until(&mut self, what: &str, predicate: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !predicate(self) {
            assert!(start.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
            self.engine.turn().expect("the ring works");
        }
        assert_eq!(self.counters.stray(), 0, "completions that belong to nobody");
    }

    /// What it was told so far.
    pub(crate) fn told(&self) -> &Recorder {
        self.engine.sink()
    }

    /// Waits for the first report.
    #[track_caller]
    pub(crate) fn first_report(&mut self) -> Report {
        self.turn_until("a report", |rig| !rig.told().reports.is_empty());
        self.told().reports[0]
    }
}

/// What the first probe of `address` comes to.
#[track_caller]
pub(crate) fn first_outcome(address: SocketAddr, http: bool) -> Outcome {
    Rig::new(&Setup::one(address, http)).first_report().outcome
}

/// A server on `address` that gives each connection to `answer`, one after the other, for as long
/// as the process lives.
pub(crate) fn serve(
    address: &str,
    mut answer: impl FnMut(TcpStream) + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).expect("a loopback address can be bound");
    let bound = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        // A probe may have reset its connection before it is accepted: that is no error here.
        while let Ok((stream, _)) = listener.accept() {
            answer(stream);
        }
    });
    bound
}

/// Reads up to the end of the request's head; false when the peer went before.
pub(crate) fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// A server that reads the request, writes the parts one by one, and then keeps the connection
/// open until the probe closes it.
pub(crate) fn serve_parts(parts: &'static [&'static [u8]]) -> SocketAddr {
    serve("127.0.0.1", move |mut stream| {
        if !read_request(&mut stream) {
            return;
        }
        stream.set_nodelay(true).expect("TCP has the option");
        for part in parts {
            if stream.write_all(part).is_err() {
                return;
            }
            // Let each part leave as a segment of its own.
            std::thread::sleep(Duration::from_millis(5));
        }
        // Ends with EOF or RST, as the probe closes.
        let _closed = stream.read(&mut [0]);
    })
}
