//! Configuration files: any text, from TOML to the validated fleet.

use std::path::Path;

use sickbay::config::{ConfigError, Configuration, Overrides, parse};

use crate::memory::measured;

/// Bytes held at most for each byte of the text.
const PEAK_PER_BYTE: u64 = 256;
/// And for an empty one: the schema that it is compared with, and some hundred errors.
const PEAK_BYTES: u64 = 2 << 20;
/// Backends that a range gives at most, each with what its probe sends.
const RANGED_MAX: u64 = 65_536;
/// For each of them beside that.
const PEAK_PER_RANGED: u64 = 2048;

/// Any bytes; what is not UTF-8 is read as far as it is.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // One takes as long as a thousand other texts; growth.rs has many of them.
    if 1 < text.matches("range").count() {
        return;
    }
    let path = Path::new("/nonexistent/fuzz.toml");
    let (read, spent) = measured(|| parse(&text, path, &Overrides::default()));
    let length = text.len() as u64;
    let may_range = text.contains("range") || text.contains('\\');
    let ranged = if may_range { RANGED_MAX * (PEAK_PER_RANGED + length) } else { 0 };
    let most = PEAK_PER_BYTE * length + PEAK_BYTES + ranged;
    assert!(spent.peak_bytes <= most, "{} bytes held for {length}", spent.peak_bytes);
    check_read(&text, read);
}

/// What is refused is refused by a line that exists, and what is read has its indices in order.
fn check_read(text: &str, read: Result<Configuration, ConfigError>) {
    let problems = match read {
        Ok(Configuration { fleet, warnings, .. }) => {
            assert!(fleet.targets.iter().all(|target| target.probe < fleet.probes.len()));
            assert!(
                fleet
                    .backends
                    .iter()
                    .flat_map(|backend| &backend.judged)
                    .all(|judged| judged.target < fleet.targets.len())
            );
            assert!(fleet.services.iter().all(|service| service.pool < fleet.pools.len()));
            warnings
        }
        Err(error) => {
            assert!(!error.errors.is_empty());
            error.errors
        }
    };
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    for problem in &problems {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
    }
}
