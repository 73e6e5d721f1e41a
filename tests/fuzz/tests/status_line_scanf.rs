//! The status line's reading is the C library's own `sscanf`'s, on lines made by a generator.

use sickbay_core::reply::scanned_status;
use sickbay_core::sim::Random;
use sickbay_fuzz::reply::scanned;

const LINES: u32 = 20_000;

/// Lines near the ones that match: parts of each kind, now and then with a byte changed.
fn line(random: &mut Random) -> Vec<u8> {
    const STARTS: [&str; 6] = ["HTTP/", "HTTP/", "HTTP/", "HTTP/ ", "HTTP/\t+", "HTTP"];
    const FLOATS: [&str; 28] = [
        "1.1", "1.0", "2", "1.", ".5", ".", "-1.1", "+1", "1e5", "1e", "1e+", "1E-2", "1e5.5",
        "0x1.8p1", "0X1F", "0x", "0x.", "0xp", "0x1p-", "nan", "NaN", "inf", "INFINITY", "infin",
        "0", "00.1.1", "1e400", "",
    ];
    const BLANKS: [&str; 6] = [" ", "", "  ", "\t", "\x0b\x0c ", "\r\n"];
    const NUMBERS: [&str; 16] = [
        "200",
        "0200",
        "404",
        "+200",
        "-200",
        "- 200",
        "4294967496",
        "-4294967096",
        "20",
        "",
        "18446744073709551815",
        "99999999999999999999999",
        "0x200",
        "200x",
        "-",
        "2147483848",
    ];
    const ENDS: [&str; 4] = [" OK", "", " ", "\r\n"];
    let mut line = String::new();
    for parts in [&STARTS[..], &FLOATS, &BLANKS, &NUMBERS, &ENDS] {
        line += parts[random.below(parts.len() as u64) as usize];
    }
    let mut line = line.into_bytes();
    for _ in 0..random.below(4).saturating_sub(1) {
        const BYTES: &[u8] = b"0129aefinpxXPE+-. \t\x0b\xff/";
        let place = random.below(line.len() as u64 + 1) as usize;
        let byte = BYTES[random.below(BYTES.len() as u64) as usize];
        match random.below(3) {
            0 if place < line.len() => line[place] = byte,
            1 if place < line.len() => drop(line.remove(place)),
            _ => line.insert(place, byte),
        }
    }
    line
}

#[test]
fn status_is_what_the_c_library_scans() {
    let mut random = Random::new(2026);
    let mut matched = 0;
    for _ in 0..LINES {
        let line = line(&mut random);
        let expected = scanned(&line);
        assert_eq!(scanned_status(&line), expected, "{}", line.escape_ascii());
        matched += u32::from(expected.is_some());
    }
    // Both kinds were there in plenty.
    assert!((LINES / 10..LINES * 9 / 10).contains(&matched), "{matched} of {LINES} matched");
}
