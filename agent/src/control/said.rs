//! Who said something over a backend, when and why, and until when it holds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 200;

/// On which terms something is said, as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Who asks: a user's name, or `uid N`.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// For how long; `None` = until it is taken back.
    pub limit: Option<Duration>,
}

/// What is kept and shown of it. The reason is as it was written: escape it before it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Who said it: a user's name, or `uid N`.
    pub by: String,
    /// When, on the wall clock.
    pub at_unix_ms: u64,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ends by itself, on the wall clock as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_ms: Option<u64>,
}

impl Terms {
    /// What is kept of them when they are said now.
    #[must_use]
    pub fn said(&self) -> Said {
        let at_unix_ms = now_unix_ms();
        let limit_ms = self.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        Said {
            by: self.by.clone(),
            at_unix_ms,
            reason: self.reason.clone(),
            until_unix_ms: limit_ms.map(|limit_ms| at_unix_ms.saturating_add(limit_ms)),
        }
    }

    /// What is wrong with them, and how to mend it.
    ///
    /// # Errors
    ///
    /// The reason is too long, or the time is none.
    pub fn check(&self) -> Result<(), String> {
        if self.limit == Some(Duration::ZERO) {
            return Err("no time is given: write one such as 30m, or leave --for away".to_owned());
        }
        match &self.reason {
            Some(reason) if REASON_BYTES_MAX < reason.len() => Err(format!(
                "the reason has {} bytes: {REASON_BYTES_MAX} are the most",
                reason.len()
            )),
            _ => Ok(()),
        }
    }
}

/// The wall clock, in ms.
pub(crate) fn now_unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// What a user is called.
#[must_use]
pub fn user_name(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn said_holds_until_its_time_is_over() {
        let terms = Terms {
            by: "root".to_owned(),
            reason: Some("disk swap".to_owned()),
            limit: Some(Duration::from_secs(90)),
        };
        let said = terms.said();
        assert_eq!(said.until_unix_ms, Some(said.at_unix_ms + 90_000));
        assert_eq!((said.by.as_str(), said.reason.as_deref()), ("root", Some("disk swap")));
        assert_eq!(Terms::default().said().until_unix_ms, None);
    }

    #[test]
    fn reason_that_is_too_long_and_no_time_are_refused() {
        let long = |count| Terms { reason: Some("x".repeat(count)), ..Terms::default() };
        assert_eq!(long(200).check(), Ok(()));
        assert!(long(201).check().expect_err("too long").contains("has 201 bytes: 200"));
        let none = Terms { limit: Some(Duration::ZERO), ..Terms::default() };
        assert!(none.check().expect_err("no time").contains("--for"));
    }

    #[test]
    fn user_without_a_name_is_told_by_number() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "uid 4000000000");
    }
}
