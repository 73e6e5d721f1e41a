//! No text makes the parser panic, and what it refuses it refuses with a line.

use std::path::Path;

use proptest::prelude::*;
use sickbay::config::{Overrides, example, parse};

/// What configurations are made of, and what they should not be made of.
const PIECES: [&str; 48] = [
    "[agent]\n",
    "[probe.web]\n",
    "[pool.web]\n",
    "[service.web]\n",
    "[[attach]]\n",
    "[attach]\n",
    "[probe]\n",
    "probe = \"web\"\n",
    "pool = \"web\"\n",
    "url = \"/h\"\n",
    "url = 3\n",
    "window = 8\n",
    "window = 65\n",
    "window = -1\n",
    "threshold = 9223372036854775807\n",
    "threshold = 99999999999999999999\n",
    "threshold = 3\n",
    "initial = 1e3\n",
    "fall = 0\n",
    "rise = 64\n",
    "interval = \"5s\"\n",
    "interval = \"99999999999999y\"\n",
    "timeout = 2\n",
    "timeout = \"\"\n",
    "backends = [\"192.0.2.1:80\"]\n",
    "backends = [{}]\n",
    "backends = [[], 1, \"\", { weight = 0, address = 3 }]\n",
    "backends = {}\n",
    "backends_range = \"0.0.0.0-255.255.255.255:80\"\n",
    "backends_range = \"[::/0]:1\"\n",
    "backends_range = \"10.0.0.0/8:1\"\n",
    "backends_range = \"-:\"\n",
    "probe_port = 0\n",
    "address = \"198.51.100.1\"\n",
    "address = \"::\"\n",
    "port = 80\n",
    "port = 1979-05-27\n",
    "table_size = 8388593\n",
    "table_size = 4\n",
    "interface = \"eth0\"\n",
    "program = \"tc\"\n",
    "instance = \"\\u0000\"\n",
    "pin_directory = \"\\u0000\"\n",
    "seed = -1\n",
    "a.b.c = 1\n",
    "\"\" = true\n",
    "[",
    "\u{feff}\r\u{202e}\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        read(&text);
    }

    #[test]
    fn any_bytes_that_are_text_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_pile_of_pieces_is_read_or_refused(
        picks in proptest::collection::vec(0..PIECES.len(), 0..24),
    ) {
        read(&picks.iter().map(|pick| PIECES[*pick]).collect::<String>());
    }

    #[test]
    fn example_with_a_hole_is_read_or_refused(start in 0_usize..8000, length in 0_usize..200) {
        let mut text = example();
        let start = start.min(text.len());
        let end = (start + length).min(text.len());
        if text.is_char_boundary(start) && text.is_char_boundary(end) {
            text.replace_range(start..end, "");
        }
        read(&text);
    }
}

/// Reads; what is refused is refused by a line that exists.
fn read(text: &str) {
    let Err(error) = parse(text, Path::new("/nonexistent/fuzz.toml"), &Overrides::default()) else {
        return;
    };
    assert!(!error.errors.is_empty());
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    for problem in &error.errors {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
    }
}
