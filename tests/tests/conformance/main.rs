//! Conformance: varnishd and sickbay probe the same scripted server, and their records are compared
//! one by one. In compat mode there must be no difference; in the default mode those, and only
//! those, that the table of behaviours gives a reason for.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use sickbay_lab::private;
use sickbay_tests::script::{Address, Server};
use sickbay_tests::varnish::{HealthRecord, ProbeParameters, Records, Varnish};

/// The scripted behaviours.
mod behaviours;
/// Varnish's own test cases of probes, re-created.
mod cases;
/// When two records are the same.
mod compare;
/// Hosts with an IPv4 and an IPv6 address.
mod families;
/// The words of a running agent.
mod live;
/// `sickbay probe`, run for its records.
mod sickbay;

use behaviours::{Row, TIMEOUT_MS, rows};
use compare::Shown;
use sickbay::Probing;

const PARAMETERS: ProbeParameters = ProbeParameters {
    timeout_ms: TIMEOUT_MS,
    // Longer than Varnish's hold-down of a refused address, 250 ms.
    interval_ms: 300,
    window: 4,
    threshold: 3,
    initial: 2,
    expected_response: 200,
    proxy_header: 0,
};
/// Polls that are compared; no script has more turns.
const POLLS: usize = 6;
/// They take 8 s when nothing else runs.
const PATIENCE: Duration = Duration::from_secs(50);
/// The clients of the scripted server.
const VARNISH: u16 = 0;
const COMPAT: u16 = 1;
const DEFAULT: u16 = 2;

/// What the three made of the same behaviours.
struct Run {
    rows: Vec<Row>,
    varnish: Records,
    compat: Records,
    default: Records,
}

impl Run {
    /// Made once for all tests of this program.
    fn once() -> &'static Self {
        static RUN: OnceLock<Run> = OnceLock::new();
        RUN.get_or_init(Self::make)
    }

    fn make() -> Self {
        private::require();
        let directory = private::scratch().join("conformance");
        std::fs::create_dir_all(&directory).expect("scratch memory");
        let rows = rows();
        let behaviours = rows.iter().map(|row| row.behaviour.clone()).collect();
        let server = Server::start(behaviours, 8001, 3, &directory);
        let backends = |client| -> Vec<(&'static str, Address)> {
            let name = |index: usize| rows[index].behaviour.name;
            (0..rows.len()).map(|index| (name(index), server.address(index, client))).collect()
        };
        let mut varnishd =
            Varnish::start(&directory.join("varnish"), &backends(VARNISH), PARAMETERS)
                .expect("varnishd starts");
        let varnish = varnishd.polls(rows.len(), POLLS, PATIENCE).expect("varnishd polls");
        drop(varnishd);
        // One after the other: on a machine with two cores they would be late for each other.
        let compat = Probing::of(PARAMETERS, POLLS).compat().records(&backends(COMPAT));
        let default = Probing::of(PARAMETERS, POLLS).records(&backends(DEFAULT));
        Self { rows, varnish, compat, default }
    }
}

#[test]
fn there_are_sixty_behaviours_and_more() {
    let names: std::collections::BTreeSet<&str> =
        rows().iter().map(|row| row.behaviour.name).collect();
    assert_eq!(names.len(), rows().len(), "a name stands twice");
    assert!(60 <= names.len(), "{}", names.len());
}

#[test]
fn compat_mode_gives_varnishs_records() {
    let run = Run::once();
    let mut differences = Vec::new();
    for row in &run.rows {
        let name = row.behaviour.name;
        let (varnish, compat) = (&run.varnish[name], &run.compat[name]);
        let shown = |records: &[HealthRecord]| -> Vec<Shown> {
            records.iter().map(|record| Shown::of(record, row.noise)).collect()
        };
        let (theirs, ours) = (shown(varnish), shown(compat));
        match &row.bug {
            None => compare::sequences(name, &theirs, &ours, &mut differences),
            Some(bug) => {
                assert!(!compare::pinned(bug, &theirs), "{name}: this Varnish has no such bug");
                if !compare::pinned(bug, &ours) {
                    differences.push(compare::against(name, bug, &ours));
                }
            }
        }
    }
    let (count, bugs) = (run.rows.len(), run.rows.iter().filter(|row| row.bug.is_some()).count());
    say(&format!(
        "compat mode against varnishd: {count} behaviours, {POLLS} records each: {} differences \
         ({bugs} of the behaviours show a bug of Varnish's that sickbay does not have)",
        differences.len()
    ));
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn default_mode_differs_from_varnish_where_the_table_says_and_nowhere_else() {
    let run = Run::once();
    let mut differences = Vec::new();
    say("default mode against varnishd, each difference with its reason:");
    for row in &run.rows {
        let name = row.behaviour.name;
        let shown = |records: &[HealthRecord]| -> Vec<Shown> {
            records.iter().map(|record| Shown::of(record, row.noise)).collect()
        };
        let (theirs, ours) = (shown(&run.varnish[name]), shown(&run.default[name]));
        let Some(difference) = row.default.as_ref().or(row.bug.as_ref()) else {
            compare::sequences(name, &theirs, &ours, &mut differences);
            continue;
        };
        assert!(!compare::pinned(difference, &theirs), "{name}: that is Varnish's record");
        if !compare::pinned(difference, &ours) {
            differences.push(compare::against(name, difference, &ours));
        }
        say(&format!("{name:<24} {} | {} | {}", theirs[0], ours[0], difference.reason));
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn averages_follow_varnishs_formula_with_the_weight_of_initial_in_compat_mode_alone() {
    let run = Run::once();
    let biased = u32::from(PARAMETERS.initial);
    for (who, records, rate) in [
        ("varnishd", &run.varnish, biased),
        ("compat", &run.compat, biased),
        ("default", &run.default, 0),
    ] {
        for (name, records) in records {
            compare::average(&format!("{who}: {name}"), records, rate);
        }
    }
}

/// Past the test harness, which shows what a test prints only when it fails.
fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("standard output is open");
}
