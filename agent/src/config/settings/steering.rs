//! `[steering]` and `[guard]` as they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeText;
use crate::fleet::Steering;

/// What the kernel program may spend, per CPU and second, and its room for flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SteeringSettings {
    /// Flows that can be remembered, per address family, because they do not follow their slot:
    /// 1024 to 16777216. Each takes about 100 bytes (IPv6: 120); `sickbay check` shows the sum.
    pub flow_entries: i64,
    /// Entries for SYNs that one CPU may write in a second; beyond them a SYN's flow follows its
    /// slot. 0 to 4294967295, as all that follow.
    pub syn_entries_per_second: i64,
    /// The same for flows past their SYN, and for fragments.
    pub flow_entries_per_second: i64,
    /// Answers (RST, ICMP) that one CPU may send in a second; beyond them the packet is dropped.
    pub answers_per_second: i64,
    /// Dropped packets that one CPU tells `sickbay drops` of in a second.
    pub drop_samples_per_second: i64,
}

impl Default for SteeringSettings {
    fn default() -> Self {
        let Steering {
            flow_entries,
            syn_entries_per_second,
            flow_entries_per_second,
            answers_per_second,
            drop_samples_per_second,
        } = Steering::default();
        Self {
            flow_entries: flow_entries.into(),
            syn_entries_per_second: syn_entries_per_second.into(),
            flow_entries_per_second: flow_entries_per_second.into(),
            answers_per_second: answers_per_second.into(),
            drop_samples_per_second: drop_samples_per_second.into(),
        }
    }
}

/// Holds the last verdicts when many backends of a pool turn sick at once.
///
/// Only when something points to this host: its own probing was late or lacked resources, a link
/// went down or a gateway does not answer, or nothing but timeouts came. An event is logged;
/// `sickbay guard release` ends the hold by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuardSettings {
    /// More than this share of a pool turning sick is too many: "1%" to "99%". Off when not given.
    #[schemars(example = &"50%")]
    pub share: Option<String>,
    /// The time in which they turn sick: "1s" to "1h".
    pub within: TimeText,
    /// How long the last verdicts are held at most: "1s" to "24h".
    pub hold: TimeText,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { share: None, within: "10s".into(), hold: "60s".into() }
    }
}
