//! Services and attachments.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use sickbay_core::plan::Nanos;
use sickbay_shared::limits::SERVICES_MAX;

use super::endpoint::Fault;
use super::pools::DraftPool;
use super::problem::{Report, Step, nearest, quoted};
use super::settings::{ProgramSetting, ServiceSettings, Settings, TimeText};
use super::{claims, name, tables, time, traffic};
use crate::fleet::{Attachment, Ports, Program, Protocol, Stale, Traffic};

/// A service before its tables have a place.
#[derive(Debug)]
pub(super) struct DraftService {
    /// `None` when it has an error.
    pub(super) traffic: Option<Traffic>,
    /// Index into the pools.
    pub(super) pool: usize,
    /// Likewise.
    pub(super) backup: Option<usize>,
    pub(super) udp_idle_ns: Nanos,
    pub(super) stale_after_ns: Nanos,
    /// A prime; `None` = to be chosen.
    pub(super) table_size: Option<u32>,
}

/// Every service, in the order of names; what is wrong is reported.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Vec<DraftService> {
    let pools: Vec<&str> = settings.pool.keys().map(String::as_str).collect();
    if SERVICES_MAX as usize <= settings.service.len().saturating_sub(1) {
        let count = settings.service.len();
        let problem = format!("there are {count} services; {SERVICES_MAX} are the most");
        report.error(&["service".into()], problem, "move some to another instance");
    }
    let mut drafts = Vec::with_capacity(settings.service.len());
    for (name, service) in &settings.service {
        if report.is_full() {
            break;
        }
        drafts.push(Draft { name, service, report }.validate(&pools));
    }
    let names: Vec<&str> = settings.service.keys().map(String::as_str).collect();
    claims::check(&names, &drafts, report);
    drafts
}

/// Reports the services whose pools have backends that no packet can be steered to.
pub(super) fn check_pools(
    settings: &Settings,
    services: &[DraftService],
    pools: &[DraftPool],
    report: &mut Report<'_>,
) {
    for ((name, service), draft) in settings.service.iter().zip(services) {
        let wanted =
            [("pool", &service.pool, Some(draft.pool)), ("backup", &service.backup, draft.backup)];
        for (key, written, pool) in wanted {
            // A pool that is not there has been reported, and stands as the first one.
            let known = written.as_ref().is_some_and(|pool| settings.pool.contains_key(pool));
            let pool = pool.filter(|_| known).and_then(|pool| pools.get(pool));
            let mut members = pool.into_iter().flat_map(|pool| &pool.members);
            let Some(member) = members.find(|each| each.address.inet().is_none()) else {
                continue;
            };
            let place = ["service".into(), name.as_str().into(), key.into()];
            let problem =
                format!("no flow can be steered to {}, a backend of its pool", member.address);
            let mend = "steer to a pool of addresses; a pool with unix sockets is only probed";
            report.error(&place, problem, mend);
        }
    }
}

/// Every attachment, in the order of the file; what is wrong is reported.
pub(super) fn validate_attachments(
    settings: &Settings,
    report: &mut Report<'_>,
) -> Vec<Attachment> {
    let mut taken: HashMap<&str, usize> = HashMap::new();
    let mut attachments = Vec::with_capacity(settings.attach.len());
    for (index, attach) in settings.attach.iter().enumerate() {
        if report.is_full() {
            break;
        }
        let at = |key| ["attach".into(), index.into(), Step::Key(key)];
        let element = ["attach".into(), index.into()];
        if report.is_marred(&element) || report.is_marred(&at("interface")) {
            continue;
        }
        let Some(interface) = &attach.interface else {
            report.error(&element, "attach has no interface", "add interface = \"NAME\"");
            continue;
        };
        name::check_interface(report, &at("interface"), interface);
        if attach.program == ProgramSetting::Tc && attach.xdp_mode.is_some() {
            let problem = "xdp_mode has no meaning for program \"tc\"";
            report.error(&at("xdp_mode"), problem, "remove it, or write program = \"xdp\"");
        }
        if let Some(first) = taken.insert(interface, index) {
            let first = report.line(&["attach".into(), first.into()]);
            let problem = format!("{} is attached to already (line {first})", quoted(interface));
            report.error(&at("interface"), problem, "remove one of the two");
        }
        let program = match attach.program {
            ProgramSetting::Xdp => Program::Xdp(attach.xdp_mode.unwrap_or_default()),
            ProgramSetting::Tc => Program::Tc,
        };
        attachments.push(Attachment { interface: interface.clone(), program });
    }
    attachments
}

struct Draft<'a, 'r, 's> {
    name: &'a str,
    service: &'a ServiceSettings,
    report: &'r mut Report<'s>,
}

impl<'a> Draft<'a, '_, '_> {
    fn validate(mut self, pools: &[&str]) -> DraftService {
        name::check_section(self.report, &self.place(), self.name);
        let (second, hour) = (1_000_000_000, 3_600_000_000_000);
        let udp_idle_ns = self.time("udp_idle", &self.service.udp_idle, second..=hour);
        let stale_after_ns =
            self.time("stale_after", &self.service.stale_after, second..=24 * hour);
        let protocol = self.protocol();
        let ports = self.ports(protocol);
        let network = self.network();
        let pool = self.pool("pool", self.service.pool.as_deref(), pools);
        let draft = DraftService {
            traffic: match (network, ports, protocol) {
                (Some(network), Some(ports), Some(protocol)) => {
                    Some(Traffic { network, ports, protocol })
                }
                _ => None,
            },
            pool: pool.unwrap_or(0),
            backup: self.backup(pool, pools),
            udp_idle_ns,
            stale_after_ns,
            table_size: self.table_size(),
        };
        self.warn_of_idle_keys(protocol);
        draft
    }

    /// Policies that this service's protocol never asks for.
    fn warn_of_idle_keys(&mut self, protocol: Option<Protocol>) {
        let (given, default) = (self.service, ServiceSettings::default());
        let (tcp, other) = match protocol {
            Some(Protocol::Tcp) => (true, false),
            Some(Protocol::Udp | Protocol::Number(_)) => (false, true),
            Some(Protocol::Any) | None => return,
        };
        let idle = [
            ("udp_idle", tcp && given.udp_idle != default.udp_idle),
            ("on_sick_udp", tcp && given.on_sick_udp != default.on_sick_udp),
            ("on_sick_tcp", other && given.on_sick_tcp != default.on_sick_tcp),
        ];
        let kind = if tcp { "a tcp service" } else { "a service that is not tcp" };
        for (key, _) in idle.into_iter().filter(|(_, idle)| *idle) {
            let place = self.at(key);
            self.report.warn(&place, format!("{key} has no effect on {kind}"), "remove it");
        }
        if given.stale != Stale::Open && given.stale_after != default.stale_after {
            let place = self.at("stale_after");
            let problem = "stale_after has no effect with stale = \"last\"";
            self.report.warn(&place, problem, "remove it, or write stale = \"open\"");
        }
    }

    fn time(&mut self, key: &'a str, text: &TimeText, limits: RangeInclusive<Nanos>) -> Nanos {
        let place = self.at(key);
        let fallback = *limits.start();
        time::nanos(self.report, &place, text, limits, fallback)
    }

    fn place(&self) -> [Step<'a>; 2] {
        ["service".into(), self.name.into()]
    }

    fn at(&self, key: &'a str) -> [Step<'a>; 3] {
        ["service".into(), self.name.into(), key.into()]
    }

    /// Reports that `key` is missing, unless it has an error already.
    fn missing(&mut self, key: &'a str, mend: String) {
        if !self.report.is_marred(&self.at(key)) {
            self.report.error(&self.place(), format!("the service has no {key}"), mend);
        }
    }

    /// What `read` says of the value at `key`; its fault is reported.
    fn read<T>(&mut self, key: &'a str, read: Result<T, Fault>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err((problem, mend)) => {
                let place = self.at(key);
                self.report.error(&place, problem, mend);
                None
            }
        }
    }

    fn network(&mut self) -> Option<IpNet> {
        let Some(text) = &self.service.address else {
            self.missing("address", "add address = \"198.51.100.1\", the virtual address".into());
            return None;
        };
        self.read("address", traffic::network(text))
    }

    fn protocol(&mut self) -> Option<Protocol> {
        self.read("protocol", traffic::protocol(&self.service.protocol))
            .filter(|_| !self.report.is_marred(&self.at("protocol")))
    }

    fn ports(&mut self, protocol: Option<Protocol>) -> Option<Ports> {
        let has_ports = protocol.is_none_or(Protocol::has_ports);
        let Some(setting) = &self.service.port else {
            if has_ports {
                let mend = "add port = 80, the destination port, or port = \"any\"";
                self.missing("port", mend.into());
            }
            return (!has_ports).then_some(Ports::Any);
        };
        let ports = self.read("port", traffic::ports(setting))?;
        if !has_ports && ports != Ports::Any {
            let protocol = protocol.unwrap_or(Protocol::Any);
            let problem = format!("protocol {protocol} has no ports");
            self.read::<()>("port", Err((problem, "remove port, or protocol".to_owned())));
            return None;
        }
        Some(ports)
    }

    /// The index of the pool that `key` names; that it is missing is reported.
    fn pool(&mut self, key: &'a str, name: Option<&str>, pools: &[&str]) -> Option<usize> {
        let Some(name) = name else {
            let known = nearest("", pools.iter().copied());
            self.missing(key, format!("add {key} = \"NAME\"; {known}"));
            return None;
        };
        let found = pools.binary_search(&name).map_err(|_| {
            let problem = format!("there is no pool {}", quoted(name));
            (problem, nearest(name, pools.iter().copied()))
        });
        self.read(key, found)
    }

    fn backup(&mut self, pool: Option<usize>, pools: &[&str]) -> Option<usize> {
        let name = self.service.backup.as_deref()?;
        let backup = self.pool("backup", Some(name), pools)?;
        if Some(backup) != pool {
            return Some(backup);
        }
        let problem = format!("{} is the service's pool itself", quoted(name));
        self.read("backup", Err((problem, "name another pool, or remove it".to_owned())))
    }

    fn table_size(&mut self) -> Option<u32> {
        let size = self.service.table_size;
        let place = self.at("table_size");
        if size == 0 || self.report.is_marred(&place) {
            return None;
        }
        let size = self.report.whole(&place, size, 2..=i64::from(tables::SLOTS_MAX))?;
        if tables::is_prime(size) {
            return Some(size);
        }
        let near = (size..).find(|size| tables::is_prime(*size)).unwrap_or(tables::SLOTS_MAX);
        let problem = format!("{size} is not a prime");
        self.report.error(&place, problem, format!("write {near}, or 0 to have one chosen"));
        None
    }
}
