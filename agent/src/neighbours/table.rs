//! What is known of routes, interfaces and neighbours, and what follows for each backend.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use super::{Resolution, Unresolved};
use crate::board::NextHop;
use crate::netlink::{Neighbour, Route};

/// A neighbour is an address on an interface.
type Key = (u32, IpAddr);

/// What is known of one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last MAC it had.
    mac: Option<[u8; 6]>,
    /// Whether the kernel has an entry with a MAC.
    usable: bool,
    /// Whether the kernel has confirmed it of late.
    fresh: bool,
}

/// Routes, interfaces and neighbours of the backends; pure, told by whoever asks the kernel.
#[derive(Debug, Default)]
pub(super) struct Table {
    backends: HashMap<IpAddr, Vec<u32>>,
    routes: HashMap<IpAddr, Route>,
    interfaces: HashMap<u32, [u8; 6]>,
    neighbours: HashMap<Key, Known>,
    /// Which addresses a neighbour leads to.
    leads_to: HashMap<Key, HashSet<IpAddr>>,
    told: HashMap<IpAddr, Resolution>,
    /// Addresses whose resolution may have changed since it was told.
    touched: BTreeSet<IpAddr>,
}

impl Table {
    pub(super) fn new(backends: Vec<(u32, IpAddr)>) -> Self {
        let mut table = Self::default();
        table.add(backends);
        table
    }

    /// Backends come; the addresses of which no route is known yet.
    pub(super) fn add(&mut self, backends: Vec<(u32, IpAddr)>) -> Vec<IpAddr> {
        let mut unknown = BTreeSet::new();
        for (index, address) in backends {
            self.backends.entry(address).or_default().push(index);
            self.touched.insert(address);
            // Told once more to those that know it, for the one that does not.
            self.told.remove(&address);
            if !self.routes.contains_key(&address) {
                unknown.insert(address);
            }
        }
        unknown.into_iter().collect()
    }

    /// Backends go.
    pub(super) fn remove(&mut self, backends: &[u32]) {
        if backends.is_empty() {
            return;
        }
        let mut unused = Vec::new();
        self.backends.retain(|address, indices| {
            indices.retain(|index| !backends.contains(index));
            if indices.is_empty() {
                unused.push(*address);
            }
            !indices.is_empty()
        });
        for address in unused {
            self.route(address, Route::None);
            self.routes.remove(&address);
            self.told.remove(&address);
            self.touched.remove(&address);
        }
    }

    /// Every distinct address.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.backends.keys().copied().collect()
    }

    pub(super) fn route(&mut self, address: IpAddr, route: Route) {
        let before = self.routes.insert(address, route);
        if before == Some(route) {
            return;
        }
        if let Some(key) = before.and_then(neighbour_of)
            && let Some(addresses) = self.leads_to.get_mut(&key)
        {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.leads_to.remove(&key);
                self.neighbours.remove(&key);
            }
        }
        if let Some(key) = neighbour_of(route) {
            self.leads_to.entry(key).or_default().insert(address);
        }
        self.touched.insert(address);
    }

    /// All interfaces there are.
    pub(super) fn interfaces(&mut self, all: impl Iterator<Item = (u32, Option<[u8; 6]>)>) {
        let all: HashMap<_, _> = all.filter_map(|(index, mac)| Some((index, mac?))).collect();
        if all != self.interfaces {
            self.interfaces = all;
            self.touched.extend(self.backends.keys());
        }
    }

    /// One interface that changed.
    pub(super) fn interface(&mut self, index: u32, mac: Option<[u8; 6]>) {
        let before = match mac {
            Some(mac) => self.interfaces.insert(index, mac),
            None => self.interfaces.remove(&index),
        };
        if before != mac {
            self.touched.extend(self.backends.keys());
        }
    }

    /// From now on only neighbours that are reported again count.
    pub(super) fn expire(&mut self) {
        for known in self.neighbours.values_mut() {
            (known.usable, known.fresh) = (false, false);
        }
    }

    /// An entry of the kernel's table; those that lead to no backend are passed over.
    pub(super) fn neighbour(&mut self, neighbour: &Neighbour) {
        let key = (neighbour.interface_index, neighbour.address);
        let Some(addresses) = self.leads_to.get(&key) else {
            return;
        };
        let known = self.neighbours.entry(key).or_default();
        (known.usable, known.fresh) = (neighbour.mac.is_some(), neighbour.fresh);
        if neighbour.mac.is_some() && known.mac != neighbour.mac {
            known.mac = neighbour.mac;
            self.touched.extend(addresses);
        }
    }

    /// Neighbours of which the kernel has no usable entry; with `stale`, those too that are not
    /// fresh.
    pub(super) fn unresolved(&self, stale: bool) -> Vec<Key> {
        self.leads_to
            .keys()
            .filter(|key| {
                self.neighbours
                    .get(key)
                    .is_none_or(|known| !known.usable || (stale && !known.fresh))
            })
            .copied()
            .collect()
    }

    /// Tells each backend whose resolution changed since the last call.
    pub(super) fn take_changes(&mut self, tell: &mut dyn FnMut(u32, Resolution)) {
        for address in std::mem::take(&mut self.touched) {
            let resolution = self.resolution(address);
            if self.told.insert(address, resolution) != Some(resolution) {
                for &backend in self.backends.get(&address).into_iter().flatten() {
                    tell(backend, resolution);
                }
            }
        }
    }

    fn resolution(&self, address: IpAddr) -> Resolution {
        let (interface_index, neighbour) = match self.routes.get(&address) {
            Some(Route::Via { interface_index, neighbour }) => (*interface_index, *neighbour),
            Some(Route::Local) => return Err(Unresolved::Local(address)),
            Some(Route::None) | None => return Err(Unresolved::NoRoute(address)),
        };
        let Some(&source_mac) = self.interfaces.get(&interface_index) else {
            return Err(Unresolved::NoMac { address, interface_index });
        };
        let known = self.neighbours.get(&(interface_index, neighbour));
        match known.and_then(|known| known.mac) {
            Some(mac) => Ok(NextHop { mac, source_mac, interface_index }),
            None => Err(Unresolved::Silent { address, neighbour, interface_index }),
        }
    }
}

fn neighbour_of(route: Route) -> Option<Key> {
    match route {
        Route::Via { interface_index, neighbour } => Some((interface_index, neighbour)),
        Route::Local | Route::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn table() -> Table {
        let mut table = Table::new(vec![(1, A), (2, B), (3, A)]);
        table.interfaces([(7, Some(OURS)), (1, None)].into_iter());
        table
    }

    fn changes(table: &mut Table) -> Vec<(u32, Resolution)> {
        let mut told = Vec::new();
        table.take_changes(&mut |index, resolution| told.push((index, resolution)));
        told.sort_unstable_by_key(|&(index, _)| index);
        told
    }

    fn on_link(address: IpAddr) -> Route {
        Route::Via { interface_index: 7, neighbour: address }
    }

    fn answers(address: IpAddr, mac: Option<[u8; 6]>, fresh: bool) -> Neighbour {
        Neighbour { interface_index: 7, address, mac, fresh }
    }

    #[test]
    fn a_neighbour_on_the_link_is_the_next_hop_of_every_backend_of_its_address() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, Some(THEIRS), true));
        let hop = Ok(NextHop { mac: THEIRS, source_mac: OURS, interface_index: 7 });
        assert_eq!(changes(&mut table), [(1, hop), (2, Err(Unresolved::NoRoute(B))), (3, hop)]);
        assert_eq!(changes(&mut table), []);
    }

    #[test]
    fn a_gateway_is_resolved_once_for_all_behind_it() {
        let mut table = table();
        let route = Route::Via { interface_index: 7, neighbour: GATEWAY };
        table.route(A, route);
        table.route(B, route);
        assert_eq!(table.unresolved(false), [(7, GATEWAY)]);
        changes(&mut table);
        table.neighbour(&answers(GATEWAY, Some(THEIRS), true));
        let indices: Vec<_> = changes(&mut table).into_iter().map(|(index, _)| index).collect();
        assert_eq!(indices, [1, 2, 3]);
        assert_eq!(table.unresolved(true), []);
    }

    #[test]
    fn an_address_of_this_host_is_said_to_be_one() {
        let mut table = table();
        table.route(A, Route::Local);
        let told = changes(&mut table);
        assert_eq!(told[0], (1, Err(Unresolved::Local(A))));
        let text = told[0].1.unwrap_err().to_string();
        assert!(text.contains("10.0.0.1") && text.contains("other hosts"), "{text}");
        assert_eq!(table.unresolved(true), []);
    }

    #[test]
    fn a_silent_neighbour_is_asked_again_and_keeps_the_mac_it_had() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, None, false));
        let silent = Unresolved::Silent { address: A, neighbour: A, interface_index: 7 };
        assert_eq!(changes(&mut table)[0], (1, Err(silent)));
        assert_eq!(table.unresolved(false), [(7, A)]);
        table.neighbour(&answers(A, Some(THEIRS), true));
        assert_eq!(changes(&mut table).len(), 2);
        table.neighbour(&answers(A, None, false));
        assert_eq!(changes(&mut table), []);
        assert_eq!(table.unresolved(false), [(7, A)]);
    }

    #[test]
    fn a_stale_neighbour_is_asked_for_in_the_slow_round_and_a_dropped_one_at_once() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, Some(THEIRS), false));
        assert_eq!(table.unresolved(false), []);
        assert_eq!(table.unresolved(true), [(7, A)]);
        table.neighbour(&answers(A, Some(THEIRS), true));
        assert_eq!(table.unresolved(true), []);
        table.expire();
        assert_eq!(table.unresolved(false), [(7, A)]);
    }

    #[test]
    fn a_new_mac_on_either_side_is_told() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, Some(THEIRS), true));
        changes(&mut table);
        table.neighbour(&answers(A, Some([9; 6]), true));
        let hop = NextHop { mac: [9; 6], source_mac: OURS, interface_index: 7 };
        assert_eq!(changes(&mut table), [(1, Ok(hop)), (3, Ok(hop))]);
        table.interface(7, Some([8; 6]));
        let hop = NextHop { source_mac: [8; 6], ..hop };
        assert_eq!(changes(&mut table), [(1, Ok(hop)), (3, Ok(hop))]);
        table.interface(7, None);
        let gone = Unresolved::NoMac { address: A, interface_index: 7 };
        assert_eq!(changes(&mut table)[0], (1, Err(gone)));
    }

    #[test]
    fn a_changed_route_forgets_the_neighbour_it_no_longer_needs() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, Some(THEIRS), true));
        changes(&mut table);
        table.route(A, Route::Via { interface_index: 7, neighbour: GATEWAY });
        assert_eq!(table.unresolved(true), [(7, GATEWAY)]);
        assert!(changes(&mut table)[0].1.is_err());
        table.route(A, Route::None);
        assert_eq!(changes(&mut table)[0], (1, Err(Unresolved::NoRoute(A))));
        assert_eq!(table.unresolved(true), []);
    }

    #[test]
    fn one_that_comes_is_told_what_is_known_and_one_that_goes_no_more() {
        let mut table = table();
        table.route(A, on_link(A));
        table.neighbour(&answers(A, Some(THEIRS), true));
        changes(&mut table);
        assert!(table.add(vec![(9, A)]).is_empty(), "its route is known");
        let hop = Ok(NextHop { mac: THEIRS, source_mac: OURS, interface_index: 7 });
        assert_eq!(changes(&mut table), [(1, hop), (3, hop), (9, hop)]);
        table.remove(&[1, 9]);
        table.neighbour(&answers(A, Some(OURS), true));
        let indices: Vec<_> = changes(&mut table).into_iter().map(|(index, _)| index).collect();
        assert_eq!(indices, [3]);
        table.remove(&[3]);
        assert_eq!(table.addresses(), [B]);
        assert_eq!(table.unresolved(true), [], "nobody is asked for a backend that went");
        assert!(table.neighbours.is_empty() && !table.routes.contains_key(&A));
        assert_eq!(table.add(vec![(4, A)]), [A], "its route is looked up anew");
    }

    #[test]
    fn neighbours_that_lead_to_no_backend_are_not_kept() {
        let mut table = table();
        table.neighbour(&answers(GATEWAY, Some(THEIRS), true));
        assert!(table.neighbours.is_empty());
    }
}
