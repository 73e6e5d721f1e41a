//! A set of HTTP statuses: which ones are good.

/// Lowest status there is; three digits, and none starts with 0.
pub const STATUS_MIN: u16 = 100;
/// Highest status there is.
pub const STATUS_MAX: u16 = 999;

const WORDS: usize = (STATUS_MAX - STATUS_MIN) as usize / 64 + 1;

/// A set of statuses, each [`STATUS_MIN`] ..= [`STATUS_MAX`]. Looking one up costs one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Statuses {
    words: [u64; WORDS],
}

impl Statuses {
    /// No status.
    pub const NONE: Self = Self { words: [0; WORDS] };

    /// One status.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub const fn only(status: u16) -> Self {
        Self::NONE.with(status, status)
    }

    /// These, and all from `first` to `last`, both included.
    ///
    /// # Panics
    ///
    /// When one of the two is no status, or they are out of order.
    #[must_use]
    pub const fn with(mut self, first: u16, last: u16) -> Self {
        assert!(STATUS_MIN <= first && first <= last && last <= STATUS_MAX, "no range of statuses");
        let mut status = first;
        while status <= last {
            let place = (status - STATUS_MIN) as usize;
            self.words[place / 64] |= 1 << (place % 64);
            status += 1;
        }
        self
    }

    /// Whether `status` is one of them; false for what is no status.
    #[must_use]
    pub const fn contains(&self, status: u16) -> bool {
        if status < STATUS_MIN || STATUS_MAX < status {
            return false;
        }
        let place = (status - STATUS_MIN) as usize;
        self.words[place / 64] >> (place % 64) & 1 == 1
    }

    /// Its ranges, lowest first: first and last status of each.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        let mut next = STATUS_MIN;
        std::iter::from_fn(move || {
            let first = (next..=STATUS_MAX).find(|status| self.contains(*status))?;
            let end = (first..=STATUS_MAX).find(|status| !self.contains(*status));
            next = end.unwrap_or(STATUS_MAX + 1);
            Some((first, next - 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_its_statuses_and_no_others() {
        let set = Statuses::only(200).with(204, 204).with(300, 399).with(999, 999);
        for status in 0..=u16::MAX {
            let good = matches!(status, 200 | 204 | 300..=399 | 999);
            assert_eq!(set.contains(status), good, "{status}");
        }
    }

    #[test]
    fn ranges_come_back_joined_and_in_order() {
        let set = Statuses::only(300).with(100, 101).with(301, 310).with(998, 999);
        let ranges: Vec<_> = set.ranges().collect();
        assert_eq!(ranges, [(100, 101), (300, 310), (998, 999)]);
        assert_eq!(Statuses::NONE.ranges().next(), None);
    }
}
