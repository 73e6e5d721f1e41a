//! A service manager's socket, and what comes out of it.

use std::path::Path;

use sickbay_shared::abi::Header;
use tempfile::TempDir;

use super::*;
use crate::kernel::Sizes;

const SECOND_NS: u64 = 1_000_000_000;
/// Its quarter is no longer than a shard may be silent.
const LIMIT_US: &str = "400000";

struct Stage {
    directory: TempDir,
    socket: UnixDatagram,
    board: Board,
}

impl Stage {
    fn new(shards: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        let sizes = Sizes { shards, ..Sizes::default() };
        let board = Board::in_memory(&sizes).unwrap();
        board.write_header(&Header { shard_count: shards, ..Header::default() }).unwrap();
        Self { directory, socket, board }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("notify")
    }

    fn notifier(&self, watchdog_us: Option<&str>) -> Notifier {
        let path = self.path();
        let socket = Some(path.as_os_str());
        Notifier::new(&Environment { socket, watchdog_us, watchdog_process: None })
    }

    /// What was told since the last time.
    fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut datagram = [0; 512];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            told.push(String::from_utf8_lossy(&datagram[..length]).into_owned());
        }
        told
    }

    fn look(&self, notifier: &mut Notifier, attached: bool, now_ns: u64) -> Vec<String> {
        notifier.look_at(&self.board, attached, now_ns, || "well".to_owned());
        self.told()
    }
}

#[test]
fn ready_is_told_once_and_not_before_steering_is_attached() {
    let stage = Stage::new(1);
    let mut notifier = stage.notifier(None);
    notifier.starting(10 * SECOND_NS);
    assert_eq!(stage.told(), ["EXTEND_TIMEOUT_USEC=40000000"]);
    assert_eq!(stage.look(&mut notifier, false, 1), ["STATUS=well"]);
    assert_eq!(stage.look(&mut notifier, true, 2), ["READY=1"]);
    assert_eq!(stage.look(&mut notifier, true, 10 * SECOND_NS), [""; 0]);
    notifier.stopping();
    assert_eq!(stage.told(), ["STOPPING=1"]);
}

#[test]
fn status_is_told_when_it_has_changed_and_once_a_second_at_most() {
    let stage = Stage::new(1);
    let mut notifier = stage.notifier(None);
    let mut look = |now_ns, text: &str| {
        notifier.look_at(&stage.board, false, now_ns, || text.to_owned());
        stage.told()
    };
    assert_eq!(look(SECOND_NS, "one"), ["STATUS=one"]);
    assert_eq!(look(SECOND_NS + 1, "two"), [""; 0]);
    assert_eq!(look(2 * SECOND_NS, "two"), ["STATUS=two"]);
    assert_eq!(look(3 * SECOND_NS, "two"), [""; 0]);
}

#[test]
fn reload_is_told_with_its_time_and_then_its_end() {
    let stage = Stage::new(1);
    let mut notifier = stage.notifier(None);
    notifier.reloading();
    assert_eq!(stage.told(), [""; 0], "it has not said that it is ready");
    stage.look(&mut notifier, true, 1);
    let before_us = monotonic_now() / 1000;
    notifier.reloading();
    let told = stage.told();
    let at_us = told[0].strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    let at_us: u64 = at_us.parse().unwrap();
    assert!(before_us <= at_us && at_us <= monotonic_now() / 1000);
    assert_eq!(stage.look(&mut notifier, true, 2), ["READY=1"]);
}

#[test]
fn one_silent_shard_of_two_stops_the_pings() {
    let stage = Stage::new(2);
    let mut notifier = stage.notifier(Some(LIMIT_US));
    let now_ns = coarse_now_ns();
    let pings = |notifier: &mut Notifier, now_ns| {
        let told = stage.look(notifier, false, now_ns);
        told.iter().filter(|text| *text == "WATCHDOG=1").count()
    };
    assert_eq!(pings(&mut notifier, now_ns), 0, "nobody has beaten yet");
    stage.board.beat(0);
    assert_eq!(pings(&mut notifier, now_ns), 0, "the second has not");
    stage.board.beat(1);
    let beaten_ns = stage.board.last_beat_ns(1);
    assert_eq!(pings(&mut notifier, beaten_ns), 1);
    assert_eq!(pings(&mut notifier, beaten_ns + 1), 0, "a quarter of the time is not over");
    while stage.board.last_beat_ns(0) <= beaten_ns + 1_000_000 {
        stage.board.beat(0);
    }
    let later_ns = beaten_ns + 100_000_000;
    assert_eq!(pings(&mut notifier, later_ns), 0, "the second has not beaten since");
    while stage.board.last_beat_ns(1) <= beaten_ns {
        stage.board.beat(1);
    }
    assert_eq!(pings(&mut notifier, later_ns), 1);
}

#[test]
fn ping_needs_a_heartbeat_that_is_new_and_fresh() {
    let stage = Stage::new(1);
    stage.board.beat(0);
    let beat_ns = stage.board.last_beat_ns(0);
    let mut watchdog = Watchdog::new(Duration::from_millis(4));
    assert!(!watchdog.is_due(&stage.board, beat_ns + HEARTBEAT_LIMIT_NS), "new but not fresh");
    assert!(watchdog.is_due(&stage.board, beat_ns + HEARTBEAT_LIMIT_NS - 1));
    let mut watchdog = Watchdog::new(Duration::from_millis(4));
    assert!(watchdog.is_due(&stage.board, beat_ns));
    assert!(!watchdog.is_due(&stage.board, beat_ns + 5_000_000), "fresh but not new");
    while stage.board.last_beat_ns(0) == beat_ns {
        stage.board.beat(0);
    }
    assert!(watchdog.is_due(&stage.board, beat_ns + 5_000_000));
}

#[test]
fn nobody_is_told_without_a_socket_and_odd_ones_are_passed_over() {
    let names = [None, Some(""), Some("relative"), Some("vsock:2:1")];
    for name in names {
        let socket = name.map(OsStr::new);
        let notifier = Notifier::new(&Environment { socket, ..Environment::default() });
        assert!(notifier.0.is_none(), "{name:?}");
    }
    // A manager that is gone is no reason to stop.
    let gone = Path::new("/nonexistent/notify").as_os_str();
    let mut notifier = Notifier::new(&Environment { socket: Some(gone), ..Environment::default() });
    notifier.stopping();
}

#[test]
fn abstract_socket_is_reached() {
    let name = format!("sickbay-test-{}-{}", std::process::id(), monotonic_now());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    let name = format!("@{name}");
    let socket_name = Some(OsStr::new(&name));
    Notifier::new(&Environment { socket: socket_name, ..Environment::default() }).stopping();
    let mut datagram = [0; 64];
    let length = socket.recv(&mut datagram).unwrap();
    assert_eq!(&datagram[..length], b"STOPPING=1");
}

#[test]
fn watchdog_of_another_process_is_not_ours() {
    let own = std::process::id().to_string();
    let limit = |us, process| {
        Environment { socket: None, watchdog_us: us, watchdog_process: process }.watchdog_limit()
    };
    assert_eq!(limit(Some("4000000"), Some(&own)), Some(Duration::from_secs(4)));
    assert_eq!(limit(Some("4000000"), None), Some(Duration::from_secs(4)));
    assert_eq!(limit(Some("4000000"), Some("0")), None);
    assert_eq!(limit(Some("0"), None), None);
    assert_eq!(limit(Some("soon"), None), None);
    assert_eq!(limit(None, None), None);
}
