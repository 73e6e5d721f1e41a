//! From Varnish's parameters to those of this host's prober, which has bounds of its own.

use std::net::SocketAddr;

use sickbay_core::limits::{
    INTERVAL_NS_MAX, INTERVAL_NS_MIN, TIMEOUT_NS_MAX, TIMEOUT_NS_MIN, WINDOW_MAX,
};
use sickbay_core::plan::Nanos;

use super::{Backend, Endpoint, Parameters};
use crate::address::Address;
use crate::config::quoted;
use crate::fleet::ProxyHeader;

/// A probe's parameters as the prober has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// From the start of one probe to the next.
    pub interval_ns: Nanos,
    /// One deadline.
    pub timeout_ns: Nanos,
    /// Results that are looked at: 1 to 64.
    pub window: u8,
    /// Good ones that are needed: 1 to the window.
    pub threshold: u8,
    /// Good ones assumed at the start.
    pub initial: u8,
}

impl Parameters {
    /// The same for the prober.
    ///
    /// # Errors
    ///
    /// What it cannot do: times beyond its bounds, a rule that is never met.
    pub fn probing(&self) -> Result<Probing, String> {
        if self.window < self.threshold {
            return Err(format!(
                "window {} and threshold {}: Varnish loads this (a 0 means \"not given\"), and no \
                 backend is ever healthy by it",
                self.window, self.threshold
            ));
        }
        // Varnish's window of 65 counts the 64 bits there are.
        let window = self.window.min(u32::from(WINDOW_MAX));
        let small = |number: u32| u8::try_from(number.min(window)).expect("at most 64");
        Ok(Probing {
            interval_ns: nanos("interval", self.interval_s, INTERVAL_NS_MIN, INTERVAL_NS_MAX)?,
            timeout_ns: nanos("timeout", self.timeout_s, TIMEOUT_NS_MIN, TIMEOUT_NS_MAX)?,
            window: small(window),
            threshold: small(self.threshold),
            initial: small(self.initial),
        })
    }
}

/// Where a backend is, its name looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Where it is probed.
    pub address: Address,
    /// Its address of the other family, when it has one of each. Varnish connects to it when the
    /// first cannot be connected to.
    pub other: Option<SocketAddr>,
}

impl Backend {
    /// Where it is probed, a name looked up. Of an IPv4 and an IPv6 address the IPv4 one is, unless
    /// `prefer_ipv6` is set, which is Varnish's parameter of that name.
    ///
    /// # Errors
    ///
    /// Why there is no such place: a name without one address, a socket's path that is none, a
    /// backend that is none.
    pub fn locate(&self, prefer_ipv6: bool) -> Result<Located, String> {
        match &self.endpoint {
            Endpoint::Network(network) => {
                let (address, other) = network.resolve(prefer_ipv6)?;
                Ok(Located { address: address.into(), other })
            }
            Endpoint::Unix(path) => {
                let text = std::str::from_utf8(path).ok();
                let address = text.and_then(Address::unix).ok_or_else(|| {
                    let path = String::from_utf8_lossy(path);
                    format!("unix socket {}: longer than 107 bytes, or not UTF-8", quoted(&path))
                })?;
                Ok(Located { address, other: None })
            }
            Endpoint::Nothing => Err("it is none: there is nothing to probe".to_owned()),
        }
    }

    /// The bytes that its probe sends, but for a PROXY header of version 1, which only the open
    /// connection knows.
    #[must_use]
    pub fn sent(&self, parameters: &Parameters) -> Vec<u8> {
        let request = parameters.request(&self.host_header);
        match self.proxy_header {
            2 => [ProxyHeader::V2Local.fixed_bytes(), &request].concat(),
            _ => request,
        }
    }
}

fn nanos(what: &str, seconds: f64, least: Nanos, most: Nanos) -> Result<Nanos, String> {
    let rounded = (seconds * 1e9).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "durations have no sign, and a cast to integers stops at their largest"
    )]
    let nanos = rounded as Nanos;
    if (least..=most).contains(&nanos) {
        return Ok(nanos);
    }
    let shown = |ns| humantime::format_duration(std::time::Duration::from_nanos(ns));
    Err(format!("{what} {seconds} s: from {} to {} is probed", shown(least), shown(most)))
}
