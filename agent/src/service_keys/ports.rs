//! Whose every port is, and the fewest prefixes we know to say it by.

use std::collections::BTreeMap;

use crate::fleet::PortRange;

/// A prefix of port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortPrefix {
    /// The lowest port in it.
    pub(super) port: u16,
    /// Bits that count, 0 ..= 16.
    pub(super) bits: u32,
}

impl PortPrefix {
    /// Every port.
    pub(super) const ALL: Self = Self { port: 0, bits: 0 };
}

/// One past the highest port.
const END: u32 = 1 << 16;

/// Whose each port is: where a run of ports begins, and whose that run is.
#[derive(Debug)]
pub(super) struct PortMap {
    /// Always has port 0.
    begins: BTreeMap<u32, Option<u32>>,
}

impl Default for PortMap {
    fn default() -> Self {
        Self { begins: BTreeMap::from([(0, None)]) }
    }
}

impl PortMap {
    /// Gives `ports` (`None` = all) to `service`, whoever had them.
    pub(super) fn paint(&mut self, ports: Option<PortRange>, service: u32) {
        let (first, end) = match ports {
            Some(range) => (u32::from(range.first), u32::from(range.last) + 1),
            None => (0, END),
        };
        if end < END {
            let behind = self.at(end);
            self.begins.insert(end, behind);
        }
        let inside: Vec<u32> = self.begins.range(first..end).map(|(begin, _)| *begin).collect();
        for begin in inside {
            self.begins.remove(&begin);
        }
        self.begins.insert(first, Some(service));
    }

    fn at(&self, port: u32) -> Option<u32> {
        let run = self.begins.range(..=port).next_back();
        run.and_then(|(_, service)| *service)
    }

    /// The prefixes that say it, where a longer one goes before a shorter one. What is `fallback`'s
    /// needs none when nothing is said of other ports.
    pub(super) fn prefixes(&self, fallback: Option<u32>) -> Vec<(PortPrefix, u32)> {
        let runs = self.runs();
        let is_whole = runs.iter().all(|(_, _, service)| service.is_some());
        // One prefix for all ports, and exceptions; only where no port is nobody's.
        let default = match fallback {
            Some(service) => Some(service),
            None if is_whole => widest(&runs),
            None => None,
        };
        let mut prefixes = Vec::new();
        if let Some(service) = default.filter(|_| fallback.is_none()) {
            prefixes.push((PortPrefix::ALL, service));
        }
        for (first, end, service) in runs {
            let Some(service) = service.filter(|service| Some(*service) != default) else {
                continue;
            };
            cut(first, end, |prefix| prefixes.push((prefix, service)));
        }
        prefixes
    }

    /// First port, one past the last, and whose they are.
    fn runs(&self) -> Vec<(u32, u32, Option<u32>)> {
        let mut runs: Vec<(u32, u32, Option<u32>)> = Vec::with_capacity(self.begins.len());
        for (&begin, &service) in &self.begins {
            match runs.last_mut() {
                Some(last) if last.2 == service => {}
                Some(last) => {
                    last.1 = begin;
                    runs.push((begin, END, service));
                }
                None => runs.push((begin, END, service)),
            }
        }
        runs
    }
}

/// Who has most ports, of these runs.
fn widest(runs: &[(u32, u32, Option<u32>)]) -> Option<u32> {
    let mut ports: BTreeMap<u32, u32> = BTreeMap::new();
    for (first, end, service) in runs {
        *ports.entry((*service)?).or_default() += end - first;
    }
    ports.into_iter().max_by_key(|(_, count)| *count).map(|(service, _)| service)
}

/// The prefixes that together are the ports from `first` to before `end`.
fn cut(mut first: u32, end: u32, mut emit: impl FnMut(PortPrefix)) {
    while first < end {
        // The largest block that begins here, and does not reach past the end.
        let aligned = if first == 0 { 16 } else { first.trailing_zeros() };
        let fits = (end - first).ilog2();
        let size = aligned.min(fits);
        let port = u16::try_from(first).expect("below the end, which is one past the last port");
        emit(PortPrefix { port, bits: 16 - size });
        first += 1 << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, last: u16) -> Option<PortRange> {
        Some(PortRange { first, last })
    }

    fn shown(map: &PortMap, fallback: Option<u32>) -> Vec<(u16, u32, u32)> {
        let prefixes = map.prefixes(fallback);
        prefixes.iter().map(|(prefix, service)| (prefix.port, prefix.bits, *service)).collect()
    }

    #[test]
    fn range_is_cut_into_the_fewest_prefixes() {
        let mut map = PortMap::default();
        map.paint(range(8000, 8099), 7);
        // 8000 = 0x1f40: blocks of 64, 32 and 4.
        assert_eq!(shown(&map, None), [(8000, 10, 7), (8064, 11, 7), (8096, 14, 7)]);
        let mut map = PortMap::default();
        map.paint(range(1, 65_535), 7);
        assert_eq!(map.prefixes(None).len(), 16);
    }

    #[test]
    fn exceptions_stand_beside_one_prefix_for_all() {
        let mut map = PortMap::default();
        map.paint(None, 1);
        map.paint(range(80, 80), 2);
        assert_eq!(shown(&map, None), [(0, 0, 1), (80, 16, 2)]);
        // What another protocol's prefix says of all ports is not said again.
        assert_eq!(shown(&map, Some(1)), [(80, 16, 2)]);
    }

    #[test]
    fn later_paint_covers_earlier_paint() {
        let mut map = PortMap::default();
        map.paint(range(10, 19), 1);
        map.paint(range(15, 15), 2);
        map.paint(range(0, 9), 3);
        map.paint(range(65_535, 65_535), 4);
        let owners: Vec<Option<u32>> =
            [0, 9, 10, 14, 15, 16, 19, 20, 65_534, 65_535].map(|port| map.at(port)).into();
        let (one, two, three) = (Some(1), Some(2), Some(3));
        assert_eq!(owners, [three, three, one, one, two, one, one, None, None, Some(4)]);
    }
}
