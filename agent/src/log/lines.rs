//! One event, one line of printable ASCII: with its priority before it for the journal, in the
//! colour of its level on a terminal.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::plain::{printable, printable_json};

/// What the lines are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Somebody reads along.
    Terminal,
    /// A file or a pipe.
    File,
    /// systemd's journal.
    Journal,
}

/// Another formatter's lines, made harmless.
#[derive(Clone, Debug)]
pub(super) struct Lines<F> {
    inner: F,
    escape: fn(&str) -> String,
    place: Place,
}

impl<F> Lines<F> {
    /// Lines of text.
    pub(super) fn text(inner: F, place: Place) -> Self {
        Self { inner, escape: printable, place }
    }

    /// Lines of JSON, which stay the JSON they were.
    pub(super) fn json(inner: F, place: Place) -> Self {
        Self { inner, escape: printable_json, place }
    }
}

impl<S, N, F> FormatEvent<S, N> for Lines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = (self.escape)(line.trim_end_matches('\n'));
        let level = *event.metadata().level();
        match (self.place, colour(level)) {
            (Place::Journal, _) => writeln!(writer, "<{}>{line}", priority(level)),
            (Place::Terminal, Some(colour)) => writeln!(writer, "\x1b[{colour}m{line}\x1b[0m"),
            _ => writeln!(writer, "{line}"),
        }
    }
}

/// syslog(3)'s number of the level.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The colour (SGR) of what should not be overlooked.
const fn colour(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        Level::INFO | Level::DEBUG | Level::TRACE => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::format;

    use super::*;

    /// A file that is none.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const NASTY: &str = "web.b1 went sick: \u{1b}]0;x\u{7}\r\n<script>\u{9b}2J\u{202e}";

    /// What is written of a warning with a nasty text.
    fn text(place: Place) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Lines::text(format().without_time().with_target(false), place))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!("{NASTY}"));
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn control_bytes_reach_no_line_of_text() {
        let escaped = r" WARN web.b1 went sick: \u{1b}]0;x\u{7}\r\n<script>\u{9b}2J\u{202e}";
        let plain = text(Place::File);
        // tracing-subscriber may escape some of them first, in its own way.
        assert!(plain.is_ascii() && plain.ends_with('\n'), "{plain:?}");
        assert_eq!(plain.trim_end().chars().filter(|c| c.is_control()).count(), 0, "{plain:?}");
        assert!(plain.starts_with(&escaped[..24]), "{plain:?}");
        assert!(plain.contains("<script>"), "markup is no matter of a log: {plain:?}");
    }

    #[test]
    fn journal_gets_the_priority_and_a_terminal_the_colour() {
        assert!(text(Place::Journal).starts_with("<4> WARN web.b1"), "{:?}", text(Place::Journal));
        let coloured = text(Place::Terminal);
        assert!(coloured.starts_with("\x1b[33m WARN web.b1"), "{coloured:?}");
        assert_eq!(coloured.matches('\x1b').count(), 2, "only our own: {coloured:?}");
    }

    #[test]
    fn json_is_one_line_with_the_text_as_it_was() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .event_format(Lines::json(format().json(), Place::File))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!("{NASTY}"));
        let bytes = kept.0.lock().unwrap().clone();
        let line = String::from_utf8(bytes).unwrap();
        assert!(line.is_ascii() && line.lines().count() == 1, "{line:?}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["fields"]["message"], NASTY);
        assert!(value["timestamp"].is_string() && value["level"] == "INFO");
    }
}
