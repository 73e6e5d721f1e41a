//! The time from a verdict's store to the program that sees it, measured as the demo does.

use sickbay_lab::{meter, private};

#[test]
fn store_is_seen_on_another_cpu_within_microseconds() {
    private::require();
    let percentiles = meter::measure().unwrap();
    println!("from store to kernel: {percentiles:?}");
    assert_eq!(percentiles.count, meter::SAMPLE_COUNT);
    assert!(0 < percentiles.p50);
    assert!(percentiles.p50 <= percentiles.p99);
    // A system call or a table's rebuild would take longer than this: the figure is of a store.
    assert!(percentiles.p50 < 100_000, "{percentiles:?}");
}
