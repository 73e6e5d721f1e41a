//! A pool's backends from a VCL, with the requests that Varnish would send them.

use std::path::Path;

use super::name;
use super::pools::{Member, Origin};
use super::problem::ConfigError;
use super::question::{REQUEST_BYTES_MAX, REQUESTS_BYTES_MAX};
use super::settings::{ProbeSettings, StatusSetting, TimeText};
use crate::vcl::{self, Backend, Parameters, Question, Vcl};

/// What a VCL gives a pool.
pub(super) struct Taken {
    pub(super) members: Vec<Member>,
    /// The probe that its backends share; none when the pool has one of its own.
    pub(super) probe: Option<Box<ProbeSettings>>,
}

/// Why a VCL gives a pool nothing.
pub(super) enum Refusal {
    /// It cannot be read.
    File(ConfigError),
    /// It can be read, but not be used: the problem, and how to mend it.
    Unfit(String, String),
}

/// The backends of the VCL at `path`. When the pool has a probe, only their addresses are taken.
pub(super) fn take(path: &Path, has_probe: bool) -> Result<Taken, Refusal> {
    let vcl = vcl::load(path).map_err(Refusal::File)?;
    let parameters = if has_probe { None } else { Some(shared_parameters(&vcl)?) };
    let default = Parameters::default();
    let mut members = Vec::with_capacity(vcl.backends.len());
    let mut left = REQUESTS_BYTES_MAX;
    for backend in &vcl.backends {
        if let Some(fault) = name::backend_fault(&backend.name) {
            return Err(unfit(backend, &fault));
        }
        let probed = backend.probed(parameters.as_ref().unwrap_or(&default));
        let (address, request) = probed.map_err(|why| unfit(backend, &why))?;
        let request = parameters.is_some().then_some(request);
        let length = request.as_ref().map_or(0, Vec::len);
        if REQUEST_BYTES_MAX < length || left < length {
            let why = format!(
                "its request has {length} bytes; {REQUEST_BYTES_MAX} are the most, and {} MiB for \
                 all together",
                REQUESTS_BYTES_MAX >> 20
            );
            return Err(unfit(backend, &why));
        }
        left -= length;
        let name = Some(backend.name.clone());
        members.push(Member {
            name,
            address,
            probe_address: None,
            weight: 1,
            request,
            origin: Origin::Vcl,
        });
    }
    let probe = match parameters {
        Some(parameters) => Some(Box::new(settings(&parameters, &vcl.backends[0])?)),
        None => None,
    };
    Ok(Taken { members, probe })
}

/// The parameters that hold for every backend: a pool has one rule.
fn shared_parameters(vcl: &Vcl) -> Result<Parameters, Refusal> {
    let mut shared: Option<(&Backend, &Parameters)> = None;
    for backend in &vcl.backends {
        let Some(probe) = backend.probe else {
            return Err(unfit(
                backend,
                "it has no probe, and a pool without one is not possible yet",
            ));
        };
        let parameters = &vcl.probes[probe].parameters;
        match shared {
            Some((first, known)) if known != parameters => {
                let why = format!("its probe differs from that of {}", first.name);
                return Err(unfit(backend, &why));
            }
            _ => shared = Some((backend, parameters)),
        }
    }
    let none = || Refusal::Unfit("the VCL has no backends".to_owned(), "add some".to_owned());
    shared.map(|(_, parameters)| parameters.clone()).ok_or_else(none)
}

/// The probe in the words of this configuration. What is sent is a request of each backend's own.
fn settings(parameters: &Parameters, backend: &Backend) -> Result<ProbeSettings, Refusal> {
    let probing = parameters.probing().map_err(|why| unfit(backend, &why))?;
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
        ..ProbeSettings::default()
    })
}

fn unfit(backend: &Backend, why: &str) -> Refusal {
    let vcl::Place { file, line, column } = &backend.place;
    let problem = format!("backend {} ({file}:{line}:{column}): {why}", backend.name);
    let mend = "give the pool a probe that holds for all of them, or split the VCL's backends into \
                files of one probe each";
    Refusal::Unfit(problem, mend.to_owned())
}
