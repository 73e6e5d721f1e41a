//! What the package's own files say: its dependencies above all, read out of the binary.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// Its text, with places for the facts.
const CONTROL: &str = include_str!("../../../agent/package/control");
const LICENSE: &str = include_str!("../../../LICENSE");
/// How the C library marks what a program needs of it.
const GLIBC: &[u8] = b"GLIBC_";

/// What only the build knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
    pub(super) installed_kib: u64,
    pub(super) depends: &'a str,
}

impl Facts<'_> {
    /// The file `control`.
    pub(super) fn control(&self) -> String {
        CONTROL
            .replace("@VERSION@", self.version)
            .replace("@ARCHITECTURE@", self.architecture)
            .replace("@INSTALLED_SIZE@", &self.installed_kib.to_string())
            .replace("@DEPENDS@", self.depends)
    }
}

/// What the binary needs: the C library, as new as the newest symbol that it asks for, and the
/// unwinder. There is nothing else that it links against, which a test holds.
///
/// # Errors
/// When it asks for no C library at all: it is no binary of this kind.
pub(super) fn depends(binary: &[u8]) -> Result<String> {
    let newest = glibc_versions(binary).pop_last();
    let (major, minor) = newest.context("the binary names no version of the C library")?;
    Ok(format!("libc6 (>= {major}.{minor}), libgcc-s1"))
}

/// The versions of the C library that symbols are asked for of.
fn glibc_versions(binary: &[u8]) -> BTreeSet<(u32, u32)> {
    let starts = binary.windows(GLIBC.len()).enumerate().filter(|(_, window)| *window == GLIBC);
    starts.filter_map(|(at, _)| version(&binary[at + GLIBC.len()..])).collect()
}

/// `2.34` up to a NUL.
fn version(bytes: &[u8]) -> Option<(u32, u32)> {
    let end = bytes.iter().take(12).position(|&byte| byte == 0)?;
    let text = str::from_utf8(&bytes[..end]).ok()?;
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The file `copyright` (machine-readable, as Debian has it), out of the project's own.
pub(super) fn copyright() -> String {
    let holder = LICENSE.lines().find(|line| line.starts_with("Copyright"));
    let holder = holder.unwrap_or("Copyright the sickbay authors");
    let holder = holder.trim_start_matches("Copyright").trim_start_matches(" (c)").trim();
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: sickbay\n\nFiles: *\nCopyright: {holder}\nLicense: Expat\n"
    );
    // After the heading and the line of the holder.
    for line in LICENSE.lines().skip_while(|line| !line.starts_with("Permission")) {
        text.push_str(&format!(" {}\n", if line.is_empty() { "." } else { line }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_that_is_asked_for_is_needed() {
        let binary = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.3.4\0GLIBC_PRIVATE\0GLIBC_2.99";
        assert_eq!(depends(binary).unwrap(), "libc6 (>= 2.34), libgcc-s1");
        assert!(depends(b"GLIBC_PRIVATE\0").is_err());
    }

    #[test]
    fn control_has_every_field_and_no_place_left() {
        let facts = Facts {
            version: "1.2.3",
            architecture: "amd64",
            installed_kib: 4711,
            depends: "libc6 (>= 2.34)",
        };
        let text = facts.control();
        for line in ["Version: 1.2.3", "Architecture: amd64", "Installed-Size: 4711"] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("@V") && !text.contains("@D"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn copyright_names_the_holder_and_the_terms() {
        let text = copyright();
        assert!(text.contains("\nCopyright: 2026 The sickbay authors\n"), "{text}");
        assert!(text.contains("\nLicense: Expat\n Permission is hereby granted"), "{text}");
        assert!(text.contains("\n .\n"), "{text}");
    }
}
