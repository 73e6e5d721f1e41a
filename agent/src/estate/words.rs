//! Places of pools among the bitmap words: ranges that are aligned to their length and do not meet.

use std::ops::Range;

/// Ranges of words that are taken.
#[derive(Debug, Default)]
pub(super) struct Words {
    taken: Vec<Range<u32>>,
}

impl Words {
    /// Takes `first .. first + count`; false when a part of it is taken.
    pub(super) fn take(&mut self, first: u32, count: u32) -> bool {
        let wanted = first..first + count;
        if self.taken.iter().any(|taken| meet(taken, &wanted)) {
            return false;
        }
        self.taken.push(wanted);
        true
    }

    /// Takes the first place for `count` words (a power of two) below `end`; its first word.
    pub(super) fn find(&mut self, count: u32, end: u32) -> Option<u32> {
        let mut first = 0;
        while first + count <= end {
            let wanted = first..first + count;
            match self.taken.iter().filter(|taken| meet(taken, &wanted)).map(|it| it.end).max() {
                None => {
                    self.taken.push(wanted);
                    return Some(first);
                }
                Some(taken_until) => first = taken_until.next_multiple_of(count),
            }
        }
        None
    }
}

const fn meet(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_the_first_one_that_is_aligned_and_free() {
        let mut words = Words::default();
        assert!(words.take(4, 4));
        assert!(!words.take(6, 1));
        assert_eq!(words.find(1, 64), Some(0));
        assert_eq!(words.find(2, 64), Some(2));
        assert_eq!(words.find(4, 64), Some(8));
        assert_eq!(words.find(16, 64), Some(16));
        assert_eq!(words.find(32, 64), Some(32));
        assert_eq!(words.find(4, 64), Some(12));
        assert_eq!(words.find(2, 64), None);
        assert_eq!(words.find(1, 64), Some(1));
    }
}
