//! Packets whose expected fate is written out: description, packet, state of the tables, then
//! action, counters and entry left. Run on the host and in the kernel.
//!
//! The world: one pool of four healthy backends (indices 0 to 3), and services on 192.0.2.1 and
//! 2001:db8::1 whose tables have a single slot, of backend 0. So a flow's place is known without
//! knowing its hash: backend 0, or whichever of the others is left.

use std::net::IpAddr;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::ModelTables;
use super::frame::{ACK, Frame, SYN};
use crate::abi::{
    ALL_SICK_DROP, ALL_SICK_OPEN, BackendCounters, BackendRef, FlowEntry, GlobalCounters, MODE_DSR,
    MODE_OBSERVE, NEXT_HOP_VALID, Service, ServiceCounters, ServiceKey, Slot,
};
use crate::packet::{Flow, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tables::Bitmap;

/// A packet and what must become of it.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// What is shown.
    pub description: String,
    /// The frame.
    pub frame: Vec<u8>,
    /// The tables it meets.
    pub tables: ModelTables,
    /// What is done with it.
    pub fate: Fate,
    /// The global counters afterwards.
    pub global: GlobalCounters,
    /// The counters of the services that moved.
    pub services: Vec<(u32, ServiceCounters)>,
    /// The counters of the backends that moved.
    pub backends: Vec<(u32, BackendCounters)>,
    /// The backends of the entries that are left.
    pub entries: Vec<BackendRef>,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Passed as it is.
    Pass,
    /// Dropped.
    Drop,
    /// Sent to the backend of this index.
    To(u32),
}

/// The clock of every fixture: 100 s.
pub const NOW_NS: u64 = 100_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;
const GENERATION: u32 = 5;
const CLIENT: ([u8; 4], u16) = ([198, 51, 100, 7], 40_000);
const VIP: [u8; 4] = [192, 0, 2, 1];
/// Bytes of a TCP SYN of IPv4 with its Ethernet header.
const TCP_V4: u64 = 14 + 20 + 20;

/// The services' ports; every service has one slot, at its index.
const WEB: u16 = 80;
const DNS: u16 = 53;
const WATCHED: u16 = 81;
const CLOSING: u16 = 82;
const BROKEN: u16 = 83;

/// All fixtures.
#[must_use]
pub fn all() -> Vec<Fixture> {
    let mut all = unread();
    all.extend(new_flows());
    all.extend(all_sick());
    all.extend(established());
    all.extend(udp());
    all.extend(observed_and_broken());
    all
}

fn unread() -> Vec<Fixture> {
    let not_ip = GlobalCounters {
        not_ip: 1,
        ..GlobalCounters::default()
    };
    let not_tcp_udp = GlobalCounters {
        not_tcp_udp: 1,
        ..GlobalCounters::default()
    };
    let not_service = GlobalCounters {
        not_service: 1,
        ..GlobalCounters::default()
    };
    let not_read = GlobalCounters {
        not_read: 1,
        ..GlobalCounters::default()
    };
    let truncated = GlobalCounters {
        truncated: 1,
        ..GlobalCounters::default()
    };
    let web = syn(WEB);
    let bytes = web.bytes();
    let arp = [&bytes[..12], &[0x08, 0x06], &[0; 46]].concat();
    let tags = |tags: &[u16]| {
        Frame {
            tags: tags.to_vec(),
            ..web.clone()
        }
        .bytes()
    };
    let protocol = |protocol: u8| {
        Frame {
            protocol,
            ..web.clone()
        }
        .bytes()
    };
    let next = |protocol: u8| {
        Frame {
            protocol,
            ..syn_v6(WEB)
        }
        .bytes()
    };
    let fragment = |fragment: u16| {
        Frame {
            fragment,
            ..web.clone()
        }
        .bytes()
    };
    let patched = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    let group = Frame {
        mac: [0xff; 6],
        ..web.clone()
    }
    .bytes();
    let other_vip = Frame {
        destination: (IpAddr::from([192, 0, 2, 2]), WEB),
        ..web.clone()
    };
    let other_protocol = Frame {
        protocol: PROTOCOL_UDP,
        ..web.clone()
    };
    let v6 = syn_v6(WEB).bytes();
    let cases = [
        ("an ARP packet passes", arp, not_ip),
        (
            "two VLAN tags are one too many",
            tags(&[0x88a8, 0x8100]),
            not_read,
        ),
        (
            "a frame that ends in its VLAN tag is truncated",
            tags(&[0x8100])[..16].to_vec(),
            truncated,
        ),
        ("a broadcast frame passes", group, not_read),
        ("ICMP passes", protocol(1), not_tcp_udp),
        ("ICMPv6 passes", next(58), not_tcp_udp),
        ("a hop-by-hop header is not read through", next(0), not_read),
        (
            "an IPv6 fragment header is not read through",
            next(44),
            not_read,
        ),
        ("a first fragment passes", fragment(0x2000), not_read),
        ("a later fragment passes", fragment(0x00b9), not_read),
        (
            "an IPv4 header of four words is no header",
            patched(14, 0x44),
            not_read,
        ),
        (
            "IPv4 of another version is no IPv4",
            patched(14, 0x65),
            not_read,
        ),
        (
            "a packet shorter than its IPv4 length is truncated",
            bytes[..53].to_vec(),
            truncated,
        ),
        (
            "an IPv4 length without room for TCP is truncated",
            patched(17, 39),
            truncated,
        ),
        (
            "a frame that ends in its IPv4 header is truncated",
            bytes[..30].to_vec(),
            truncated,
        ),
        (
            "a packet shorter than its IPv6 length is truncated",
            v6[..73].to_vec(),
            truncated,
        ),
        (
            "a frame that ends in its IPv6 header is truncated",
            v6[..50].to_vec(),
            truncated,
        ),
        (
            "another address is no service",
            other_vip.bytes(),
            not_service,
        ),
        ("another port is no service", syn(8080).bytes(), not_service),
        (
            "another protocol is no service",
            other_protocol.bytes(),
            not_service,
        ),
    ];
    let case = |(description, frame, global): (&str, Vec<u8>, GlobalCounters)| Fixture {
        global,
        services: Vec::new(),
        backends: Vec::new(),
        ..fixture(description, frame, |_| {}, Fate::Pass)
    };
    cases.into_iter().map(case).collect()
}

fn new_flows() -> Vec<Fixture> {
    let sick_0 = |tables: &mut ModelTables| tables.put_health(0, false);
    let only_3 =
        |tables: &mut ModelTables| (0..3).for_each(|index| tables.put_health(index, false));
    let new = ServiceCounters {
        new_flows: 1,
        ..sent(TCP_V4)
    };
    let own = BackendCounters {
        new_flows: 1,
        ..received(TCP_V4)
    };
    let diverted = BackendCounters {
        diverted_in: 1,
        ..own
    };
    let searched = ServiceCounters {
        skipped: 1,
        fell_back: 1,
        entries_written: 1,
        ..new
    };
    let skipped = BackendCounters {
        skipped: 1,
        ..BackendCounters::default()
    };
    let unresolved = ServiceCounters {
        new_flows: 1,
        unresolved: 1,
        ..ServiceCounters::default()
    };
    let not_sent = BackendCounters {
        new_flows: 1,
        unresolved: 1,
        ..BackendCounters::default()
    };
    let to_0 = Fate::To(0);
    let sized = |bytes: u64| {
        (
            ServiceCounters {
                steered_bytes: bytes,
                ..new
            },
            BackendCounters {
                steered_bytes: bytes,
                ..own
            },
        )
    };
    let (tagged_service, tagged_backend) = sized(TCP_V4 + 4);
    let (options_service, options_backend) = sized(TCP_V4 + 40);
    let (v6_service, v6_backend) = sized(TCP_V4 + 20);
    let tagged = |tag: u16| {
        Frame {
            tags: vec![tag],
            ..syn(WEB)
        }
        .bytes()
    };
    let options = Frame {
        option_words: 10,
        ..syn(WEB)
    }
    .bytes();
    let unknown = |tables: &mut ModelTables| tables.backends[0].next_hop &= !NEXT_HOP_VALID;
    let old_entry = |tables: &mut ModelTables| enter(tables, WEB, 1, 9);
    let young_entry = |tables: &mut ModelTables| enter(tables, WEB, 1, 7);
    let young_sick = |tables: &mut ModelTables| {
        enter(tables, WEB, 1, 7);
        tables.put_health(1, false);
    };
    let again = ServiceCounters {
        affinity_hit: 1,
        ..new
    };
    let drains = |tables: &mut ModelTables| drain(tables, 0, 2);
    let entered = ServiceCounters {
        entries_written: 1,
        ..new
    };
    vec![
        fixture(
            "a SYN goes to its slot's backend",
            syn(WEB).bytes(),
            |_| {},
            to_0,
        )
        .counts(new, &[(0, own)]),
        fixture(
            "one 802.1Q tag is read through and kept",
            tagged(0x8100),
            |_| {},
            to_0,
        )
        .counts(tagged_service, &[(0, tagged_backend)]),
        fixture(
            "one 802.1ad tag is read through and kept",
            tagged(0x88a8),
            |_| {},
            to_0,
        )
        .counts(tagged_service, &[(0, tagged_backend)]),
        fixture("IPv4 options are read through", options, |_| {}, to_0)
            .counts(options_service, &[(0, options_backend)]),
        fixture(
            "a SYN over IPv6 goes to its slot's backend",
            syn_v6(WEB).bytes(),
            |_| {},
            to_0,
        )
        .counts_of(1, v6_service, &[(0, v6_backend)]),
        fixture(
            "a SYN skips the sick and finds the last living",
            syn(WEB).bytes(),
            only_3,
            Fate::To(3),
        )
        .counts(searched, &[(0, skipped), (3, diverted)])
        .leaves(&[3]),
        fixture(
            "a SYN to an unknown next hop is dropped",
            syn(WEB).bytes(),
            unknown,
            Fate::Drop,
        )
        .counts(unresolved, &[(0, not_sent)]),
        fixture(
            "a retransmitted SYN goes where the first went",
            syn(WEB).bytes(),
            young_entry,
            Fate::To(1),
        )
        .counts(again, &[(1, own)])
        .leaves(&[1]),
        fixture(
            "a SYN after 8 s is a new flow and frees the tuple",
            syn(WEB).bytes(),
            old_entry,
            to_0,
        )
        .counts(new, &[(0, own)]),
        fixture(
            "a retransmitted SYN leaves a sick backend",
            syn(WEB).bytes(),
            young_sick,
            to_0,
        )
        .counts(new, &[(0, own)]),
        fixture(
            "a SYN of a draining slot goes to the new backend",
            syn(WEB).bytes(),
            drains,
            Fate::To(2),
        )
        .counts(entered, &[(2, own)])
        .leaves(&[2]),
        fixture(
            "a SYN that answers is no new flow",
            tcp(WEB, SYN | ACK).bytes(),
            sick_0,
            to_0,
        )
        .counts(kept(slot_followed(TCP_V4)), &[(0, received(TCP_V4))]),
    ]
}

fn all_sick() -> Vec<Fixture> {
    let none = |tables: &mut ModelTables| (0..4).for_each(|index| tables.put_health(index, false));
    let forced = |tables: &mut ModelTables| {
        (0..4).for_each(|index| tables.put_health(index, false));
        (0..3).for_each(|index| tables.put_bit(Bitmap::Allowed, index, false));
    };
    let forbidden = |tables: &mut ModelTables| {
        (0..4).for_each(|index| tables.put_health(index, false));
        (0..4).for_each(|index| tables.put_bit(Bitmap::Allowed, index, false));
    };
    let opened = ServiceCounters {
        new_flows: 1,
        skipped: 1,
        all_sick_open: 1,
        ..sent(TCP_V4)
    };
    let own = BackendCounters {
        new_flows: 1,
        ..received(TCP_V4)
    };
    let dropped = ServiceCounters {
        skipped: 1,
        all_sick_dropped: 1,
        ..ServiceCounters::default()
    };
    let skipped = BackendCounters {
        skipped: 1,
        ..BackendCounters::default()
    };
    let diverted = BackendCounters {
        diverted_in: 1,
        ..own
    };
    let elsewhere = ServiceCounters {
        entries_written: 1,
        ..opened
    };
    vec![
        fixture(
            "with none healthy, open takes the slot's backend",
            syn(WEB).bytes(),
            none,
            Fate::To(0),
        )
        .counts(opened, &[(0, own)]),
        fixture(
            "open takes no backend that is not allowed",
            syn(WEB).bytes(),
            forced,
            Fate::To(3),
        )
        .counts(elsewhere, &[(0, skipped), (3, diverted)])
        .leaves(&[3]),
        fixture(
            "open with none allowed drops",
            syn(WEB).bytes(),
            forbidden,
            Fate::Drop,
        )
        .counts(dropped, &[]),
        fixture(
            "with none healthy, drop drops",
            syn(CLOSING).bytes(),
            none,
            Fate::Drop,
        )
        .counts_of(4, dropped, &[]),
    ]
}

fn established() -> Vec<Fixture> {
    let data = || tcp(WEB, ACK).bytes();
    let sick_0 = |tables: &mut ModelTables| tables.put_health(0, false);
    let entry_1 = |tables: &mut ModelTables| enter(tables, WEB, 1, 3600);
    let entry_1_sick = |tables: &mut ModelTables| {
        enter(tables, WEB, 1, 3600);
        tables.put_health(1, false);
    };
    let entry_reused = |tables: &mut ModelTables| {
        enter(tables, WEB, 1, 1);
        tables.backends[1].generation = GENERATION + 1;
    };
    let drains = |tables: &mut ModelTables| drain(tables, 0, 2);
    let hit = ServiceCounters {
        affinity_hit: 1,
        ..sent(TCP_V4)
    };
    let got = received(TCP_V4);
    let written = ServiceCounters {
        entries_written: 1,
        ..slot_followed(TCP_V4)
    };
    let refused = ServiceCounters {
        entries_refused: 1,
        ..slot_followed(TCP_V4)
    };
    let full = |tables: &mut ModelTables| {
        drain(tables, 0, 2);
        tables.full = true;
    };
    vec![
        fixture(
            "an established flow follows its slot",
            data(),
            |_| {},
            Fate::To(0),
        )
        .counts(slot_followed(TCP_V4), &[(0, got)]),
        fixture(
            "an established flow stays on its sick backend",
            data(),
            sick_0,
            Fate::To(0),
        )
        .counts(kept(slot_followed(TCP_V4)), &[(0, got)]),
        fixture(
            "an established flow follows its entry, however old",
            data(),
            entry_1,
            Fate::To(1),
        )
        .counts(hit, &[(1, got)])
        .leaves(&[1]),
        fixture(
            "an entry holds on a sick backend",
            data(),
            entry_1_sick,
            Fate::To(1),
        )
        .counts(kept(hit), &[(1, got)])
        .leaves(&[1]),
        fixture(
            "an entry of an index used anew is void",
            data(),
            entry_reused,
            Fate::To(0),
        )
        .counts(slot_followed(TCP_V4), &[(0, got)])
        .leaves(&[1]),
        fixture(
            "an established flow of a draining slot stays, and is entered",
            data(),
            drains,
            Fate::To(0),
        )
        .counts(written, &[(0, got)])
        .leaves(&[0]),
        fixture(
            "an entry that cannot be written is counted",
            data(),
            full,
            Fate::To(0),
        )
        .counts(refused, &[(0, got)]),
    ]
}

fn udp() -> Vec<Fixture> {
    const UDP_V4: u64 = 14 + 20 + 8;
    let query = || Frame::udp(client(), (IpAddr::from(VIP), DNS)).bytes();
    let only_3 =
        |tables: &mut ModelTables| (0..3).for_each(|index| tables.put_health(index, false));
    let drained = |tables: &mut ModelTables| tables.put_bit(Bitmap::TakesNew, 0, false);
    let entry_1 = |tables: &mut ModelTables| enter(tables, DNS, 1, 29);
    let entry_1_sick = |tables: &mut ModelTables| {
        enter(tables, DNS, 1, 29);
        tables.put_health(1, false);
        (2..4).for_each(|index| tables.put_health(index, false));
    };
    let idle = |tables: &mut ModelTables| enter(tables, DNS, 1, 31);
    let drains = |tables: &mut ModelTables| drain(tables, 2, 2);
    let drains_sick = |tables: &mut ModelTables| {
        drain(tables, 2, 2);
        tables.put_health(0, false);
    };
    let got = received(UDP_V4);
    let new = ServiceCounters {
        new_flows: 1,
        ..sent(UDP_V4)
    };
    let own = BackendCounters {
        new_flows: 1,
        ..got
    };
    let diverted = BackendCounters {
        diverted_in: 1,
        ..own
    };
    let skipped = BackendCounters {
        skipped: 1,
        ..BackendCounters::default()
    };
    let searched = ServiceCounters {
        skipped: 1,
        fell_back: 1,
        entries_written: 1,
        ..new
    };
    let hit = ServiceCounters {
        affinity_hit: 1,
        ..sent(UDP_V4)
    };
    let written = ServiceCounters {
        entries_written: 1,
        ..slot_followed(UDP_V4)
    };
    let entered = ServiceCounters {
        entries_written: 1,
        ..new
    };
    vec![
        fixture("a datagram follows its slot", query(), |_| {}, Fate::To(0)).counts_of(
            2,
            slot_followed(UDP_V4),
            &[(0, got)],
        ),
        fixture(
            "a datagram leaves a sick backend",
            query(),
            only_3,
            Fate::To(3),
        )
        .counts_of(2, searched, &[(0, skipped), (3, diverted)])
        .leaves(&[3]),
        fixture(
            "a datagram stays on a backend that serves",
            query(),
            drained,
            Fate::To(0),
        )
        .counts_of(2, slot_followed(UDP_V4), &[(0, got)]),
        fixture(
            "a datagram follows its entry",
            query(),
            entry_1,
            Fate::To(1),
        )
        .counts_of(2, hit, &[(1, got)])
        .leaves(&[1]),
        fixture(
            "a datagram's entry does not hold on a sick backend",
            query(),
            entry_1_sick,
            Fate::To(0),
        )
        .counts_of(2, new, &[(0, own)]),
        fixture("an idle datagram entry is void", query(), idle, Fate::To(0)).counts_of(
            2,
            slot_followed(UDP_V4),
            &[(0, got)],
        ),
        fixture(
            "a datagram of a draining slot stays, and is entered",
            query(),
            drains,
            Fate::To(0),
        )
        .counts_of(2, written, &[(0, got)])
        .leaves(&[0]),
        fixture(
            "a datagram of a draining slot leaves a sick backend",
            query(),
            drains_sick,
            Fate::To(2),
        )
        .counts_of(2, entered, &[(2, own)])
        .leaves(&[2]),
    ]
}

fn observed_and_broken() -> Vec<Fixture> {
    let only_3 =
        |tables: &mut ModelTables| (0..3).for_each(|index| tables.put_health(index, false));
    let new = ServiceCounters {
        new_flows: 1,
        ..sent(TCP_V4)
    };
    let own = BackendCounters {
        new_flows: 1,
        ..received(TCP_V4)
    };
    let diverted = BackendCounters {
        diverted_in: 1,
        ..own
    };
    let skipped = BackendCounters {
        skipped: 1,
        ..BackendCounters::default()
    };
    let searched = ServiceCounters {
        skipped: 1,
        fell_back: 1,
        entries_written: 1,
        ..new
    };
    let broken_table = GlobalCounters {
        broken_table: 1,
        ..GlobalCounters::default()
    };
    let gone = |tables: &mut ModelTables| tables.backends[0].generation = 0;
    let broken = |description: &str, port: u16, state: fn(&mut ModelTables)| Fixture {
        global: broken_table,
        ..fixture(description, syn(port).bytes(), state, Fate::Drop)
    };
    vec![
        fixture(
            "what is observed is counted and passes",
            syn(WATCHED).bytes(),
            |_| {},
            Fate::Pass,
        )
        .counts_of(3, new, &[(0, own)]),
        fixture(
            "what is observed is entered too",
            syn(WATCHED).bytes(),
            only_3,
            Fate::Pass,
        )
        .counts_of(3, searched, &[(0, skipped), (3, diverted)])
        .leaves(&[3]),
        broken("a service without slots is broken", BROKEN, |_| {}),
        broken(
            "a slot of a backend that is not in use is broken",
            WEB,
            gone,
        ),
    ]
}

impl Fixture {
    fn counts(self, web: ServiceCounters, backends: &[(u32, BackendCounters)]) -> Self {
        self.counts_of(0, web, backends)
    }

    fn counts_of(
        mut self,
        service: u32,
        counters: ServiceCounters,
        backends: &[(u32, BackendCounters)],
    ) -> Self {
        self.services = vec![(service, counters)];
        self.backends = backends.to_vec();
        self
    }

    fn leaves(mut self, backends: &[u32]) -> Self {
        self.entries = backends
            .iter()
            .map(|index| BackendRef::new(*index, GENERATION))
            .collect();
        self
    }
}

fn fixture(
    description: &str,
    frame: Vec<u8>,
    state: impl FnOnce(&mut ModelTables),
    fate: Fate,
) -> Fixture {
    let mut tables = world();
    state(&mut tables);
    Fixture {
        description: description.into(),
        frame,
        tables,
        fate,
        global: GlobalCounters::default(),
        services: Vec::new(),
        backends: Vec::new(),
        entries: Vec::new(),
    }
}

fn world() -> ModelTables {
    let mut tables = ModelTables::new(1);
    tables.clock_ns.set(NOW_NS);
    let pool = tables.add_pool(0, 1);
    for index in 0..4 {
        tables.add_backend(index, pool, GENERATION);
    }
    let own = Slot::settled(BackendRef::new(0, GENERATION));
    let mut vip = [0; 16];
    vip[..4].copy_from_slice(&VIP);
    let services = [
        (vip, 4, WEB, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
        (VIP_V6, 6, WEB, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
        (vip, 4, DNS, PROTOCOL_UDP, MODE_DSR, ALL_SICK_OPEN),
        (vip, 4, WATCHED, PROTOCOL_TCP, MODE_OBSERVE, ALL_SICK_OPEN),
        (vip, 4, CLOSING, PROTOCOL_TCP, MODE_DSR, ALL_SICK_DROP),
        (vip, 4, BROKEN, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
    ];
    for (index, (address, family, port, protocol, mode, all_sick)) in
        services.into_iter().enumerate()
    {
        let service = Service {
            index: index as u32,
            slot_first: tables.slots.len() as u32,
            slot_count: u32::from(port != BROKEN),
            mode,
            all_sick,
            udp_idle_ns: 30 * SECOND_NS,
            pool,
            ..Service::default()
        };
        tables.slots.push(own);
        let key = ServiceKey {
            address,
            port: port.to_be_bytes(),
            protocol,
            family,
        };
        tables.services.insert(key, service);
    }
    tables
}

const VIP_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn client() -> (IpAddr, u16) {
    (IpAddr::from(CLIENT.0), CLIENT.1)
}

fn tcp(port: u16, flags: u8) -> Frame {
    Frame::tcp(client(), (IpAddr::from(VIP), port), flags)
}

fn syn(port: u16) -> Frame {
    tcp(port, SYN)
}

fn syn_v6(port: u16) -> Frame {
    let mut source = VIP_V6;
    source[15] = 7;
    Frame::tcp(
        (IpAddr::from(source), CLIENT.1),
        (IpAddr::from(VIP_V6), port),
        SYN,
    )
}

/// An entry of the client's flow, of this age.
fn enter(tables: &mut ModelTables, port: u16, backend: u32, age_s: u64) {
    let protocol = if port == DNS {
        PROTOCOL_UDP
    } else {
        PROTOCOL_TCP
    };
    let [a, b] = CLIENT.1.to_be_bytes();
    let [c, d] = port.to_be_bytes();
    let ports = u32::from_ne_bytes([a, b, c, d]);
    let (source, destination) = (u32::from_ne_bytes(CLIENT.0), u32::from_ne_bytes(VIP));
    let flow = Flow::v4(source, destination, ports, protocol);
    let entry = FlowEntry {
        seen_ns: NOW_NS.saturating_sub(age_s * SECOND_NS),
        backend: BackendRef::new(backend, GENERATION),
        reserved: 0,
    };
    tables.entries.borrow_mut().insert(flow, entry);
}

/// The slot of the service of this index drains, in favour of another backend.
fn drain(tables: &mut ModelTables, service: usize, backend: u32) {
    let previous = BackendRef::new(0, GENERATION);
    tables.slots[service] = Slot::new(BackendRef::new(backend, GENERATION), previous);
}

fn sent(bytes: u64) -> ServiceCounters {
    ServiceCounters {
        steered_packets: 1,
        steered_bytes: bytes,
        ..ServiceCounters::default()
    }
}

fn slot_followed(bytes: u64) -> ServiceCounters {
    ServiceCounters {
        affinity_miss: 1,
        ..sent(bytes)
    }
}

fn kept(counters: ServiceCounters) -> ServiceCounters {
    ServiceCounters {
        kept_on_sick: 1,
        ..counters
    }
}

fn received(bytes: u64) -> BackendCounters {
    BackendCounters {
        steered_packets: 1,
        steered_bytes: bytes,
        ..BackendCounters::default()
    }
}
