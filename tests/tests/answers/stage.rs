//! The network, its tables, and a program on its host.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use sickbay_lab::network::{Family, INTERFACE, Machine, Network, PORT};
use sickbay_lab::private;
use sickbay_shared::abi::{
    BackendRef, GlobalCounters, MODE_DSR, NEXT_HOP_VALID, SERVICE_ECHO, Service, ServiceCounters,
    ServiceKey, Slot,
};
use sickbay_shared::model::ModelTables;
use sickbay_shared::packet::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use sickbay_tests::steering::{Entrance, Steering};

/// Backends, their indices from 0 on.
pub(crate) const BACKENDS: u32 = 2;
/// The port of the services over UDP.
pub(crate) const DNS: u16 = 53;
/// Slots of each service's table: every other one is the first backend's.
const SLOTS: u32 = 98;
const GENERATION: u32 = 1;
/// A reply that comes is there before that.
const RECEIVE_LIMIT: Duration = Duration::from_secs(3);

/// The network, its tables, and a program on its host.
pub(crate) struct Stage {
    pub(crate) network: Network,
    steering: Steering,
    tables: ModelTables,
}

impl Stage {
    /// A network whose VIPs have services over TCP and UDP, and echo.
    pub(crate) fn new(entrance: Entrance) -> Self {
        private::require();
        let network = Network::new(BACKENDS as usize).unwrap();
        let tables = tables(&network);
        let mut steering = Steering::load();
        steering.put(&tables);
        network.host.namespace.run(|| steering.attach(entrance, INTERFACE));
        Self { network, steering, tables }
    }

    /// Changes the tables, and sets all counters to zero.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut ModelTables)) {
        change(&mut self.tables);
        self.steering.put(&self.tables);
    }

    pub(crate) fn service_counters(&self, family: Family, port: u16) -> ServiceCounters {
        let counters = self.steering.counters();
        let services = counters.services.borrow();
        services.get(&service_index(family, port)).copied().unwrap_or_default()
    }

    pub(crate) fn global_counters(&self) -> GlobalCounters {
        *self.steering.counters().global.borrow()
    }

    /// A socket of the client's whose datagrams go to a service, from a port of its own.
    pub(crate) fn client_socket(&self, family: Family, port: u16) -> UdpSocket {
        let any = any(family);
        let vip = Network::vip(family).ip();
        self.network.client.namespace.run(|| {
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.set_read_timeout(Some(RECEIVE_LIMIT)).unwrap();
            socket.connect((vip, port)).unwrap();
            socket
        })
    }

    /// A server of each backend for datagrams to the VIP.
    pub(crate) fn datagram_servers(&self, family: Family) -> [DatagramServer; BACKENDS as usize] {
        let server = |machine: &Machine| {
            let socket = machine.namespace.run(|| {
                UdpSocket::bind((Network::vip(family).ip(), DNS)).expect("the VIP is on its lo")
            });
            socket.set_nonblocking(true).unwrap();
            DatagramServer { socket, received: 0.into() }
        };
        [server(&self.network.backends[0]), server(&self.network.backends[1])]
    }
}

/// Takes datagrams to the VIP.
pub(crate) struct DatagramServer {
    socket: UdpSocket,
    received: std::cell::Cell<usize>,
}

impl DatagramServer {
    /// How many datagrams have arrived so far, of which every one must be this.
    pub(crate) fn received(&self, payload: &[u8]) -> usize {
        let mut datagram = vec![0; payload.len() + 1];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            assert_eq!(&datagram[..length], payload, "a datagram of other bytes");
            self.received.set(self.received.get() + 1);
        }
        self.received.get()
    }
}

/// The index of a service: over TCP before over UDP, over IPv4 before over IPv6.
pub(crate) fn service_index(family: Family, port: u16) -> u32 {
    u32::from(port == DNS) * 2 + u32::from(family == Family::V6)
}

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => "0.0.0.0".parse().unwrap(),
        Family::V6 => "::".parse().unwrap(),
    }
}

fn tables(network: &Network) -> ModelTables {
    let mut tables = ModelTables::new(1);
    let pool = tables.add_pool(0, 1);
    let interface_index = network.host.namespace.interface_index(INTERFACE).unwrap();
    for (index, machine) in (0..BACKENDS).zip(&network.backends) {
        tables.add_backend(index, pool, GENERATION);
        let backend = &mut tables.backends[index as usize];
        backend.next_hop = mac(machine) | NEXT_HOP_VALID;
        backend.source_mac = mac(&network.host);
        backend.interface_index = interface_index;
    }
    for (port, protocol) in [(PORT, PROTOCOL_TCP), (DNS, PROTOCOL_UDP)] {
        for (family, echo) in [(Family::V4, PROTOCOL_ICMP), (Family::V6, PROTOCOL_ICMPV6)] {
            let service = Service {
                hash_seed: 7,
                index: service_index(family, port),
                slot_first: tables.slots.len() as u32,
                slot_count: SLOTS,
                mode: MODE_DSR,
                udp_idle_ns: 30_000_000_000,
                pool,
                ..Service::default()
            };
            let backend = |slot: u32| BackendRef::new(slot % BACKENDS, GENERATION);
            tables.slots.extend((0..SLOTS).map(|slot| Slot::settled(backend(slot))));
            tables.put_service(key(family, port, protocol), service);
            tables.service_keys.insert(key(family, 0, echo), SERVICE_ECHO);
        }
    }
    tables
}

fn key(family: Family, port: u16, protocol: u8) -> ServiceKey {
    let (address, number) = match Network::vip(family).ip() {
        IpAddr::V4(vip) => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&vip.octets());
            (address, 4)
        }
        IpAddr::V6(vip) => (vip.octets(), 6),
    };
    ServiceKey { address, port: port.to_be_bytes(), protocol, family: number }
}

/// As the records of backends have it: the first byte lowest.
fn mac(machine: &Machine) -> u64 {
    let text = machine.mac().unwrap();
    let bytes = text.split(':').map(|byte| u64::from_str_radix(byte, 16).unwrap());
    bytes.zip((0..).step_by(8)).map(|(byte, shift)| byte << shift).sum()
}
