//! Names in the DNS: a pool's, and how they are looked up. What they mean is not asked here.

use std::net::SocketAddr;

use super::endpoint::{self, Fault};
use super::problem::{Report, Step, quoted};
use super::settings::{NameEntry, NameSettings, Settings};
use super::{WEIGHT_MAX, time};
use crate::discovery::{Question, Records};
use crate::fleet::Dns;

/// Names of all pools together: each is asked for by itself.
const NAMES_MAX: usize = 1024;
/// Servers that are asked at most; resolv.conf(5) knows three.
const RESOLVERS_MAX: usize = 8;
/// Characters of a name, RFC 1035's limit for one that is written without its root.
const NAME_CHARS_MAX: usize = 253;
/// Characters between two dots.
const LABEL_CHARS_MAX: usize = 63;

/// How names are looked up; what is wrong is reported.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Dns {
    let given = &settings.dns;
    let at = |key| [Step::Key("dns"), Step::Key(key)];
    let mut resolvers = Vec::new();
    for (index, text) in given.resolvers.iter().enumerate() {
        let place = [Step::Key("dns"), Step::Key("resolvers"), index.into()];
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => resolvers.push(address),
            _ if report.is_marred(&place) => {}
            _ => {
                let problem = format!("{} is not ADDRESS:PORT", quoted(text));
                report.error(&place, problem, "write it as \"192.0.2.53:53\" or \"[fd00::53]:53\"");
            }
        }
    }
    if RESOLVERS_MAX < given.resolvers.len() {
        let problem = format!("{} servers are listed", given.resolvers.len());
        report.error(&at("resolvers"), problem, format!("list {RESOLVERS_MAX} at most"));
    }
    let defaults = Dns::default();
    let day_ns = 86_400_000_000_000;
    let limits = 100_000_000..=60_000_000_000;
    let timeout_ns =
        time::nanos(report, &at("timeout"), &given.timeout, limits, defaults.timeout_ns);
    let limits = 1_000_000_000..=day_ns;
    let ttl_min_ns =
        time::nanos(report, &at("ttl_min"), &given.ttl_min, limits, defaults.ttl_min_ns);
    let limits = ttl_min_ns..=day_ns;
    let ttl_max_ns = time::nanos(report, &at("ttl_max"), &given.ttl_max, limits, day_ns);
    Dns { resolvers, timeout_ns, ttl_min_ns, ttl_max_ns }
}

/// What is to be asked for an entry of `backends_dns`.
pub(super) fn question(
    entry: &NameEntry,
    place: &[Step<'_>],
    report: &mut Report<'_>,
) -> Option<Question> {
    let inner = |key| [place, &[Step::Key(key)]].concat();
    let plain = NameSettings::default();
    let (text, settings, at_name) = match entry {
        NameEntry::Name(text) => (text, &plain, place.to_vec()),
        NameEntry::Table(table) => match &table.name {
            Some(text) => (text, table, inner("name")),
            None => {
                if !report.is_marred(&inner("name")) {
                    let mend = "add name = \"NAME:PORT\"";
                    report.error(place, "the entry has no name", mend);
                }
                return None;
            }
        },
    };
    let weight = match settings.weight {
        None => 1,
        Some(weight) => report.whole(&inner("weight"), weight, 1..=WEIGHT_MAX)?,
    };
    let faulty = |report: &mut Report<'_>, (problem, mend): Fault| {
        report.error(&at_name, problem, mend);
        None
    };
    let (name, port) = match split(text) {
        Ok(split) => split,
        Err(fault) => return faulty(report, fault),
    };
    let is_service = name.starts_with('_') && port.is_none();
    let records = settings.records.unwrap_or(if is_service { Records::Srv } else { Records::Any });
    match (records, port) {
        (Records::Srv, Some(_)) => {
            let mend = format!("write {} alone", quoted(&name));
            faulty(report, ("SRV records have their own ports".to_owned(), mend))
        }
        (Records::Srv, None) if settings.weight.is_some() => {
            let place = inner("weight");
            report.error(&place, "SRV records have their own weights", "remove it");
            None
        }
        (Records::Srv, None) => Some(Question { name, records, port: 0, weight: 0 }),
        (_, None) => {
            let problem = format!("{} has no port", quoted(text));
            faulty(report, (problem, format!("write it as \"{name}:80\"")))
        }
        (_, Some(port)) => Some(Question { name, records, port, weight }),
    }
}

/// A name in lower case, and its port when it has one.
fn split(text: &str) -> Result<(String, Option<u16>), Fault> {
    if endpoint::endpoint(text).is_ok() || text.parse::<std::net::IpAddr>().is_ok() {
        let problem = format!("{} is an address, not a name", quoted(text));
        return Err((problem, "put it into backends".to_owned()));
    }
    let (name, port) = match text.rsplit_once(':') {
        None => (text, None),
        Some((name, port)) => match port.parse::<u16>() {
            Ok(port) if port != 0 => (name, Some(port)),
            _ => {
                let problem = format!("{} has no port from 1 to 65535", quoted(text));
                return Err((problem, "write it as \"NAME:80\"".to_owned()));
            }
        },
    };
    let is_label = |label: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=LABEL_CHARS_MAX).contains(&label.len()) && label.chars().all(known)
    };
    let bare = name.strip_suffix('.').unwrap_or(name);
    if NAME_CHARS_MAX < bare.len() || !bare.split('.').all(is_label) {
        let mend = "write labels of 1 to 63 letters, digits, \"-\", \"_\", with dots between them; \
                    other letters as IDNA has them";
        return Err((format!("{} is no name of the DNS", quoted(name)), mend.to_owned()));
    }
    Ok((name.to_ascii_lowercase(), port))
}

/// Reports that all pools together have more names than are looked up.
pub(super) fn check_count(count: usize, report: &mut Report<'_>) {
    if NAMES_MAX < count {
        let problem = format!("all pools together have {count} names; {NAMES_MAX} are the most");
        report.error(&["pool".into()], problem, "list addresses in a file instead");
    }
}
