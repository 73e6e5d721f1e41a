//! The explanation for people: short sentences, small tables.

use sickbay_core::answer::{Answer, Course};
use sickbay_core::bound::{failures_to_sick, goods_at_start, registers_healthy, registers_needing};
use sickbay_core::plan::{Pace, Rule};

use super::Explained;
use super::figures::share;
use super::load::Host;
use super::strip::{register, sequence, shown};
use crate::cli::listing::Screen;
use crate::cli::table::{Column, Table};
use crate::fleet::Probe;

/// What a text is wide that goes to no terminal.
const WIDTH: usize = 80;
/// The first column of every table, so that they stand under each other.
const FIRST_WIDTH: usize = 40;
/// Larger windows have too many contents to be told by their number.
const COUNTED_WINDOW_MAX: u8 = 16;
/// Longer registers are told by their runs.
const DRAWN_MAX: usize = 30;

/// One probe.
pub(super) fn explain(text: &mut String, explained: &Explained<'_>, screen: Screen) {
    head(text, explained);
    let answer = &explained.answer;
    to_sick(text, explained, screen);
    table(
        text,
        screen,
        "Back to healthy, since it recovered",
        &[
            ("register empty, answered at once", goods(explained), &answer.to_healthy.far[0]),
            ("register empty, answers at the timeout", goods(explained), &answer.to_healthy.far[1]),
            ("boundary, answered at once", "1 good".to_owned(), &answer.to_healthy.boundary[0]),
            (
                "boundary, answers at the timeout",
                "1 good".to_owned(),
                &answer.to_healthy.boundary[1],
            ),
        ],
    );
    first_traffic(text, explained, screen);
    if !answer.is_rehearsed {
        text.push_str(
            "The timeout spans too many intervals to run the probes; these are the formula's\n\
             figures, without the sequences.\n",
        );
    }
    sentences(text, explained);
    by_failures(text, explained, screen);
    if let Some(load) = &explained.load {
        text.push_str(&format!(
            "Load: a backend gets up to {} probes/s with {} bytes/s of requests\n\
             (address {}, all pools together, from each host that runs this).\n",
            load.probes_per_second, load.request_bytes_per_second, load.address,
        ));
        if load.probes_per_second < load.probes_per_second_worst {
            text.push_str(&format!(
                "That is while all is well; at the quickest pace {} probes/s with {} bytes/s.\n",
                load.probes_per_second_worst, load.request_bytes_per_second_worst,
            ));
        }
    }
}

/// This host, and the way from decision to traffic.
pub(super) fn host(text: &mut String, host: &Host) {
    match host.unprobed {
        0 => {}
        1 => text.push_str("1 backend has no probe: it is always healthy, and its death is not seen.\n"),
        count => text.push_str(&format!(
            "{count} backends have no probe: they are always healthy, and their death is not seen.\n"
        )),
    }
    let threads = if host.shards == 1 { "thread" } else { "threads" };
    text.push_str(&format!(
        "This host: {} probes/s from {} probing {threads}. Sockets open at once if every\n\
         probe timed out: {}; room for {}. Memory for probing: about {:.1} MB, the tables\n\
         of steering apart.\n",
        host.probes_per_second,
        host.shards,
        host.sockets_worst,
        host.sockets_room,
        host.memory_bytes as f64 / 1e6,
    ));
    if host.probes_per_second < host.probes_per_second_worst {
        text.push_str(&format!(
            "With every probe at its quickest pace it would be {} probes/s.\n",
            host.probes_per_second_worst,
        ));
    }
    text.push_str(
        "From decision to traffic: one atomic store into the map that the kernel reads\n\
         for each new flow. Nothing polls, nothing is rebuilt, whatever the service.\n\
         The design allows it a microsecond; `cargo xtask demo` measures it (p50, p99).\n",
    );
}

fn head(text: &mut String, explained: &Explained<'_>) {
    let probe = explained.probe;
    let rule = match probe.rule {
        Rule::Window { window, threshold } => {
            format!("healthy while {threshold} of the last {window} are good")
        }
        Rule::Consecutive { fall, rise } => {
            format!("sick after {fall} bad in a row, healthy after {rise} good")
        }
    };
    text.push_str(&format!(
        "Probe {}: every {}, timeout {}, {rule}\n",
        probe.name,
        shown(probe.spec.interval_ns),
        shown(probe.spec.timeout_ns),
    ));
    pace(text, probe);
    let backends = if explained.backends == 1 { "backend" } else { "backends" };
    match explained.pools.as_slice() {
        [] => text.push_str("No pool uses it.\n\n"),
        [pool] => text.push_str(&format!("{} {backends} of pool {pool}\n\n", explained.backends)),
        pools => text.push_str(&format!(
            "{} {backends} of pools {}\n\n",
            explained.backends,
            pools.join(", ")
        )),
    }
}

/// How the interval changes, if it does.
fn pace(text: &mut String, probe: &Probe) {
    let Pace { fast_ns, sick_ns, jitter_percent } = probe.spec.pace;
    let mut said: Vec<String> = Vec::new();
    said.extend(fast_ns.map(|it| format!("every {} while results disagree", shown(it))));
    said.extend(sick_ns.map(|it| format!("every {} while sick", shown(it))));
    if 0 < jitter_percent {
        said.push(format!("each late by up to {jitter_percent} % of its interval"));
    }
    if said.is_empty() {
        return;
    }
    text.push_str(&format!("Pace: {}\n", said.join("; ")));
    if has_paces(probe) {
        text.push_str(
            "Worst holds for every target and whatever came before; sequences are of one.\n",
        );
    }
    if 0 < jitter_percent {
        text.push_str("Worst and best have the jitter in them; sequences are without.\n");
    }
}

/// Whether the interval changes with what is found, so that seconds differ from target to target.
fn has_paces(probe: &Probe) -> bool {
    probe.spec.pace.fast_ns.is_some() || probe.spec.pace.sick_ns.is_some()
}

fn to_sick(text: &mut String, explained: &Explained<'_>, screen: Screen) {
    let Some(passage) = &explained.answer.to_sick else {
        text.push_str("It never turns sick: a threshold of 0 is always met.\n");
        return;
    };
    let failures = failures_to_sick(explained.probe.rule).unwrap_or(0);
    let bad = format!("{failures} bad");
    table(
        text,
        screen,
        "Sick, since it died",
        &[
            ("register full, refused at once", bad.clone(), &passage.far[0]),
            ("register full, every probe times out", bad, &passage.far[1]),
            ("boundary, refused at once", "1 bad".to_owned(), &passage.boundary[0]),
            ("boundary, probe times out", "1 bad".to_owned(), &passage.boundary[1]),
        ],
    );
    if !passage.far[1].steps.is_empty() {
        let case = if has_paces(explained.probe) { "For example" } else { "At its worst" };
        text.push_str(&format!(
            "{case}: it dies just after a good probe (the bar), and each one times out.\n"
        ));
        text.push_str(&sequence(&passage.far[1], screen.width.unwrap_or(WIDTH).max(WIDTH)));
    }
    text.push('\n');
}

fn first_traffic(text: &mut String, explained: &Explained<'_>, screen: Screen) {
    let probe = explained.probe;
    let Some(goods) = goods_at_start(probe.rule, probe.initial) else {
        text.push_str(&format!(
            "After a start it takes traffic at once, unproven: initial = {} is enough.\n\n",
            probe.initial
        ));
        return;
    };
    let good = format!("{goods} good");
    let [at_once, slow] = &explained.answer.first_traffic;
    let title = format!("First traffic, since start (initial {})", probe.initial);
    let rows =
        [("answered at once", good.clone(), at_once), ("answers at the timeout", good, slow)];
    table(text, screen, &title, &rows);
}

fn sentences(text: &mut String, explained: &Explained<'_>) {
    let Answer { to_sick: Some(passage), goods_after_fall, .. } = &explained.answer else {
        return;
    };
    let failures = failures_to_sick(explained.probe.rule).unwrap_or(0);
    if failures == 1 {
        text.push_str(&format!(
            "Blind spot: the next probe alone decides. A backend that dies just after a good\n\
             one gets traffic for up to {}, and one lost packet makes it sick.\n",
            shown(passage.far[1].times.worst_ns),
        ));
    } else {
        text.push_str(&format!(
            "From a full register {} in a row {} tolerated; one more makes it sick.\n",
            counted(failures - 1, "failure"),
            if failures == 2 { "is" } else { "are" },
        ));
    }
    text.push_str(&match goods_after_fall {
        1 => "After that one good result brings it back.\n".to_owned(),
        goods => format!("After that {goods} good ones in a row bring it back.\n"),
    });
}

/// From which registers fewer failures do.
fn by_failures(text: &mut String, explained: &Explained<'_>, screen: Screen) {
    if explained.by_failures.len() < 2 {
        return;
    }
    let rule = explained.probe.rule;
    if let Rule::Window { window, threshold } = rule {
        threshold_is_no_count_of_failures(text, explained, window, threshold);
    }
    let mut table = Table::new(vec![
        Column::number("Failures"),
        Column::number("Worst: refused"),
        Column::number("timed out"),
        Column::text("Registers"),
        Column::cuttable("For example (newest right)"),
    ]);
    for (failures, [refused, timed_out]) in &explained.by_failures {
        let cells = vec![
            u64::from(*failures).into(),
            shown(refused.times.worst_ns).into(),
            shown(timed_out.times.worst_ns).into(),
            registers(rule, *failures).into(),
            example(&refused.before).into(),
        ];
        table.push(cells, String::new());
    }
    text.push_str("How many failures it takes depends on what the register holds:\n");
    text.push_str(&table.render(screen));
}

/// A threshold of 3 is often read as "3 failures". Says when that is true.
fn threshold_is_no_count_of_failures(
    text: &mut String,
    explained: &Explained<'_>,
    window: u8,
    threshold: u8,
) {
    let most = failures_to_sick(explained.probe.rule).unwrap_or(0);
    let count = u32::from(threshold);
    if count == most {
        return;
    }
    text.push_str(&format!(
        "threshold = {threshold} counts good results, not failures: a full register needs {most}.\n"
    ));
    let row = explained.by_failures.iter().find(|(failures, _)| *failures == count);
    if let Some((_, [refused, timed_out])) = row {
        text.push_str(&format!(
            "{} ({}, {} by timeouts) {} only where good result {threshold} from the right\n\
             stands at place {}: after failures of late, never after a clean start.\n",
            counted(count, "failure"),
            shown(refused.times.worst_ns),
            shown(timed_out.times.worst_ns),
            if count == 1 { "does" } else { "do" },
            u32::from(window) - count + 1,
        ));
    }
}

fn registers(rule: Rule, failures: u32) -> String {
    match rule {
        Rule::Window { window, .. } if window <= COUNTED_WINDOW_MAX => {
            format!("{} of {}", registers_needing(rule, failures), registers_healthy(rule))
        }
        Rule::Window { .. } => {
            format!("{:.2} %", 100.0 * share(rule, failures).unwrap_or_default())
        }
        Rule::Consecutive { fall, .. } => match u32::from(fall) - failures {
            0 => "newest is good".to_owned(),
            had => format!("newest {had} bad"),
        },
    }
}

/// A register, or its runs when it is too long for a table.
fn example(results: &[bool]) -> String {
    if results.len() <= DRAWN_MAX {
        return register(results);
    }
    let runs = results.chunk_by(|a, b| a == b).map(|run| {
        let what = if run[0] { "good" } else { "bad" };
        format!("{} {what}", run.len())
    });
    runs.collect::<Vec<String>>().join(", ")
}

fn table(text: &mut String, screen: Screen, title: &str, rows: &[(&str, String, &Course)]) {
    // Titles of columns are fixed words; this one is a row of its own.
    let mut table = Table::new(vec![
        Column::text("").at_least(FIRST_WIDTH),
        Column::text("Results").at_least(8),
        Column::number("Worst").at_least(8),
        Column::number("Typical").at_least(8),
        Column::number("Best").at_least(8),
    ]);
    for (what, results, course) in rows {
        let times = course.times;
        let cells = vec![
            format!("  {what}").into(),
            results.as_str().into(),
            shown(times.worst_ns).into(),
            shown(times.typical_ns).into(),
            shown(times.best_ns).into(),
        ];
        table.push(cells, String::new());
    }
    let rendered = table.render(screen);
    // The title takes the place of the empty one.
    let columns = rendered.get(title.len()..).unwrap_or_default();
    text.push_str(title);
    text.push_str(columns);
    text.push('\n');
}

fn goods(explained: &Explained<'_>) -> String {
    format!("{} good", explained.probe.rule.goods_to_healthy())
}

fn counted(count: u32, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
