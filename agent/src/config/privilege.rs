//! What the agent gives up, and what it keeps.

use std::path::{Path, PathBuf};

use super::problem::{Report, Step, nearest, quoted};
use super::settings::{PrivilegeSettings, Settings};
use crate::confine::{self, Capability, Privilege};

/// What is given up; what is wrong is reported.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Privilege {
    let given = &settings.privilege;
    let PrivilegeSettings { drop_capabilities, seccomp, landlock, .. } = *given;
    for (key, is_given, needed, is_on) in [
        ("keep", !given.keep.is_empty(), "drop_capabilities", drop_capabilities),
        ("readable", !given.readable.is_empty(), "landlock", landlock),
    ] {
        if is_given && !is_on {
            let problem = format!("has no meaning with {needed} = false");
            report.error(&["privilege".into(), key.into()], problem, "remove one of the two");
        }
    }
    let names = confine::names();
    let at = |key, index| ["privilege".into(), Step::Key(key), Step::Index(index)];
    let mut keep: Vec<Capability> = Vec::new();
    for (index, name) in given.keep.iter().enumerate() {
        match confine::by_name(name) {
            Some(capability) => keep.push(capability),
            None => {
                let mend = nearest(name, names.iter().map(String::as_str));
                let problem = format!("{} is no capability", quoted(name));
                report.error(&at("keep", index), problem, mend);
            }
        }
    }
    let mut readable: Vec<PathBuf> = Vec::new();
    for (index, path) in given.readable.iter().enumerate() {
        match directory(path) {
            Ok(directory) => readable.push(directory),
            Err((problem, mend)) => report.error(&at("readable", index), problem, mend),
        }
    }
    Privilege { drop_capabilities, keep, seccomp, landlock, readable }
}

/// A directory below the root; else what is wrong with it, and how to mend it.
fn directory(written: &str) -> Result<PathBuf, (String, &'static str)> {
    let path = Path::new(written);
    if !path.is_absolute() || written.contains('\0') {
        return Err((
            format!("{} is not an absolute path", quoted(written)),
            "begin it with \"/\"",
        ));
    }
    if path.parent().is_none() {
        let mend = "name the directory that is meant, or set landlock = false";
        return Err(("\"/\" is every file there is".to_owned(), mend));
    }
    Ok(path.to_owned())
}
