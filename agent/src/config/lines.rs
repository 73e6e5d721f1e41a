//! Where a byte of a text stands: line and column, without a walk from the text's begin for each.

/// Bytes between two that are known.
const STRIDE: usize = 4096;

/// Line and column of every [`STRIDE`]th byte of a text.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    known: Vec<(usize, usize)>,
}

impl Lines {
    /// Of this text, which the questions are about.
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut at = (1, 1);
        let mut known = vec![at];
        for stride in text.chunks_exact(STRIDE) {
            at = behind(at, stride);
            known.push(at);
        }
        Self { known }
    }

    /// Line and column, in characters, of the byte at `offset`, both from 1.
    pub(crate) fn position(&self, text: &[u8], offset: usize) -> (usize, usize) {
        let mut offset = offset.min(text.len());
        // Inside of a character is the character, which has four bytes at most.
        let inside = text[..offset].iter().rev().take(3).take_while(|byte| continues(**byte));
        if text.get(offset).is_some_and(|byte| continues(*byte)) {
            offset = offset.saturating_sub(inside.count() + 1);
        }
        let stride = offset / STRIDE;
        behind(self.known[stride], &text[stride * STRIDE..offset])
    }
}

/// Where one stands behind `bytes`, which begin at `at`.
fn behind(at: (usize, usize), bytes: &[u8]) -> (usize, usize) {
    bytes.iter().fold(at, |(line, column), byte| match byte {
        b'\n' => (line + 1, 1),
        byte if continues(*byte) => (line, column),
        _ => (line, column + 1),
    })
}

/// Whether the byte goes on with a character of UTF-8.
const fn continues(byte: u8) -> bool {
    matches!(byte, 0x80..=0xbf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_at_line_feeds() {
        let text = "a\r\nüb\n".as_bytes();
        let lines = Lines::new(text);
        assert_eq!(lines.position(text, 0), (1, 1));
        assert_eq!(lines.position(text, 5), (2, 2));
        assert_eq!(lines.position(text, 7), (3, 1));
        assert_eq!(lines.position(text, 4), (2, 1), "inside of a character is the character");
        assert_eq!(lines.position(text, usize::MAX), (3, 1));
    }

    #[test]
    fn positions_far_into_a_text_are_those_of_a_walk_from_its_begin() {
        let text = "one line ü of a text\n and \u{10348}, another, ".repeat(1000);
        let lines = Lines::new(text.as_bytes());
        let (mut line, mut column) = (1, 1);
        for (offset, character) in text.char_indices() {
            assert_eq!(lines.position(text.as_bytes(), offset), (line, column), "{offset}");
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        assert_eq!(lines.position(text.as_bytes(), text.len()), (line, column));
    }
}
