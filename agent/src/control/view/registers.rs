//! A backend's results as they are shown: Varnish's registers, and the rule that judges them.

use serde::{Deserialize, Serialize};
use sickbay_core::plan::Rule;

use super::decimal;

/// The rule a backend is judged by; its keys tell which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RuleView {
    /// Healthy iff at least `threshold` of the newest `window` results are good.
    Window {
        /// Good results needed.
        threshold: u8,
        /// Results looked at.
        window: u8,
    },
    /// Sick after `fall` bad results in a row, healthy after `rise` good ones.
    Consecutive {
        /// Bad results in a row.
        fall: u8,
        /// Good results in a row.
        rise: u8,
    },
}

impl From<Rule> for RuleView {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Window { window, threshold } => Self::Window { threshold, window },
            Rule::Consecutive { fall, rise } => Self::Consecutive { fall, rise },
        }
    }
}

impl From<RuleView> for Rule {
    fn from(view: RuleView) -> Self {
        match view {
            RuleView::Window { threshold, window } => Self::Window { window, threshold },
            RuleView::Consecutive { fall, rise } => Self::Consecutive { fall, rise },
        }
    }
}

/// Varnish's eight registers under Varnish's JSON names, newest result in bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "bits_C is the register that Varnish names C")]
pub struct RegistersView {
    #[serde(with = "decimal")]
    pub bits_4: u64,
    #[serde(with = "decimal")]
    pub bits_6: u64,
    #[serde(with = "decimal", rename = "bits_U")]
    pub bits_unix: u64,
    #[serde(with = "decimal", rename = "bits_x")]
    pub bits_err_xmit: u64,
    #[serde(with = "decimal", rename = "bits_X")]
    pub bits_good_xmit: u64,
    #[serde(with = "decimal", rename = "bits_r")]
    pub bits_err_recv: u64,
    #[serde(with = "decimal", rename = "bits_R")]
    pub bits_good_recv: u64,
    #[serde(with = "decimal", rename = "bits_H")]
    pub bits_happy: u64,
}

impl From<[u64; 8]> for RegistersView {
    fn from(registers: [u64; 8]) -> Self {
        let [
            bits_4,
            bits_6,
            bits_unix,
            bits_err_xmit,
            bits_good_xmit,
            bits_err_recv,
            bits_good_recv,
            bits_happy,
        ] = registers;
        Self {
            bits_4,
            bits_6,
            bits_unix,
            bits_err_xmit,
            bits_good_xmit,
            bits_err_recv,
            bits_good_recv,
            bits_happy,
        }
    }
}

impl From<RegistersView> for [u64; 8] {
    fn from(view: RegistersView) -> Self {
        [
            view.bits_4,
            view.bits_6,
            view.bits_unix,
            view.bits_err_xmit,
            view.bits_good_xmit,
            view.bits_err_recv,
            view.bits_good_recv,
            view.bits_happy,
        ]
    }
}
