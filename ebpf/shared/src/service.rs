//! Services: which one a packet is for.
//!
//! Exact first, by one look-up in a hash. What that does not know is looked for among the prefixes,
//! but only where some are configured: a service of one address, port and protocol pays nothing for
//! the others.

use crate::abi::{AddressPrefixKey, PortPrefixKey};
use crate::packet::Flow;
use crate::tables::Tables;

/// No service: what a look-up returns that found none.
pub const NO_SERVICE: u32 = u32::MAX - 1;

/// The index of the service that a flow's destination and protocol name,
/// [`SERVICE_ECHO`](crate::abi::SERVICE_ECHO), or [`NO_SERVICE`].
#[inline(always)]
pub fn find<T: Tables>(tables: &T, flow: &Flow) -> u32 {
    let key = flow.service_key();
    let found = tables.service_by_key(&key);
    if found != NO_SERVICE || !tables.has_prefixes() {
        return found;
    }
    let [a, b, c, d, last] = key;
    tables.service_by_prefix(pair(a, b), pair(c, d), last)
}

/// The same by the prefixes alone. The address comes as two numbers whose bytes in memory are its
/// own, and `last` is the last word of a [`ServiceKey`](crate::abi::ServiceKey).
#[inline(always)]
pub fn find_by_prefix<T: Tables>(tables: &T, high: u64, low: u64, last: u32) -> u32 {
    let [port_high, port_low, protocol, family] = last.to_ne_bytes();
    let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) =
        (high.to_ne_bytes(), low.to_ne_bytes());
    let address = AddressPrefixKey {
        bits: AddressPrefixKey::BITS_ALL,
        family,
        reserved: [0; 3],
        address: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p],
    };
    let Some(number) = tables.address_prefix(&address) else {
        return NO_SERVICE;
    };
    let mut key = PortPrefixKey {
        bits: PortPrefixKey::BITS_ALL,
        address_prefix: number.to_be_bytes(),
        protocol,
        reserved: 0,
        port: [port_high, port_low],
    };
    let found = tables.port_prefix(&key);
    if found != NO_SERVICE {
        return found;
    }
    key.protocol = 0;
    tables.port_prefix(&key)
}

/// Two words as one number with the same bytes in memory.
#[inline(always)]
const fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
