//! Packets in the kernel: the bytes between two pointers, behind the check the verifier wants.
#![expect(unsafe_code, reason = "packet bytes lie between two raw pointers")]

use sickbay_shared::packet::Packet;

/// A packet's bytes that can be read and written directly.
pub(crate) struct Bytes {
    /// Address of the first byte.
    pub(crate) data: usize,
    /// Address behind the last byte.
    pub(crate) data_end: usize,
    /// Bytes of the whole packet, which may be more.
    pub(crate) size_bytes: u32,
    /// See [`Packet::tags_taken_off`].
    pub(crate) tags_taken_off: usize,
}

impl Packet for Bytes {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.data + offset;
        if self.data_end < start + N {
            return None;
        }
        // SAFETY: the N bytes lie below data_end, as just checked; the verifier checks it again.
        Some(unsafe { (start as *const [u8; N]).read() })
    }

    #[inline(always)]
    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]> {
        let start = self.data + offset;
        if self.data_end < start + 4 * N {
            return None;
        }
        // SAFETY: as above. The eBPF machine's loads of packet bytes need no alignment where the
        // verifier lets them pass (kernels with efficient unaligned access; others refuse to load
        // the program). Byte-wise loads would cost four instructions a byte.
        Some(unsafe { (start as *const [u32; N]).read() })
    }

    #[inline(always)]
    fn size_bytes(&self) -> u32 {
        self.size_bytes
    }

    #[inline(always)]
    fn tags_taken_off(&self) -> usize {
        self.tags_taken_off
    }
}

impl Bytes {
    /// Writes both addresses of the Ethernet header; whether there was one.
    #[inline(always)]
    pub(crate) fn write_addresses(&self, addresses: [u32; 3]) -> bool {
        if self.data_end < self.data + 12 {
            return false;
        }
        // SAFETY: the twelve bytes lie below data_end, as just checked; alignment as above.
        unsafe { (self.data as *mut [u32; 3]).write(addresses) };
        true
    }
}
