//! No text makes the VCL reader panic or recurse, and what it refuses it refuses with a line.

use proptest::prelude::*;
use sickbay::vcl::{Listing, parse};

const PIECES: [&str; 44] = [
    "vcl 4.1;",
    "probe p ",
    "probe default ",
    "backend b ",
    "backend c ",
    "{",
    "}",
    "};",
    ";",
    "none",
    ".host = ",
    ".port = ",
    ".probe = ",
    ".url = ",
    ".request = ",
    ".window = ",
    ".threshold = ",
    ".initial = ",
    ".timeout = ",
    ".expect_close = true;",
    ".proxy_header = ",
    "\"127.0.0.1\";",
    "\"a\" \"b\";",
    "p;",
    "default;",
    "8;",
    "65;",
    "99999999999999999;",
    "1.5s;",
    "5ms;",
    "-",
    "{\"",
    "\"}",
    "\"\"\"",
    "\"",
    "/*",
    "*/",
    "//",
    "#",
    "\n",
    "C{",
    "}C",
    "sub x ",
    "include \"x\";",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
        read(&[b"vcl 4.1;".as_slice(), &bytes].concat());
    }

    #[test]
    fn any_pile_of_pieces_is_read_or_refused(
        picks in proptest::collection::vec(0..PIECES.len(), 0..40),
    ) {
        let pile: String = picks.iter().map(|pick| PIECES[*pick]).collect();
        read(format!("vcl 4.1;{pile}").as_bytes());
    }

    #[test]
    fn shop_with_a_hole_is_read_or_refused(start in 0_usize..4000, length in 0_usize..200) {
        let mut text = include_bytes!("vcl/shop.vcl").to_vec();
        let start = start.min(text.len());
        text.drain(start..(start + length).min(text.len()));
        read(&text);
    }
}

#[test]
fn a_million_braces_are_counted_not_recursed_into() {
    for open in ["{", "sub x {", "backend b { .probe = {", "(", "acl a { {"] {
        read(format!("vcl 4.1; sub y {}", open.repeat(1 << 20)).as_bytes());
        read(format!("vcl 4.1; {}", open.repeat(1 << 20)).as_bytes());
    }
}

#[test]
fn a_hundred_thousand_backends_on_one_line_are_read_in_time() {
    let mut text = String::from("vcl 4.1; backend b0 none;");
    for index in 1..100_000 {
        text.push_str(&format!("backend b{index} none;"));
    }
    let vcl = parse("t.vcl", text.as_bytes()).expect("it is right");
    assert_eq!(vcl.backends.len(), 100_000);
    assert_eq!(vcl.unused.len(), 99_999);
}

/// Reads; what is refused is refused by a line that exists, and what is read can be shown.
fn read(text: &[u8]) {
    match parse("t.vcl", text) {
        Ok(vcl) => {
            let shown = Listing::of(&vcl).to_string();
            assert_eq!(shown.lines().count(), vcl.probes.len() + vcl.backends.len());
        }
        Err(error) => {
            let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
            for problem in &error.errors {
                assert!((1..=lines).contains(&problem.line), "{problem}");
                assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
            }
        }
    }
}
