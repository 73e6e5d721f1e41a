//! The moving average of happy probes' times.
//!
//! Varnish: `rate` counts happy probes up to 4, `average += (last - average) / rate`. Varnish also
//! counts the results assumed by `initial`, so that its first real average is
//! `last / (initial + 1)`, at least a quarter of it. Here the assumed ones do not count, and the
//! first average is the first time, unless the probe behaves as Varnish's: then `rate` begins at
//! their number.

/// Weight of a new time in the steady state is one over this.
pub const RATE_MAX: u8 = 4;

/// Takes the time of a happy probe, in seconds, into an average of `rate` probes (0 before the
/// first; stays at 4).
pub fn add(average_s: &mut f64, rate: &mut u8, last_s: f64) {
    *rate = (*rate + 1).min(RATE_MAX);
    *average_s += (last_s - *average_s) / f64::from(*rate);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_average_is_the_first_time_and_later_rates_are_two_three_four_four() {
        let (mut average_s, mut rate) = (0.0, 0);
        // Worked by hand: 8; 8 + (4-8)/2 = 6; 6 + (9-6)/3 = 7; 7 + (3-7)/4 = 6; 6 + (10-6)/4 = 7.
        for (last_s, expected_s) in [(8.0, 8.0), (4.0, 6.0), (9.0, 7.0), (3.0, 6.0), (10.0, 7.0)] {
            add(&mut average_s, &mut rate, last_s);
            assert_eq!(average_s, expected_s);
        }
        assert_eq!(rate, 4);
    }
}
