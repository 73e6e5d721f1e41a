//! Hashes that are the same in every version and on every host.
//!
//! Identities stand in pinned maps that outlive the agent, and phases and tables must agree between
//! hosts, so both are defined here to the bit and never taken from a library's default hasher.
//! Neither resists an adversary; their inputs are the operator's own configuration.

/// FNV-1a's 128-bit offset basis (draft-eastlake-fnv, section 5).
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
/// FNV-1a's 128-bit prime, 2^88 + 2^8 + 0x3b.
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// Who a target is: FNV-1a (128 bits) over the address's length as one byte, the address, the port
/// in network order, and the request.
///
/// The length comes first so that no two triples give one input. At most 255 bytes of address
/// count: an IP address has 4 or 16, a unix socket's path at most 108.
#[must_use]
pub fn identity(address: &[u8], port: u16, request: &[u8]) -> u128 {
    let length = u8::try_from(address.len()).unwrap_or(u8::MAX);
    let counted = &address[..usize::from(length)];
    let hash = fnv1a(FNV_OFFSET, &[length]);
    let hash = fnv1a(hash, counted);
    let hash = fnv1a(hash, &port.to_be_bytes());
    fnv1a(hash, request)
}

/// The finaliser of SplitMix64 (Stafford's variant 13): every input bit moves every output bit.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The increment of SplitMix64, 2^64 divided by the golden ratio; `mix(seed + n * GOLDEN)` is its
/// n-th number.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64 bits of an identity under a seed.
#[must_use]
pub const fn seeded(identity: u128, seed: u64) -> u64 {
    let high = mix((identity >> 64) as u64 ^ mix(seed.wrapping_add(GOLDEN)));
    mix(identity as u64 ^ high)
}

fn fnv1a(hash: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_gives_the_published_values() {
        // The reference vectors of the FNV authors' test suite.
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x343e1662793c64bf6f0d3597ba446f18);
    }

    #[test]
    fn mix_gives_splitmix64() {
        // The first three numbers of SplitMix64 from seed 1234567, as published with it.
        let number = |n: u64| mix(1_234_567_u64.wrapping_add(GOLDEN.wrapping_mul(n)));
        assert_eq!(number(1), 6_457_827_717_110_365_317);
        assert_eq!(number(2), 3_203_168_211_198_807_973);
        assert_eq!(number(3), 9_817_491_932_198_370_423);
    }

    #[test]
    fn identity_is_fnv1a_over_its_parts_with_the_length_first() {
        let input = b"\x04\x7f\x00\x00\x01\x1f\x90GET / HTTP/1.1\r\n\r\n";
        let whole = fnv1a(FNV_OFFSET, input);
        assert_eq!(identity(&[127, 0, 0, 1], 8080, b"GET / HTTP/1.1\r\n\r\n"), whole);
    }

    #[test]
    fn parts_cannot_trade_bytes() {
        let one = identity(&[10, 0, 0, 1], 0x5051, b"x");
        assert_ne!(one, identity(&[10, 0, 0, 1, 0x50], 0x5178, b""));
        assert_ne!(one, identity(&[10, 0, 0, 1], 0x5051, b""));
        assert_ne!(one, identity(&[10, 0, 0, 2], 0x5051, b"x"));
    }

    #[test]
    fn seed_changes_the_hash() {
        assert_ne!(seeded(1, 1), seeded(1, 2));
        assert_ne!(seeded(1, 1), seeded(2, 1));
        assert_ne!(seeded(1, 1), seeded(1 << 64, 1));
    }
}
