//! The facts of a demo: a timeline for people, one JSON object for programs.

use std::io::ErrorKind;

use serde_json::{Value, json};

use super::story::{Facts, milliseconds};

/// Prints what happened, in order of time.
pub(crate) fn print(facts: &Facts) {
    let died_ns = facts.died.gone_ns;
    let at = |ns: u64| format!("{:>+12.3} ms", milliseconds(died_ns, ns));
    let victim = &facts.victim;
    println!("\n  time after the death");
    println!("{}   {victim} is told to stop", at(facts.died.asked_ns));
    println!("{}   {victim} is dead", at(died_ns));
    println!(
        "{}   its register condemns it (promised: within {} ms)",
        at(facts.condemned_ns),
        facts.bound_ms
    );
    println!(
        "{}   the kernel is seen skipping it, when the next new flow came",
        at(facts.skipped_ns)
    );
    println!("{}   {victim} listens again", at(facts.returned_ns));
    println!("{}   its register acquits it", at(facts.acquitted_ns));
    println!("{}   the first new connection reaches it", at(facts.first_answer_ns));
    print_counts(facts);
}

fn print_counts(facts: &Facts) {
    let record = &facts.record;
    let living = record.flows_of_living(&facts.victim).count();
    println!("\n  connections opened            {:>7}", record.connections().count());
    println!("  failed before the verdict     {:>7}", facts.failed_before_verdict());
    println!("  failed after the verdict      {:>7}", facts.failed_after_verdict());
    println!("  new flows skipped past it     {:>7}", facts.skipped_count);
    println!(
        "  flows of the living that moved{:>7}   of {living}: kept connections and fixed ports",
        facts.moved_flow_count()
    );
    println!(
        "  verdict store to kernel       {:>7} ns p50, {} ns p99, to another CPU\n",
        facts.verdict_to_kernel_ns.p50, facts.verdict_to_kernel_ns.p99
    );
    for attempt in record.connections() {
        if facts.condemned_ns <= attempt.started_ns
            && let Err(failure) = &attempt.result
        {
            let after = milliseconds(facts.condemned_ns, attempt.started_ns);
            println!("  failed {after:.3} ms after the verdict, {failure}");
        }
    }
    for flow in record.moved_flows(&facts.victim) {
        let answers = flow.attempts.iter().map(|attempt| match &attempt.result {
            Ok(backend) => backend.clone(),
            Err(failure) => failure.to_string(),
        });
        let mut answers: Vec<String> = answers.collect();
        answers.dedup();
        println!("  moved: client port {}: {}", flow.source_port, answers.join(", "));
    }
}

/// The facts as one object.
pub(crate) fn json(facts: &Facts) -> Value {
    let refused = facts.record.connections().filter(|attempt| {
        attempt.result.as_ref().is_err_and(|failure| failure.kind == ErrorKind::ConnectionRefused)
    });
    json!({
        "backends": facts.backend_count,
        "detected_ms": rounded(facts.detected_ms()),
        "bound_ms": facts.bound_ms,
        "verdict_to_kernel_ns": {
            "p50": facts.verdict_to_kernel_ns.p50,
            "p99": facts.verdict_to_kernel_ns.p99,
        },
        "failed_before_verdict": facts.failed_before_verdict(),
        "failed_after_verdict": facts.failed_after_verdict(),
        "moved_flows_of_living_backends": facts.moved_flow_count(),
        "flows_of_living_backends": facts.record.flows_of_living(&facts.victim).count(),
        "connections": facts.record.connections().count(),
        "refused": refused.count(),
        "skipped": facts.skipped_count,
        "first_skip_seen_ms": rounded(milliseconds(facts.died.gone_ns, facts.skipped_ns)),
        "acquitted_ms": rounded(milliseconds(facts.returned_ns, facts.acquitted_ns)),
        "first_answer_ms": rounded(milliseconds(facts.returned_ns, facts.first_answer_ns)),
    })
}

fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1000.0).round() / 1000.0
}
