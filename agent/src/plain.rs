//! Text that may stand on a terminal, in a log and in a file, whatever it was: printable ASCII.
//!
//! What peers send is escaped where it is read ([`Legible`](sickbay_core::text::Legible)); these are
//! the last gates before an output, which let that pass unchanged.

use std::fmt::Write as _;

/// `text` with every character that is not printable ASCII made visible; backslash and quote stay.
///
/// Idempotent: what the agent has escaped passes unchanged.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, ' '..='~') {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    shown
}

/// JSON with every character outside of printable ASCII as its escape: the same value for whoever
/// parses it, and harmless for whoever prints it. JSON has such characters in strings alone, where
/// they may be escaped (RFC 8259, section 7); one line stays one line.
#[must_use]
pub fn printable_json(json: &str) -> String {
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return json.to_owned();
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(shown, "\\u{unit:04x}").expect("a String takes all text");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_leaves_escaped_text_alone_and_stops_the_rest() {
        let escaped = r#"\x1b]0;title\x07 \x22\"#;
        assert_eq!(printable(escaped), escaped);
        assert_eq!(printable("a\u{1b}[2Jb\n\u{202e}c"), r"a\u{1b}[2Jb\n\u{202e}c");
    }

    #[test]
    fn json_keeps_its_value_and_is_ascii() {
        // A control character of C1, one that turns the line around, and one past 16 bits.
        let value = serde_json::json!({ "text": "a\u{9b}2J\u{202e}\u{1f480}\"\\\n" });
        let plain = printable_json(&value.to_string());
        assert_eq!(plain, r#"{"text":"a\u009b2J\u202e\ud83d\udc80\"\\\n"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&plain).expect("JSON"), value);
    }
}
