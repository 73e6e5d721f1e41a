//! What the ring is asked to do, and the tag by which an answer is recognised.
//!
//! A tag names the slot, the step and the slot's generation, so that an answer that belongs to
//! nobody any more is noticed and counted instead of being taken for somebody else's.

use sickbay_core::command::Phase;

use super::Endpoint;

/// Operations of the longest chain: socket, options, bind, connect, send, receive; to spare.
pub(super) const CHAIN_OPS_MAX: usize = 10;

/// One operation of the ring, as far as its answer is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    /// Make the socket in the slot's direct descriptor.
    Socket = 1,
    /// Tell it something: that its close sends RST, its mark, its interface.
    Option = 2,
    /// Give it its source address.
    Bind = 3,
    /// Connect it.
    Connect = 4,
    /// Send the request.
    Send = 5,
    /// Receive once.
    Receive = 6,
    /// Cancel what the slot has in flight.
    Cancel = 7,
    /// Close the direct descriptor.
    Close = 8,
    /// Throw away what is there to receive.
    Discard = 9,
    /// Reset the connection; the close follows.
    Reset = 10,
    /// Reset the connection; the socket stays for the slot's next probe.
    Keep = 11,
}

impl Step {
    /// How far a probe had come that failed in this step.
    pub(super) const fn phase(self) -> Phase {
        match self {
            Self::Socket => Phase::Socket,
            // There is a socket to close, so it is no failure of making one.
            Self::Option | Self::Bind | Self::Connect => Phase::Connect,
            Self::Send => Phase::Send,
            Self::Receive | Self::Discard | Self::Cancel => Phase::Receive,
            Self::Close | Self::Reset | Self::Keep => Phase::Receive,
        }
    }

    /// Whether a socket that failed in this step is not what its probes want.
    pub(super) const fn makes_a_socket(self) -> bool {
        matches!(self, Self::Socket | Self::Option | Self::Bind)
    }

    const fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            1 => Self::Socket,
            2 => Self::Option,
            3 => Self::Bind,
            4 => Self::Connect,
            5 => Self::Send,
            6 => Self::Receive,
            7 => Self::Cancel,
            8 => Self::Close,
            9 => Self::Discard,
            10 => Self::Reset,
            11 => Self::Keep,
            _ => return None,
        })
    }
}

/// What the probes of a target do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Connect.
    Connect,
    /// Connect, send, receive.
    Exchange,
    /// Connect; ask for the connection's own address; send it and the request, receive.
    Named,
}

impl Route {
    /// That of the probes of `endpoint`; `connect_only` when they are over once it is connected.
    pub(super) const fn of(connect_only: bool, endpoint: &Endpoint) -> Self {
        match (connect_only, endpoint.proxy_v1) {
            (true, _) => Self::Connect,
            (false, true) => Self::Named,
            (false, false) => Self::Exchange,
        }
    }

    /// The last step of the chain that a probe begins with.
    pub(super) const fn first_chain_end(self) -> Step {
        match self {
            Self::Connect | Self::Named => Step::Connect,
            Self::Exchange => Step::Receive,
        }
    }
}

/// The user data of an operation: slot in the low 32 bits, generation in the next 24, then the
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Whose.
    pub(super) slot: u32,
    /// Which use of the slot; below [`Tag::GENERATIONS`].
    pub(super) generation: u32,
    /// Which operation.
    pub(super) step: Step,
}

impl Tag {
    /// Generations before they begin again at 0.
    pub(super) const GENERATIONS: u32 = 1 << 24;

    /// As user data.
    pub(super) const fn pack(self) -> u64 {
        self.slot as u64 | (self.generation as u64) << 32 | (self.step as u64) << 56
    }

    /// From user data; `None` when nothing here can have made it.
    pub(super) const fn unpack(bits: u64) -> Option<Self> {
        let Some(step) = Step::from_bits(bits >> 56) else {
            return None;
        };
        let slot = (bits & 0xffff_ffff) as u32;
        Some(Self { slot, generation: (bits >> 32) as u32 % Self::GENERATIONS, step })
    }
}

/// The ring has no room; what was asked for was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingFull;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_survives_its_packing() {
        for step in [Step::Socket, Step::Connect, Step::Receive, Step::Close] {
            let tag = Tag { slot: 19_999, generation: Tag::GENERATIONS - 1, step };
            assert_eq!(Tag::unpack(tag.pack()), Some(tag));
        }
        let tag = Tag { slot: 2, generation: 3, step: Step::Connect };
        assert_eq!(tag.pack(), 0x0400_0003_0000_0002);
    }

    #[test]
    fn foreign_user_data_is_no_tag() {
        assert_eq!(Tag::unpack(0), None);
        assert_eq!(Tag::unpack(u64::MAX), None);
    }
}
