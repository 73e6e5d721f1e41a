//! Services and attachments.

use std::collections::HashMap;
use std::net::IpAddr;

use sickbay_core::plan::Nanos;
use sickbay_shared::limits::SERVICES_MAX;

use super::endpoint;
use super::name;
use super::pools::DraftPool;
use super::problem::{Report, Step, nearest, quoted};
use super::settings::{ProgramSetting, ServiceSettings, Settings};
use super::{tables, time};
use crate::fleet::{Attachment, Program, Protocol};

/// A service before its table has a place.
#[derive(Debug)]
pub(super) struct DraftService {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// Index into the pools.
    pub(super) pool: usize,
    pub(super) udp_idle_ns: Nanos,
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
    let mut taken: HashMap<(IpAddr, u16, Protocol), &str> = HashMap::new();
    let mut drafts = Vec::with_capacity(settings.service.len());
    for (name, service) in &settings.service {
        if report.is_full() {
            break;
        }
        let draft = Draft { name, service, report }.validate(&pools);
        let key = (draft.address, draft.port, service.protocol);
        let place = ["service".into(), name.as_str().into()];
        let known = service.address.is_some() && service.port.is_some();
        if let Some(first) = taken.get(&key).filter(|_| known) {
            let protocol = tables::protocol_name(service.protocol);
            let (address, port) = (draft.address, draft.port);
            let problem = format!(
                "{address} port {port} {protocol} belongs to service {} already",
                quoted(first)
            );
            report.error(&place, problem, "give one of the two another address or port");
        } else if known {
            taken.insert(key, name);
        }
        drafts.push(draft);
    }
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
        // A pool that is not there has been reported, and stands as the first one.
        let known = service.pool.as_ref().is_some_and(|pool| settings.pool.contains_key(pool));
        let members = pools.get(draft.pool).filter(|_| known).map(|pool| &pool.members);
        let unix = members.into_iter().flatten().find(|each| each.address.inet().is_none());
        if let Some(member) = unix {
            let place = ["service".into(), name.as_str().into(), "pool".into()];
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
        let place = self.at("udp_idle");
        let limits = 1_000_000_000..=3_600_000_000_000;
        let udp_idle_ns =
            time::nanos(self.report, &place, &self.service.udp_idle, limits, 30_000_000_000);
        if self.service.protocol == Protocol::Tcp
            && self.service.udp_idle != ServiceSettings::default().udp_idle
        {
            let problem = "udp_idle has no effect on a tcp service";
            self.report.warn(&place, problem, "remove it");
        }
        DraftService {
            address: self.address(),
            port: self.port(),
            pool: self.pool(pools),
            udp_idle_ns,
            table_size: self.table_size(),
        }
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

    fn address(&mut self) -> IpAddr {
        let fallback = IpAddr::from([0, 0, 0, 0]);
        let Some(text) = &self.service.address else {
            self.missing("address", "add address = \"198.51.100.1\", the virtual address".into());
            return fallback;
        };
        let place = self.at("address");
        let parsed = text.parse::<IpAddr>().map_err(|_| {
            let mend = "write an IP address without a port, such as \"198.51.100.1\"";
            (format!("{} is not an IP address", quoted(text)), mend.to_owned())
        });
        match parsed.and_then(|address| endpoint::check(address).map(|()| address)) {
            Ok(address) => address,
            Err((problem, mend)) => {
                self.report.error(&place, problem, mend);
                fallback
            }
        }
    }

    fn port(&mut self) -> u16 {
        let Some(port) = self.service.port else {
            self.missing("port", "add port = 80, the destination port".into());
            return 0;
        };
        let place = self.at("port");
        let port = self.report.whole(&place, port, 1..=65_535).unwrap_or(0);
        u16::try_from(port).unwrap_or(0)
    }

    fn pool(&mut self, pools: &[&str]) -> usize {
        let Some(name) = &self.service.pool else {
            let known = nearest("", pools.iter().copied());
            self.missing("pool", format!("add pool = \"NAME\"; {known}"));
            return 0;
        };
        pools.binary_search(&name.as_str()).unwrap_or_else(|_| {
            let place = self.at("pool");
            let problem = format!("there is no pool {}", quoted(name));
            self.report.error(&place, problem, nearest(name, pools.iter().copied()));
            0
        })
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
