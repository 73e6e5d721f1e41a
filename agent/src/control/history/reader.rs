//! From the history's files to whoever asks. Its agent need not run; when it does, it goes on
//! writing meanwhile.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::segments::{Segment, list};
use super::{HistoryEvent, LINE_BYTES_MAX};

/// What is read, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event, with the line it stands in.
    Event(Box<HistoryEvent>, String),
    /// So many events before the next one are not there: there was no room for them.
    Missing(u64),
    /// A line that is no event this version knows.
    Unreadable {
        /// In which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
    },
}

/// Reads a history from its oldest event on.
#[derive(Debug)]
pub struct Reader {
    segments: VecDeque<Segment>,
    open: Option<(BufReader<File>, PathBuf, u64)>,
    /// The number that the next event should have.
    expected: Option<u64>,
    /// Read already, to come after what is missing before it.
    held: Option<Item>,
}

impl Reader {
    /// A reader of the history in this directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let segments = list(directory)?.into();
        Ok(Self { segments, open: None, expected: None, held: None })
    }

    /// What comes next; `None` at the end. A line without an end is one that is being written.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        loop {
            let Some((file, path, number)) = &mut self.open else {
                let Some(segment) = self.segments.pop_front() else { return Ok(None) };
                self.open = open(&segment.path)?.map(|file| (file, segment.path, 0));
                continue;
            };
            *number += 1;
            let Some(line) = read_line(file)? else {
                self.open = None;
                continue;
            };
            let event = line.as_deref().and_then(|line| serde_json::from_str(line).ok());
            let (Some(event), Some(line)) = (event, line) else {
                return Ok(Some(Item::Unreadable { path: path.clone(), line: *number }));
            };
            return Ok(Some(self.numbered(event, line)));
        }
    }

    fn numbered(&mut self, event: HistoryEvent, line: String) -> Item {
        let missing = self.expected.map_or(0, |expected| event.order.saturating_sub(expected));
        self.expected = Some(event.order.saturating_add(1));
        let item = Item::Event(Box::new(event), line);
        if missing == 0 {
            return item;
        }
        self.held = Some(item);
        Item::Missing(missing)
    }
}

/// Opens a segment; `None` when it was removed meanwhile.
fn open(path: &Path) -> io::Result<Option<BufReader<File>>> {
    let mut options = OpenOptions::new();
    match options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The next line without its LF: `Some(None)` when it is no text or too long, `None` at the end.
fn read_line(file: &mut BufReader<File>) -> io::Result<Option<Option<String>>> {
    let mut line = Vec::new();
    let most = LINE_BYTES_MAX as u64 + 1;
    file.by_ref().take(most).read_until(b'\n', &mut line)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(String::from_utf8(line).ok()));
    }
    if (line.len() as u64) < most {
        return Ok(None);
    }
    // Too long: on to its end, keeping nothing of it.
    loop {
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        file.consume(length);
        if end.is_some() {
            return Ok(Some(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::control::history::tests::event;

    fn line(order: u64) -> String {
        HistoryEvent::new(order, event("web.b1", "")).line()
    }

    fn read(files: &[(&str, &[u8])]) -> Vec<String> {
        let root = TempDir::new().unwrap();
        for (name, bytes) in files {
            fs::write(root.path().join(name), bytes).unwrap();
        }
        let mut reader = Reader::new(root.path()).unwrap();
        let mut read = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            read.push(match item {
                Item::Event(event, _) => event.order.to_string(),
                Item::Missing(count) => format!("{count} missing"),
                Item::Unreadable { path, line } => {
                    format!("{}:{line}", path.file_name().unwrap().to_str().unwrap())
                }
            });
        }
        read
    }

    #[test]
    fn segments_are_read_in_order_with_their_gaps() {
        let first = [line(7), line(8)].concat();
        let second = [line(12), line(13)].concat();
        let read = read(&[
            ("events-00000000000000000012.jsonl", second.as_bytes()),
            ("events-00000000000000000007.jsonl", first.as_bytes()),
            ("notes.jsonl", b"not ours"),
        ]);
        assert_eq!(read, ["7", "8", "3 missing", "12", "13"]);
    }

    #[test]
    fn line_that_is_no_event_is_passed_over_and_one_without_end_is_the_end() {
        let long = vec![b'x'; LINE_BYTES_MAX + 100];
        let bytes = [
            line(1).as_bytes(),
            b"\0\0\0\n",
            b"{\"order\":2}\n",
            &long,
            b"\n",
            line(3).as_bytes(),
            &line(4).as_bytes()[..20],
        ]
        .concat();
        let name = "events-00000000000000000001.jsonl";
        let at = |number: u64| format!("{name}:{number}");
        let expected =
            ["1".to_owned(), at(2), at(3), at(4), "1 missing".to_owned(), "3".to_owned()];
        assert_eq!(read(&[(name, &bytes)]), expected);
    }

    #[test]
    fn empty_directory_has_no_history() {
        assert_eq!(read(&[]), [""; 0]);
    }
}
