//! The register over time: one row per probe, from a death to a recovery, each at its worst as far as
//! one target shows it.

use sickbay_core::answer::{Question, Story};
use sickbay_core::command::Verdict;
use sickbay_core::plan::Nanos;

use super::strip::{digits, word};
use crate::cli::listing::Screen;
use crate::cli::table::{Cell, Column, Table, Tint};
use crate::graph;

/// Beside wider registers there is no room: what is to be said stands under the row.
const BESIDE_SPAN_MAX: u8 = 40;

/// Draws the story of a probe.
pub(super) fn draw(text: &mut String, question: Question<'_>, screen: Screen) {
    let Some(story) = question.story() else {
        text.push_str("\nThere is nothing to draw: it never turns sick, or only after too long.\n");
        return;
    };
    let span = graph::span(question.rule);
    text.push_str(&format!(
        "\nThe register over time: H good, - bad, the newest of {span} right. The backend dies\n\
         just after a probe at 0 s and is a black hole; it answers again from {} s on.\n",
        digits(story.revived_ns),
    ));
    text.push_str(&rows(&story, span, screen));
}

fn rows(story: &Story, span: u8, screen: Screen) -> String {
    let mut table = Table::new(vec![
        Column::number("At s"),
        Column::text("Register"),
        Column::text("Verdict"),
        Column::text(""),
    ]);
    let mut before = Verdict::Healthy;
    for row in &story.rows {
        let tint = match row.verdict {
            Verdict::Healthy => Tint::Good,
            Verdict::Warming => Tint::Odd,
            Verdict::Sick => Tint::Bad,
        };
        let since = match (before, row.verdict) {
            (Verdict::Healthy, Verdict::Sick) => said(row.ended_ns, "it died"),
            (Verdict::Sick, Verdict::Healthy) => {
                said(row.ended_ns - story.revived_ns, "it came back")
            }
            _ => String::new(),
        };
        before = row.verdict;
        let verdict = Cell::tinted(word(row.verdict), tint);
        let (beside, below) = match since.as_str() {
            "" => (String::new(), String::new()),
            _ if span <= BESIDE_SPAN_MAX => (since, String::new()),
            _ => (String::new(), format!("      {since}\n")),
        };
        let cells = vec![
            digits(row.ended_ns).into(),
            drawn(row.happy, span).into(),
            verdict,
            beside.into(),
        ];
        table.push(cells, below);
    }
    table.render(screen)
}

fn said(after_ns: Nanos, what: &str) -> String {
    format!("<- {} s after {what}", digits(after_ns))
}

/// The newest `span` results, oldest left.
fn drawn(happy: u64, span: u8) -> String {
    (0..span).rev().map(|bit| if happy >> bit & 1 == 1 { 'H' } else { '-' }).collect()
}
