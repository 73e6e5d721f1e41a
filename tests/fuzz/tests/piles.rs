//! Other texts in every run: bytes at random, piles of the dictionaries' words, and good texts with
//! a hole.

use proptest::prelude::*;
use sickbay_fuzz::{admin, config, vcl};

/// The words of a dictionary of libFuzzer's: a line for each, in quotes, bytes as `\xNN`.
fn words(dictionary: &str) -> Vec<Vec<u8>> {
    let quoted = dictionary.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescaped).collect()
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut word = Vec::new();
    let mut rest = text;
    while let Some(behind) = rest.strip_prefix(|_: char| true) {
        let (byte, length) = match (rest.strip_prefix("\\x"), rest.strip_prefix('\\')) {
            (Some(hex), _) => (u8::from_str_radix(&hex[..2], 16).expect("two digits"), 4),
            (None, Some(mark)) => (mark.as_bytes()[0], 2),
            (None, None) => (rest.as_bytes()[0], rest.len() - behind.len()),
        };
        word.push(byte);
        rest = &rest[length..];
    }
    word
}

fn pile(dictionary: &str) -> impl Strategy<Value = Vec<u8>> {
    let words = words(dictionary);
    proptest::collection::vec(0..words.len(), 0..40)
        .prop_map(move |picks| picks.iter().flat_map(|pick| words[*pick].clone()).collect())
}

fn with_hole(text: &[u8]) -> impl Strategy<Value = Vec<u8>> {
    let text = text.to_vec();
    (0..text.len(), 0_usize..200).prop_map(move |(start, length)| {
        let end = (start + length).min(text.len());
        [&text[..start], &text[end..]].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        vcl::check(&bytes);
        vcl::check(&[b"vcl 4.1;".as_slice(), &bytes].concat());
        admin::check(&bytes);
    }

    #[test]
    fn piles_of_vcl(pile in pile(include_str!("../dictionaries/vcl.txt"))) {
        vcl::check(&[b"vcl 4.1;".as_slice(), &pile].concat());
    }

    #[test]
    fn piles_of_requests(pile in pile(include_str!("../dictionaries/admin.txt"))) {
        admin::check(&pile);
    }

    #[test]
    fn vcl_with_a_hole(text in with_hole(include_bytes!("../../../agent/tests/vcl/shop.vcl"))) {
        vcl::check(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn text_for_a_configuration(text in "\\PC*") {
        config::check(text.as_bytes());
    }

    #[test]
    fn piles_of_configuration(pile in pile(include_str!("../dictionaries/config.txt"))) {
        config::check(&pile);
    }

    #[test]
    fn example_with_a_hole(text in with_hole(sickbay::config::example().as_bytes())) {
        config::check(&text);
    }
}

#[test]
fn words_of_a_dictionary_are_read() {
    assert_eq!(
        words("# a comment\n\"a\\x0d\\x0a\"\n\"\\\"\\\\\"\n"),
        [b"a\r\n".as_slice(), b"\"\\"]
    );
}
