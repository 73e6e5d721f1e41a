//! Sockets that a probe leaves to the next one in its slot.
//!
//! A reset connection's socket can connect again (`tcp_disconnect`), to whomever, from a port of its
//! own: to the peer it is a connection like any other. Making a socket and letting it go is a third
//! of what a probe costs the kernel. Only sockets are kept of which nothing remains in the kernel
//! but what they were made with: see [`SocketKind`].

/// Sockets kept by one ring at most: what a burst opened need not stay for ever, and each is some
/// 3 KiB of the kernel's memory.
const KEPT_MAX: u32 = 4096;

/// What a kept socket was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketKind {
    /// Of AF_INET6; else of AF_INET.
    pub(super) ipv6: bool,
    /// It was told to put its ACKs off.
    pub(super) acks_late: bool,
}

/// What stands in each slot of one ring.
#[derive(Debug)]
pub(super) struct Kept {
    /// The socket that is there, or will be when what is under way has succeeded; `None` = none
    /// that may stay.
    slots: Box<[Option<SocketKind>]>,
    count: u32,
}

impl Kept {
    /// Nothing in any slot.
    pub(super) fn new(slots: u32) -> Self {
        Self { slots: vec![None; slots as usize].into(), count: 0 }
    }

    /// Whether a socket of this kind stands in the slot, connected to nobody.
    pub(super) fn has(&self, slot: u32, kind: Option<SocketKind>) -> bool {
        kind.is_some() && self.slots[slot as usize] == kind
    }

    /// A probe begins in the slot with a socket of this kind; `None` = one that may not stay.
    pub(super) fn begin(&mut self, slot: u32, kind: Option<SocketKind>) {
        let place = &mut self.slots[slot as usize];
        let others = self.count - u32::from(place.is_some());
        *place = kind.filter(|_| others < KEPT_MAX);
        self.count = others + u32::from(place.is_some());
    }

    /// Whether the slot's socket stays when its connection ends.
    pub(super) fn stays(&self, slot: u32) -> bool {
        self.slots[slot as usize].is_some()
    }

    /// The slot's socket is not what it should be, or none.
    pub(super) fn spoil(&mut self, slot: u32) {
        self.begin(slot, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Option<SocketKind> = Some(SocketKind { ipv6: false, acks_late: false });
    const LATE: Option<SocketKind> = Some(SocketKind { ipv6: false, acks_late: true });

    #[test]
    fn socket_is_kept_for_its_own_kind_alone() {
        let mut kept = Kept::new(2);
        assert!(!kept.has(0, PLAIN) && !kept.stays(0), "nothing is there yet");
        kept.begin(0, PLAIN);
        assert!(kept.has(0, PLAIN) && kept.stays(0));
        assert!(!kept.has(0, LATE) && !kept.has(0, None) && !kept.has(1, PLAIN));
        kept.begin(0, LATE);
        assert!(kept.has(0, LATE) && !kept.has(0, PLAIN));
        kept.begin(0, None);
        assert!(!kept.has(0, None) && !kept.stays(0));
    }

    #[test]
    fn spoilt_socket_is_not_kept() {
        let mut kept = Kept::new(1);
        kept.begin(0, PLAIN);
        kept.spoil(0);
        assert!(!kept.has(0, PLAIN) && !kept.stays(0));
        kept.spoil(0);
        assert_eq!(kept.count, 0);
    }

    #[test]
    fn no_more_are_kept_than_may_be() {
        let mut kept = Kept::new(KEPT_MAX + 1);
        (0..=KEPT_MAX).for_each(|slot| kept.begin(slot, PLAIN));
        assert!(kept.stays(KEPT_MAX - 1) && !kept.stays(KEPT_MAX));
        kept.begin(3, PLAIN);
        assert!(kept.stays(3), "it has its place already");
        kept.spoil(3);
        kept.begin(KEPT_MAX, PLAIN);
        assert!(kept.stays(KEPT_MAX));
    }
}
