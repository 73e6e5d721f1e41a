//! Every mistake in a configuration is named with its line, its path and the way to mend it.

/// Mistakes in pools and their backends.
mod pools;
/// Mistakes in probes, and in any section.
mod probes;
/// Mistakes in services, the agent's own settings, and what it is attached to.
mod services;

use std::path::Path;

use sickbay::config::{ConfigError, Overrides, parse};

/// A right configuration, in pieces that a test replaces; lines 1 to 13.
const GOOD: &str = "\
[probe.web]
url = \"/healthz\"

[pool.web]
probe = \"web\"
backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]

[service.web]
address = \"198.51.100.1\"
port = 80
pool = \"web\"

[agent]
";

/// What is wrong, the text that has it, and a part of what is to be said of it.
type Case = (&'static str, String, &'static str);

fn errors(text: &str) -> ConfigError {
    parse(text, Path::new("web.toml"), &Overrides::default()).expect_err("it is wrong")
}

/// The whole text of what is wrong with `text`.
fn shown(text: &str) -> String {
    errors(text).to_string()
}

/// The good configuration with one piece replaced.
fn with(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old:?} is in the good configuration");
    GOOD.replace(old, new)
}

#[test]
fn good_configuration_is_good() {
    parse(GOOD, Path::new("web.toml"), &Overrides::default()).expect("it is right");
}

#[test]
fn each_mistake_is_one_line_with_place_reason_and_remedy() {
    let cases = [probes::cases(), pools::cases(), services::cases()].concat();
    assert!(50 < cases.len(), "{} cases", cases.len());
    for (what, text, expected) in cases {
        let shown = shown(&text);
        assert!(shown.contains(expected), "{what}:\n got {shown}\nwant {expected}");
        assert_eq!(shown.lines().count(), 1, "{what}: one mistake is one line:\n{shown}");
    }
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_lines() {
    let text = "\
[probe.web]
window = 65
threshold = 3
intervall = \"5s\"

[pool.web]
probe = \"wbe\"
backends = [\"nonsense\", \"192.0.2.1:80\", 3, \"192.0.2.1:80\"]

[service.web]
address = \"nowhere\"
port = 0
pool = \"web\"
mode = \"dsl\"
";
    let lines: Vec<usize> = errors(text).errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 4, 7, 8, 8, 8, 11, 12, 14]);
}

#[test]
fn wrong_value_is_not_called_missing_as_well() {
    let text = with("\"198.51.100.1\"", "198").replace("port = 80", "port = \"80\"");
    let problems = errors(&text);
    let paths: Vec<&str> = problems.errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["service.web.address", "service.web.port"]);
}

#[test]
fn text_from_the_file_is_escaped() {
    let shown = shown(&with("url = \"/healthz\"", "\"\\u001b[2J\\n\" = 1"));
    assert!(shown.contains("unknown key \"\\u{1b}[2J\\n\""), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn hundreds_of_mistakes_are_cut_and_counted() {
    let backends: Vec<String> = (0..300).map(|index| format!("\"host{index}\"")).collect();
    let list = format!("backends = [{}]", backends.join(", "));
    let shown = shown(&with("backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]", &list));
    assert_eq!(shown.lines().count(), 101);
    assert!(shown.ends_with("and 200 more errors; mend these first"), "{shown}");
}

#[test]
fn list_files_are_reported_under_their_own_name_and_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let list = "192.0.2.1:80\n192.0.2.1:80 # again\n192.0.2.3:80 wieght=3\n";
    std::fs::write(directory.path().join("web.list"), list).expect("a file");
    let text =
        with("backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]", "backends_file = \"web.list\"");
    let path = directory.path().join("web.toml");
    let error = parse(&text, &path, &Overrides::default()).expect_err("it is wrong");
    let name = directory.path().join("web.list").display().to_string();
    let shown: Vec<String> = error.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            format!(
                "{name}:2:1: pool.web.backends_file: backend 192.0.2.1:80 is in the pool already \
                 ({name}:1); remove or change one of the two"
            ),
            format!(
                "{name}:3:14: pool.web.backends_file: unknown key \"wieght\"; did you mean \
                 \"weight\"?"
            ),
        ]
    );
}

#[test]
fn override_of_the_instance_is_blamed_on_the_flag() {
    let overrides = Overrides { instance: Some("..".to_owned()), ..Overrides::default() };
    let error = parse(GOOD, Path::new("web.toml"), &overrides).expect_err("it is wrong");
    assert_eq!(
        error.to_string(),
        "--instance: \"..\" has the odd character \".\"; name it with 1 to 64 letters, digits, \"-\", \
         \"_\""
    );
}
