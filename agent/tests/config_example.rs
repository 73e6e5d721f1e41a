//! The printed example is complete, right, and the one that is checked in.

use std::path::Path;

use sickbay::config::{Overrides, example, parse, settings};

const CHECKED_IN: &str = include_str!("../sickbay.example.toml");

#[test]
fn checked_in_example_is_the_printed_one() {
    assert!(
        CHECKED_IN == example(),
        "write it anew: sickbay check --print-example > agent/sickbay.example.toml"
    );
}

#[test]
fn example_is_right_and_warns_of_nothing() {
    let good = parse(&example(), Path::new("example.toml"), &Overrides::default());
    let good = good.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(good.warnings, []);
    assert_eq!(good.fleet.services.len(), 1);
    assert_eq!(good.fleet.backends.len(), 2);
    assert_eq!(good.fleet.attachments.len(), 1);
}

/// Keys that say nothing to an http probe with a url, or without another key.
const GO_WITH_OTHERS: [&str; 5] =
    ["# request = ", "# send = ", "# expect = ", "# body_max = ", "# panic_end = "];

#[test]
fn every_commented_key_is_right_when_it_is_put_in() {
    let text = example();
    let commented: Vec<usize> = (0..text.lines().count())
        .filter(|index| text.lines().nth(*index).is_some_and(is_commented_key))
        .collect();
    assert!(20 < commented.len(), "the example shows its optional keys: {commented:?}");
    for index in commented {
        let lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| if at == index { line.trim_start_matches("# ") } else { line });
        let changed = lines.collect::<Vec<_>>().join("\n");
        let line = text.lines().nth(index).expect("was there before");
        match parse(&changed, Path::new("example.toml"), &Overrides::default()) {
            Ok(_) => {}
            // The example names files that are not there, and window needs its threshold.
            Err(error) if ["# backends_file", "# vcl"].iter().any(|key| line.starts_with(key)) => {
                assert!(error.to_string().contains("cannot be read"), "{error}");
            }
            Err(error) if line.starts_with("# backup") => {
                assert!(error.to_string().contains("there is no pool \"sorry\""), "{error}");
            }
            // Nor does expect_close say anything without compat.
            Err(error) if line.starts_with("# expect_close") => {
                assert!(error.to_string().contains("no meaning without compat"), "{error}");
            }
            Err(error) if line.starts_with("# window") => {
                assert!(error.to_string().contains("Must specify threshold"), "{error}");
            }
            // These go with other keys than the example's.
            Err(error) if GO_WITH_OTHERS.iter().any(|key| line.starts_with(key)) => {
                assert!(error.to_string().contains("has no meaning"), "{error}");
            }
            Err(error) => panic!("{line}: {error}"),
        }
    }
}

#[test]
fn every_key_of_the_structs_is_in_the_example() {
    let text = example();
    let has = |key: &str| {
        text.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")))
    };
    let probe = serde_json::to_value(settings::ProbeSettings::default()).expect("is JSON");
    let agent = serde_json::to_value(settings::AgentSettings::default()).expect("is JSON");
    let pool = serde_json::to_value(settings::PoolSettings::default()).expect("is JSON");
    let service = serde_json::to_value(settings::ServiceSettings::default()).expect("is JSON");
    let attach = serde_json::to_value(settings::AttachSettings::default()).expect("is JSON");
    let dns = serde_json::to_value(settings::DnsSettings::default()).expect("is JSON");
    for table in [&probe, &agent, &pool, &service, &attach, &dns] {
        let keys = table.as_object().expect("is a table").keys();
        for key in keys {
            assert!(has(key), "{key} is not in the example");
        }
    }
    for section in ["[agent]", "[probe.web]", "[pool.web]", "[service.web]", "[[attach]]"] {
        assert!(text.lines().any(|line| line == section), "{section} is not in the example");
    }
    let backend = serde_json::to_value(settings::BackendSettings::default()).expect("is JSON");
    let name = serde_json::to_value(settings::NameSettings::default()).expect("is JSON");
    for key in
        [&backend, &name].into_iter().flat_map(|it| it.as_object().expect("is a table").keys())
    {
        assert!(text.contains(&format!("#   {key}: ")), "{key} is not explained");
    }
}

fn is_commented_key(line: &str) -> bool {
    line.strip_prefix("# ").is_some_and(|rest| {
        rest.split_once(" = ").is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
    })
}
