//! Services, and policies of pools that no service asks for.

use std::net::SocketAddr;

use super::Report;
use crate::fleet::{AllSick, Fleet, Mode, Pool, Service};

/// Warns of every trap the services run into.
pub(super) fn warn(fleet: &Fleet, report: &mut Report<'_>) {
    for service in fleet.services.iter().filter(|service| service.mode == Mode::Dsr) {
        direct_return(fleet, service, "pool", service.pool, report);
        if let Some(backup) = &service.backup {
            direct_return(fleet, service, "backup", backup.pool, report);
        }
    }
    for (index, pool) in fleet.pools.iter().enumerate() {
        idle_panic(fleet, index, pool, report);
    }
}

/// Direct server return leaves the packet as it is: its backends answer on the VIP and its port.
fn direct_return(
    fleet: &Fleet,
    service: &Service,
    key: &str,
    pool: usize,
    report: &mut Report<'_>,
) {
    let pool = &fleet.pools[pool];
    let members = &fleet.backends[pool.backends.clone()];
    let place = ["service".into(), service.name.as_str().into(), key.into()];
    let traffic = &service.traffic;
    // No service is over a pool with unix sockets.
    let mut addresses = members.iter().filter_map(|each| each.address.inet());
    let strays = |address: &SocketAddr| {
        traffic.protocol.has_ports() && !traffic.ports.contain(address.port())
    };
    if let Some(stray) = addresses.clone().find(strays) {
        let ports = &traffic.ports;
        let problem = format!(
            "dsr does not change the port: flows reach {} on port {ports}, not {}",
            stray.ip(),
            stray.port(),
        );
        let mend =
            format!("let pool {} name port {ports}, or probe another by probe_port", pool.name);
        report.warn(&place, problem, mend);
    }
    let is_ipv4 = traffic.network.addr().is_ipv4();
    if let Some(other) = addresses.find(|address| address.is_ipv4() != is_ipv4) {
        let (vip, backend) = if is_ipv4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let problem = format!(
            "an {vip} service with the {backend} backend {}: dsr only needs its next hop, but the \
             probe does not show that it answers {vip} on the service's address",
            other,
        );
        let mend = format!("give the pool {vip} addresses of the same backends");
        report.warn(&place, problem, mend);
    }
}

/// A threshold that only `all_sick = "open"` looks at.
fn idle_panic(fleet: &Fleet, index: usize, pool: &Pool, report: &mut Report<'_>) {
    let uses = |service: &&Service| {
        service.pool == index || service.backup.is_some_and(|backup| backup.pool == index)
    };
    let mut users = fleet.services.iter().filter(uses);
    if pool.panic.is_none() || users.clone().any(|user| user.all_sick == AllSick::Open) {
        return;
    }
    let problem = match users.next() {
        Some(user) => format!(
            "panic_threshold has no effect: service {} has all_sick = \"{}\", and no service with \
             \"open\" uses the pool",
            user.name,
            user.all_sick.word(),
        ),
        None => "panic_threshold has no effect: no service uses the pool".to_owned(),
    };
    let place = ["pool".into(), pool.name.as_str().into(), "panic_threshold".into()];
    report.warn(&place, problem, "remove it, or write all_sick = \"open\" in the service");
}
