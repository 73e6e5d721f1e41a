//! Tables: columns as wide as what stands in them, cut to the terminal, coloured where welcome.

use super::listing::{Screen, printable};

/// Spaces between two columns.
const GAP: &str = "  ";

/// A column of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    width_min: usize,
    right: bool,
    cuttable: bool,
}

impl Column {
    /// Text, left.
    #[must_use]
    pub const fn text(title: &'static str) -> Self {
        Self { title, width_min: 0, right: false, cuttable: false }
    }

    /// Text that is cut when the terminal is too narrow.
    #[must_use]
    pub const fn cuttable(title: &'static str) -> Self {
        Self { cuttable: true, ..Self::text(title) }
    }

    /// Numbers, right.
    #[must_use]
    pub const fn number(title: &'static str) -> Self {
        Self { right: true, ..Self::text(title) }
    }

    /// At least this wide.
    #[must_use]
    pub const fn at_least(mut self, width: usize) -> Self {
        self.width_min = width;
        self
    }
}

/// A cell's colour, where colour is welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// All is well.
    Good,
    /// Worth a look.
    Odd,
    /// Something is down.
    Bad,
}

impl Tint {
    const fn ansi(self) -> &'static str {
        match self {
            Self::Good => "\x1b[32m",
            Self::Odd => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// A cell of a [`Table`]: printable text, perhaps coloured.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tint: Option<Tint>,
}

impl Cell {
    /// This text in this colour.
    #[must_use]
    pub fn tinted(text: &str, tint: Tint) -> Self {
        Self { tint: Some(tint), ..Self::from(text) }
    }
}

impl From<&str> for Cell {
    /// Whatever is not printable is made visible here, so no table can move the cursor.
    fn from(text: &str) -> Self {
        Self { text: printable(text), tint: None }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self { text: number.to_string(), tint: None }
    }
}

/// A table, its columns as wide as what stands in them.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<(Vec<Cell>, String)>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub const fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; `below` (whole lines, or nothing) stands under it.
    pub fn push(&mut self, cells: Vec<Cell>, below: String) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push((cells, below));
    }

    /// The table as lines, the titles first.
    #[must_use]
    pub fn render(&self, screen: Screen) -> String {
        let widths = self.widths(screen.width);
        let titles: Vec<Cell> = self.columns.iter().map(|column| column.title.into()).collect();
        let mut text = self.line(&titles, &widths, false);
        for (cells, below) in &self.rows {
            text.push_str(&self.line(cells, &widths, screen.colour));
            text.push_str(below);
        }
        text
    }

    fn widths(&self, screen: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|(cells, _)| cells[index].text.len());
                cells.max().unwrap_or(0).max(column.title.len()).max(column.width_min)
            })
            .collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let wanted = widths.iter().sum::<usize>() + gaps;
        let mut excess = wanted.saturating_sub(screen.unwrap_or(usize::MAX));
        for (column, width) in self.columns.iter().zip(&mut widths).rev() {
            if column.cuttable {
                let cut = excess.min(*width - column.title.len());
                *width -= cut;
                excess -= cut;
            }
        }
        widths
    }

    fn line(&self, cells: &[Cell], widths: &[usize], colour: bool) -> String {
        let mut line = String::new();
        for ((column, cell), &width) in self.columns.iter().zip(cells).zip(widths) {
            let text = cut(&cell.text, width);
            let padded =
                if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") };
            match cell.tint.filter(|_| colour) {
                Some(tint) => {
                    line.push_str(tint.ansi());
                    line.push_str(&padded);
                    line.push_str("\x1b[0m");
                }
                None => line.push_str(&padded),
            }
            line.push_str(GAP);
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// `text` in `width` characters; what is missing is said by an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.len() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, Table, Tint};
    use crate::cli::listing::Screen;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::cuttable("Name"),
            Column::number("Flows"),
            Column::cuttable("Last result"),
        ]);
        table.push(vec!["web.b1".into(), 7.into(), "HTTP/1.1 200 OK".into()], String::new());
        let refused = "Open error 111 (Connection refused)";
        table.push(
            vec![Cell::tinted("web.b2", Tint::Bad), 123_456.into(), refused.into()],
            "  below\n".to_owned(),
        );
        table
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        assert_eq!(
            table().render(Screen::default()),
            "\
Name     Flows  Last result
web.b1       7  HTTP/1.1 200 OK
web.b2  123456  Open error 111 (Connection refused)
  below
"
        );
    }

    #[test]
    fn last_text_is_cut_first_when_the_terminal_is_narrow() {
        let screen = Screen { width: Some(32), colour: false };
        assert_eq!(
            table().render(screen),
            "\
Name     Flows  Last result
web.b1       7  HTTP/1.1 200 OK
web.b2  123456  Open error 111 …
  below
"
        );
    }

    #[test]
    fn colour_is_written_only_where_it_is_welcome() {
        let red = "\x1b[31mweb.b2\x1b[0m";
        assert!(table().render(Screen { width: None, colour: true }).contains(red));
        assert!(!table().render(Screen::default()).contains('\x1b'));
    }

    #[test]
    fn cells_cannot_move_the_cursor() {
        let mut table = Table::new(vec![Column::text("Name")]);
        table.push(vec!["\x1b[2Jevil\nline".into()], String::new());
        assert_eq!(table.render(Screen::default()), "Name\n\\u{1b}[2Jevil\\nline\n");
    }
}
