//! A synthetic farm: millions of backends behind one veth, without a process or a socket of theirs.
//!
//! ```text
//!  home: whoever probes ── farm0 ═══ veth ═══ far ── XDP program: every address of the prefix
//! ```
//!
//! The kernel object `farm.bpf.o` answers TCP handshakes and HTTP requests at the far end, each
//! segment by itself. Shares of the backends refuse, say nothing, answer 500, answer late or drip;
//! which ones follows from their addresses, and the shares can be changed while it runs. Its work is
//! done in the softirq of the CPU that sends, so it is part of what a probe costs there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{Xdp, XdpMode};
use sickbay_shared::farm::{Behaviour, SHARE_WORDS, Shares, behaviour};

use crate::namespace::Namespace;
use crate::network::Family;
use crate::private;

/// Backends of one family at most.
pub const BACKENDS_MAX: u32 = 1 << 23;
/// The port that its addresses are given with; every other one is answered too.
pub const PORT: u16 = 8080;
/// The interface in the home namespace.
pub const INTERFACE: &str = "farm0";

/// First address of 10.128.0.0/9 (RFC 1918).
const FIRST_V4: u32 = 0x0a80_0000;
/// First address of 2001:db8:f::/96 (RFC 3849).
const FIRST_V6: u128 = 0x2001_0db8_000f_0000_0000_0000_0000_0000;
const FAR_MAC: &str = "02:00:00:00:00:fa";

/// A running farm. Dropping it takes the veth away.
pub struct Farm {
    shares: Array<MapData, [u32; SHARE_WORDS]>,
    now: Shares,
    counts: PerCpuArray<MapData, u64>,
    home: Namespace,
    /// Lives as long as the farm.
    _far: Namespace,
    /// Hold the programs at both ends.
    _programs: [Ebpf; 2],
}

/// What the farm has seen so far; retransmissions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// TCP segments.
    pub segments: u64,
    /// Connections asked for, those that were refused or ignored aside.
    pub syns: u64,
    /// Requests, answered or not.
    pub requests: u64,
    /// Whole responses given.
    pub responses: u64,
    /// Segments refused.
    pub refusals: u64,
}

impl Farm {
    /// A farm that is reached from `home`, all of it good.
    ///
    /// # Errors
    /// Without the privilege, without `ip`, or when the kernel objects are not built.
    pub fn new(home: &Namespace) -> Result<Self> {
        let far = Namespace::new("farm")?;
        home.ip(&format!(
            "link add {INTERFACE} type veth peer name far address {FAR_MAC} netns {}\n",
            far.path()
        ))?;
        far.ip("link set far up\n")?;
        let mut programs = load("farm.bpf.o")?;
        attach(&mut programs, "sickbay_farm", &far, "far")?;
        // Lets the near end take at once what the far end sends; see `network::pass_at_once`.
        let mut pass = load("meter.bpf.o")?;
        attach(&mut pass, "sickbay_pass", home, INTERFACE)?;
        home.ip(&format!(
            "addr add 10.64.0.1/30 dev {INTERFACE}\n\
             addr add 2001:db8:e::1/64 dev {INTERFACE} nodad\n\
             link set {INTERFACE} up\n\
             neigh add 10.64.0.2 lladdr {FAR_MAC} dev {INTERFACE} nud permanent\n\
             neigh add 2001:db8:e::2 lladdr {FAR_MAC} dev {INTERFACE} nud permanent\n\
             route add 10.128.0.0/9 via 10.64.0.2\n\
             route add 2001:db8:f::/48 via 2001:db8:e::2\n"
        ))?;
        let map = |programs: &mut Ebpf, name: &'static str| {
            programs.take_map(name).with_context(|| format!("no map {name} in the farm's object"))
        };
        let mut farm = Self {
            shares: map(&mut programs, "FARM_SHARES")?.try_into()?,
            now: Shares::GOOD,
            counts: map(&mut programs, "FARM_COUNTS")?.try_into()?,
            home: home.clone(),
            _far: far,
            _programs: [programs, pass],
        };
        farm.set(Shares::GOOD)?;
        Ok(farm)
    }

    /// Where a backend is.
    ///
    /// # Panics
    /// From [`BACKENDS_MAX`] on.
    #[must_use]
    pub fn address(family: Family, index: u32) -> SocketAddr {
        assert!(index < BACKENDS_MAX, "the prefix has no backend {index}");
        let ip: IpAddr = match family {
            Family::V4 => Ipv4Addr::from_bits(FIRST_V4 + index).into(),
            Family::V6 => Ipv6Addr::from_bits(FIRST_V6 + u128::from(index)).into(),
        };
        SocketAddr::new(ip, PORT)
    }

    /// Has its backends behave so from now on.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set(&mut self, shares: Shares) -> Result<()> {
        self.shares.set(0, shares.to_words(), 0).context("cannot switch the farm")?;
        self.now = shares;
        Ok(())
    }

    /// What the backend at an address does now.
    #[must_use]
    pub fn behaviour(&self, address: IpAddr) -> Behaviour {
        behaviour(words(address), &self.now.to_words())
    }

    /// What it has seen so far.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        let sum = |index| Ok::<u64, anyhow::Error>(self.counts.get(&index, 0)?.iter().sum());
        Ok(Counts {
            segments: sum(0)?,
            syns: sum(1)?,
            requests: sum(2)?,
            responses: sum(3)?,
            refusals: sum(4)?,
        })
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        // The home namespace may live on; when it is gone, so is the veth.
        let _gone = self.home.ip(&format!("link del {INTERFACE}\n"));
    }
}

/// An address as the kernel program reads it.
fn words(address: IpAddr) -> [u32; 4] {
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("chunks of 4 bytes"));
    match address {
        IpAddr::V4(address) => [word(&address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            std::array::from_fn(|index| word(&octets[4 * index..4 * index + 4]))
        }
    }
}

fn load(name: &str) -> Result<Ebpf> {
    let object = private::target_directory()?.join("bpf").join(name);
    Ebpf::load_file(&object)
        .with_context(|| format!("cannot load {}: `cargo xtask build-ebpf`", object.display()))
}

fn attach(programs: &mut Ebpf, name: &str, namespace: &Namespace, interface: &str) -> Result<()> {
    let program = programs.program_mut(name).with_context(|| format!("no program {name}"))?;
    let program: &mut Xdp = program.try_into()?;
    program.load().with_context(|| format!("the kernel refuses {name}"))?;
    namespace
        .run(|| program.attach(interface, XdpMode::Driver))
        .with_context(|| format!("cannot attach to {interface}"))?;
    Ok(())
}
