//! Who belongs to a pool: what operators ask, and what is told of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use sickbay_core::text::Legible;

use crate::config::Changes;

use super::pattern::Pattern;
use super::said::{Said, Terms};
use super::view::Admin;

/// A backend to add, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBackend {
    /// `ADDRESS:PORT`, `unix:/FILE` or `unix:@NAME`.
    pub address: String,
    /// Its name; the address when there is none.
    #[serde(default)]
    pub name: Option<String>,
    /// Its share relative to the others; 1 when there is none.
    #[serde(default)]
    pub weight: Option<u32>,
}

/// A change of members: all of it is done, or none.
#[derive(Clone, Debug)]
pub enum MemberChange {
    /// These enter a pool.
    Add {
        /// The pool's name.
        pool: String,
        /// Who.
        backends: Vec<NewBackend>,
    },
    /// These leave; their flows go on for the pool's drain.
    Remove {
        /// Who.
        pattern: Pattern,
    },
    /// These have another share.
    Weigh {
        /// Who.
        pattern: Pattern,
        /// 1 ..= 1000.
        weight: u32,
    },
    /// These take no new flows and keep those they have.
    Drain {
        /// Who.
        pattern: Pattern,
        /// Their limit is how long they keep them; none = until they close.
        terms: Terms,
    },
    /// These are drained, and what their probes find is nobody's news, until their time is over or
    /// they are undrained.
    Maintain {
        /// Who.
        pattern: Pattern,
        /// For how long, and why.
        terms: Terms,
    },
    /// These take new flows again.
    Undrain {
        /// Who.
        pattern: Pattern,
    },
}

impl MemberChange {
    /// Whether it is something that an operator says over members, and that is kept.
    #[must_use]
    pub const fn is_said(&self) -> bool {
        matches!(
            self,
            Self::Drain { .. } | Self::Maintain { .. } | Self::Undrain { .. } | Self::Remove { .. }
        )
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersChanged {
    /// Whom it concerned, `pool.backend` each.
    pub names: Vec<String>,
    /// What will disappoint, one line each.
    pub notes: Vec<String>,
}

/// What a changed configuration came to, `pool.backend` each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Who entered.
    pub added: Vec<String>,
    /// Who left.
    pub removed: Vec<String>,
    /// Who has another weight.
    pub weighed: Vec<String>,
    /// What else was changed, one line each.
    #[serde(default)]
    pub changed: Vec<String>,
    /// What will disappoint, one line each.
    pub notes: Vec<String>,
}

impl From<Changes> for Reloaded {
    fn from(Changes { added, removed, weighed, mut changed, followed }: Changes) -> Self {
        changed.extend(followed);
        Self { added, removed, weighed, changed, notes: Vec::new() }
    }
}

impl Reloaded {
    /// One line: how many of each.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { added, removed, weighed, changed, notes: _ } = self;
        if [added, removed, weighed, changed].into_iter().all(Vec::is_empty) {
            return "nothing has changed".to_owned();
        }
        let (added, removed, weighed) = (added.len(), removed.len(), weighed.len());
        let members = format!("{added} added, {removed} removed, {weighed} with another weight");
        match changed.len() {
            0 => members,
            1 => format!("{members}; 1 other change"),
            count => format!("{members}; {count} other changes"),
        }
    }
}

/// What became of a backend's membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum MemberEvent {
    /// It entered its pool.
    Added {
        /// Where its flows go: `ADDRESS:PORT`, `unix:/FILE` or `unix:@NAME`.
        address: String,
        /// Its share.
        weight: u32,
    },
    /// It left its pool; its flows go on for so long.
    Removed {
        /// In ms.
        drain_ms: u64,
    },
    /// It left a drain ago, and nothing of it is left.
    Gone,
    /// It takes no new flows.
    DrainBegan {
        /// For how long it keeps those it has, in ms; `None` = until they close.
        limit_ms: Option<u64>,
        /// Who said so.
        #[serde(default)]
        said: Said,
    },
    /// It takes no new flows, and what its probes find is nobody's news.
    MaintenanceBegan {
        /// Who said so.
        said: Said,
    },
    /// An operator set its health, or left it to its probes again.
    HealthSet {
        /// To this.
        health: Admin,
        /// Who said so.
        said: Said,
    },
    /// The time is over for which its health was set: its probes decide again.
    HealthOver,
    /// It takes new flows again.
    DrainEnded,
    /// The time is over for which it kept its flows.
    DrainTimeOver,
    /// It has another share.
    Weighed {
        /// It had this.
        from: u32,
        /// It has this.
        to: u32,
    },
}

impl MemberEvent {
    /// What follows the backend's name in one line.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = |ms: &u64| humantime::format_duration(Duration::from_millis(*ms)).to_string();
        match self {
            Self::Added { address, weight: 1 } => format!("was added: {address}"),
            Self::Added { address, weight } => format!("was added: {address}, weight {weight}"),
            Self::Removed { drain_ms } => {
                format!("was removed: its flows go on for {}", shown(drain_ms))
            }
            Self::Gone => "is gone: its drain has ended".to_owned(),
            Self::DrainBegan { limit_ms, said } => {
                let until = limit_ms.as_ref().map_or_else(
                    || "until they close".to_owned(),
                    |limit_ms| format!("for {}", shown(limit_ms)),
                );
                format!("is drained: no new flows; those it has go on {until}{}", by(said))
            }
            Self::MaintenanceBegan { said } => {
                format!("is in maintenance: no new flows, no news of it{}{}", span(said), by(said))
            }
            Self::HealthSet { health: Admin::Auto, said } => {
                format!("is left to its probes again{}", by(said))
            }
            Self::HealthSet { health, said } => {
                format!("is set {}{}{}", health.word(), span(said), by(said))
            }
            Self::HealthOver => {
                "was set for its time, which is over: its probes decide again".to_owned()
            }
            Self::DrainEnded => "is drained no more: it takes new flows when healthy".to_owned(),
            Self::DrainTimeOver => {
                "has been drained for its time: on_sick says what its flows do".to_owned()
            }
            Self::Weighed { from, to } => format!("has weight {to}, and had {from}"),
        }
    }
}

/// For how long something was said, behind what was.
fn span(said: &Said) -> String {
    said.until_unix_ms.map_or_else(String::new, |until_ms| {
        let span = Duration::from_millis(until_ms.saturating_sub(said.at_unix_ms));
        format!(" for {}", humantime::format_duration(span))
    })
}

/// Who said something and why, behind what was said.
fn by(said: &Said) -> String {
    let reason = said
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(": {}", Legible(reason.as_bytes())));
    if said.by.is_empty() { reason } else { format!("; by {}{reason}", said.by) }
}

/// How a backend stands in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StandingView {
    /// A member.
    #[default]
    Member,
    /// Takes no new flows, and keeps those it has.
    Draining,
    /// The same, and what its probes find is nobody's news.
    Maintenance,
    /// Its time to keep them is over.
    Drained,
    /// Was removed; its flows go on until its drain ends.
    Leaving,
}

impl StandingView {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Draining => "draining",
            Self::Maintenance => "maintenance",
            Self::Drained => "drained",
            Self::Leaving => "leaving",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_member_follows_its_name_in_one_line() {
        let address = || "192.0.2.4:80".to_owned();
        let said = |reason: Option<&str>, for_s: Option<u64>| Said {
            by: "root".to_owned(),
            at_unix_ms: 1_000,
            reason: reason.map(str::to_owned),
            until_unix_ms: for_s.map(|seconds| 1_000 + 1000 * seconds),
        };
        for (event, text) in [
            (MemberEvent::Added { address: address(), weight: 1 }, "was added: 192.0.2.4:80"),
            (
                MemberEvent::Added { address: address(), weight: 3 },
                "was added: 192.0.2.4:80, weight 3",
            ),
            (MemberEvent::Removed { drain_ms: 300_000 }, "was removed: its flows go on for 5m"),
            (MemberEvent::Gone, "is gone: its drain has ended"),
            (
                MemberEvent::DrainBegan { limit_ms: Some(90_000), said: said(None, None) },
                "is drained: no new flows; those it has go on for 1m 30s; by root",
            ),
            (
                MemberEvent::HealthSet { health: Admin::Sick, said: said(Some("a\nb"), Some(60)) },
                "is set sick for 1m; by root: a\\x0ab",
            ),
            (
                MemberEvent::MaintenanceBegan { said: said(Some("disk swap"), None) },
                "is in maintenance: no new flows, no news of it; by root: disk swap",
            ),
            (MemberEvent::Weighed { from: 1, to: 5 }, "has weight 5, and had 1"),
        ] {
            assert_eq!(event.text(), text);
            let json = serde_json::to_string(&event).expect("plain data");
            let back: MemberEvent = serde_json::from_str(&json).expect("as it was written");
            assert_eq!(back, event);
        }
    }

    #[test]
    fn what_was_reloaded_is_summed_up_in_a_line() {
        assert_eq!(Reloaded::default().summary(), "nothing has changed");
        let two = vec!["web.a".to_owned(), "web.b".to_owned()];
        let reloaded = Reloaded { added: two.clone(), weighed: two, ..Reloaded::default() };
        assert_eq!(reloaded.summary(), "2 added, 0 removed, 2 with another weight");
        let changed = vec!["probe web changed".to_owned()];
        let reloaded = Reloaded { changed, ..Reloaded::default() };
        assert_eq!(reloaded.summary(), "0 added, 0 removed, 0 with another weight; 1 other change");
    }
}
