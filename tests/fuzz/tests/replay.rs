//! Every input that is kept, once more: what fuzzing found and what once broke something.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use sickbay_fuzz::TARGETS;
use sickbay_tests::figures;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The entries of a directory, in the order of their names.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).unwrap_or_else(|why| panic!("{directory:?}: {why}"));
    let mut entries: Vec<PathBuf> = read.map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    entries
}

#[track_caller]
fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let files = entries(&corpus().join(name));
    assert!(!files.is_empty(), "no input is kept for {name}: run cargo xtask fuzz {name}");
    let mut bytes = 0;
    for file in &files {
        let input = fs::read(file).expect("a file");
        bytes += input.len();
        let stood = panic::catch_unwind(AssertUnwindSafe(|| (target.check)(&input)));
        assert!(stood.is_ok(), "{} breaks it", file.display());
    }
    figures::show(&format!("fuzz {name}: {} inputs replayed, {bytes} bytes", files.len()));
}

#[test]
fn status_stands_its_corpus() {
    replay("status");
}

#[test]
fn framing_stands_its_corpus() {
    replay("framing");
}

#[test]
fn reply_stands_its_corpus() {
    replay("reply");
}

#[test]
fn vcl_stands_its_corpus() {
    replay("vcl");
}

#[test]
fn config_stands_its_corpus() {
    replay("config");
}

#[test]
fn admin_stands_its_corpus() {
    replay("admin");
}

#[test]
fn lists_stand_their_corpus() {
    replay("lists");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    let directories = entries(&corpus());
    let corpora: Vec<_> =
        directories.iter().filter_map(|directory| directory.file_name()?.to_str()).collect();
    assert_eq!(corpora, names);
}
