//! Samples of dropped packets, out of the kernel program's ring buffer.

use ::aya::maps::{Map, MapData, MapError, RingBuf};
use sickbay_shared::abi::DropRecord;
use sickbay_shared::pod::Pod as _;

/// Samples of dropped packets, as the kernel program puts them. They have one reader.
pub struct DropRing {
    ring: RingBuf<MapData>,
}

impl std::fmt::Debug for DropRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DropRing").finish_non_exhaustive()
    }
}

impl DropRing {
    /// The ring buffer `map`.
    pub(super) fn new(map: Map) -> Result<Self, MapError> {
        Ok(Self { ring: RingBuf::try_from(map)? })
    }

    /// Takes the oldest sample; `None` = there is none now.
    pub fn take(&mut self) -> Option<DropRecord> {
        loop {
            let item = self.ring.next()?;
            // What is not a record of this layout is passed over: an object of a later version.
            if let Some(record) = DropRecord::from_bytes(&item) {
                return Some(record);
            }
        }
    }
}
