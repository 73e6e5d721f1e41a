//! `[pool.NAME]` as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NameEntry, NameSettings, TimeText};
use crate::discovery::Records;

/// A set of backends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// Name of the probe that judges the backends, or of several, which they must all pass:
    /// ["web", "deep"]. "none": they are healthy without being probed.
    #[schemars(example = ProbeNames::One("web".to_owned()), extend("x-live" = true))]
    pub probe: Option<ProbeNames>,
    /// Backends: "ADDRESS:PORT", a unix socket as "unix:/FILE" or "unix:@NAME", or a table with more
    /// to say. Host names belong into backends_dns. This and the next three add up; a pool has 65536
    /// backends at most. A pool with a unix socket is probed and shown; no service can be over it.
    #[schemars(
        example = [
            "192.0.2.1:80".into(),
            BackendEntry::Table(BackendSettings {
                name: Some("b2".to_owned()),
                address: Some("192.0.2.2:80".to_owned()),
                probe_address: None,
                probe: None,
                weight: Some(2),
            }),
        ],
        extend("x-live" = true)
    )]
    pub backends: Vec<BackendEntry>,
    /// A file of backends, one per line: `ADDRESS:PORT [weight=N] [name=NAME]`; `#` begins a
    /// comment. A name that ends in .json, .yaml or .yml has Prometheus' file_sd form instead, whose
    /// label weight is the weight of a group; no other label has a meaning. The file is watched: a
    /// change is in force within a second, and one that cannot be read, or lists nobody, is not; what
    /// the file listed before holds. Relative to this file.
    #[schemars(example = "web.list")]
    pub backends_file: Option<String>,
    /// Names in the DNS whose addresses are backends: "NAME:PORT" (A and AAAA records),
    /// "_SERVICE._PROTOCOL.NAME" (SRV records, of which the first priority counts, each with its port
    /// and weight), or a table with more to say. Each is asked for again when its records' time to
    /// live is over; while nobody answers, or the answer is empty or NXDOMAIN, the last good one
    /// holds. A name that was never answered has no backends yet, which does not hinder a start.
    #[schemars(example = [
        "web.example.com:80".into(),
        NameEntry::Table(NameSettings {
            name: Some("v4.example.com:80".to_owned()),
            records: Some(Records::A),
            weight: Some(2),
        }),
        "_http._tcp.example.com".into(),
    ])]
    pub backends_dns: Vec<NameEntry>,
    /// Whether the pool may have no backends, and its file list nobody: its services then do what
    /// all_sick says. Otherwise a file that lists nobody is taken for one that is being written.
    pub allow_empty: bool,
    /// A range of backends: "127.0.0.1-127.0.39.16:80", "10.0.0.0/24:80" (without the network and
    /// the broadcast address) or "[fd00::/120]:80".
    #[schemars(example = "10.0.0.0/24:80")]
    pub backends_range: Option<String>,
    /// A VCL, Varnish's configuration: its backends are the pool's, under their names, each asked
    /// what Varnish would ask it. Each backend's own probe holds when `probe` is not given; one
    /// without a probe is healthy. Host names are looked up once, as Varnish does. Relative to this
    /// file.
    #[schemars(example = &"default.vcl")]
    pub vcl: Option<String>,
    /// With vcl: of a host with an IPv4 and an IPv6 address, the IPv6 one. One address is a backend:
    /// it is probed and gets the flows, and the other one is never asked instead, so that a fault of
    /// one family is seen.
    #[schemars(example = true)]
    pub prefer_ipv6: Option<bool>,
    /// The port to probe, when it is not the backend's own.
    #[schemars(example = 8080)]
    pub probe_port: Option<i64>,
    /// The pool panics when less than this share of it takes new flows, "1%" to "100%": services
    /// that are open when all are sick then give their new flows to all backends, rather than
    /// crush the few that are left (to those of a backup pool first). Never when not given.
    #[schemars(example = &"30%")]
    pub panic_threshold: Option<String>,
    /// The panic ends when at least this share takes new flows: panic_threshold to "100%"; ten
    /// points above panic_threshold when not given.
    #[schemars(example = &"40%")]
    pub panic_end: Option<String>,
    /// How long a change of backends leaves its mark: a flow that sends a packet within this time
    /// stays where it is, a backend that is removed serves its flows for so long, and then its
    /// place may be another's. "1s" to "24h".
    pub drain: TimeText,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            probe: None,
            backends: Vec::new(),
            backends_file: None,
            backends_dns: Vec::new(),
            allow_empty: false,
            backends_range: None,
            vcl: None,
            prefer_ipv6: None,
            probe_port: None,
            panic_threshold: None,
            panic_end: None,
            drain: "5m".into(),
        }
    }
}

/// The probe of a pool, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("format" = "names"))]
pub enum ProbeNames {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl ProbeNames {
    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// A backend in a pool's list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BackendEntry {
    /// `ADDRESS:PORT`.
    Address(String),
    /// With more to say.
    Table(BackendSettings),
}

impl From<&str> for BackendEntry {
    fn from(address: &str) -> Self {
        Self::Address(address.to_owned())
    }
}

/// A backend with more to say than its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendSettings {
    /// Its name, unique in the pool; the address when not given.
    pub name: Option<String>,
    /// `ADDRESS:PORT`, `unix:/FILE` or `unix:@NAME`.
    pub address: Option<String>,
    /// The address to probe instead, when it is another.
    pub probe_address: Option<String>,
    /// Its own probe, or several, instead of the pool's; "none" for none.
    pub probe: Option<ProbeNames>,
    /// Its share of new flows relative to the others, 1 to 1000; 1 when not given.
    pub weight: Option<i64>,
}
