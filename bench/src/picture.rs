//! One picture of what was measured: from the JSON objects that the benches printed to an SVG, which
//! can be read in light and in dark. Nothing is measured here, and no figure is known here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::report::Report;

/// From panels to shapes.
mod draw;
/// From figures to panels.
mod panels;
/// Shapes as SVG text.
mod svg;

/// What is drawn, and where to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// What benches printed with --json, a file each; its last line counts
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
    /// Where the SVG goes
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

/// Draws.
///
/// # Errors
/// When a file cannot be read or holds no bench's figures, or the picture cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let benches: Vec<Value> =
        arguments.from.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let panels = panels::of(&benches);
    ensure!(
        !panels.is_empty(),
        "nothing to draw: name the outputs of `converge`, `probe`, `steer` or `publish`"
    );
    let text = draw::picture(&panels, &caption(&benches));
    let to = &arguments.to;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    let mut report = Report::new("picture", format!("drawn into {}", to.display()));
    report.titles = vec!["panel"];
    report.rows = panels.iter().map(|panel| vec![panel.title.clone()]).collect();
    Ok(report)
}

fn read(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let value: Option<Value> = serde_json::from_str(last).ok();
    value.filter(|value| value["bench"].is_string()).with_context(|| {
        let path = path.display();
        format!("{path}: its last line is no bench's JSON; write it with `--json > {path}`")
    })
}

/// One line for each machine and commit, with the benches that ran there.
fn caption(benches: &[Value]) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for bench in benches {
        let name = bench["bench"].as_str().unwrap_or_default();
        let machine = &bench["machine"];
        let word = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
        let where_it_ran = format!(
            "{} x {}, kernel {}, commit {}",
            machine["cpus"],
            word("cpu"),
            word("kernel"),
            word("commit")
        );
        match lines.iter_mut().find(|(place, _)| *place == where_it_ran) {
            Some((_, names)) => names.push_str(&format!(", {name}")),
            None => lines.push((where_it_ran, name.to_owned())),
        }
    }
    lines.into_iter().map(|(place, names)| format!("{names}: {place}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(commit: &str) -> Value {
        json!({ "cpu": "A <fast> & \"odd\" CPU", "cpus": 2, "kernel": "6.18.1", "commit": commit })
    }

    fn benches() -> Vec<Value> {
        let side = |first: u64| {
            let quantiles: Vec<u64> = (0..21).map(|step| first + 4 * step).collect();
            json!({
                "death_to_last_ms": { "p50": 141.25, "max": 181.5 },
                "death_to_last_quantiles_ms": quantiles,
                "verdict_to_last_us": { "p50": -9.0, "max": 77.5 },
                "gap_us": 80.5,
            })
        };
        vec![
            json!({
                "bench": "converge", "machine": machine("aaaa"), "deaths": 200,
                "interval_ms": 100, "fall": 2, "promise_refused_ms": 200.0,
                "sickbay": side(101), "haproxy": side(105),
            }),
            json!({
                "bench": "probe", "machine": machine("aaaa"), "ratio_bare": 0.93,
                "ratio_varnish": 6.4,
            }),
            json!({
                "bench": "steer", "machine": machine("bbbb"), "syn_first_v4_ns": 41.5,
                "usual_syn_first_v4_ns": 1333.0,
            }),
            json!({
                "bench": "publish", "machine": machine("bbbb"), "publish_p50_ns": 112,
                "publish_p99_ns": 240, "batch_p50_ns": 2_345_678, "batch_p99_ns": 3_000_000,
            }),
        ]
    }

    fn drawn(benches: &[Value]) -> String {
        draw::picture(&panels::of(benches), &caption(benches))
    }

    /// All texts of the picture, read by a parser that is not ours.
    fn texts(picture: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(picture).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts
            .map(|node| node.descendants().filter_map(|inner| inner.text()).collect::<String>())
            .collect()
    }

    #[test]
    fn picture_is_well_formed_and_holds_the_figures() {
        let texts = texts(&drawn(&benches()));
        let has = |wanted: &str| texts.iter().any(|text| text.contains(wanted));
        for wanted in ["200 deaths", "141 ms", "77.5 µs", "0.93", "6.40", "41.5", "1,333"] {
            assert!(has(wanted), "{wanted} is missing: {texts:?}");
        }
        assert!(has("112 ns") && has("2.35 ms"), "{texts:?}");
        assert!(has("converge, probe: 2 x A <fast> & \"odd\" CPU, kernel 6.18.1, commit aaaa"));
        assert!(has("steer, publish: 2 x"));
    }

    #[test]
    fn figures_that_are_not_there_are_not_drawn() {
        let benches = &benches()[1..2];
        let texts = texts(&drawn(benches));
        assert!(texts.iter().any(|text| text.contains("varnishd")));
        assert!(!texts.iter().any(|text| text.contains("HAProxy")), "{texts:?}");
        assert_eq!(panels::of(&[json!({ "bench": "prober", "user_ns_per_probe": 7 })]).len(), 0);
    }

    #[test]
    fn both_modes_have_colours() {
        let picture = drawn(&benches());
        assert!(picture.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn shapes_lie_within_the_picture() {
        let picture = drawn(&benches());
        let document = roxmltree::Document::parse(&picture).unwrap();
        let number = |node: roxmltree::Node<'_, '_>, key: &str| -> f64 {
            node.attribute(key).map_or(0.0, |text| text.parse().unwrap())
        };
        let root = document.root_element();
        let (width, height) = (number(root, "width"), number(root, "height"));
        let rectangles = document.descendants().filter(|node| node.has_tag_name("rect"));
        for node in rectangles {
            assert!(number(node, "x") + number(node, "width") <= width, "{node:?}");
            assert!(number(node, "y") + number(node, "height") <= height, "{node:?}");
            assert!(0.0 <= number(node, "width"));
        }
    }

    #[test]
    fn file_without_figures_is_named() {
        let path = std::env::temp_dir().join(format!("picture-{}", std::process::id()));
        fs::write(&path, "bench: no\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(error.contains("its last line is no bench's JSON"), "{error}");
    }
}
