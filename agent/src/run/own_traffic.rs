//! Whether a service would take the answers to this host's own probes.
//!
//! A service of any port, or of a prefix, may include the address that probes come from. Their
//! answers would go to a backend, every backend would look dead, and logins to this host would be
//! cut: refused before anything is attached.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::fleet::{Fleet, Mode, PortRange, Ports, Protocol, Service};

/// What the kernel chooses ports from unless it is told otherwise.
const LOCAL_PORTS_DEFAULT: PortRange = PortRange { first: 32_768, last: 60_999 };
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A service that would take what comes back to this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "service {service} ({traffic}) takes the answers to this host's own probes, which come from \
     {address}: leave that address out, name its ports, or probe from another one with `source`"
)]
pub(super) struct TakesOwnTraffic {
    service: String,
    traffic: String,
    address: IpAddr,
}

/// Refuses a fleet of which a service would take the answers to its probes.
///
/// # Errors
///
/// The first such service.
pub(super) fn check(fleet: &Fleet) -> Result<(), TakesOwnTraffic> {
    let local = local_ports();
    let wide: Vec<&Service> =
        fleet.services.iter().filter(|service| takes_some_of(service, local)).collect();
    if wide.is_empty() {
        return Ok(());
    }
    for address in probe_sources(fleet) {
        if let Some(service) = wide.iter().find(|each| each.traffic.network.contains(&address)) {
            return Err(TakesOwnTraffic {
                service: service.name.clone(),
                traffic: service.traffic.to_string(),
                address,
            });
        }
    }
    Ok(())
}

/// Whether packets to a port of this host's own choice can be the service's.
fn takes_some_of(service: &Service, local: PortRange) -> bool {
    let has_tcp = matches!(service.traffic.protocol, Protocol::Tcp | Protocol::Any);
    let has_port = match &service.traffic.ports {
        Ports::Any => true,
        Ports::Of(ranges) => {
            ranges.iter().any(|range| range.first <= local.last && local.first <= range.last)
        }
    };
    service.mode != Mode::Observe && has_tcp && has_port
}

/// The ports that the kernel chooses from.
fn local_ports() -> PortRange {
    let text = std::fs::read_to_string(LOCAL_PORTS).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse::<u16>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => PortRange { first, last },
        _ => LOCAL_PORTS_DEFAULT,
    }
}

/// The addresses that probes come from.
fn probe_sources(fleet: &Fleet) -> HashSet<IpAddr> {
    let mut sources = HashSet::new();
    let (v4, v6) = (udp(Ipv4Addr::UNSPECIFIED.into()), udp(Ipv6Addr::UNSPECIFIED.into()));
    for target in &fleet.targets {
        let Some(address) = target.address.inet() else {
            continue;
        };
        let told = fleet.probes[target.probe].socket.source;
        let socket = if address.is_ipv4() { &v4 } else { &v6 };
        // Connecting a UDP socket sends nothing; the kernel looks the route up and says the source.
        let chosen = || {
            let socket = socket.as_ref()?;
            socket.connect(address).ok()?;
            Some(socket.local_addr().ok()?.ip())
        };
        sources.extend(told.or_else(chosen));
    }
    sources
}

fn udp(any: IpAddr) -> Option<UdpSocket> {
    UdpSocket::bind((any, 0)).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, Overrides};

    /// A backend on loopback, which is probed from 127.0.0.1, and a service of these keys.
    fn checked(service: &str) -> Result<(), TakesOwnTraffic> {
        let text = format!(
            "[probe.p]\nurl = \"/p\"\n[pool.web]\nprobe = \"p\"\nbackends = [\"127.0.0.1:80\"]\n\
             [service.web]\npool = \"web\"\n{service}\n"
        );
        check(&config::parse(&text, Path::new("t.toml"), &Overrides::default()).unwrap().fleet)
    }

    #[test]
    fn service_that_takes_the_answers_to_probes_is_refused() {
        let any = "address = \"127.0.0.0/8\"\nport = \"any\"\nmode = \"dsr\"";
        let error = checked(any).unwrap_err().to_string();
        assert!(error.starts_with("service web (127.0.0.0/8 any port tcp) takes the answers"));
        assert!(error.contains("come from 127.0.0.1"), "{error}");
        checked(&any.replace("127.0.0.0/8", "127.0.0.1")).unwrap_err();
        checked(&any.replace("\"any\"", "\"40000-40010\"")).unwrap_err();
    }

    #[test]
    fn service_that_takes_none_of_them_is_not() {
        let any = "address = \"127.0.0.0/8\"\nport = \"any\"\nmode = \"dsr\"";
        checked(&any.replace("dsr", "observe")).unwrap();
        checked(&any.replace("\"any\"", "\"1-1023\"")).unwrap();
        checked(&format!("{any}\nprotocol = \"udp\"")).unwrap();
        checked(&any.replace("127.0.0.0/8", "127.0.0.2")).unwrap();
    }
}
