//! The last answers of names, kept in a file: an agent that starts while nobody answers goes on with
//! the backends that the one before it had.
//!
//! Files of backends need none of this: they are there.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Answer, Answers, Question, Records, Source};
use crate::config::newcomer;
use crate::fleet::Origin;
use crate::state_file;

/// The file's name in its directory.
const FILE: &str = "names.json";
/// Version of its format.
const VERSION: u32 = 1;
/// A file that is larger was not written by us.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    names: Vec<KeptName>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptName {
    name: String,
    records: Records,
    port: u16,
    weight: u32,
    /// Address and weight of each.
    backends: Vec<(String, u32)>,
}

/// Keeps the answers of names; that they cannot be kept is logged.
pub(super) fn write(directory: &Path, answers: &Answers) {
    let names = answers.iter().filter_map(|(source, answer)| match source {
        Source::File { .. } => None,
        Source::Name(Question { name, records, port, weight }) => Some(KeptName {
            name: name.clone(),
            records: *records,
            port: *port,
            weight: *weight,
            backends: answer.iter().map(|it| (it.address.written(), it.weight)).collect(),
        }),
    });
    let kept = Kept { version: VERSION, names: names.collect() };
    let written = serde_json::to_vec_pretty(&kept)
        .map_err(io::Error::from)
        .and_then(|bytes| state_file::write(directory, FILE, &bytes));
    if let Err(error) = written {
        tracing::warn!(
            "answers of names cannot be kept in {}: {error}; a restart while nobody answers would \
             begin without them",
            directory.display()
        );
    }
}

/// The answers that were kept. None of them when they cannot be read, which is logged.
pub(super) fn read(directory: &Path) -> Vec<(Question, Answer)> {
    let kept = state_file::read(directory, FILE, FILE_BYTES_MAX).and_then(|bytes| match bytes {
        None => Ok(Vec::new()),
        Some(bytes) => {
            let Kept { version, names } = serde_json::from_slice(&bytes)?;
            match version {
                VERSION => names.into_iter().map(answer).collect(),
                other => Err(io::Error::other(format!("it has version {other}, not {VERSION}"))),
            }
        }
    });
    kept.unwrap_or_else(|error| {
        tracing::warn!("{} is not read: {error}", directory.join(FILE).display());
        Vec::new()
    })
}

fn answer(kept: KeptName) -> io::Result<(Question, Answer)> {
    let KeptName { name, records, port, weight, backends } = kept;
    let question = Question { name, records, port, weight };
    let origin = Origin::Name(question.to_string().into());
    let member = |(address, weight): (String, u32)| {
        let mut member = newcomer(&address, None, Some(weight)).map_err(io::Error::other)?;
        member.origin = origin.clone();
        Ok(member)
    };
    let answer: io::Result<Answer> = backends.into_iter().map(member).collect();
    Ok((question, answer?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn answers() -> (Question, Answers) {
        let question = Question {
            name: "web.example.com".to_owned(),
            records: Records::Any,
            port: 80,
            weight: 3,
        };
        let addresses = ["192.0.2.1".parse().expect("one"), "fd00::1".parse().expect("one")];
        let answer = super::super::dns::of_addresses(&question, &addresses);
        let file = Source::File { path: "/x".into(), may_be_empty: false };
        let all = [(Source::Name(question.clone()), answer.clone()), (file, answer)];
        (question, all.into())
    }

    #[test]
    fn answers_of_names_are_read_as_they_were() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = root.path().join("state");
        assert_eq!(read(&directory), []);
        let (question, answers) = answers();
        write(&directory, &answers);
        let answer = answers[&Source::Name(question.clone())].clone();
        assert_eq!(read(&directory), [(question, answer)]);
    }

    #[test]
    fn file_of_another_version_or_torn_is_as_none() {
        let root = tempfile::tempdir().expect("a directory");
        for text in ["{\"version\":2,\"names\":[]}", "{\"version\":1,", "{}"] {
            fs::write(root.path().join(FILE), text).expect("a file");
            assert_eq!(read(root.path()), [], "{text}");
        }
    }
}
