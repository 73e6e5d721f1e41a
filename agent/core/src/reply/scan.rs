//! C's `sscanf(line, "HTTP/%f %u", …)`, as glibc does it.
//!
//! The float is only passed over, but what counts as one decides where the status begins: signs,
//! `inf`, `nan`, hexadecimal digits and exponents all do. A conversion takes as many bytes as could
//! belong to it and never gives one back; of those that then do not make a number it takes what
//! `strtof` and `strtoul` would. Blanks before a number are passed over, also where the format has
//! none. Everything here is compared with the C library itself by a target of the fuzzer.

/// The number where an HTTP status stands, if there is one. `line` has no NUL.
#[must_use]
pub fn scanned_status(line: &[u8]) -> Option<u32> {
    let version = line.strip_prefix(b"HTTP/")?;
    let rest = after_float(after_blanks(version))?;
    unsigned(after_blanks(rest))
}

/// The C locale's `isspace`.
fn after_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let first = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    &text[first..]
}

fn after_sign(text: &[u8]) -> &[u8] {
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

/// `%f`: what follows the float, `None` when there is none.
fn after_float(text: &[u8]) -> Option<&[u8]> {
    let text = after_sign(text);
    if let Some(rest) = after_word(text, b"nan") {
        return Some(rest);
    }
    let Some(rest) = after_word(text, b"inf") else {
        return after_digits(text);
    };
    // Once it has the next letter it must be the whole word.
    if after_word(rest, b"i").is_some() { after_word(rest, b"inity") } else { Some(rest) }
}

fn after_word<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

/// A float's digits, point and exponent, each where it may stand.
fn after_digits(text: &[u8]) -> Option<&[u8]> {
    let hexadecimal = after_word(text, b"0x").is_some();
    let exponent_letter = if hexadecimal { b'p' } else { b'e' };
    let first = if hexadecimal { 2 } else { 0 };
    let (mut any_digit, mut any_point, mut in_exponent) = (false, false, false);
    let mut end = first;
    while let Some(&byte) = text.get(end) {
        let letter = byte.to_ascii_lowercase();
        let after_letter = in_exponent && text[end - 1].to_ascii_lowercase() == exponent_letter;
        if byte.is_ascii_digit() || (hexadecimal && !in_exponent && byte.is_ascii_hexdigit()) {
            any_digit = true;
        } else if any_digit && !in_exponent && letter == exponent_letter {
            in_exponent = true;
        } else if byte == b'.' && !any_point && !in_exponent {
            any_point = true;
        } else if !(after_letter && matches!(byte, b'+' | b'-')) {
            break;
        }
        end += 1;
    }
    // Of "0x." `strtof` takes the zero; of "0x" alone nothing is taken.
    let is_number = any_digit || (hexadecimal && first < end);
    is_number.then(|| &text[end..])
}

/// `%u`: what `strtoul` makes of it, of which the low 32 bits are kept. A minus sign is allowed
/// and wraps; what does not fit 64 bits is all ones.
fn unsigned(text: &[u8]) -> Option<u32> {
    let digits = after_sign(text);
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let value = digits[..count]
        .iter()
        .try_fold(0_u64, |value, byte| value.checked_mul(10)?.checked_add(u64::from(byte - b'0')));
    let negative = text.first() == Some(&b'-');
    Some(match value {
        Some(value) if negative => value.wrapping_neg() as u32,
        Some(value) => value as u32,
        None => u32::MAX,
    })
}
