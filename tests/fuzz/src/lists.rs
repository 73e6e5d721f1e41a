//! Files of backends, in each of their forms: any text.

use std::path::Path;

use sickbay::discovery::answer_of;

use crate::memory::measured;

/// Bytes held at most for each byte of the text: a backend is written in ten and held in some
/// hundred, twice while it is looked for those that are listed twice.
const PEAK_PER_BYTE: u64 = 256;
/// And for an empty one: what a parser begins with.
const PEAK_BYTES: u64 = 1 << 20;

/// Any bytes; what is not UTF-8 is read as far as it is.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for name in ["web.list", "web.json", "web.yaml"] {
        let (read, spent) = measured(|| answer_of(Path::new(name), &text, true));
        let most = PEAK_PER_BYTE * text.len() as u64 + PEAK_BYTES;
        assert!(spent.peak_bytes <= most, "{name}: {} bytes held", spent.peak_bytes);
        match read {
            Ok(answer) => {
                let mut addresses: Vec<_> = answer.iter().map(|it| &it.address).collect();
                addresses.sort();
                addresses.dedup();
                assert_eq!(addresses.len(), answer.len(), "nobody is listed twice");
                assert!(answer.iter().all(|it| (1..=1000).contains(&it.weight)));
            }
            Err(line) => {
                assert!(line.starts_with(name), "{line:?}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
    }
}
