//! The text of a configuration file, with the place of every value in it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Lines;
use super::problem::Step;

/// A configuration file: its name, its text, and what was parsed from it.
pub(super) struct Source<'s> {
    /// The file's name as it is shown, escaped.
    pub(super) name: String,
    /// What was parsed, with spans; as the file has it, wrong values included.
    pub(super) tree: DeTable<'s>,
    text: &'s str,
    lines: Lines,
}

impl<'s> Source<'s> {
    pub(super) fn new(name: String, text: &'s str, tree: DeTable<'s>) -> Self {
        Self { name, tree, text, lines: Lines::new(text.as_bytes()) }
    }

    /// Line and column of the byte at `offset`, both from 1.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        self.lines.position(self.text.as_bytes(), offset)
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

#[cfg(test)]
mod tests {
    use super::*;

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
