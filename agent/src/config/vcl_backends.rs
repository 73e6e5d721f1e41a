//! A pool's backends from a VCL, with the requests that Varnish would send them.

use std::path::Path;

use super::judging::Judges;
use super::name;
use super::pools::{Member, Origin};
use super::problem::ConfigError;
use super::question::{REQUEST_BYTES_MAX, REQUESTS_BYTES_MAX};
use super::settings::{ProbeSettings, StatusSetting, TimeText};
use crate::vcl::{self, Backend, Endpoint, Parameters, Probe, Question, Vcl};

/// What a pool wants of its VCL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Each backend's own probe; else the backends alone.
    pub(super) own_probes: bool,
    /// Of a host with an IPv4 and an IPv6 address, the IPv6 one.
    pub(super) prefer_ipv6: bool,
}

/// What a VCL gives a pool.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) members: Vec<Member>,
    /// The probes that its backends have, each once.
    pub(super) probes: Vec<VclProbe>,
    /// What may disappoint, and the way out.
    pub(super) notes: Vec<(String, String)>,
}

/// A probe of a VCL in the words of this configuration. What is sent is a request of each backend's
/// own.
#[derive(Clone, Debug)]
pub(super) struct VclProbe {
    /// Its name there, or that of the backend in which it stands.
    pub(super) name: String,
    pub(super) settings: ProbeSettings,
}

/// Why a VCL gives a pool nothing.
pub(super) enum Refusal {
    /// It cannot be read.
    File(ConfigError),
    /// It can be read, but not be used: the problem, and how to mend it.
    Unfit(String, String),
}

/// The backends of the VCL at `path`, and their probes.
pub(super) fn take(path: &Path, wanted: Wanted) -> Result<Taken, Refusal> {
    let vcl = vcl::load(path).map_err(Refusal::File)?;
    let mut taking = Taking {
        vcl: &vcl,
        wanted,
        distinct: Vec::new(),
        taken: Taken::default(),
        request_bytes_left: REQUESTS_BYTES_MAX,
    };
    for backend in &vcl.backends {
        taking.backend(backend)?;
    }
    if taking.taken.members.is_empty() {
        let problem = "the VCL has no backends that lead anywhere".to_owned();
        return Err(Refusal::Unfit(problem, "add some".to_owned()));
    }
    Ok(taking.taken)
}

struct Taking<'v> {
    vcl: &'v Vcl,
    wanted: Wanted,
    /// The parameters of `taken.probes`, and whether a PROXY header of version 1 goes with them:
    /// version 2 is part of each backend's own request.
    distinct: Vec<(&'v Parameters, bool)>,
    taken: Taken,
    request_bytes_left: usize,
}

impl<'v> Taking<'v> {
    fn backend(&mut self, backend: &'v Backend) -> Result<(), Refusal> {
        if let Some(fault) = name::backend_fault(&backend.name) {
            return Err(unfit(backend, &fault));
        }
        if backend.endpoint == Endpoint::Nothing {
            let problem = format!("backend {} is none: it is left out", backend.name);
            self.taken.notes.push((problem, "give it a .host to have it in the pool".to_owned()));
            return Ok(());
        }
        let located =
            backend.locate(self.wanted.prefer_ipv6).map_err(|why| unfit(backend, &why))?;
        if let Some(other) = located.other {
            let problem = format!(
                "backend {} has two addresses: {} is probed and gets the flows, {} neither",
                backend.name,
                located.address,
                other.ip()
            );
            let mend = "write the one that is meant into the VCL, or turn prefer_ipv6 round";
            self.taken.notes.push((problem, mend.to_owned()));
        }
        let judges = match backend.probe.map(|probe| &self.vcl.probes[probe]) {
            _ if !self.wanted.own_probes => Judges::Pool,
            None => Judges::Own(Vec::new()),
            Some(probe) => self.judge(backend, probe)?,
        };
        self.taken.members.push(Member {
            name: Some(backend.name.clone()),
            address: located.address,
            probe_address: None,
            weight: 1,
            judges,
            origin: Origin::Vcl,
            named_by: crate::fleet::Origin::Configured,
        });
        Ok(())
    }

    /// The backend's probe: one that is known already when it asks and judges alike.
    fn judge(&mut self, backend: &Backend, probe: &'v Probe) -> Result<Judges, Refusal> {
        let parameters = &probe.parameters;
        let wanted = (parameters, backend.proxy_header == 1);
        let known = self.distinct.iter().position(|known| *known == wanted);
        let index = match known {
            Some(known) => known,
            None => {
                let name = probe.name.as_ref().unwrap_or(&backend.name).clone();
                let settings =
                    settings(parameters, wanted.1).map_err(|why| unfit(backend, &why))?;
                self.taken.probes.push(VclProbe { name, settings });
                self.distinct.push(wanted);
                self.distinct.len() - 1
            }
        };
        let request = backend.sent(parameters);
        let length = request.len();
        if REQUEST_BYTES_MAX < length || self.request_bytes_left < length {
            let why = format!(
                "its request has {length} bytes; {REQUEST_BYTES_MAX} are the most, and {} MiB for \
                 all together",
                REQUESTS_BYTES_MAX >> 20
            );
            return Err(unfit(backend, &why));
        }
        self.request_bytes_left -= length;
        Ok(Judges::Vcl { probe: index, request })
    }
}

fn settings(parameters: &Parameters, proxy_v1: bool) -> Result<ProbeSettings, String> {
    let probing = parameters.probing()?;
    let url = match &parameters.question {
        Question::Url(url) => String::from_utf8(url.clone()).ok(),
        Question::Request(_) => None,
    };
    let is_path = |url: &String| url.starts_with('/') && url.bytes().all(|b| b.is_ascii_graphic());
    Ok(ProbeSettings {
        url: Some(url.filter(is_path).unwrap_or_else(|| "/".to_owned())),
        expected_response: Some(StatusSetting::One(parameters.expected_response.into())),
        interval: TimeText(format!("{}ns", probing.interval_ns)),
        timeout: TimeText(format!("{}ns", probing.timeout_ns)),
        window: Some(probing.window.into()),
        threshold: Some(probing.threshold.into()),
        initial: Some(probing.initial.into()),
        proxy_header: proxy_v1.then_some(1),
        ..ProbeSettings::default()
    })
}

fn unfit(backend: &Backend, why: &str) -> Refusal {
    let vcl::Place { file, line, column } = &backend.place;
    let problem = format!("backend {} ({file}:{line}:{column}): {why}", backend.name);
    let mend = "mend that in the VCL, or list the pool's backends here";
    Refusal::Unfit(problem, mend.to_owned())
}
