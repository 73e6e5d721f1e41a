//! The text of a configuration file, with the place of every value in it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Step;

/// A configuration file: its name, its text, and what was parsed from it.
pub(super) struct Source<'s> {
    /// The file's name as it is shown, escaped.
    pub(super) name: String,
    /// What was parsed, with spans; as the file has it, wrong values included.
    pub(super) tree: DeTable<'s>,
    lines: Lines<'s>,
}

impl<'s> Source<'s> {
    pub(super) fn new(name: String, text: &'s str, tree: DeTable<'s>) -> Self {
        Self { name, tree, lines: Lines::new(text) }
    }

    /// Line and column of the byte at `offset`, both from 1.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        self.lines.position(offset)
    }

    /// Where the value at `place` begins; a table, where its name stands; what is missing, where
    /// the table stands that lacks it.
    pub(super) fn offset(&self, place: &[Step<'_>]) -> usize {
        let mut found = 0;
        let mut inside = Inside::Table(&self.tree);
        for step in place {
            let Some((span, value)) = inside.step(*step) else {
                break;
            };
            found = span.start;
            inside = match value.get_ref() {
                DeValue::Table(table) => Inside::Table(table),
                DeValue::Array(array) => Inside::Array(array),
                _ => break,
            };
        }
        found
    }
}

/// A value that has values inside.
enum Inside<'t, 's> {
    Table(&'t DeTable<'s>),
    Array(&'t [Spanned<DeValue<'s>>]),
}

impl<'t, 's> Inside<'t, 's> {
    /// The value one step further in, and the span to show for it.
    fn step(&self, step: Step<'_>) -> Option<(Range<usize>, &'t Spanned<DeValue<'s>>)> {
        match (self, step) {
            (Self::Table(table), Step::Key(key)) => {
                let (key, value) = table.get_key_value(key)?;
                let at_key = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
                Some((if at_key { key.span() } else { value.span() }, value))
            }
            (Self::Array(array), Step::Index(index)) => {
                let value = array.get(index)?;
                Some((value.span(), value))
            }
            _ => None,
        }
    }
}

/// Where the lines of a text begin.
pub(super) struct Lines<'s> {
    text: &'s str,
    starts: Vec<usize>,
}

impl<'s> Lines<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(offset, _)| offset + 1)).collect();
        Self { text, starts }
    }

    /// Line and column, in characters, of the byte at `offset`, both from 1.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        (line, self.text[start..offset].chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_at_line_feeds() {
        let lines = Lines::new("a\r\nüb\n");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(5), (2, 2));
        assert_eq!(lines.position(7), (3, 1));
        assert_eq!(lines.position(4), (2, 1), "inside of a character is the character");
        assert_eq!(lines.position(usize::MAX), (3, 1));
    }

    #[test]
    fn missing_values_stand_at_the_table_that_lacks_them() {
        let text = "[agent]\n\n[pool.web]\nprobe = \"x\"\n";
        let tree = DeTable::parse(text).expect("is TOML").into_inner();
        let source = Source::new("t".to_owned(), text, tree);
        let place = ["pool".into(), "web".into(), "backends".into()];
        assert_eq!(source.position(source.offset(&place)), (3, 7));
        let place = ["pool".into(), "web".into(), "probe".into()];
        assert_eq!(source.position(source.offset(&place)), (4, 9));
    }
}
