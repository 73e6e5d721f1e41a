//! The backends of a VCL as targets, each with the probe that the VCL gives it.

use std::net::SocketAddr;
use std::path::Path;

use sickbay_core::plan::Compat;

use super::ProbeArgs;
use super::target::{Own, Settings, UsageError, refuse};
use crate::address::Address;
use crate::engine::Endpoint;
use crate::fleet::{CloseMode, SocketOptions};
use crate::vcl::{self, Backend, Probe, Vcl};

/// The backends that the arguments name, or all of them.
///
/// # Errors
///
/// What is wrong with the VCL. What cannot be probed of a right one is wrong usage.
pub(super) fn settings(
    path: &Path,
    arguments: &ProbeArgs,
) -> anyhow::Result<Result<Settings, UsageError>> {
    let vcl = vcl::load(path)?;
    Ok(resolve(&vcl, arguments))
}

fn resolve(vcl: &Vcl, arguments: &ProbeArgs) -> Result<Settings, UsageError> {
    let mut notes: Vec<String> =
        vcl.warnings.iter().map(|note| format!("warning: {note}")).collect();
    for name in &arguments.targets {
        if !vcl.backends.iter().any(|backend| backend.name == *name) {
            return refuse(format!("{}: the VCL has no such backend", name.escape_debug()));
        }
    }
    let is_wanted = |backend: &&Backend| {
        arguments.targets.is_empty() || arguments.targets.contains(&backend.name)
    };
    let mut targets = Vec::new();
    for backend in vcl.backends.iter().filter(is_wanted) {
        let Some(probe) = backend.probe.map(|probe| &vcl.probes[probe]) else {
            notes.push(format!("{}: healthy without being probed", backend.name));
            continue;
        };
        match target(backend, probe, arguments) {
            Ok((target, other)) => {
                if let Some(other) = other {
                    let (name, address) = (&target.0, &target.1.address);
                    let other = other.ip();
                    notes.push(match target.1.second {
                        None => format!("{name}: probing {address}, not {other}"),
                        Some(_) => format!("{name}: probing {address}, or {other} when that fails"),
                    });
                }
                targets.push(target);
            }
            Err(why) => return refuse(format!("{}: {why}", backend.name)),
        }
    }
    if targets.is_empty() {
        return refuse("no backend of the VCL has a probe: all of them are healthy".to_owned());
    }
    Ok(Settings::of_each(targets, notes))
}

/// A backend's name, where and what it is asked, and how that is judged.
type Target = (String, Endpoint, Own);

/// The backend as a target, and its address of the other family, which is not probed.
fn target(
    backend: &Backend,
    probe: &Probe,
    arguments: &ProbeArgs,
) -> Result<(Target, Option<SocketAddr>), String> {
    let located = backend.locate(arguments.prefer_ipv6)?;
    let compat = match arguments.compat() {
        Compat::Off => Compat::Off,
        Compat::Varnish { .. } => Compat::Varnish { expect_close: probe.parameters.expect_close },
    };
    let own = Own {
        probing: probe.parameters.probing()?,
        expected_status: probe.parameters.expected_response,
        compat,
    };
    // By FIN, as Varnish closes.
    let endpoint = Endpoint {
        address: located.address,
        second: located.other.filter(|_| compat.is_varnish()).map(Address::from),
        request: backend.sent(&probe.parameters),
        proxy_v1: backend.proxy_header == 1,
        close: CloseMode::Fin,
        socket: SocketOptions::default(),
    };
    Ok(((backend.name.clone(), endpoint, own), located.other))
}
