//! Whether a program that has just taken another's place counts the packets that come.
//!
//! A packet that a program sees is always counted somewhere. So when the one before counted, and the
//! interfaces go on receiving, counters that stand still mean that the new one does nothing.

use std::time::{Duration, Instant};

use super::counters::Counters;
use super::error::KernelError;
use super::pins::Pins;
use crate::netlink::Netlink;

/// How long it is watched when nothing comes: then nothing can be said.
const QUIET_LIMIT: Duration = Duration::from_millis(300);
/// How long it is watched further when packets have come and none is counted.
const DEAF_LIMIT: Duration = Duration::from_millis(150);
/// So many received packets are no accident of counters that are read one after the other.
const RECEIVED_MIN: u64 = 16;
/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The counters of a datapath, looked at as one number.
#[derive(Debug)]
pub(super) struct Watch {
    counters: Counters,
    services: u32,
    /// What they said when the datapath was made.
    at_load: u64,
}

impl Watch {
    /// Of the maps pinned there, which have room for so many services.
    pub(super) fn begin(pins: &Pins, services: u32) -> Result<Self, KernelError> {
        let counters = Counters::open(pins.directory())?;
        let at_load = counters.total(services)?;
        Ok(Self { counters, services, at_load })
    }

    /// Whether the program before counted anything in these maps since the datapath was made.
    pub(super) fn has_moved(&self) -> Result<bool, KernelError> {
        Ok(self.counters.total(self.services)? != self.at_load)
    }

    /// Watches the program that runs on these interfaces now.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotCounting`]: packets come, and it counts none.
    pub(super) fn see(&self, interfaces: &[u32]) -> Result<(), KernelError> {
        let mut netlink = Netlink::open()?;
        let mut received = || -> Result<u64, KernelError> {
            let mut sum = 0;
            for &index in interfaces {
                sum += netlink.received_packets(index)?;
            }
            Ok(sum)
        };
        let start = Instant::now();
        let mut deaf_since = None;
        let (counted_before, received_before) = (self.counters.total(self.services)?, received()?);
        loop {
            if self.counters.total(self.services)? != counted_before {
                return Ok(());
            }
            let came = received()?.saturating_sub(received_before);
            if RECEIVED_MIN <= came {
                // What came last may not have reached the program yet.
                let since = *deaf_since.get_or_insert_with(Instant::now);
                if DEAF_LIMIT <= since.elapsed() {
                    return Err(KernelError::NotCounting { received: came });
                }
            } else if QUIET_LIMIT <= start.elapsed() {
                return Ok(());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
