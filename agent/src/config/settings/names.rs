//! Names in the DNS as they are written: a pool's, and how they are looked up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeText;
use crate::discovery::Records;

/// How names of `backends_dns` are looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsSettings {
    /// The servers that are asked, "ADDRESS:PORT" each; those of /etc/resolv.conf when not given.
    #[schemars(example = ["127.0.0.1:53"])]
    pub resolvers: Vec<String>,
    /// How long an answer is waited for, "100ms" to "1m". Nothing else waits meanwhile.
    pub timeout: TimeText,
    /// A name is asked for again when its records' time to live is over, but not before this time
    /// has passed; after a failure it is asked for again after this. "1s" to "24h".
    pub ttl_min: TimeText,
    /// And not later than after this: ttl_min to "24h".
    pub ttl_max: TimeText,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            resolvers: Vec::new(),
            timeout: "3s".into(),
            ttl_min: "5s".into(),
            ttl_max: "5m".into(),
        }
    }
}

/// A name in a pool's list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum NameEntry {
    /// `NAME:PORT`, or the name of an SRV record.
    Name(String),
    /// With more to say.
    Table(NameSettings),
}

impl From<&str> for NameEntry {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// A name with more to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NameSettings {
    /// `NAME:PORT`; for "srv" the name alone.
    pub name: Option<String>,
    /// Which records: "any" (A and AAAA), "a", "aaaa", "srv". When not given, a name that begins
    /// with "_" and has no port is "srv", another one "any".
    pub records: Option<Records>,
    /// The weight of each of its backends, 1 to 1000; 1 when not given. SRV records have their own.
    pub weight: Option<i64>,
}
