//! How bytes come in pieces: the first bytes of an input say how, the rest is what comes.

/// Bytes that a stream may be unrolled to: more than a response is read of.
const STREAM_BYTES_MAX: usize = 80 << 10;
/// Repeats the byte before it, so that small inputs reach the limits of lines and bodies: two to
/// the power of the byte behind it, modulo 16, times more. Behind nothing it means itself.
const REPEAT: u8 = 0xfe;

/// The first byte and the rest; 0 when there is none.
pub(crate) fn first(bytes: &[u8]) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest))
}

/// The stream that `bytes` stand for, repeats carried out.
pub(crate) fn unrolled(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut rest = bytes;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != REPEAT {
            stream.push(byte);
            continue;
        }
        let (count, behind) = first(rest);
        rest = behind;
        let (repeated, times) = match stream.last() {
            Some(&last) => (last, 1 << (count % 16)),
            None => (REPEAT, 1),
        };
        stream.resize((stream.len() + times).min(STREAM_BYTES_MAX), repeated);
    }
    stream
}

/// The stream in pieces whose lengths the bytes of `lengths` give in turn, each at least one.
pub(crate) fn cut(stream: &[u8], lengths: [u8; 2]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    let mut lengths = lengths.into_iter().cycle();
    std::iter::from_fn(move || {
        let length = usize::from(lengths.next()?).max(1).min(rest.len());
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_carried_out() {
        assert_eq!(unrolled(b"ab\xfe\x0bc"), [b"a".as_slice(), &[b'b'; 2049], b"c"].concat());
        assert_eq!(unrolled(b"\xfe\x02a\xfe\x10"), b"\xfeaa");
        assert_eq!(unrolled(&[b"a".as_slice(), &b"\xfe\xff".repeat(9)].concat()).len(), 80 << 10);
    }

    #[test]
    fn pieces_are_the_whole() {
        let pieces: Vec<_> = cut(b"abcdefg", [3, 0]).collect();
        assert_eq!(pieces, [b"abc".as_slice(), b"d", b"efg"]);
        assert_eq!(cut(b"", [1, 1]).count(), 0);
    }
}
