//! Prometheus' file_sd form: groups of targets with labels, in JSON or YAML. Pure.
//!
//! `[{"targets": ["192.0.2.1:80"], "labels": {"weight": "2"}}]`: the label `weight` is the share of
//! the group's backends; other labels say nothing here. An unknown key is a mistake, as in
//! Prometheus.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::file::{FileFault, Listed};
use super::list::weight_of;
use crate::config::{Fault, parse_endpoint};

/// One group.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The groups of a JSON text.
pub(super) fn json(text: &str) -> Result<Vec<Group>, FileFault> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column().max(1));
        malformed(line, column, &error.to_string())
    })
}

/// The groups of a YAML text; none where it is empty.
pub(super) fn yaml(text: &str) -> Result<Vec<Group>, FileFault> {
    let groups: Result<Option<Vec<Group>>, _> = serde_saphyr::from_str(text);
    groups.map(Option::unwrap_or_default).map_err(|error| {
        let error = error.without_snippet();
        let (line, column) =
            error.location().map_or((0, 0), |at| (at.line() as usize, at.column() as usize));
        malformed(line, column, &error.to_string())
    })
}

fn malformed(line: usize, column: usize, problem: &str) -> FileFault {
    let problem = problem.lines().next().unwrap_or_default();
    let problem = problem.replace(char::is_control, " ");
    let mend =
        "write it as [{\"targets\": [\"ADDRESS:PORT\", …], \"labels\": {\"weight\": \"1\"}}]";
    let fault = (format!("is no file_sd list: {problem}"), mend.to_owned());
    FileFault { line, column, fault }
}

/// The backends of all groups, and what of them names none.
pub(super) fn parse(groups: Result<Vec<Group>, FileFault>) -> (Vec<Listed>, Vec<FileFault>) {
    let groups = match groups {
        Ok(groups) => groups,
        Err(fault) => return (Vec::new(), vec![fault]),
    };
    let (mut listed, mut faults) = (Vec::new(), Vec::new());
    for (number, Group { targets, labels }) in (1..).zip(&groups) {
        let whole = |what: String, (problem, mend): Fault| FileFault {
            line: 0,
            column: 0,
            fault: (format!("group {number}, {what}: {problem}"), mend),
        };
        let weight = match labels.get("weight").map_or(Ok(1), |text| weight_of(text)) {
            Ok(weight) => weight,
            Err(fault) => {
                faults.push(whole("label weight".to_owned(), fault));
                continue;
            }
        };
        for (place, target) in (1..).zip(targets) {
            match parse_endpoint(target) {
                Ok(address) => listed.push(Listed { address, name: None, weight, line: 0 }),
                Err(fault) => faults.push(whole(format!("target {place}"), fault)),
            }
        }
    }
    (listed, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(groups: Result<Vec<Group>, FileFault>) -> Vec<(String, u32)> {
        let (listed, faults) = parse(groups);
        assert_eq!(faults, []);
        listed.iter().map(|it| (it.address.to_string(), it.weight)).collect()
    }

    fn fault(groups: Result<Vec<Group>, FileFault>) -> (usize, String) {
        let (_, faults) = parse(groups);
        let [fault] = &faults[..] else { panic!("one fault, not {faults:?}") };
        assert!(!fault.fault.0.contains('\n'));
        (fault.line, fault.fault.0.clone())
    }

    #[test]
    fn groups_have_targets_and_a_weight() {
        let expected = [
            ("192.0.2.1:80".to_owned(), 3),
            ("[fd00::1]:81".to_owned(), 3),
            ("192.0.2.2:80".to_owned(), 1),
        ];
        let text = r#"[{"targets": ["192.0.2.1:80", "[fd00::1]:81"],
                        "labels": {"weight": "3", "job": "web", "__meta_dc": "x"}},
                       {"targets": ["192.0.2.2:80"]}]"#;
        assert_eq!(listed(json(text)), expected);
        let text = "- targets: ['192.0.2.1:80', \"[fd00::1]:81\"]\n  labels:\n    weight: '3'\n\
                    # two\n- targets:\n  - 192.0.2.2:80\n";
        assert_eq!(listed(yaml(text)), expected);
    }

    #[test]
    fn empty_texts_have_no_groups() {
        assert_eq!(listed(json("[]")), []);
        assert_eq!(listed(yaml("[]")), []);
        assert_eq!(listed(yaml("# nobody\n")), []);
        fault(json(""));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let (line, told) = fault(json("[{\"targets\":\n [\"192.0.2.1:80\","));
        assert_eq!(line, 2);
        assert!(told.starts_with("is no file_sd list: EOF while parsing"), "{told}");
        let (line, told) = fault(yaml("- targets: [\"192.0.2.1:80\"]\n  lables: {}\n"));
        assert_eq!(line, 2);
        assert!(told.contains("lables"), "{told}");
        let two = r#"[{"targets": ["192.0.2.1:80"]}, {"targets": ["192.0.2.2:80", "web:80"]}]"#;
        let (_, told) = fault(json(two));
        assert_eq!(told, "group 2, target 2: \"web:80\" is not ADDRESS:PORT");
        let weight = r#"[{"targets": ["192.0.2.1:80"], "labels": {"weight": "0"}}]"#;
        let (_, told) = fault(json(weight));
        assert_eq!(told, "group 1, label weight: weight \"0\" is out of range");
    }
}
