//! What must hold on any machine: ratios, with room.

use crate::report::Report;

/// Says of the report's figures what does not hold.
pub(super) fn hold(report: &mut Report) {
    // What is slower, what is faster, and by how much at least. A flow alone is what repeats.
    const AT_LEAST: [(&str, &str, &str, f64); 5] = [
        ("ratio_usual_syn", "usual_syn_first_v4_ns", "syn_first_v4_ns", 2.0),
        ("ratio_usual_established", "usual_established_v4_ns", "established_v4_ns", 1.3),
        ("ratio_entry", "established_entry_v4_hot_ns", "established_v4_hot_ns", 0.8),
        ("ratio_diverted", "syn_diverted_v4_hot_ns", "syn_first_v4_hot_ns", 0.8),
        ("ratio_not_vip", "syn_first_v4_hot_ns", "not_vip_v4_hot_ns", 1.0),
    ];
    // What may not grow, against what, and by how much at most.
    const AT_MOST: [(&str, &str, &str, f64); 3] = [
        // 1.4 to 1.5; with the entry in an LRU hash it was 2.1 to 2.6.
        ("ratio_entered", "syn_diverted_entered_v4_ns", "map_insert_ns", 2.0),
        (
            "ratio_10000_backends",
            "syn_first_v4_of_10000_backends_hot_ns",
            "syn_first_v4_hot_ns",
            2.5,
        ),
        ("ratio_99_percent_sick", "syn_first_v4_at_99_percent_sick_ns", "syn_first_v4_ns", 3.0),
    ];
    let figure = |report: &Report, name: &str| {
        report.figures.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN)
    };
    let bounds = AT_LEAST.map(|bound| (bound, true)).into_iter();
    for ((name, above, below, limit), at_least) in bounds.chain(AT_MOST.map(|bound| (bound, false)))
    {
        let ratio = figure(report, above) / figure(report, below);
        report.figure(name, (ratio * 100.0).round() / 100.0);
        let holds = if at_least { limit <= ratio } else { ratio <= limit };
        report
            .promise(holds, || format!("{name}: {above} is {ratio:.2} times {below}, not {limit}"));
    }
    let (test, packet) =
        (figure(report, "health_test_ns_max"), figure(report, "syn_first_v4_hot_ns"));
    report.promise(test <= 0.3 * packet, || {
        format!("the health test takes {test:.1} ns of a packet's {packet:.1}")
    });
}
