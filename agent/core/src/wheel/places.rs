//! Which places of the ring hold timers: a bit for each, and one for each word of these.

use super::NEAR;

const WORDS: usize = NEAR / 64;

/// A bit for each place.
#[derive(Debug)]
pub(super) struct Places {
    words: [u64; WORDS],
    /// Of each word, whether it is not zero.
    in_use: [u64; WORDS / 64],
}

impl Places {
    /// None set.
    pub(super) const fn new() -> Self {
        Self { words: [0; WORDS], in_use: [0; WORDS / 64] }
    }

    pub(super) const fn set(&mut self, place: usize) {
        let word = place / 64;
        self.words[word] |= 1 << (place % 64);
        self.in_use[word / 64] |= 1 << (word % 64);
    }

    pub(super) const fn clear(&mut self, place: usize) {
        let word = place / 64;
        self.words[word] &= !(1 << (place % 64));
        if self.words[word] == 0 {
            self.in_use[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The first that is set from `start` on, and again from the ring's first place after its last.
    pub(super) fn first_from(&self, start: usize) -> Option<usize> {
        let here = self.words[start / 64] >> (start % 64);
        if here != 0 {
            return Some(start + here.trailing_zeros() as usize);
        }
        // The start's own word comes last once more, for its places before the start.
        let word = self.first_word_after(start / 64)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The first word in use after `word`, which comes last itself.
    fn first_word_after(&self, word: usize) -> Option<usize> {
        let start = (word + 1) % WORDS;
        let here = self.in_use[start / 64] >> (start % 64);
        if here != 0 {
            return Some(start + here.trailing_zeros() as usize);
        }
        let later = 1..=self.in_use.len();
        let mut later = later.map(|step| (start / 64 + step) % self.in_use.len());
        let index = later.find(|&index| self.in_use[index] != 0)?;
        Some(index * 64 + self.in_use[index].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_place_is_found_across_words_and_around_the_end() {
        let all = [0, 1, 63, 64, 65, 4_095, 4_096, 9_000, NEAR - 65, NEAR - 64, NEAR - 1];
        for first in all {
            for second in all {
                let mut places = Places::new();
                places.set(first);
                places.set(second);
                for start in all {
                    let distance = |place: usize| (place + NEAR - start) % NEAR;
                    let nearest = if distance(first) < distance(second) { first } else { second };
                    assert_eq!(places.first_from(start), Some(nearest), "{first} {second} {start}");
                }
                places.clear(first);
                places.clear(second);
                assert_eq!(places.first_from(first), None);
            }
        }
    }
}
