//! The eight registers of a target, as Varnish keeps them: 64 results each, newest in bit 0.
//!
//! Varnish shifts all eight when a poll starts and sets bits as it comes along; here both happen at
//! the probe's end, in one step, which leaves the same registers for whoever reads them between
//! probes. A probe that ends indeterminate shifts nothing.

use crate::command::{Malformed, Outcome, Phase};
use crate::plan::{Compat, Family};

/// One target's registers, in Varnish's order `4 6 U x X r R H`.
pub type Registers = [u64; 8];

/// `4`: connected over IPv4.
pub const GOOD_IPV4: usize = 0;
/// `6`: connected over IPv6.
pub const GOOD_IPV6: usize = 1;
/// `U`: connected over a unix socket.
pub const GOOD_UNIX: usize = 2;
/// `x`: sending failed.
pub const ERR_XMIT: usize = 3;
/// `X`: sent.
pub const GOOD_XMIT: usize = 4;
/// `r`: receiving failed.
pub const ERR_RECV: usize = 5;
/// `R`: received.
pub const GOOD_RECV: usize = 6;
/// `H`: the result was good.
pub const HAPPY: usize = 7;

/// Registers before the first probe: `initial` good results assumed, at most `threshold`, each as
/// Varnish shifts them in, with nothing but `H` set.
#[must_use]
pub fn prefilled(initial: u8, threshold: u8) -> Registers {
    let mut registers = [0; 8];
    for _ in 0..initial.min(threshold) {
        shift(&mut registers, 1 << HAPPY);
    }
    registers
}

/// Shifts one result in; an indeterminate one shifts nothing.
pub fn record(registers: &mut Registers, outcome: Outcome, family: Family, compat: Compat) {
    if outcome.good().is_some() {
        shift(registers, bits_of(outcome, family) & varnish_mask(outcome, compat));
    }
}

/// The bits that Varnish has as well: a request that the peer does not take in time is a short
/// write to it, which is no `x`.
const fn varnish_mask(outcome: Outcome, compat: Compat) -> u8 {
    match (compat, outcome) {
        (Compat::Varnish { .. }, Outcome::TimedOut { phase: Phase::Send }) => !(1 << ERR_XMIT),
        _ => !0,
    }
}

/// The new bit of each register (bit n for register n) for a result: how far the probe came.
///
/// Differs from Varnish in what Varnish cannot see: a response whose framing is broken or cut
/// short. A broken one was received and is not good (`R`, no `H`), a cut one is a failed reception
/// (`r`).
#[must_use]
pub const fn bits_of(outcome: Outcome, family: Family) -> u8 {
    let opened = match family {
        Family::Ipv4 => 1 << GOOD_IPV4,
        Family::Ipv6 => 1 << GOOD_IPV6,
        Family::Unix => 1 << GOOD_UNIX,
    };
    let sent = opened | 1 << GOOD_XMIT;
    match outcome {
        Outcome::Connected => opened | 1 << HAPPY,
        Outcome::OpenedLate => opened,
        Outcome::Answered { good: true, .. } | Outcome::Matched => {
            sent | 1 << GOOD_RECV | 1 << HAPPY
        }
        Outcome::Answered { good: false, .. } | Outcome::Lacking { .. } | Outcome::Mismatched => {
            sent | 1 << GOOD_RECV
        }
        Outcome::Malformed(
            Malformed::StatusLine
            | Malformed::Header
            | Malformed::Chunk
            | Malformed::TooManyInformational,
        ) => sent | 1 << GOOD_RECV,
        // Varnish: neither r nor R for a peer that closes without a byte.
        Outcome::Empty => sent,
        Outcome::Truncated => sent | 1 << ERR_RECV,
        Outcome::Failed { phase, .. } | Outcome::TimedOut { phase } => match phase {
            Phase::Socket | Phase::Connect => 0,
            Phase::Send => opened | 1 << ERR_XMIT,
            Phase::Receive => sent | 1 << ERR_RECV,
        },
        Outcome::Indeterminate(_) => 0,
    }
}

/// The newest good results among the last `window`, 0 ..= 64.
#[must_use]
pub const fn good_count(registers: &Registers, window: u8) -> u32 {
    (registers[HAPPY] & low_bits(window)).count_ones()
}

/// A mask of the `count` newest results, 0 ..= 64 (more counts as 64).
#[must_use]
pub const fn low_bits(count: u8) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn shift(registers: &mut Registers, bits: u8) {
    for (index, register) in registers.iter_mut().enumerate() {
        *register = *register << 1 | u64::from(bits >> index & 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::LocalFault;

    const OK: Outcome = Outcome::Answered { status: 200, good: true };

    fn newest(outcome: Outcome, family: Family) -> [u64; 8] {
        let mut registers = [0; 8];
        record(&mut registers, outcome, family, Compat::Off);
        registers
    }

    #[test]
    fn each_outcome_sets_the_bits_varnish_sets() {
        let failed = |phase| Outcome::Failed { phase, errno: 104 };
        let timed_out = |phase| Outcome::TimedOut { phase };
        // Order: 4 6 U x X r R H. From Varnish's log: 4---X-RH, 4---X-R-, 4---X---, 4---Xr--, …
        let table: [(Outcome, Family, [u64; 8]); 17] = [
            (OK, Family::Ipv4, [1, 0, 0, 0, 1, 0, 1, 1]),
            (OK, Family::Ipv6, [0, 1, 0, 0, 1, 0, 1, 1]),
            (OK, Family::Unix, [0, 0, 1, 0, 1, 0, 1, 1]),
            (
                Outcome::Answered { status: 404, good: false },
                Family::Ipv4,
                [1, 0, 0, 0, 1, 0, 1, 0],
            ),
            (Outcome::Malformed(Malformed::StatusLine), Family::Ipv4, [1, 0, 0, 0, 1, 0, 1, 0]),
            (Outcome::Malformed(Malformed::Header), Family::Ipv4, [1, 0, 0, 0, 1, 0, 1, 0]),
            (Outcome::Empty, Family::Ipv4, [1, 0, 0, 0, 1, 0, 0, 0]),
            (Outcome::Truncated, Family::Ipv4, [1, 0, 0, 0, 1, 1, 0, 0]),
            (failed(Phase::Connect), Family::Ipv4, [0; 8]),
            (failed(Phase::Send), Family::Ipv4, [1, 0, 0, 1, 0, 0, 0, 0]),
            (failed(Phase::Receive), Family::Ipv4, [1, 0, 0, 0, 1, 1, 0, 0]),
            (timed_out(Phase::Connect), Family::Ipv6, [0; 8]),
            (timed_out(Phase::Send), Family::Ipv6, [0, 1, 0, 1, 0, 0, 0, 0]),
            (timed_out(Phase::Receive), Family::Ipv6, [0, 1, 0, 0, 1, 1, 0, 0]),
            (Outcome::Connected, Family::Ipv4, [1, 0, 0, 0, 0, 0, 0, 1]),
            (Outcome::Connected, Family::Unix, [0, 0, 1, 0, 0, 0, 0, 1]),
            (Outcome::OpenedLate, Family::Ipv6, [0, 1, 0, 0, 0, 0, 0, 0]),
        ];
        for (outcome, family, expected) in table {
            assert_eq!(newest(outcome, family), expected, "{outcome:?} over {family:?}");
        }
    }

    #[test]
    fn request_that_is_not_taken_in_time_is_no_failed_sending_to_varnish() {
        let mut registers = [0; 8];
        let outcome = Outcome::TimedOut { phase: Phase::Send };
        record(&mut registers, outcome, Family::Ipv4, Compat::VARNISH);
        assert_eq!(registers, [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn indeterminate_shifts_nothing() {
        let mut registers = newest(OK, Family::Ipv4);
        record(
            &mut registers,
            Outcome::Indeterminate(LocalFault::NoSlot),
            Family::Ipv4,
            Compat::Off,
        );
        assert_eq!(registers, [1, 0, 0, 0, 1, 0, 1, 1]);
    }

    #[test]
    fn initial_is_clamped_to_the_threshold_and_sets_happy_alone() {
        assert_eq!(prefilled(0, 3), [0; 8]);
        assert_eq!(prefilled(2, 3), [0, 0, 0, 0, 0, 0, 0, 0b11]);
        assert_eq!(prefilled(9, 3), [0, 0, 0, 0, 0, 0, 0, 0b111]);
        assert_eq!(prefilled(64, 64), [0, 0, 0, 0, 0, 0, 0, u64::MAX]);
    }

    #[test]
    fn oldest_result_falls_out_after_sixty_four() {
        let mut registers = newest(OK, Family::Ipv4);
        for _ in 0..63 {
            record(&mut registers, Outcome::Empty, Family::Ipv4, Compat::Off);
        }
        assert_eq!(registers[HAPPY], 1 << 63);
        record(&mut registers, Outcome::Empty, Family::Ipv4, Compat::Off);
        assert_eq!(registers[HAPPY], 0);
        assert_eq!(registers[GOOD_IPV4], u64::MAX);
    }

    #[test]
    fn window_of_sixty_four_counts_every_bit() {
        let registers = [0, 0, 0, 0, 0, 0, 0, u64::MAX];
        assert_eq!(good_count(&registers, 0), 0);
        assert_eq!(good_count(&registers, 1), 1);
        assert_eq!(good_count(&registers, 63), 63);
        assert_eq!(good_count(&registers, 64), 64);
    }
}
