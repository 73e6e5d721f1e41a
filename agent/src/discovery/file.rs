//! A file of backends, whichever form it has: its text, who is in it, and what is wrong with it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Answer, file_sd, list};
use crate::address::Address;
use crate::config::{Fault, Newcomer, shown};
use crate::fleet::Origin;

/// Bytes of a list; more is a mistake (a device, a log). A line for each of the most backends fits.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// One of a file's backends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) address: Address,
    pub(crate) name: Option<String>,
    pub(crate) weight: u32,
    /// From 1; 0 where the form has no lines.
    pub(crate) line: usize,
}

/// A place of a file that names no backend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileFault {
    /// From 1; 0 = the file as a whole.
    pub(crate) line: usize,
    /// From 1, in characters; 0 when the line is.
    pub(crate) column: usize,
    pub(crate) fault: Fault,
}

/// The backends of a file's text, and what of it names none. Its name's ending says which form it
/// has: `.json`, `.yaml` and `.yml` are Prometheus' file_sd.
pub(crate) fn parse(path: &Path, text: &str) -> (Vec<Listed>, Vec<FileFault>) {
    let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("json") => file_sd::parse(file_sd::json(text)),
        Some("yaml" | "yml") => file_sd::parse(file_sd::yaml(text)),
        _ => list::parse(text),
    }
}

/// Who is in the file now.
///
/// # Errors
///
/// The first thing that is wrong with it, with the file's name and place, in one line.
pub(super) fn answer(path: &Path, may_be_empty: bool) -> Result<Answer, String> {
    let text = read(path, FILE_BYTES_MAX).map_err(|fault| line(path, 0, 0, &fault))?;
    answer_of(path, &text, may_be_empty)
}

/// Who is in a file of this name and text.
///
/// # Errors
///
/// The first thing that is wrong with it, with the file's name and place, in one line.
pub fn answer_of(path: &Path, text: &str, may_be_empty: bool) -> Result<Answer, String> {
    let (listed, faults) = parse(path, text);
    if let Some(FileFault { line: number, column, fault }) = faults.first() {
        return Err(line(path, *number, *column, fault));
    }
    if listed.is_empty() && !may_be_empty {
        return Err(line(path, 0, 0, &(NOBODY.to_owned(), NOBODY_MEND.to_owned())));
    }
    if let Some((number, problem)) = twice(&listed) {
        let mend = "remove or change one of the two".to_owned();
        return Err(line(path, number, 1, &(problem, mend)));
    }
    Ok(members(&listed, &Origin::File(shown(path).into())))
}

fn line(path: &Path, line: usize, column: usize, (problem, mend): &Fault) -> String {
    match line {
        0 => format!("{} {problem}; {mend}", shown(path)),
        _ => format!("{}:{line}:{column}: {problem}; {mend}", shown(path)),
    }
}

/// Who is listed, as the pool's members.
pub(crate) fn members(listed: &[Listed], origin: &Origin) -> Answer {
    let member = |Listed { address, name, weight, .. }: &Listed| Newcomer {
        address: address.clone(),
        name: name.clone(),
        weight: *weight,
        origin: origin.clone(),
    };
    listed.iter().map(member).collect()
}

/// What is wrong with a file that lists nobody, where that is not meant.
pub(crate) const NOBODY: &str = "lists no backend";
/// How that is mended.
pub(crate) const NOBODY_MEND: &str =
    "write one in, or set allow_empty = true in the pool if that is meant";

/// The first one whose address or name another one has.
fn twice(listed: &[Listed]) -> Option<(usize, String)> {
    let mut addresses: HashMap<&Address, usize> = HashMap::with_capacity(listed.len());
    let mut names: HashMap<String, usize> = HashMap::with_capacity(listed.len());
    for Listed { address, name, line, .. } in listed {
        if let Some(first) = addresses.insert(address, *line) {
            return Some((*line, format!("backend {address} is listed twice (line {first})")));
        }
        let name = name.clone().unwrap_or_else(|| address.to_string());
        let text = format!("backend name {} is taken", crate::config::quoted(&name));
        if let Some(first) = names.insert(name, *line) {
            return Some((*line, format!("{text} (line {first})")));
        }
    }
    None
}

/// The text of a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// What the system says, with the errno; or that the file is too large or not UTF-8.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<String, Fault> {
    let unreadable = |error: std::io::Error| {
        let mend = match error.kind() {
            std::io::ErrorKind::NotFound => "name a file that exists",
            std::io::ErrorKind::PermissionDenied => "let this user read it, or run as root",
            _ => "name a file that can be read",
        };
        (format!("cannot be read: {error}"), mend.to_owned())
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes_max < bytes.len() as u64 {
        let problem = format!("is larger than {} MiB", bytes_max >> 20);
        return Err((problem, "name the right file, or split it".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        (format!("line {line} is not UTF-8"), "save the file as UTF-8".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn ending_says_which_form_a_file_has() {
        let json = r#"[{"targets": ["192.0.2.1:80"]}]"#;
        for (name, text) in
            [("a.list", "192.0.2.1:80\n"), ("a", "192.0.2.1:80"), ("a.JSON", json), ("a.yml", json)]
        {
            let (listed, faults) = parse(Path::new(name), text);
            assert_eq!(faults, [], "{name}");
            assert_eq!(listed[0].address, "192.0.2.1:80".parse().expect("an address"), "{name}");
        }
    }

    #[test]
    fn file_that_is_wrong_is_told_in_one_line_with_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("web.list");
        let name = path.display().to_string();
        for (text, told) in [
            ("", format!("{name} lists no backend; ")),
            ("# nobody\n\n", format!("{name} lists no backend; ")),
            ("192.0.2.1:80\n192.0.2.1", format!("{name}:2:1: \"192.0.2.1\" is not ADDRESS:PORT")),
            ("192.0.2.1:80\n192.0.2.1:80", format!("{name}:2:1: backend 192.0.2.1:80 is listed")),
            (
                "192.0.2.1:80 name=a\n192.0.2.2:80 name=a",
                format!("{name}:2:1: backend name \"a\" is taken (line 1)"),
            ),
        ] {
            fs::write(&path, text).expect("a file");
            let error = answer(&path, false).expect_err(text);
            assert!(error.starts_with(&told), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
        fs::remove_file(&path).expect("it is there");
        let error = answer(&path, true).expect_err("it is gone");
        assert!(error.starts_with(&format!("{name} cannot be read: ")), "{error}");
    }

    #[test]
    fn empty_file_may_be_meant() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("web.list");
        fs::write(&path, "# nobody yet\n").expect("a file");
        assert_eq!(answer(&path, true).expect("it is meant").len(), 0);
    }
}
