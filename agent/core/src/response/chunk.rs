//! A chunked body (RFC 9112, section 7.1): sizes, data skipped, trailers passed over.

use crate::limits::LINE_BYTES_MAX;

/// What bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkStep {
    More,
    Over,
    Malformed,
}

/// A chunked body being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    place: Place,
    /// Bytes of this line.
    length: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before the size's first digit.
    SizeFirst,
    Size(u64),
    /// Blanks and extensions after the size.
    Extension(u64),
    /// After the CR of a size line.
    SizeEnd(u64),
    Data(u64),
    /// After a chunk's data.
    DataEnd,
    /// After the CR that follows it.
    DataEndLine,
    /// Before a trailer line's first byte.
    TrailerFirst,
    /// After a CR there.
    TrailersEnd,
    Trailer,
}

impl Chunk {
    pub(super) const NEW: Self = Self { place: Place::SizeFirst, length: 0 };

    /// Takes in bytes, at least one; says how many of them were used.
    pub(super) fn on_bytes(&mut self, bytes: &[u8]) -> (ChunkStep, usize) {
        if let Place::Data(left) = self.place {
            let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let left = left - skipped as u64;
            self.place = if left == 0 { Place::DataEnd } else { Place::Data(left) };
            return (ChunkStep::More, skipped);
        }
        let step = match self.after(bytes[0]) {
            Some(Some(place)) => {
                self.place = place;
                ChunkStep::More
            }
            Some(None) => ChunkStep::Over,
            None => ChunkStep::Malformed,
        };
        self.length = if bytes[0] == b'\n' { 0 } else { self.length + 1 };
        if LINE_BYTES_MAX as u32 <= self.length {
            return (ChunkStep::Malformed, 1);
        }
        (step, 1)
    }

    /// The place after a byte; `Some(None)` when the body is over, `None` when it may not stand
    /// there.
    fn after(&self, byte: u8) -> Option<Option<Place>> {
        let next = match (self.place, byte) {
            (Place::SizeFirst, _) => Place::Size(hex(byte)?),
            (Place::Size(size) | Place::Extension(size) | Place::SizeEnd(size), b'\n') => {
                if size == 0 { Place::TrailerFirst } else { Place::Data(size) }
            }
            (Place::Size(size) | Place::Extension(size), b'\r') => Place::SizeEnd(size),
            (Place::Size(size), b';' | b' ' | b'\t') => Place::Extension(size),
            (Place::Size(size), _) => Place::Size(size.checked_mul(16)? | hex(byte)?),
            (Place::Extension(size), _) => Place::Extension(size),
            (Place::DataEnd, b'\r') => Place::DataEndLine,
            (Place::DataEnd | Place::DataEndLine, b'\n') => Place::SizeFirst,
            (Place::TrailerFirst | Place::TrailersEnd, b'\n') => return Some(None),
            (Place::TrailerFirst, b'\r') => Place::TrailersEnd,
            (Place::Trailer, b'\n') => Place::TrailerFirst,
            (Place::TrailerFirst | Place::Trailer, _) => Place::Trailer,
            // Skipped before.
            (Place::Data(left), _) => Place::Data(left),
            (Place::SizeEnd(_) | Place::DataEnd | Place::DataEndLine | Place::TrailersEnd, _) => {
                return None;
            }
        };
        Some(Some(next))
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
