//! The fuzzer: one target, named by the environment, under libFuzzer's own command line.
//!
//! Built with coverage instrumentation by `cargo xtask fuzz` alone.
#![no_main]

use std::sync::OnceLock;

use sickbay_fuzz::{TARGET_VARIABLE, TARGETS, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var(TARGET_VARIABLE).unwrap_or_default();
        let target = TARGETS.iter().find(|target| target.name == name);
        TARGET.get_or_init(|| target.expect("cargo xtask fuzz names a target"));
    },
    |bytes: &[u8]| {
        (TARGET.get().expect("chosen at the start").check)(bytes);
    }
);
