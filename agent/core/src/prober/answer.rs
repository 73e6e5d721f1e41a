//! What the bytes that a probe receives come to.

use crate::command::Outcome;
use crate::content::Content;
use crate::pattern::{Pattern, Search};
use crate::response::{End, Response};
use crate::statuses::Statuses;

/// Takes in bytes of a response, none when the peer closed; some outcome when the probe is over.
pub(super) fn http(
    response: &mut Response,
    bytes: &[u8],
    expected: Statuses,
    content: &Content,
) -> Option<Outcome> {
    let end = if bytes.is_empty() {
        response.on_close()
    } else {
        response.on_bytes_with(bytes, content)?
    };
    Some(match end {
        End::Complete { status } if !expected.contains(status) => {
            Outcome::Answered { status, good: false }
        }
        End::Complete { status } => match response.lack(content) {
            Some(what) => Outcome::Lacking { status, what },
            None => Outcome::Answered { status, good: true },
        },
        End::Malformed(how) => Outcome::Malformed(how),
        End::Empty => Outcome::Empty,
        End::Truncated => Outcome::Truncated,
    })
}

/// The bytes that a TCP probe waits for, as far as they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Banner {
    search: Search,
    byte_count: u64,
}

impl Banner {
    pub(super) const NEW: Self = Self { search: Search::NEW, byte_count: 0 };

    /// Takes in bytes, none when the peer closed; some outcome when the probe is over.
    pub(super) fn on_bytes(
        &mut self,
        bytes: &[u8],
        expected: &Pattern,
        bytes_max: u64,
    ) -> Option<Outcome> {
        if bytes.is_empty() {
            let silent = self.byte_count == 0;
            return Some(if silent { Outcome::Empty } else { Outcome::Mismatched });
        }
        let room = usize::try_from(bytes_max - self.byte_count).unwrap_or(usize::MAX);
        let taken = &bytes[..room.min(bytes.len())];
        self.byte_count += taken.len() as u64;
        self.search.on_bytes(taken, expected);
        if self.search.is_found(expected) {
            return Some(Outcome::Matched);
        }
        (self.byte_count == bytes_max).then_some(Outcome::Mismatched)
    }
}
