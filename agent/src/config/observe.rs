//! What of `[agent]` says where the agent tells what it does: metrics, history, log.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::problem::{Report, Step, quoted};
use super::settings::AgentSettings;
use crate::fleet::{History, Observe};

/// Bytes that the history may be given: less holds too few events to be of use in the only hour
/// that matters, more is a mistake.
const HISTORY_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 31;

/// Where the agent tells what it does; `directory` is the history's. What is wrong is reported.
pub(super) fn validate(
    agent: &AgentSettings,
    directory: PathBuf,
    report: &mut Report<'_>,
) -> Observe {
    let at = |key| [Step::Key("agent"), Step::Key(key)];
    let metrics = agent.metrics.as_deref().and_then(|text| metrics(text, &at("metrics"), report));
    if agent.metrics_per_target && agent.metrics.is_none() && !report.is_marred(&at("metrics")) {
        let mend = "add metrics = \"127.0.0.1:9990\", or remove it";
        report.error(&at("metrics_per_target"), "has no meaning without metrics", mend);
    }
    let bytes_max = report
        .whole(&at("history_bytes"), agent.history_bytes, HISTORY_BYTES)
        .unwrap_or_default()
        .into();
    Observe {
        metrics,
        metrics_per_target: agent.metrics_per_target,
        history: agent.history.then_some(History { directory, bytes_max }),
        log_format: agent.log_format,
    }
}

/// An address that only this host reaches: whoever reads the metrics is not asked who he is, and
/// they name every backend.
fn metrics(text: &str, place: &[Step<'_>], report: &mut Report<'_>) -> Option<SocketAddr> {
    let mend = "write \"127.0.0.1:9990\" or \"[::1]:9990\"";
    let Ok(address) = text.parse::<SocketAddr>() else {
        report.error(place, format!("{} is no ADDRESS:PORT", quoted(text)), mend);
        return None;
    };
    if !address.ip().to_canonical().is_loopback() {
        let problem = format!(
            "{address} is not a loopback address: metrics name every backend, and whoever reaches \
             the port reads them"
        );
        let mend = "write \"127.0.0.1:PORT\" or \"[::1]:PORT\", and give what stands before it \
                    (a proxy with TLS and passwords) the other address";
        report.error(place, problem, mend);
        return None;
    }
    if address.port() == 0 {
        report.error(place, "port 0 is another one at each start", mend);
        return None;
    }
    Some(address)
}
