//! Varnish's configuration language: any text, and one that includes files.

use std::fmt::Write;
use std::fs;

use sickbay::config::ConfigError;
use sickbay::vcl::{self, Listing, Vcl};
use tempfile::TempDir;

use crate::memory::measured;

/// Bytes held at most for each byte of the text: the densest definition, `backend a none;`, is
/// kept in some 250 bytes, in lists whose room is doubled as they grow.
const PEAK_PER_BYTE: u64 = 64;
/// And for an empty one: a hundred errors.
const PEAK_BYTES: u64 = 128 << 10;
/// What stands in the file that may not be included.
const SECRET: &str = "k3ep0ut";

/// Any bytes.
pub fn check(bytes: &[u8]) {
    let (read, spent) = measured(|| {
        let read = vcl::parse("t.vcl", bytes);
        let mut lines = Lines(0);
        if let Ok(vcl) = &read {
            write!(lines, "{}", Listing::of(vcl)).expect("counting does not fail");
        }
        (read, lines.0)
    });
    let most = PEAK_PER_BYTE * bytes.len() as u64 + PEAK_BYTES;
    assert!(spent.peak_bytes <= most, "{} bytes held for {}", spent.peak_bytes, bytes.len());
    let (read, lines) = read;
    check_read(bytes, &read, lines);
    if bytes.windows(7).any(|word| word == b"include") {
        check_confined(bytes);
    }
}

/// Counts the lines that are written, and keeps none: what is shown may be longer than the VCL.
struct Lines(usize);

impl Write for Lines {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 += text.matches('\n').count();
        Ok(())
    }
}

/// What is refused is refused by a line that exists, and what is read can be shown.
fn check_read(bytes: &[u8], read: &Result<Vcl, ConfigError>, shown: usize) {
    match read {
        Ok(vcl) => {
            assert_eq!(shown, vcl.probes.len() + vcl.backends.len());
            let probes = vcl.backends.iter().filter_map(|backend| backend.probe);
            assert!(probes.into_iter().all(|probe| probe < vcl.probes.len()));
        }
        Err(error) => {
            assert!(!error.errors.is_empty());
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            for problem in &error.errors {
                assert!((1..=lines).contains(&problem.line), "{problem}");
                assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
            }
        }
    }
}

/// The same text as a file in a folder: nothing of what stands outside of that folder is told.
fn check_confined(bytes: &[u8]) {
    let read = FOLDER.with(|root| {
        let file = root.path().join("in/first.vcl");
        fs::write(&file, bytes).expect("the folder is ours");
        vcl::load(&file)
    });
    // A text that has the word itself may say it.
    if !bytes.windows(SECRET.len()).any(|word| word == SECRET.as_bytes()) {
        assert!(!format!("{read:?}").contains(SECRET), "{read:?}");
    }
}

thread_local! {
    /// A folder with files to include, beside a file that is not to be included. Each thread has
    /// its own, because the first file is written for each text.
    static FOLDER: TempDir = folder();
}

fn folder() -> TempDir {
    let root = TempDir::new().expect("a temporary directory");
    fs::create_dir(root.path().join("in")).expect("a directory");
    let secret = format!("probe {SECRET} {{ }} {SECRET}\n");
    for (name, text) in [
        ("in/probe.vcl", "probe p { .window = 8; }\n"),
        ("in/loop.vcl", "include \"first.vcl\";\n"),
        ("in/half.vcl", "backend b { .host = "),
        ("out.vcl", secret.as_str()),
    ] {
        fs::write(root.path().join(name), text).expect("the directory is ours");
    }
    std::os::unix::fs::symlink("../out.vcl", root.path().join("in/link.vcl")).expect("a link");
    root
}
