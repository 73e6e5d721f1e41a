//! Finding a text in bytes that come in pieces, without keeping them: Knuth, Morris and Pratt.
//!
//! The table is made once, with the plan; a search is one number, so that each slot has its own
//! and nothing is allocated or copied while a response comes in.

/// Longest text that can be searched for.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// A text to be found, 1 ..= [`PATTERN_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    bytes: Box<[u8]>,
    /// For each length matched less one, how much of it still is when the next byte differs: the
    /// longest proper prefix that is also a suffix.
    shorter: Box<[u16]>,
}

/// A search under way: how many bytes of the pattern the input so far ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    matched: u16,
}

impl Pattern {
    /// The pattern; `None` when the text is empty or too long.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        if !(1..=PATTERN_BYTES_MAX).contains(&text.len()) {
            return None;
        }
        let mut pattern = Self { bytes: text.into(), shorter: vec![0; text.len()].into() };
        let mut search = Search::NEW;
        for (index, &byte) in text.iter().enumerate().skip(1) {
            search = search.after(byte, &pattern);
            pattern.shorter[index] = search.matched;
        }
        Some(pattern)
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Search {
    /// Before the first byte.
    pub const NEW: Self = Self { matched: 0 };

    /// Goes on with the next bytes, unless the pattern was found before.
    pub fn on_bytes(&mut self, bytes: &[u8], pattern: &Pattern) {
        for &byte in bytes {
            if self.is_found(pattern) {
                return;
            }
            *self = self.after(byte, pattern);
        }
    }

    /// Whether the pattern was found.
    #[must_use]
    pub fn is_found(self, pattern: &Pattern) -> bool {
        usize::from(self.matched) == pattern.bytes.len()
    }

    /// After one more byte; the pattern was not found yet.
    fn after(self, byte: u8, pattern: &Pattern) -> Self {
        let mut matched = self.matched;
        while pattern.bytes[usize::from(matched)] != byte {
            if matched == 0 {
                return Self { matched: 0 };
            }
            matched = pattern.shorter[usize::from(matched) - 1];
        }
        Self { matched: matched + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], pieces: &[&[u8]]) -> bool {
        let pattern = Pattern::new(text).expect("a pattern");
        let mut search = Search::NEW;
        pieces.iter().for_each(|piece| search.on_bytes(piece, &pattern));
        search.is_found(&pattern)
    }

    #[test]
    fn text_is_found_wherever_it_is_split() {
        let input = b"status: ok, all well";
        for end in 0..=input.len() {
            let (first, second) = input.split_at(end);
            assert!(found(b"ok, a", &[first, second]), "{end}");
            assert!(!found(b"ok, b", &[first, second]), "{end}");
        }
    }

    #[test]
    fn text_that_begins_like_itself_is_not_missed() {
        assert!(found(b"aab", &[b"aaaa", b"aab"]));
        assert!(found(b"ababaca", &[b"abababaca"]));
        assert!(!found(b"ababaca", &[b"ababacb"]));
        assert!(found(b"x", &[b"", b"yx", b"y"]));
    }

    /// Against the library's search, over every short text of two letters.
    #[test]
    fn every_short_text_is_found_exactly_when_it_is_there() {
        let word = |bits: u32, length: u32| -> Vec<u8> {
            (0..length).map(|index| b'a' + (bits >> index & 1) as u8).collect()
        };
        for length in 1..=4 {
            for bits in 0..1 << length {
                let text = word(bits, length);
                for input in 0..1 << 8 {
                    let input = word(input, 8);
                    let there = input.windows(text.len()).any(|part| part == text);
                    assert_eq!(found(&text, &[&input]), there, "{text:?} in {input:?}");
                }
            }
        }
    }

    #[test]
    fn pattern_has_at_least_one_byte_and_no_more_than_the_limit() {
        assert_eq!(Pattern::new(b""), None);
        assert!(Pattern::new(&vec![0; 4096]).is_some());
        assert_eq!(Pattern::new(&vec![0; 4097]), None);
    }
}
