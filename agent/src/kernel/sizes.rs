//! How much room each map has.

use sickbay_shared::abi;
use sickbay_shared::limits::{
    BACKENDS_MAX, DROPS_BYTES, EMBRYONIC_LINES, FLOW_MARKS_LINES, GROUP_WORDS, SERVICES_MAX,
    SHARDS_MAX, TABLE_SLOTS_MIN, WORD_BACKENDS,
};

use crate::fleet::Fleet;

/// What the maps must have room for. A zero counts as one: no map is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Probing threads; at most [`SHARDS_MAX`].
    pub shards: u32,
    /// Backend indices, those that pools reserve included; at most [`BACKENDS_MAX`].
    pub backends: u32,
    /// Targets.
    pub targets: u32,
    /// Services; at most [`SERVICES_MAX`].
    pub services: u32,
    /// Slots of all tables together.
    pub slots: u32,
    /// Pools.
    pub pools: u32,
    /// Flow entries per address family.
    pub flows: u32,
    /// Datagrams whose fragments are under way.
    pub fragments: u32,
    /// Exact service keys.
    pub service_keys: u32,
    /// Address prefixes of services.
    pub address_prefixes: u32,
    /// Port prefixes of services.
    pub port_prefixes: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            shards: 1,
            backends: 64,
            targets: 64,
            services: 1,
            slots: TABLE_SLOTS_MIN,
            pools: 1,
            flows: Self::FLOWS_DEFAULT,
            fragments: Self::FRAGMENTS_DEFAULT,
            service_keys: 1,
            address_prefixes: 1,
            port_prefixes: 1,
        }
    }
}

impl Sizes {
    /// Flow entries per address family unless configured otherwise: some 25 MB for IPv4, 32 for
    /// IPv6.
    pub const FLOWS_DEFAULT: u32 = 262_144;
    /// Datagrams in fragments unless configured otherwise.
    pub const FRAGMENTS_DEFAULT: u32 = 8192;

    /// The room that the maps need for `fleet`, probed by `shards` threads.
    #[must_use]
    pub fn of(fleet: &Fleet, shards: u32) -> Self {
        let count = |length: usize| u32::try_from(length).expect("counts are below 2^32");
        let words = fleet.pools.iter().map(|pool| pool.first_word + pool.word_count).max();
        let tables = fleet.services.iter().flat_map(|service| {
            let backup = service.backup.map(|backup| backup.slot_first + backup.slot_count);
            [Some(service.slot_first + service.slot_count), backup]
        });
        Self {
            shards,
            backends: words.unwrap_or(0) * WORD_BACKENDS,
            targets: count(fleet.targets.len() + fleet.target_room()),
            services: count(fleet.services.len()),
            slots: tables.flatten().max().unwrap_or(0),
            pools: count(fleet.pools.len()),
            flows: fleet.steering.flow_entries,
            service_keys: count(fleet.service_keys.exact.len()),
            address_prefixes: count(fleet.service_keys.networks.len()),
            port_prefixes: count(fleet.service_keys.ports.len()),
            ..Self::default()
        }
    }

    /// Entries of the map `name` (of a ring buffer: its bytes); `None` for a name that is not in
    /// the ABI.
    #[must_use]
    pub fn entries(&self, name: &str) -> Option<u32> {
        let words = self.backends.div_ceil(WORD_BACKENDS);
        let entries = match name {
            abi::HEADER | abi::EMBRYONIC_SEEN | abi::BUDGETS | abi::GLOBAL_COUNTERS => 1,
            abi::HEARTBEATS => self.shards,
            abi::TAKES_NEW | abi::SERVES_OLD | abi::ALLOWED => words,
            abi::GROUP_COUNTS => words.div_ceil(GROUP_WORDS),
            abi::POOLS | abi::POOL_COUNTS => self.pools,
            abi::SERVICES | abi::SERVICE_COUNTERS => self.services,
            abi::SLOTS => self.slots,
            abi::BACKENDS | abi::BACKEND_COUNTERS => self.backends,
            abi::TARGETS => self.targets,
            abi::FLOWS_V4 | abi::FLOWS_V6 => self.flows,
            abi::EMBRYONIC => EMBRYONIC_LINES,
            abi::FLOW_MARKS => FLOW_MARKS_LINES,
            abi::FRAGMENTS => self.fragments,
            abi::SERVICE_KEYS => self.service_keys,
            abi::ADDRESS_PREFIXES => self.address_prefixes,
            abi::PORT_PREFIXES => self.port_prefixes,
            abi::DROPS => DROPS_BYTES,
            _ => return None,
        };
        Some(entries.max(1))
    }

    /// Every map of the ABI with its entries.
    pub fn maps(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let sizes = *self;
        abi::MAPS.iter().map(move |&name| {
            (name, sizes.entries(name).expect("entries knows every name of the list"))
        })
    }

    /// The first number that is above its limit: what, how many, the limit.
    #[must_use]
    pub fn excess(&self) -> Option<(&'static str, u32, u32)> {
        [
            ("shards", self.shards, SHARDS_MAX),
            ("backends", self.backends, BACKENDS_MAX),
            ("services", self.services, SERVICES_MAX),
        ]
        .into_iter()
        .find(|&(_, count, limit)| limit < count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_have_a_word_for_every_64_backends_and_counts_for_every_2048() {
        let sizes = Sizes { backends: 65_536, ..Sizes::default() };
        assert_eq!(sizes.entries("TAKES_NEW"), Some(1024));
        assert_eq!(sizes.entries("GROUP_COUNTS"), Some(32));
        assert_eq!(sizes.entries("BACKENDS"), Some(65_536));
        let one_more = Sizes { backends: 65_537, ..Sizes::default() };
        assert_eq!(one_more.entries("TAKES_NEW"), Some(1025));
        assert_eq!(one_more.entries("GROUP_COUNTS"), Some(33));
    }

    #[test]
    fn no_map_is_empty() {
        let nothing = Sizes {
            shards: 0,
            backends: 0,
            targets: 0,
            services: 0,
            slots: 0,
            pools: 0,
            flows: 0,
            fragments: 0,
            service_keys: 0,
            address_prefixes: 0,
            port_prefixes: 0,
        };
        assert_eq!(nothing.maps().count(), 26);
        let sized = |name| ["DROPS", "FLOW_MARKS", "EMBRYONIC"].contains(&name);
        assert!(nothing.maps().all(|(name, entries)| entries == 1 || sized(name)));
        assert_eq!(nothing.entries("FLOW_MARKS"), Some(4_096));
        assert_eq!(nothing.entries("EMBRYONIC"), Some(16_384));
        assert_eq!(nothing.entries("DROPS"), Some(262_144));
        assert_eq!(nothing.entries("NOT_A_MAP"), None);
    }

    #[test]
    fn what_is_above_its_limit_is_named() {
        assert_eq!(Sizes::default().excess(), None);
        let sizes = Sizes { services: 4097, ..Sizes::default() };
        assert_eq!(sizes.excess(), Some(("services", 4097, 4096)));
    }
}
