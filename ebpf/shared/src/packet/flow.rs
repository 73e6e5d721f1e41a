//! Flows, and the keys that stand for them in the maps.

use super::Headers;
use crate::abi::FlowKeyV6;

/// Whose packet it is, as the packet itself says.
///
/// Kept as the words of the key it is looked up by, so that the kernel assembles it once.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flow {
    /// The bytes of a [`FlowKeyV4`](crate::abi::FlowKeyV4) (the first 16, the rest zero) or a [`FlowKeyV6`].
    pub key: [u32; FLOW_KEY_WORDS],
    /// IP protocol.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// Words of the longer flow key.
pub const FLOW_KEY_WORDS: usize = size_of::<FlowKeyV6>() / 4;

impl Flow {
    /// An IPv4 flow, from addresses and ports (source before destination) as the packet has them.
    #[inline(always)]
    #[must_use]
    pub const fn v4(source: u32, destination: u32, ports: u32, protocol: u8) -> Self {
        let last = u32::from_ne_bytes([protocol, 0, 0, 0]);
        let key = [source, destination, ports, last, 0, 0, 0, 0, 0, 0];
        Self { key, protocol, family: 4, reserved: [0; 2] }
    }

    /// An IPv6 flow, from addresses and ports (source before destination) as the packet has them.
    #[inline(always)]
    #[must_use]
    pub const fn v6(source: [u32; 4], destination: [u32; 4], ports: u32, protocol: u8) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (source, destination);
        let last = u32::from_ne_bytes([protocol, 0, 0, 0]);
        let key = [a, b, c, d, e, f, g, h, ports, last];
        Self { key, protocol, family: 6, reserved: [0; 2] }
    }

    /// Names an IPv4 flow in place of none, still without ports.
    #[inline(always)]
    pub(super) const fn name_v4(&mut self, source: u32, destination: u32, protocol: u8) {
        self.key[0] = source;
        self.key[1] = destination;
        self.key[3] = u32::from_ne_bytes([protocol, 0, 0, 0]);
        self.protocol = protocol;
        self.family = 4;
    }

    /// Names an IPv6 flow in place of none, still without ports; its addresses, source before
    /// destination, are yet to be written where this says.
    #[inline(always)]
    pub(super) const fn name_v6(&mut self, protocol: u8) -> &mut [u32; 8] {
        self.key[9] = u32::from_ne_bytes([protocol, 0, 0, 0]);
        self.protocol = protocol;
        self.family = 6;
        let [addresses @ .., _, _] = &mut self.key;
        addresses
    }

    /// Names what stands behind an IPv6 flow's extension headers.
    #[inline(always)]
    pub(super) const fn rename_protocol_v6(&mut self, protocol: u8) {
        self.key[9] = u32::from_ne_bytes([protocol, 0, 0, 0]);
        self.protocol = protocol;
    }

    /// The bytes of the [`ServiceKey`](crate::abi::ServiceKey) that the flow's service stands
    /// under.
    #[inline(always)]
    #[must_use]
    pub const fn service_key(&self) -> [u32; 5] {
        if self.family == 4 {
            [self.key[1], 0, 0, 0, self.service_port_protocol_family(self.key[2])]
        } else {
            let [_, _, _, _, a, b, c, d, ports, _] = self.key;
            [a, b, c, d, self.service_port_protocol_family(ports)]
        }
    }

    #[inline(always)]
    const fn service_port_protocol_family(&self, ports: u32) -> u32 {
        let [_, _, high, low] = ports.to_ne_bytes();
        u32::from_ne_bytes([high, low, self.protocol, self.family])
    }
}

impl Headers {
    /// The bytes of the [`FragmentKey`](crate::abi::FragmentKey) of the packet's datagram.
    ///
    /// Without the protocol in IPv6, whose later fragments need not name the same as the first
    /// (RFC 8200, 4.5).
    #[inline(always)]
    #[must_use]
    pub const fn fragment_key(&self) -> [u32; FLOW_KEY_WORDS] {
        let [a, b, c, d, e, f, g, h, _, _] = self.flow.key;
        if self.flow.family == 4 {
            let last = u32::from_ne_bytes([self.flow.protocol, 4, 0, 0]);
            [a, 0, 0, 0, b, 0, 0, 0, self.identification, last]
        } else {
            let last = u32::from_ne_bytes([0, 6, 0, 0]);
            [a, b, c, d, e, f, g, h, self.identification, last]
        }
    }
}
