//! Services that claim the same packets: what is ambiguous, or leaves one of them nothing.

use ipnet::IpNet;
use sickbay_shared::limits::PORT_PREFIXES_MAX;

use super::problem::{Report, quoted};
use super::services::DraftService;
use crate::fleet::{PortRange, Ports, Protocol, Service, shown_network};
use crate::service_keys::ServiceKeys;

/// One piece of what a service claims; two of them that are equal but for their ports must not
/// overlap.
#[derive(Clone, Copy, Debug)]
struct Claim {
    network: IpNet,
    protocol: Protocol,
    rank: Rank,
    ports: PortRange,
    /// Index of the service.
    service: usize,
}

/// How narrowly a claim names its ports: the narrower goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Any,
    Range,
    One,
}

/// Reports every service that claims what one before it claims in the same terms.
pub(super) fn check(names: &[&str], drafts: &[DraftService], report: &mut Report<'_>) {
    let mut claims = claims(drafts);
    claims.sort_by_key(|claim| {
        let Claim { network, protocol, rank, ports, service } = *claim;
        (network, protocol.number(), rank, ports, service)
    });
    // Of the claims so far that are equal but for their ports, the one that reaches highest.
    let mut highest: Option<Claim> = None;
    for claim in claims {
        let alike = highest.filter(|before| {
            before.network == claim.network
                && before.protocol == claim.protocol
                && before.rank == claim.rank
        });
        if let Some(before) = alike.filter(|before| claim.ports.first <= before.ports.last) {
            report_overlap(names, before, claim, report);
        }
        if alike.is_none_or(|before| before.ports.last < claim.ports.last) {
            highest = Some(claim);
        }
    }
}

/// The keys of services that are clear without ambiguity; that they are too many, or that some
/// service has none, is reported.
pub(super) fn resolve(services: &[Service], report: &mut Report<'_>) -> ServiceKeys {
    let keys = ServiceKeys::of(services);
    if keys.are_too_many() {
        let problem = format!(
            "the ports of all services, repeated in every longer prefix that leaves them as they \
             are, come to more than {PORT_PREFIXES_MAX} port prefixes"
        );
        report.error(&["service".into()], problem, "use fewer prefixes, or several instances");
        return keys;
    }
    let named = keys.named();
    for (index, service) in (0..).zip(services) {
        if !named.contains(&index) {
            let problem = format!("no packet reaches it: others have all of {}", service.traffic);
            let mend = "remove it, or take from the services with fewer ports or a protocol of \
                        their own";
            report.error(&["service".into(), service.name.as_str().into()], problem, mend);
        }
    }
    keys
}

fn claims(drafts: &[DraftService]) -> Vec<Claim> {
    let mut claims = Vec::with_capacity(drafts.len());
    for (service, draft) in drafts.iter().enumerate() {
        let Some(traffic) = &draft.traffic else {
            continue;
        };
        let mut claim = |rank, ports| {
            let (network, protocol) = (traffic.network, traffic.protocol);
            claims.push(Claim { network, protocol, rank, ports, service });
        };
        match &traffic.ports {
            Ports::Any => claim(Rank::Any, PortRange { first: 0, last: u16::MAX }),
            Ports::Of(ranges) => {
                for range in ranges {
                    claim(if range.is_one() { Rank::One } else { Rank::Range }, *range);
                }
            }
        }
    }
    claims
}

fn report_overlap(names: &[&str], one: Claim, other: Claim, report: &mut Report<'_>) {
    // The later one in the order of names is told.
    let (first, second) = if one.service < other.service { (one, other) } else { (other, one) };
    let place = ["service".into(), names[second.service].into()];
    let owner = quoted(names[first.service]);
    let network = shown_network(second.network);
    let protocol = second.protocol;
    let problem = match second.rank {
        Rank::Any if !protocol.has_ports() => {
            format!("{network} {protocol} belongs to service {owner} already")
        }
        Rank::Any => format!("{network} any port {protocol} belongs to service {owner} already"),
        Rank::One => {
            let port = second.ports;
            format!("{network} port {port} {protocol} belongs to service {owner} already")
        }
        Rank::Range => format!(
            "{network} ports {} {protocol} overlap the ports {} of service {owner}",
            second.ports, first.ports,
        ),
    };
    report.error(&place, problem, "give one of the two another address or port");
}
