//! The header section: shape, and the two fields that say where the body ends.

use crate::limits::LINE_BYTES_MAX;

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";
const CHUNKED: &[u8] = b"chunked";

/// What the header section says of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    /// Whether the last transfer coding is chunked; `None` without a Transfer-Encoding.
    pub(super) chunked: Option<bool>,
    /// The Content-Length.
    pub(super) length: Option<u64>,
}

/// What a byte came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderStep {
    More,
    Over(Framing),
    Malformed,
}

/// A header section being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    framing: Framing,
    place: Place,
    field: Field,
    /// Bytes of this line.
    length: u32,
    /// The last byte was a CR.
    carriage: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before a line's first byte; `after_field` unless it is the section's first line.
    LineStart { after_field: bool },
    /// In a field's name, of which this much was had.
    Name { length: u32 },
    /// Blanks after the name: dropped as RFC 9112, section 5.1, asks for responses.
    NameEnd,
    /// After the colon.
    Value,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    /// The name is still one or both of the two (until it ends).
    Candidate {
        length: bool,
        coding: bool,
    },
    Length(Number),
    Coding(Token),
    Other,
}

/// A Content-Length value being received: a number, or a list of the same one (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug)]
enum Number {
    Before,
    Digits(u64),
    After(u64),
}

/// A transfer coding being received.
#[derive(Clone, Copy, Debug)]
enum Token {
    Before,
    /// This much is `chunked` so far.
    Matching(u32),
    /// Blanks after a name, which was `chunked` or not.
    After(bool),
    /// Any other name, and parameters (`chunked` takes none).
    Other,
}

impl Header {
    pub(super) const NEW: Self = Self {
        framing: Framing { chunked: None, length: None },
        place: Place::LineStart { after_field: false },
        field: Field::Other,
        length: 0,
        carriage: false,
    };

    /// Takes in bytes, at least one; says how many of them were used.
    pub(super) fn on_bytes(&mut self, bytes: &[u8]) -> (HeaderStep, usize) {
        let used = match (self.place, self.field) {
            // The value of a field that says nothing of the body: on to the line's end.
            (Place::Value, Field::Other) => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
                end.unwrap_or(bytes.len())
            }
            _ => 0,
        };
        self.length += used as u32;
        if LINE_BYTES_MAX as u32 <= self.length {
            return (HeaderStep::Malformed, used);
        }
        match bytes.get(used) {
            Some(&byte) => (self.on_byte(byte), used + 1),
            None => (HeaderStep::More, used),
        }
    }

    fn on_byte(&mut self, byte: u8) -> HeaderStep {
        if byte == b'\n' {
            self.carriage = false;
            return self.on_line_end();
        }
        self.length += 1;
        if LINE_BYTES_MAX as u32 <= self.length {
            return HeaderStep::Malformed;
        }
        if byte == b'\r' && !self.carriage {
            self.carriage = true;
            return HeaderStep::More;
        }
        // A CR amid a value reads as a blank (RFC 9112, section 2.2), amid a name it is none.
        if self.carriage {
            self.carriage = byte == b'\r';
            if !self.on_text(b' ') {
                return HeaderStep::Malformed;
            }
            if byte == b'\r' {
                return HeaderStep::More;
            }
        }
        if self.on_text(byte) { HeaderStep::More } else { HeaderStep::Malformed }
    }

    fn on_line_end(&mut self) -> HeaderStep {
        self.length = 0;
        match self.place {
            Place::LineStart { .. } => {
                if self.end_field() {
                    HeaderStep::Over(self.framing)
                } else {
                    HeaderStep::Malformed
                }
            }
            Place::Value => {
                // The field goes on if the next line starts with a blank.
                self.place = Place::LineStart { after_field: true };
                HeaderStep::More
            }
            _ => HeaderStep::Malformed,
        }
    }

    /// Takes in a byte of a line; false when it may not stand there.
    fn on_text(&mut self, byte: u8) -> bool {
        match self.place {
            Place::LineStart { after_field } => {
                if is_blank(byte) {
                    // obs-fold: a blank in the value before it (RFC 9112, section 5.2).
                    self.place = Place::Value;
                    return after_field && self.on_value(b' ');
                }
                if !self.end_field() {
                    return false;
                }
                self.field = Field::Candidate { length: true, coding: true };
                self.place = Place::Name { length: 0 };
                self.on_name(byte, 0)
            }
            Place::Name { length } => self.on_name(byte, length),
            Place::NameEnd if byte == b':' => {
                self.place = Place::Value;
                true
            }
            Place::NameEnd => is_blank(byte),
            Place::Value => self.on_value(byte),
        }
    }

    fn on_name(&mut self, byte: u8, length: u32) -> bool {
        if byte == b':' || is_blank(byte) {
            self.end_name(length);
            self.place = if byte == b':' { Place::Value } else { Place::NameEnd };
            return 0 < length;
        }
        if let Field::Candidate { length: may_be_length, coding } = &mut self.field {
            let at = length as usize;
            let lower = byte.to_ascii_lowercase();
            *may_be_length &= CONTENT_LENGTH.get(at) == Some(&lower);
            *coding &= TRANSFER_ENCODING.get(at) == Some(&lower);
        }
        self.place = Place::Name { length: length + 1 };
        is_token(byte)
    }

    fn end_name(&mut self, length: u32) {
        let whole = |name: &[u8]| length as usize == name.len();
        self.field = match self.field {
            Field::Candidate { length: true, .. } if whole(CONTENT_LENGTH) => {
                Field::Length(Number::Before)
            }
            Field::Candidate { coding: true, .. } if whole(TRANSFER_ENCODING) => {
                // Even an empty one is there, and then the last coding is not chunked.
                self.framing.chunked.get_or_insert(false);
                Field::Coding(Token::Before)
            }
            _ => Field::Other,
        };
    }

    fn on_value(&mut self, byte: u8) -> bool {
        match &mut self.field {
            Field::Length(number) => {
                let Some(next) = number.after(byte, &mut self.framing.length) else {
                    return false;
                };
                *number = next;
            }
            Field::Coding(token) => *token = token.after(byte, &mut self.framing.chunked),
            Field::Candidate { .. } | Field::Other => {}
        }
        true
    }

    /// The field before this line is over; false when it was not what it had to be.
    fn end_field(&mut self) -> bool {
        match self.field {
            Field::Length(Number::Before) => false,
            Field::Length(Number::Digits(value) | Number::After(value)) => {
                agree(&mut self.framing.length, value)
            }
            Field::Coding(token) => {
                token.end(&mut self.framing.chunked);
                true
            }
            Field::Candidate { .. } | Field::Other => true,
        }
    }
}

impl Number {
    /// `None` when it is no number, too large, or differs from one before it.
    fn after(self, byte: u8, length: &mut Option<u64>) -> Option<Self> {
        match (self, byte) {
            (Self::Before, b' ' | b'\t') => Some(Self::Before),
            (Self::Before, b'0'..=b'9') => Some(Self::Digits(u64::from(byte & 15))),
            (Self::Digits(value), b'0'..=b'9') => {
                Some(Self::Digits(value.checked_mul(10)?.checked_add(u64::from(byte & 15))?))
            }
            (Self::Digits(value) | Self::After(value), b' ' | b'\t') => Some(Self::After(value)),
            (Self::Digits(value) | Self::After(value), b',') => {
                agree(length, value).then_some(Self::Before)
            }
            _ => None,
        }
    }
}

impl Token {
    fn after(self, byte: u8, chunked: &mut Option<bool>) -> Self {
        match (self, byte) {
            (token, b',') => {
                token.end(chunked);
                Self::Before
            }
            (Self::Before, b' ' | b'\t') => Self::Before,
            (Self::Before, byte) if byte.eq_ignore_ascii_case(&CHUNKED[0]) => Self::Matching(1),
            (Self::Matching(length), b' ' | b'\t') => Self::After(is_whole(length)),
            (Self::Matching(length), byte)
                if CHUNKED.get(length as usize) == Some(&byte.to_ascii_lowercase()) =>
            {
                Self::Matching(length + 1)
            }
            (Self::After(chunked), b' ' | b'\t') => Self::After(chunked),
            _ => Self::Other,
        }
    }

    /// The coding is over: it is the last one so far. An empty list element is none.
    fn end(self, chunked: &mut Option<bool>) {
        match self {
            Self::Before => {}
            Self::Matching(length) => *chunked = Some(is_whole(length)),
            Self::After(whole) => *chunked = Some(whole),
            Self::Other => *chunked = Some(false),
        }
    }
}

/// Takes in one Content-Length; false when it contradicts an earlier one.
fn agree(length: &mut Option<u64>, value: u64) -> bool {
    *length.get_or_insert(value) == value
}

const fn is_whole(length: u32) -> bool {
    length as usize == CHUNKED.len()
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// RFC 9110, section 5.6.2.
const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < marks.len() {
        table[marks[index] as usize] = true;
        index += 1;
    }
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] |= byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};
