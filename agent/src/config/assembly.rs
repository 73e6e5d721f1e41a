//! From validated parts to the [`Fleet`]: targets shared between pools, and every index given out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use sickbay_core::hash;
use sickbay_core::pattern::Pattern;
use sickbay_core::plan::{Compat, Pace, ProbeKind};
use sickbay_shared::limits::{BACKENDS_MAX, POOL_BACKENDS_MAX, WORD_BACKENDS};

use super::judging::Judges;
use super::pools::{DraftPool, Member};
use super::problem::{Report, Step};
use super::question::{REQUESTS_BYTES_MAX, request_bytes};
use crate::address::Address;
use crate::fleet::{
    Backend, CloseMode, Fleet, JUDGES_MAX, Judged, Pool, Probe, ProxyHeader, SocketOptions, Target,
};

/// Pools, backends and targets with their indices.
pub(super) struct Assembled {
    pub(super) targets: Vec<Target>,
    pub(super) pools: Vec<Pool>,
    pub(super) backends: Vec<Backend>,
}

/// Gives out every index. Only called when the parts have no error.
pub(super) fn assemble(
    names: &[&str],
    drafts: Vec<DraftPool>,
    probes: &[Probe],
    report: &mut Report<'_>,
) -> Assembled {
    let counts: Vec<usize> = drafts.iter().map(|draft| draft.members.len()).collect();
    let words = place_words(&counts).unwrap_or_else(|problem| {
        report.error(&["pool".into()], problem, "use fewer or smaller pools");
        Vec::new()
    });
    check_judges(&drafts, report);
    if report.has_errors() {
        return Assembled { targets: Vec::new(), pools: Vec::new(), backends: Vec::new() };
    }
    let backend_count = drafts.iter().map(|draft| draft.members.len()).sum();
    let mut targets = Targets::new(probes, backend_count);
    let mut pools = Vec::with_capacity(drafts.len());
    let mut backends = Vec::with_capacity(backend_count);
    for (pool, (draft, (first_word, word_count))) in drafts.into_iter().zip(words).enumerate() {
        let first = backends.len();
        let mut used = Vec::new();
        for (index, member) in (first_word * WORD_BACKENDS..).zip(draft.members) {
            let own_address = || probed_at(&member.address, draft.probe_port);
            let probed = member.probe_address.unwrap_or_else(own_address);
            let mut judge = |probe: usize, own: Option<Vec<u8>>| {
                if !used.contains(&probe) {
                    used.push(probe);
                }
                Judged { target: targets.of(&probed, probe, own), probe }
            };
            let judged = match member.judges {
                Judges::Pool => {
                    let probes = draft.probes.iter().flatten();
                    probes.map(|probe| judge(*probe, None)).collect()
                }
                Judges::Own(probes) => probes.iter().map(|probe| judge(*probe, None)).collect(),
                Judges::Vcl { probe, request } => Box::new([judge(probe, Some(request))]) as _,
            };
            backends.push(Backend {
                name: member.name.unwrap_or_else(|| member.address.to_string()),
                pool,
                address: member.address,
                weight: member.weight,
                judged,
                index,
                origin: member.named_by,
            });
        }
        pools.push(Pool {
            name: names[pool].to_owned(),
            probes: used,
            own_probes: draft.probes,
            probe_port: draft.probe_port,
            drain_ns: draft.drain_ns,
            backends: first..backends.len(),
            first_word,
            word_count,
            panic: draft.panic,
            may_be_empty: draft.may_be_empty,
            sources: draft.sources,
        });
    }
    check_sockets(&targets.list, probes, report);
    if !targets.fit() {
        let mend = "write shorter ones, or use fewer backends";
        report.error(&["probe".into()], requests_too_long(), mend);
    }
    Assembled { targets: targets.list, pools, backends }
}

/// What is probed of a backend that names nothing else.
pub(super) fn probed_at(address: &Address, probe_port: Option<u16>) -> Address {
    match (address, probe_port) {
        (Address::Inet(inet), Some(port)) => SocketAddr::new(inet.ip(), port).into(),
        _ => address.clone(),
    }
}

/// What is wrong when [`Targets::fit`] is false.
pub(super) fn requests_too_long() -> String {
    let most = REQUESTS_BYTES_MAX >> 20;
    format!("the requests of all targets together have more than {most} MiB")
}

/// Reports what a probe's sockets are told and a unix socket does not know.
fn check_sockets(targets: &[Target], probes: &[Probe], report: &mut Report<'_>) {
    let mut told = vec![false; probes.len()];
    for target in targets.iter().filter(|target| target.address.inet().is_none()) {
        let Probe { name, socket, .. } = &probes[target.probe];
        for key in inet_only(socket).filter(|_| !told[target.probe]) {
            let problem = format!("{key} has no meaning for {}", target.address);
            let place = ["probe".into(), name.as_str().into(), Step::Key(key)];
            report.error(&place, problem, "give unix sockets a probe of their own");
        }
        told[target.probe] = true;
    }
}

/// What a probe's sockets are told and a unix socket does not know, by its key.
pub(super) fn inet_only(socket: &SocketOptions) -> impl Iterator<Item = &'static str> {
    let odd = [("source", socket.source.is_some()), ("interface", socket.interface.is_some())];
    odd.into_iter().filter_map(|(key, given)| given.then_some(key))
}

/// A pool of many probes is many targets for each of its backends.
fn check_judges(drafts: &[DraftPool], report: &mut Report<'_>) {
    let count: usize = drafts.iter().map(judge_count).sum();
    if JUDGES_MAX < count {
        let problem = format!(
            "all pools together have {count} pairs of a backend and its probe; {JUDGES_MAX} are \
             the most"
        );
        report.error(&["pool".into()], problem, "use fewer probes in the pools of many backends");
    }
}

/// Pairs of one of the pool's backends and a probe that judges it.
fn judge_count(draft: &DraftPool) -> usize {
    let of = |member: &Member| match &member.judges {
        Judges::Pool => draft.probes.as_ref().map_or(0, Vec::len),
        Judges::Own(probes) => probes.len(),
        Judges::Vcl { .. } => 1,
    };
    draft.members.iter().map(of).sum()
}

/// The Host header when none is given: the address, IPv6 in brackets, and the port unless 80
/// (RFC 9110, section 7.2: the default port may be left out); of a unix socket Varnish's.
pub(super) fn default_host(address: &Address) -> String {
    let Some(address) = address.inet() else {
        return "0.0.0.0".to_owned();
    };
    match (address.port(), address.ip()) {
        (80, IpAddr::V4(ip)) => ip.to_string(),
        (80, IpAddr::V6(ip)) => format!("[{ip}]"),
        (port, IpAddr::V4(ip)) => format!("{ip}:{port}"),
        (port, IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
    }
}

/// Words of each pool: enough for `times` as many backends as it has, and at least for those.
fn word_counts(counts: &[usize], times: usize) -> Vec<u32> {
    let words = |own: &usize| {
        let count = (times * own).min(POOL_BACKENDS_MAX as usize);
        let words = count.max(*own).div_ceil(WORD_BACKENDS as usize).max(1);
        u32::try_from(words).unwrap_or(u32::MAX / 2).next_power_of_two()
    };
    counts.iter().map(words).collect()
}

/// First word and word count of each pool, of which each has so many backends. There is room for twice its backends if that is to be
/// had, so that all of them can be replaced within one drain. Counts are powers of two and the largest come first, so
/// each range begins at a multiple of its length and nothing is lost between them.
///
/// # Errors
///
/// There are too many, in a line without its remedy.
pub(super) fn place_words(backends: &[usize]) -> Result<Vec<(u32, u32)>, String> {
    let words_max = BACKENDS_MAX / WORD_BACKENDS;
    let roomy = word_counts(backends, 2);
    let fits = roomy.iter().map(|count| u64::from(*count)).sum::<u64>() <= u64::from(words_max);
    let counts = if fits { roomy } else { word_counts(backends, 1) };
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    if u64::from(words_max) < total {
        let reserved = total * u64::from(WORD_BACKENDS);
        return Err(format!(
            "all pools together reserve {reserved} places (each 64 times a power of two); \
             {BACKENDS_MAX} are the most"
        ));
    }
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|pool| std::cmp::Reverse(counts[*pool]));
    let mut places = vec![(0, 0); counts.len()];
    let mut next = 0;
    for pool in order {
        places[pool] = (next, counts[pool]);
        next += counts[pool];
    }
    Ok(places)
}

/// The targets so far: pools that ask the same of the same address share one.
pub(super) struct Targets<'p> {
    probes: &'p [Probe],
    /// Of each probe, the first one that probes in the same way; only their rules differ.
    alike: Vec<usize>,
    pub(super) list: Vec<Target>,
    by_identity: HashMap<u128, usize>,
    /// Bytes of all requests that may still be had; `None` when there were more.
    request_bytes: Option<usize>,
    /// Of the list, those that no backend has any more.
    vacant: Vec<usize>,
}

impl<'p> Targets<'p> {
    fn new(probes: &'p [Probe], capacity: usize) -> Self {
        let alike = probes
            .iter()
            .map(|probe| {
                let same = |other: &Probe| {
                    let alike = other.spec == probe.spec && other.close == probe.close;
                    let same_header = other.proxy_header == probe.proxy_header;
                    alike && same_header && other.socket == probe.socket
                };
                probes.iter().position(same).unwrap_or_default()
            })
            .collect();
        let by_identity = HashMap::with_capacity(capacity);
        let list = Vec::with_capacity(capacity);
        let request_bytes = Some(REQUESTS_BYTES_MAX);
        Self { probes, alike, list, by_identity, request_bytes, vacant: Vec::new() }
    }

    /// Those of a fleet, to go on from; its backends say which are in use.
    pub(super) fn resume(fleet: &'p Fleet) -> Self {
        let mut targets = Self::new(&fleet.probes, fleet.targets.len());
        let mut used = vec![false; fleet.targets.len()];
        for judged in fleet.backends.iter().flat_map(|backend| &backend.judged) {
            used[judged.target] = true;
        }
        targets.list.clone_from(&fleet.targets);
        targets.vacant = (0..used.len()).rev().filter(|target| !used[*target]).collect();
        for target in (0..used.len()).filter(|target| used[*target]) {
            let Target { identity, request, .. } = &fleet.targets[target];
            targets.by_identity.insert(*identity, target);
            targets.take(request.len());
        }
        targets
    }

    /// Whether all requests together are no longer than they may be.
    pub(super) const fn fit(&self) -> bool {
        self.request_bytes.is_some()
    }

    /// So many bytes of a request are had.
    fn take(&mut self, byte_count: usize) {
        self.request_bytes = self.request_bytes.and_then(|left| left.checked_sub(byte_count));
    }

    /// The target at `address` as `probe` asks it, or with a request of its own.
    pub(super) fn of(&mut self, address: &Address, probe: usize, own: Option<Vec<u8>>) -> usize {
        let spec = &self.probes[probe];
        let made = || {
            let host = spec.request.as_ref().and_then(|request| request.host.clone());
            request_bytes(spec, &host.unwrap_or_else(|| default_host(address)))
        };
        let bytes = own.unwrap_or_else(made);
        // Behind the most no more are kept: all of it is refused.
        let bytes = if self.request_bytes.is_some() { bytes } else { Vec::new() };
        let mut told_apart = bytes.clone();
        told_apart.extend(expectation(&spec.spec.kind));
        let mut identity = identity(address, &told_apart);
        while let Some(&known) = self.by_identity.get(&identity) {
            let target = &mut self.list[known];
            if self.alike[target.probe] == self.alike[probe] && target.address == *address {
                target.initial = target.initial.min(spec.initial);
                return known;
            }
            // The same question at other times, or asked in another way: a target of its own. Its
            // identity has these mixed in, so that each keeps its own history.
            told_apart.extend(distinction(spec));
            identity = self::identity(address, &told_apart);
        }
        self.take(bytes.len());
        let (address, initial) = (address.clone(), spec.initial);
        let target = Target { identity, address, request: bytes, probe, initial };
        let index = match self.vacant.pop() {
            Some(vacant) => {
                self.list[vacant] = target;
                vacant
            }
            None => {
                self.list.push(target);
                self.list.len() - 1
            }
        };
        self.by_identity.insert(identity, index);
        index
    }
}

fn identity(address: &Address, request: &[u8]) -> u128 {
    match address {
        Address::Inet(SocketAddr::V4(at)) => hash::identity(&at.ip().octets(), at.port(), request),
        Address::Inet(SocketAddr::V6(at)) => hash::identity(&at.ip().octets(), at.port(), request),
        // No port is 0, so no IP address has the same.
        Address::Unix(path) => hash::identity(path.as_str().as_bytes(), 0, request),
    }
}

/// What makes an answer a good one: with another expectation the results of before say nothing.
fn expectation(kind: &ProbeKind) -> Vec<u8> {
    let mut bytes = Vec::new();
    match kind {
        ProbeKind::Tcp => {}
        ProbeKind::Banner { expected, bytes_max } => {
            bytes.extend(expected.as_bytes());
            bytes.extend(bytes_max.to_le_bytes());
        }
        ProbeKind::Http { expected, content, .. } => {
            for (first, last) in expected.ranges() {
                bytes.extend(first.to_le_bytes());
                bytes.extend(last.to_le_bytes());
            }
            if let Some(header) = &content.header {
                bytes.extend(&header.name);
                bytes.extend(header.value.iter().flat_map(Pattern::as_bytes));
            }
            bytes.extend(content.body.iter().flat_map(Pattern::as_bytes));
            bytes.extend(content.body_bytes_max.to_le_bytes());
        }
    }
    bytes
}

/// What tells two probes apart that ask and expect the same. Their results are as good for one as for
/// the other: which of them has this mixed in, and begins anew when that changes, does not matter.
fn distinction(probe: &Probe) -> Vec<u8> {
    let mut bytes = probe.spec.interval_ns.to_le_bytes().to_vec();
    bytes.extend(probe.spec.timeout_ns.to_le_bytes());
    let Pace { fast_ns, sick_ns, jitter_percent } = probe.spec.pace;
    for span_ns in [fast_ns, sick_ns] {
        bytes.extend(span_ns.unwrap_or_default().to_le_bytes());
    }
    bytes.push(jitter_percent);
    let SocketOptions { source, interface, mark } = &probe.socket;
    bytes.extend(source.iter().flat_map(|source| source.to_string().into_bytes()));
    bytes.extend(interface.iter().flat_map(|interface| interface.bytes()));
    bytes.extend(mark.unwrap_or_default().to_le_bytes());
    bytes.push(u8::from(probe.close == CloseMode::Fin));
    // Version 2 is in the request.
    bytes.push(u8::from(probe.proxy_header == Some(ProxyHeader::V1Own)));
    if let Compat::Varnish { expect_close } = probe.spec.compat {
        bytes.extend([b'v', u8::from(expect_close)]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_host_has_the_port_unless_it_is_80() {
        let host = |text: &str| default_host(&text.parse().expect("an address"));
        assert_eq!(host("192.0.2.1:80"), "192.0.2.1");
        assert_eq!(host("192.0.2.1:8080"), "192.0.2.1:8080");
        assert_eq!(host("[2001:DB8::1]:80"), "[2001:db8::1]");
        assert_eq!(host("[2001:db8::1]:443"), "[2001:db8::1]:443");
        assert_eq!(host("unix:/run/a.sock"), "0.0.0.0");
    }
}
