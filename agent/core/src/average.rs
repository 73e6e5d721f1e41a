//! The moving average of happy probes' times.
//!
//! Varnish: `rate` counts happy probes up to 4, `average += (last - average) / rate`. Varnish also
//! counts the results assumed by `initial`, so that its first real average is `last / (initial + 1)`;
//! here the assumed ones do not count, and the first average is the first time.

/// Weight of a new time in the steady state is one over this.
const RATE_MAX: u8 = 4;

/// A moving average of times.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Average {
    value_s: f64,
    rate: u8,
}

impl Average {
    /// Of no probe.
    pub const NONE: Self = Self {
        value_s: 0.0,
        rate: 0,
    };

    /// Takes in the time of a happy probe, in seconds.
    pub fn add(&mut self, last_s: f64) {
        self.rate = (self.rate + 1).min(RATE_MAX);
        self.value_s += (last_s - self.value_s) / f64::from(self.rate);
    }

    /// The average in seconds; 0 before the first happy probe.
    #[must_use]
    pub const fn value_s(self) -> f64 {
        self.value_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_average_is_the_first_time_and_later_rates_are_two_three_four_four() {
        let mut average = Average::NONE;
        assert_eq!(average.value_s(), 0.0);
        // Worked by hand: 8; 8 + (4-8)/2 = 6; 6 + (9-6)/3 = 7; 7 + (3-7)/4 = 6; 6 + (10-6)/4 = 7.
        for (last_s, expected_s) in [(8.0, 8.0), (4.0, 6.0), (9.0, 7.0), (3.0, 6.0), (10.0, 7.0)] {
            average.add(last_s);
            assert_eq!(average.value_s(), expected_s);
        }
    }
}
