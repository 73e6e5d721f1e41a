use proptest::prelude::*;

use super::*;
use crate::register::prefilled;

/// A judge's states, from the one at the start on, as results come in (`+` good, `-` bad).
fn states(rule: Rule, initial: u8, results: &str) -> String {
    let mut happy = prefilled(initial, rule.goods_to_healthy())[7];
    let mut probed = Probed::new(rule, happy);
    let mut states = letter(probed.state()).to_string();
    for result in results.chars() {
        happy = happy << 1 | u64::from(result == '+');
        probed = probed.after_result(rule, happy);
        states.push(letter(probed.state()));
    }
    states
}

fn letter(verdict: Verdict) -> char {
    match verdict {
        Verdict::Warming => 'w',
        Verdict::Healthy => 'H',
        Verdict::Sick => 's',
    }
}

const fn window(window: u8, threshold: u8) -> Rule {
    Rule::Window { window, threshold }
}

const fn consecutive(fall: u8, rise: u8) -> Rule {
    Rule::Consecutive { fall, rise }
}

#[test]
fn window_rule_takes_every_transition_of_its_table() {
    let table: &[(Rule, u8, &str, &str)] = &[
        // Warming to healthy, through warming.
        (window(4, 3), 2, "+", "wH"),
        (window(4, 3), 0, "+++", "wwwH"),
        // Warming to sick: as many results as a faultless backend needs, and one was bad.
        (window(4, 3), 2, "-", "ws"),
        (window(4, 3), 0, "-++", "wwws"),
        (window(4, 3), 0, "++-", "wwws"),
        // Healthy stays healthy with one bad result in the window, and falls with two.
        (window(4, 3), 2, "+++-++", "wHHHHHH"),
        (window(4, 3), 2, "+++--", "wHHHHs"),
        // Sick stays sick until three of the newest four are good again.
        (window(4, 3), 2, "+++--++", "wHHHHsss"),
        (window(4, 3), 2, "+++--+++", "wHHHHsssH"),
        // One of one: each result is a verdict.
        (window(1, 1), 0, "+-+--", "wHsHss"),
        // Threshold zero: healthy at the first result, never sick.
        (window(8, 0), 0, "---", "wHHH"),
        // Initial at the threshold: healthy before any probe, as Varnish has it.
        (window(4, 3), 3, "--", "HHs"),
        (window(4, 3), 64, "--", "HHs"),
    ];
    for &(rule, initial, results, expected) in table {
        let states = states(rule, initial, results);
        assert_eq!(states, expected, "{rule:?}, initial {initial}, {results}");
    }
}

#[test]
fn consecutive_rule_takes_every_transition_of_its_table() {
    let table: &[(Rule, u8, &str, &str)] = &[
        (consecutive(3, 2), 0, "++", "wwH"),
        (consecutive(3, 2), 1, "+", "wH"),
        // Undecided when warming ends: not healthy, so sick.
        (consecutive(3, 2), 0, "+-", "wws"),
        (consecutive(3, 2), 1, "-", "ws"),
        // Healthy, undecided twice, then fallen; sick, undecided, then risen.
        (consecutive(3, 2), 1, "+--+---", "wHHHHHHs"),
        (consecutive(3, 2), 1, "+---+-++", "wHHHssssH"),
    ];
    for &(rule, initial, results, expected) in table {
        let states = states(rule, initial, results);
        assert_eq!(states, expected, "{rule:?}, initial {initial}, {results}");
    }
}

#[test]
fn initial_at_rise_starts_healthy() {
    assert_eq!(states(consecutive(2, 2), 2, "-+--"), "HHHHs");
}

#[test]
fn verdict_is_the_first_that_applies() {
    use OnUnknown::{Keep, Sick as ToSick};
    use Override::{Auto, Healthy as ForceHealthy, Sick as ForceSick};
    let every = [Verdict::Warming, Verdict::Healthy, Verdict::Sick];
    for probed in every {
        for (unknown, policy) in [(false, Keep), (false, ToSick), (true, Keep), (true, ToSick)] {
            assert_eq!(verdict(probed, ForceHealthy, unknown, policy), Verdict::Healthy);
            assert_eq!(verdict(probed, ForceSick, unknown, policy), Verdict::Sick);
        }
        assert_eq!(verdict(probed, Auto, true, ToSick), Verdict::Sick);
        assert_eq!(verdict(probed, Auto, true, Keep), probed);
        assert_eq!(verdict(probed, Auto, false, ToSick), probed);
        assert_eq!(verdict(probed, Auto, false, Keep), probed);
    }
}

#[test]
fn varnishs_log_of_window_four_threshold_three_initial_two() {
    // Went healthy at 3 good, still healthy at 4: the golden lines of varnishlog 7.1.1.
    assert_eq!(states(window(4, 3), 2, "++"), "wHH");
    // v00014: threshold 2 of window 3, initial 0: sick until the second good probe.
    assert_eq!(states(window(3, 2), 0, "++"), "wwH");
    // s00002: window 2, threshold 1, initial 0; 400 twice is sick.
    assert_eq!(states(window(2, 1), 0, "+--"), "wHHs");
}

/// The window rule as one would write it down, over a list of results, oldest first.
fn good_in_window(results: &[bool], window: usize, threshold: usize) -> bool {
    let newest = &results[results.len().saturating_sub(window)..];
    newest.iter().filter(|&&good| good).count() >= threshold
}

/// The consecutive rule over a list: healthy after a run of goods, sick after a run of bads.
fn after_runs(results: &[bool], fall: usize, rise: usize, before: Verdict) -> Verdict {
    let run = |wanted: bool| results.iter().rev().take_while(|&&good| good == wanted).count();
    match (run(true), run(false)) {
        (goods, _) if rise <= goods => Verdict::Healthy,
        (_, bads) if fall <= bads => Verdict::Sick,
        _ => before,
    }
}

proptest! {
    #[test]
    fn window_rule_agrees_with_a_list_of_results(
        (window, threshold) in (1_u8..=64).prop_flat_map(|window| (Just(window), 1..=window)),
        initial in 0_u8..=64,
        results in proptest::collection::vec(any::<bool>(), 1..300),
    ) {
        let rule = Rule::Window { window, threshold };
        let assumed = initial.min(threshold);
        let mut happy = prefilled(initial, threshold)[7];
        let mut probed = Probed::new(rule, happy);
        let mut list = vec![true; usize::from(assumed)];
        let needed = usize::from((threshold - assumed).max(1));
        let mut had = 0;
        let mut decided = assumed == threshold;
        for good in results {
            happy = happy << 1 | u64::from(good);
            probed = probed.after_result(rule, happy);
            list.push(good);
            had += 1;
            let healthy = good_in_window(&list, usize::from(window), usize::from(threshold));
            decided |= healthy || needed <= had;
            prop_assert_eq!(probed.state() == Verdict::Healthy, healthy);
            prop_assert_eq!(probed.state() == Verdict::Warming, !decided);
        }
    }

    #[test]
    fn consecutive_rule_agrees_with_runs_in_a_list(
        fall in 1_u8..=64,
        rise in 1_u8..=64,
        results in proptest::collection::vec(any::<bool>(), 1..300),
        biased in any::<bool>(),
    ) {
        let rule = Rule::Consecutive { fall, rise };
        // Start healthy, so that warming, which the list does not know, is over.
        let mut happy = prefilled(rise, rise)[7];
        let mut probed = Probed::new(rule, happy);
        let mut list = vec![true; usize::from(rise)];
        let mut expected = Verdict::Healthy;
        prop_assert_eq!(probed.state(), expected);
        for good in results.iter().map(|&good| good || biased) {
            happy = happy << 1 | u64::from(good);
            probed = probed.after_result(rule, happy);
            list.push(good);
            expected = after_runs(&list, usize::from(fall), usize::from(rise), expected);
            prop_assert_eq!(probed.state(), expected);
        }
    }
}
