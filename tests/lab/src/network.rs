//! The usual network: client, host and backends, each on its own veth to one bridge.
//!
//! ```text
//!  client ──┐
//!  host ────┤ bridge (the switch)     VIPs: on the host's eth0, which answers ARP and ND for
//!  backend-1┤                         them, and on each backend's lo, which does not
//!  backend-N┘
//! ```

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};

use crate::namespace::Namespace;
use crate::private;

/// The VIP over IPv4 (TEST-NET-2, RFC 5737).
pub const VIP_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The VIP over IPv6 (RFC 3849).
pub const VIP_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
/// The port of services and backends.
pub const PORT: u16 = 80;
/// The interface of each machine.
pub const INTERFACE: &str = "eth0";
/// Most backends of one network; their addresses end in 101 and more.
pub const BACKENDS_MAX: usize = 150;

const CLIENT_NUMBER: u8 = 10;
const HOST_NUMBER: u8 = 20;
const BACKEND_NUMBER_FIRST: u8 = 101;

/// Which IP version a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One machine: a network namespace with an interface to the switch.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `client`, `host`, `backend-1` and so on.
    pub name: String,
    /// Its network.
    pub namespace: Namespace,
    /// Its address in 192.0.2.0/24 (TEST-NET-1, RFC 5737).
    pub ipv4: Ipv4Addr,
    /// Its address in 2001:db8:1::/64.
    pub ipv6: Ipv6Addr,
}

impl Machine {
    /// Its address of a family.
    #[must_use]
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.ipv4.into(),
            Family::V6 => self.ipv6.into(),
        }
    }

    /// The MAC of its interface.
    ///
    /// # Errors
    /// When the interface is not there.
    pub fn mac(&self) -> Result<String> {
        let link = self.namespace.tool(&["ip", "-o", "link", "show", INTERFACE])?;
        let mac = link.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        Ok(mac.with_context(|| format!("no MAC in {link:?}"))?.to_owned())
    }
}

/// Client, host and backends around a bridge.
pub struct Network {
    /// Where the connections come from.
    pub client: Machine,
    /// The load balancer: where the agent runs.
    pub host: Machine,
    /// Where they should end.
    pub backends: Vec<Machine>,
    /// The bridge's namespace.
    pub switch: Namespace,
    /// Holds the program on the host's port of the switch.
    _pass: Ebpf,
}

impl Network {
    /// A network with that many backends, ready to carry packets.
    ///
    /// # Errors
    /// With more than [`BACKENDS_MAX`] backends, without the privilege, or without `ip` or
    /// `ethtool`.
    pub fn new(backend_count: usize) -> Result<Self> {
        ensure!(backend_count <= BACKENDS_MAX, "at most {BACKENDS_MAX} backends");
        let switch = Namespace::new("switch")?;
        quiet(&switch)?;
        switch.ip("link add br0 type bridge stp_state 0 mcast_snooping 0\nlink set br0 up\n")?;
        let client = machine(&switch, "client", CLIENT_NUMBER)?;
        client.namespace.ip(&format!(
            "route add {VIP_V4}/32 dev {INTERFACE}\nroute add {VIP_V6}/128 dev {INTERFACE}\n"
        ))?;
        let host = machine(&switch, "host", HOST_NUMBER)?;
        host.namespace.ip(&vip_addresses(INTERFACE))?;
        let mut backends = Vec::with_capacity(backend_count);
        for (number, suffix) in (BACKEND_NUMBER_FIRST..).take(backend_count).enumerate() {
            let backend = machine(&switch, &format!("backend-{}", number + 1), suffix)?;
            // The VIP's packets are for this machine, but it never tells anyone so.
            backend.namespace.sysctl("ipv4/conf/all/arp_ignore", "1")?;
            backend.namespace.sysctl("ipv4/conf/all/arp_announce", "2")?;
            backend.namespace.ip(&vip_addresses("lo"))?;
            backends.push(backend);
        }
        let pass = pass_at_once(&switch, "to-host")?;
        Ok(Self { client, host, backends, switch, _pass: pass })
    }

    /// The VIP and its port.
    #[must_use]
    pub fn vip(family: Family) -> SocketAddr {
        match family {
            Family::V4 => (VIP_V4, PORT).into(),
            Family::V6 => (VIP_V6, PORT).into(),
        }
    }
}

fn machine(switch: &Namespace, name: &str, number: u8) -> Result<Machine> {
    let namespace = Namespace::new(name)?;
    quiet(&namespace)?;
    let port = format!("to-{name}");
    switch.ip(&format!(
        "link add {port} type veth peer name {INTERFACE} netns {}\nlink set {port} master br0 up\n",
        namespace.path()
    ))?;
    let machine = Machine {
        name: name.to_owned(),
        namespace,
        ipv4: Ipv4Addr::new(192, 0, 2, number),
        ipv6: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(number)),
    };
    machine.namespace.ip(&format!(
        "addr add {}/24 dev {INTERFACE}\n\
         addr add {}/64 dev {INTERFACE} nodad\n\
         link set {INTERFACE} up\n",
        machine.ipv4, machine.ipv6
    ))?;
    // A frame that XDP sends back has no skb that says "checksum to be completed".
    machine.namespace.tool(&["ethtool", "-K", INTERFACE, "tx", "off"])?;
    Ok(machine)
}

/// Lets a port of the switch take what its peer's XDP_TX sends. With GRO alone the frames are
/// queued, and wait there until the peer's stack sends something (veth_xdp_flush in veth.c looks
/// for a program, not for NAPI): a host whose agent has died and probes no more would fall silent.
fn pass_at_once(switch: &Namespace, port: &str) -> Result<Ebpf> {
    let object = private::target_directory()?.join("bpf/meter.bpf.o");
    let mut programs = Ebpf::load_file(&object)
        .with_context(|| format!("cannot load {}: `cargo xtask build-ebpf`", object.display()))?;
    let pass: &mut Xdp =
        programs.program_mut("sickbay_pass").context("no program sickbay_pass")?.try_into()?;
    pass.load()?;
    switch
        .run(|| pass.attach(port, XdpMode::Driver))
        .with_context(|| format!("cannot attach to {port}"))?;
    Ok(programs)
}

/// Settings that the real system's could otherwise leak into (devconf_inherit_init_net).
fn quiet(namespace: &Namespace) -> Result<()> {
    for scope in ["all", "default"] {
        namespace.sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        namespace.sysctl(&format!("ipv6/conf/{scope}/disable_ipv6"), "0")?;
        namespace.sysctl(&format!("ipv6/conf/{scope}/accept_dad"), "0")?;
        namespace.sysctl(&format!("ipv6/conf/{scope}/accept_ra"), "0")?;
    }
    Ok(())
}

fn vip_addresses(interface: &str) -> String {
    let mut lines = String::new();
    let _ = writeln!(lines, "addr add {VIP_V4}/32 dev {interface}");
    let _ = writeln!(lines, "addr add {VIP_V6}/128 dev {interface} nodad");
    lines
}
