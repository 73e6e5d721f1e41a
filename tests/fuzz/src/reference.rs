//! HTTP/1 read from a whole message at once, by other code than what is fuzzed: lines are found
//! first, then fields, then the body, as RFC 9112 tells it. The peer closes behind the last byte.

use sickbay_core::command::Malformed;
use sickbay_core::limits::{INFORMATIONAL_MAX, LINE_BYTES_MAX, RESPONSE_BYTES_MAX};
use sickbay_core::response::End;

/// What the response comes to; `None` in a header section without an end, of which a reader may
/// have seen that it is wrong, or not.
pub(crate) fn response(stream: &[u8], head: bool) -> Option<End> {
    let most = RESPONSE_BYTES_MAX as usize;
    let is_cut = most <= stream.len();
    let mut rest = &stream[..stream.len().min(most)];
    if rest.is_empty() {
        return Some(End::Empty);
    }
    for _ in 0..=INFORMATIONAL_MAX {
        let (status, behind) = match status_line(rest) {
            Line::Whole(status, behind) => (status, behind),
            Line::Wrong => return Some(End::Malformed(Malformed::StatusLine)),
            Line::Open if is_cut => return Some(End::Malformed(Malformed::StatusLine)),
            Line::Open => return Some(End::Truncated),
        };
        let (fields, body) = match fields(behind) {
            Line::Whole(fields, body) => (fields, body),
            Line::Wrong => return Some(End::Malformed(Malformed::Header)),
            Line::Open if is_cut => return Some(End::Malformed(Malformed::Header)),
            Line::Open => return None,
        };
        if !(100..200).contains(&status) || status == 101 {
            return Some(framed(status, &fields, body, head, is_cut));
        }
        rest = body;
    }
    Some(End::Malformed(Malformed::TooManyInformational))
}

/// What stands at the begin of some bytes, and what stands behind it.
pub(crate) enum Line<'s, T> {
    Whole(T, &'s [u8]),
    /// It cannot become one, whatever comes.
    Wrong,
    /// It may become one.
    Open,
}

/// RFC 9112, section 4: the status.
pub(crate) fn status_line(stream: &[u8]) -> Line<'_, u16> {
    let end = stream.iter().position(|byte| *byte == b'\n');
    let line = &stream[..end.unwrap_or(stream.len())];
    let text = line.strip_suffix(b"\r").unwrap_or(line);
    let form = b"HTTP/1.9 999 ";
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'9' => byte.is_ascii_digit(),
        form => byte == form,
    };
    let is_form = text.iter().zip(form).all(fits);
    if !is_form || text.contains(&b'\r') || LINE_BYTES_MAX <= text.len() {
        return Line::Wrong;
    }
    let Some(end) = end else {
        return Line::Open;
    };
    let digits = text.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(status @ 100..) => Line::Whole(status, &stream[end + 1..]),
        _ => Line::Wrong,
    }
}

/// Name in lower case and value of each field; a fold is a blank.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The header section and what stands behind it.
fn fields(section: &[u8]) -> Line<'_, Fields> {
    let mut fields = Fields::new();
    let mut rest = section;
    loop {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return if LINE_BYTES_MAX <= rest.len() { Line::Wrong } else { Line::Open };
        };
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if LINE_BYTES_MAX <= line.len() {
            return Line::Wrong;
        }
        let mut line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        line.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b' ');
        match (line.first(), fields.last_mut()) {
            (None, _) => break,
            (Some(b' ' | b'\t'), Some((_, value))) => value.extend(&line),
            (Some(b' ' | b'\t'), None) => return Line::Wrong,
            (Some(_), _) => match field(&line) {
                Some(field) => fields.push(field),
                None => return Line::Wrong,
            },
        }
    }
    if lengths(&fields).is_none() { Line::Wrong } else { Line::Whole(fields, rest) }
}

fn field(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = trimmed(&line[..colon]);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_name = !name.is_empty() && line.starts_with(name) && name.iter().all(is_token);
    is_name.then(|| (name.to_ascii_lowercase(), line[colon + 1..].to_vec()))
}

/// All elements of the fields of this name.
fn elements<'f>(fields: &'f Fields, name: &[u8]) -> Vec<&'f [u8]> {
    let named = fields.iter().filter(|(each, _)| each == name);
    named.flat_map(|(_, value)| value.split(|byte| *byte == b',').map(trimmed)).collect()
}

/// The one length that is told, if any; `None` when there are several, or one is no number.
fn lengths(fields: &Fields) -> Option<Option<u64>> {
    let mut told = None;
    for element in elements(fields, b"content-length") {
        let is_number = !element.is_empty() && element.iter().all(u8::is_ascii_digit);
        let number: u64 = std::str::from_utf8(element).ok()?.parse().ok()?;
        if !is_number || told.is_some_and(|told| told != number) {
            return None;
        }
        told = Some(number);
    }
    Some(told)
}

/// RFC 9112, section 6.3.
fn framed(status: u16, fields: &Fields, body: &[u8], head: bool, is_cut: bool) -> End {
    let complete = End::Complete { status };
    if head || matches!(status, 101 | 204 | 304) {
        return complete;
    }
    let codings = elements(fields, b"transfer-encoding");
    let last = codings.iter().rev().find(|coding| !coding.is_empty());
    if last.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
        return match chunks(body) {
            Line::Whole((), _) => complete,
            Line::Wrong => End::Malformed(Malformed::Chunk),
            Line::Open if is_cut => complete,
            Line::Open => End::Truncated,
        };
    }
    match lengths(fields).flatten() {
        Some(length) if codings.is_empty() && !is_cut && (body.len() as u64) < length => {
            End::Truncated
        }
        _ => complete,
    }
}

/// RFC 9112, section 7.1; a bare LF ends a line as well.
fn chunks(mut body: &[u8]) -> Line<'_, ()> {
    loop {
        let (size, data) = match size_line(body) {
            Line::Whole(size, data) => (size, data),
            Line::Wrong => return Line::Wrong,
            Line::Open => return Line::Open,
        };
        if size == 0 {
            return trailers(data);
        }
        let Some(behind) = usize::try_from(size).ok().and_then(|size| data.get(size..)) else {
            return Line::Open;
        };
        body = match behind {
            [] | [b'\r'] => return Line::Open,
            [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => rest,
            _ => return Line::Wrong,
        };
    }
}

fn size_line(body: &[u8]) -> Line<'_, u64> {
    let end = body.iter().position(|byte| *byte == b'\n');
    let line = &body[..end.unwrap_or(body.len())];
    let text = line.strip_suffix(b"\r").unwrap_or(line);
    let count = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, extension) = text.split_at(count);
    let size = digits.iter().try_fold(0_u64, |size, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        size.checked_mul(16)?.checked_add(digit.into())
    });
    let is_open = line.is_empty() && end.is_none();
    let begins = matches!(extension.first(), None | Some(b';' | b' ' | b'\t'));
    let fits = begins && !extension.contains(&b'\r') && line.len() < LINE_BYTES_MAX;
    match (size, end) {
        _ if is_open => Line::Open,
        (Some(size), _) if fits && 0 < count => match end {
            Some(end) => Line::Whole(size, &body[end + 1..]),
            None => Line::Open,
        },
        _ => Line::Wrong,
    }
}

fn trailers(mut section: &[u8]) -> Line<'_, ()> {
    loop {
        let end = section.iter().position(|byte| *byte == b'\n');
        let line = &section[..end.unwrap_or(section.len())];
        if LINE_BYTES_MAX <= line.len() || (1 < line.len() && line.starts_with(b"\r")) {
            return Line::Wrong;
        }
        let Some(end) = end else {
            return Line::Open;
        };
        section = &section[end + 1..];
        if matches!(line, b"" | b"\r") {
            return Line::Whole((), section);
        }
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let first = text.iter().position(is_text).unwrap_or(text.len());
    let end = text.iter().rposition(is_text).map_or(first, |last| last + 1);
    &text[first..end]
}
