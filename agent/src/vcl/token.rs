//! Tokens: what the text of a VCL is made of, by the rules of Varnish's own lexer.
//!
//! Everything has to be read as Varnish reads it, also where it is skipped: a brace in a string, a
//! quote in a comment or a `}C` decides where a subroutine ends.

/// A piece of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Index of its file.
    pub(super) file: usize,
    /// Its first byte.
    pub(super) start: usize,
    /// Behind its last byte.
    pub(super) end: usize,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name: a letter, then letters, digits, `_` and `-`.
    Name,
    /// Digits.
    Whole,
    /// Digits, a point, and perhaps more digits.
    Fraction,
    /// A string; its delimiters are this long on both sides.
    Text(usize),
    /// `C{ … }C`.
    InlineC,
    /// `:BASE64:`.
    Blob,
    /// A mark of one character.
    Mark(u8),
    /// A mark of several.
    Operator,
    /// Behind the last piece.
    End,
}

/// Why the text cannot be cut into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LexFault {
    /// Where.
    pub(super) offset: usize,
    /// Varnish's words.
    pub(super) problem: &'static str,
    pub(super) mend: &'static str,
}

const OPERATORS: [&[u8]; 14] = [
    b"!=", b"!~", b"++", b"+=", b"--", b"-=", b"&&", b"||", b"*=", b"/=", b"<=", b"==", b">=",
    b"<<",
];
const SHIFT_RIGHT: &[u8] = b">>";
const MARKS: &[u8] = b"!%&()*+,-./;<=>{|}~:";

/// The piece that begins at or behind `offset`.
pub(super) fn next(bytes: &[u8], file: usize, offset: usize) -> Result<Token, LexFault> {
    let start = skip_blanks(bytes, offset)?;
    let rest = &bytes[start..];
    let token = |kind, length| Token { kind, file, start, end: start + length };
    let Some(&first) = rest.first() else {
        return Ok(token(Kind::End, 0));
    };
    if let Some((kind, length)) = delimited(rest, start)? {
        return Ok(token(kind, length));
    }
    if first == b':'
        && let Some(length) = blob_length(rest)
    {
        return Ok(token(Kind::Blob, length));
    }
    if OPERATORS.iter().chain([&SHIFT_RIGHT]).any(|operator| rest.starts_with(operator)) {
        return Ok(token(Kind::Operator, 2));
    }
    if MARKS.contains(&first) {
        return Ok(token(Kind::Mark(first), 1));
    }
    let run = |is: fn(&u8) -> bool, from: usize| {
        rest[from..].iter().position(|byte| !is(byte)).map_or(rest.len(), |at| from + at)
    };
    if first.is_ascii_alphabetic() {
        return Ok(token(Kind::Name, run(is_name_byte, 1)));
    }
    if first.is_ascii_digit() {
        let whole = run(u8::is_ascii_digit, 0);
        if rest.get(whole) != Some(&b'.') {
            return Ok(token(Kind::Whole, whole));
        }
        return Ok(token(Kind::Fraction, run(u8::is_ascii_digit, whole + 1)));
    }
    let mend = "remove it; outside of strings and comments it has no meaning";
    Err(LexFault { offset: start, problem: "Syntax error at", mend })
}

/// Behind blanks and comments: `#`, `//` and `/* */`.
fn skip_blanks(bytes: &[u8], mut offset: usize) -> Result<usize, LexFault> {
    loop {
        let rest = &bytes[offset..];
        match rest {
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, ..] => offset += 1,
            [b'#', ..] | [b'/', b'/', ..] => {
                offset += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            [b'/', b'*', ..] => offset += comment_length(rest, offset)?,
            _ => return Ok(offset),
        }
    }
}

fn comment_length(rest: &[u8], offset: usize) -> Result<usize, LexFault> {
    for (at, pair) in rest.windows(2).enumerate().skip(2) {
        match pair {
            b"/*" => {
                let problem = "/* ... */ comment contains /*";
                return Err(LexFault { offset, problem, mend: "comments do not nest" });
            }
            b"*/" => return Ok(at + 2),
            _ => {}
        }
    }
    let problem = "Unterminated /* ... */ comment, starting at";
    Err(LexFault { offset, problem, mend: "end it with */" })
}

/// A string or inline C, whose end is sought without regard to what stands between.
fn delimited(rest: &[u8], offset: usize) -> Result<Option<(Kind, usize)>, LexFault> {
    let long = "Unterminated long-string, starting at";
    let (open, close, problem, mend): (&[u8], &[u8], _, _) = if rest.starts_with(b"\"\"\"") {
        (b"\"\"\"", b"\"\"\"", long, "end it with three quotes")
    } else if rest.starts_with(b"{\"") {
        (b"{\"", b"\"}", long, "end it with \"}; a brace and a quote begin a long string")
    } else if rest.starts_with(b"\"") {
        let mend = "end it on its line; a string with line feeds or quotes is written {\"…\"}";
        (b"\"", b"\"", "Unterminated string, starting at", mend)
    } else if rest.starts_with(b"C{") {
        (b"C{", b"}C", "Unterminated inline C source, starting at", "end it with }C")
    } else {
        return Ok(None);
    };
    let length = open.len();
    let inside = &rest[length..];
    let end = inside.windows(close.len()).position(|window| window == close);
    let is_line = length == 1;
    let ends_early = |byte: &u8| *byte == 0 || (is_line && matches!(byte, b'\r' | b'\n'));
    let whole = end.filter(|end| !inside[..*end].iter().any(ends_early));
    let Some(end) = whole else {
        return Err(LexFault { offset, problem, mend });
    };
    let kind = if open == b"C{" { Kind::InlineC } else { Kind::Text(length) };
    Ok(Some((kind, end + 2 * length)))
}

/// The length of `:BASE64:`, whose slashes are no comment.
fn blob_length(rest: &[u8]) -> Option<usize> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let end = rest[1..].iter().position(|byte| !is_base64(byte))?;
    (rest[1 + end] == b':').then_some(end + 2)
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        let (mut offset, mut pieces) = (0, Vec::new());
        loop {
            let token = next(text.as_bytes(), 0, offset).expect("it can be cut");
            if token.kind == Kind::End {
                return pieces;
            }
            pieces.push(&text[token.start..token.end]);
            offset = token.end;
        }
    }

    #[test]
    fn strings_and_comments_hide_what_is_in_them() {
        let text = "a {\"}\"} b \"\"\"}\"x\"\"\" /* } \" */ \"# {\" // \"\n c # }\n C{ }; \"} }C d";
        assert_eq!(
            pieces(text),
            ["a", "{\"}\"}", "b", "\"\"\"}\"x\"\"\"", "\"# {\"", "c", "C{ }; \"} }C", "d"]
        );
    }

    #[test]
    fn numbers_units_and_names_are_cut_as_varnish_does() {
        assert_eq!(
            pieces("5s 1.5ms 5. a-b_c 1a vcl_C{"),
            ["5", "s", "1.5", "ms", "5.", "a-b_c", "1", "a", "vcl_C", "{"]
        );
    }

    #[test]
    fn blob_with_slashes_is_no_comment() {
        assert_eq!(pieces(":AA//BB==: x"), [":AA//BB==:", "x"]);
    }

    #[test]
    fn what_has_no_end_is_told_at_its_begin() {
        for (text, problem) in [
            ("x \"a\nb\"", "Unterminated string, starting at"),
            ("x {\"a\" }", "Unterminated long-string, starting at"),
            ("x /* a", "Unterminated /* ... */ comment, starting at"),
            ("x /*/", "Unterminated /* ... */ comment, starting at"),
            ("x /* /* */", "/* ... */ comment contains /*"),
            ("x C{ }", "Unterminated inline C source, starting at"),
            ("x @", "Syntax error at"),
        ] {
            let fault = next(text.as_bytes(), 0, 1).expect_err(text);
            assert_eq!((fault.offset, fault.problem), (2, problem), "{text}");
        }
    }
}
