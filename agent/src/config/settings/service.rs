//! `[service.NAME]` as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeText;
use crate::fleet::{AllSick, HashBy, Mode, OnSick, Stale};

/// What traffic is steered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSettings {
    /// The virtual address (VIP), IPv4 or IPv6, or a prefix of them: "192.0.2.0/24". A packet
    /// belongs to the service with the longest prefix that it suits.
    #[schemars(example = "198.51.100.1", extend("x-live" = true))]
    pub address: Option<String>,
    /// The destination port; or several, and ranges of them: [80, 443, "8000-8099"]; or "any". Of
    /// several services a single port goes before a range, and a range before "any".
    #[schemars(example = PortSetting::One(80), extend("x-live" = true))]
    pub port: Option<PortSetting>,
    /// The protocol: "tcp", "udp", "any", or another by name or number, such as "gre" or 47. One
    /// without ports needs no port; its flows are told apart by their two addresses.
    pub protocol: ProtocolSetting,
    /// Name of the pool that new flows go to.
    #[schemars(example = &"web", extend("x-live" = true))]
    pub pool: Option<String>,
    /// Name of the pool that new flows go to when pool has no backend that takes any, or panics.
    /// Not this pool itself.
    #[schemars(example = &"sorry")]
    pub backup: Option<String>,
    /// What is done with the packets.
    pub mode: Mode,
    /// By what the backend of a flow is chosen.
    pub hash: HashBy,
    /// What new flows get when every backend of the pool, and of the backup pool, is sick.
    pub all_sick: AllSick,
    /// What becomes of open TCP connections to a backend that turns sick.
    pub on_sick_tcp: OnSick,
    /// What becomes of flows of UDP and every other protocol to a backend that turns sick.
    pub on_sick_udp: OnSick,
    /// What the verdict against a backend is worth when the agent has given no sign of life for
    /// stale_after.
    pub stale: Stale,
    /// See stale. "1s" to "24h".
    pub stale_after: TimeText,
    /// Every protocol but tcp: a client that is silent for this long counts as new. "1s" to "1h".
    pub udp_idle: TimeText,
    /// Slots of the table that spreads flows over backends: a prime, at least as many as there are
    /// backends; 0 chooses about a hundred per backend.
    pub table_size: i64,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            address: None,
            port: None,
            protocol: ProtocolSetting::Name("tcp".to_owned()),
            pool: None,
            backup: None,
            mode: Mode::default(),
            hash: HashBy::default(),
            all_sick: AllSick::default(),
            on_sick_tcp: OnSick::Keep,
            on_sick_udp: OnSick::Rehash,
            stale: Stale::default(),
            stale_after: "60s".into(),
            udp_idle: "30s".into(),
            table_size: 0,
        }
    }
}

/// Destination ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("format" = "ports"))]
pub enum PortSetting {
    /// One.
    One(i64),
    /// `FIRST-LAST`, or `any`.
    Text(String),
    /// Several of them.
    Several(Vec<PortEntry>),
}

/// One of several destination ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PortEntry {
    /// One.
    One(i64),
    /// `FIRST-LAST`.
    Range(String),
}

/// A protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("format" = "protocol"))]
pub enum ProtocolSetting {
    /// By its number.
    Number(i64),
    /// By its name.
    Name(String),
}
