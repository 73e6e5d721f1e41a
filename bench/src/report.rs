//! What a workload found: for people a head and a table, for programs one JSON object on the last
//! line. The head says what the figures depend on: machine, kernel, commit, method.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

/// A workload's findings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// The workload's name on the command line.
    pub(crate) name: &'static str,
    /// How it was measured, in a few sentences.
    pub(crate) method: String,
    /// The table's first row.
    pub(crate) titles: Vec<&'static str>,
    /// The table's other rows, as long as the first.
    pub(crate) rows: Vec<Vec<String>>,
    /// What a reader should know besides: what was left out, and why.
    pub(crate) notes: Vec<String>,
    /// The figures by name. Ratios are named `ratio_…`, times end in their unit.
    pub(crate) figures: Map<String, Value>,
    /// Promises that did not hold; any makes the run fail.
    pub(crate) broken: Vec<String>,
}

impl Report {
    /// An empty one.
    pub(crate) fn new(name: &'static str, method: impl Into<String>) -> Self {
        Self {
            name,
            method: method.into(),
            titles: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            figures: Map::new(),
            broken: Vec::new(),
        }
    }

    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.figures.insert(name.into(), value.into());
    }

    /// Holds a promise against what was measured.
    pub(crate) fn promise(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(text());
        }
    }

    /// Prints it; with `as_json`, the figures as one object on the last line.
    pub(crate) fn print(&self, as_json: bool) {
        let machine = Machine::read();
        println!("bench {}: {}", self.name, machine.text());
        println!("method: {}\n", self.method);
        print!("{}", table(&self.titles, &self.rows));
        for note in &self.notes {
            println!("note: {note}");
        }
        for promise in &self.broken {
            println!("BROKEN: {promise}");
        }
        if as_json {
            println!("{}", self.json(&machine));
        }
    }

    fn json(&self, machine: &Machine) -> Value {
        let mut object = Map::new();
        object.insert("bench".to_owned(), self.name.into());
        object.insert("machine".to_owned(), machine.json());
        object.insert("method".to_owned(), self.method.clone().into());
        object.extend(self.figures.clone());
        object.insert("broken".to_owned(), self.broken.clone().into());
        Value::Object(object)
    }
}

/// What a figure depends on besides the code.
struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    commit: String,
}

impl Machine {
    fn read() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model
                .map_or("unknown CPU", |text| text.trim_start_matches([' ', '\t', ':']))
                .into(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            commit: commit(),
        }
    }

    fn text(&self) -> String {
        format!("{} x {}, kernel {}, commit {}", self.cpus, self.cpu, self.kernel, self.commit)
    }

    fn json(&self) -> Value {
        json!({
            "cpu": self.cpu, "cpus": self.cpus, "kernel": self.kernel, "commit": self.commit,
        })
    }
}

/// The checkout's commit; `+` when it has changes that are not committed.
fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(words)
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_some_and(|text| !text.is_empty()) { commit + "+" } else { commit }
}

/// Columns as wide as their widest cell, the first left, the others right.
fn table(titles: &[&'static str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = titles.iter().map(|&title| title.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_names_left_and_figures_right() {
        let rows = vec![vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "22".into()]];
        assert_eq!(table(&["name", "ns"], &rows), "name  ns\na      1\nbcd   22\n");
    }

    #[test]
    fn json_carries_figures_and_what_broke() {
        let mut report = Report::new("x", "by hand");
        report.figure("ratio_a", 2.5);
        report.promise(true, || unreachable!("it holds"));
        report.promise(false, || "a < b".to_owned());
        let value = report.json(&Machine::read());
        assert_eq!(value["ratio_a"], 2.5);
        assert_eq!(value["broken"], json!(["a < b"]));
        assert!(1 <= value["machine"]["cpus"].as_u64().unwrap());
    }
}
