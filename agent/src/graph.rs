//! The register graph of varnishadm's `backend.list -p`: 64 results of a target, oldest left.
//!
//! In: the eight registers, the rule and the average. Out: text, line by line as Varnish writes it.

use sickbay_core::plan::Rule;
use sickbay_shared::abi::register;

/// Varnish's rows in its order: register, character, label, and whether it stands there when empty.
const ROWS: [(usize, char, &str, bool); 8] = [
    (register::GOOD_IPV4, '4', "Good IPv4", false),
    (register::GOOD_IPV6, '6', "Good IPv6", false),
    (register::GOOD_UNIX, 'U', "Good UNIX", false),
    (register::ERR_XMIT, 'x', "Error Xmit", false),
    (register::GOOD_XMIT, 'X', "Good Xmit", false),
    (register::ERR_RECV, 'r', "Error Recv", false),
    (register::GOOD_RECV, 'R', "Good Recv", false),
    (register::HAPPY, 'H', "Happy", true),
];

/// The block that stands under a backend's line: its rule, its average, its registers.
///
/// A row is shown when its register holds anything, `Happy` always. Every line ends with LF.
#[must_use]
pub fn block(registers: &[u64; 8], rule: Rule, average_s: f64) -> String {
    let good = good_count(registers[register::HAPPY], rule);
    let mut text = match rule {
        Rule::Window { window, threshold } => {
            format!(" Current states  good: {good:2} threshold: {threshold:2} window: {window:2}\n")
        }
        Rule::Consecutive { fall, rise } => {
            format!(" Current states  good: {good:2} fall: {fall:2} rise: {rise:2}\n")
        }
    };
    text.push_str(&format!("  Average response time of good probes: {average_s:.6}\n"));
    text.push_str("  Oldest ================================================== Newest\n");
    for (index, character, label, always) in ROWS {
        if always || registers[index] != 0 {
            text.push_str("  ");
            text.push_str(&row(registers[index], character));
            text.push(' ');
            text.push_str(label);
            text.push('\n');
        }
    }
    text
}

/// Good results among those that the rule looks at: the newest [`span`].
#[must_use]
pub fn good_count(happy: u64, rule: Rule) -> u8 {
    let mask = u64::MAX >> (64 - u32::from(span(rule).clamp(1, 64)));
    u8::try_from((happy & mask).count_ones()).expect("64 bits at most")
}

/// Results that the rule looks at: its window, or the longer of `fall` and `rise`.
#[must_use]
pub const fn span(rule: Rule) -> u8 {
    match rule {
        Rule::Window { window, .. } => window,
        Rule::Consecutive { fall, rise } if fall < rise => rise,
        Rule::Consecutive { fall, .. } => fall,
    }
}

/// One register as 64 characters, the oldest result (bit 63) left.
fn row(register: u64, character: char) -> String {
    (0..64).rev().map(|bit| if register >> bit & 1 == 1 { character } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use sickbay_core::plan::Rule;

    use super::{block, good_count};

    const THREE_OF_FOUR: Rule = Rule::Window { window: 4, threshold: 3 };

    /// The block that varnishadm of Varnish 7.1.1 printed.
    const VARNISH: &str = " Current states  good:  4 threshold:  3 window:  4
  Average response time of good probes: 0.000627
  Oldest ================================================== Newest
  ---------------------------------------------4444444444444444444 Good IPv4
  ---------------------------------------------XXXXXXXXXXXXXXXXXXX Good Xmit
  ---------------------------------------------RRRRRRRRRRRRRRRRRRR Good Recv
  -------------------------------------------HHHHHHHHHHHHHHHHHHHHH Happy
";

    #[test]
    fn block_is_varnishadms() {
        let nineteen = 0x7_ffff;
        let registers = [nineteen, 0, 0, 0, nineteen, 0, nineteen, 0x1f_ffff];
        assert_eq!(block(&registers, THREE_OF_FOUR, 0.000_627), VARNISH);
    }

    #[test]
    fn empty_registers_show_happy_alone() {
        let text = block(&[0; 8], THREE_OF_FOUR, 0.0);
        let rows: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(
            rows,
            ["  ---------------------------------------------------------------- Happy"]
        );
        assert!(text.starts_with(" Current states  good:  0 threshold:  3 window:  4\n"));
    }

    #[test]
    fn full_registers_show_all_rows_in_varnishs_order() {
        let text = block(&[u64::MAX; 8], Rule::Window { window: 64, threshold: 64 }, 12.5);
        let labels: Vec<&str> = text.lines().skip(3).map(|line| &line[67..]).collect();
        assert_eq!(
            labels,
            [
                "Good IPv4",
                "Good IPv6",
                "Good UNIX",
                "Error Xmit",
                "Good Xmit",
                "Error Recv",
                "Good Recv",
                "Happy"
            ]
        );
        assert!(text.starts_with(" Current states  good: 64 threshold: 64 window: 64\n"));
        assert!(text.contains("probes: 12.500000\n"));
    }

    #[test]
    fn oldest_result_stands_left_and_newest_right() {
        let text = block(&[0, 0, 0, 0, 0, 0, 0, 1 << 63 | 1], THREE_OF_FOUR, 0.0);
        let row = text.lines().last().expect("a row");
        assert!(row.starts_with("  H--"));
        assert!(row.ends_with("--H Happy"));
    }

    #[test]
    fn consecutive_rule_counts_over_the_longer_of_its_runs() {
        let rule = Rule::Consecutive { fall: 3, rise: 2 };
        assert_eq!(good_count(0b1_0110, rule), 2);
        let text = block(&[0, 0, 0, 0, 0, 0, 0, 0b1_0110], rule, 0.0);
        assert!(text.starts_with(" Current states  good:  2 fall:  3 rise:  2\n"));
    }
}
