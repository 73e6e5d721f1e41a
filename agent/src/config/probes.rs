//! Probes: Varnish's attributes, defaults and rules (vcc_backend.c, cache_backend_probe.c), and the
//! consecutive rule beside them.

use sickbay_core::limits::{
    INTERVAL_NS_MAX, INTERVAL_NS_MIN, TIMEOUT_NS_MAX, TIMEOUT_NS_MIN, WINDOW_MAX,
};
use sickbay_core::plan::{Compat, Nanos, OnUnknown, Pace, ProbeSpec, Rule};
use sickbay_shared::limits::{BACKENDS_MAX, WORD_BACKENDS};

use super::percent::percent;
use super::problem::{Report, Step, quoted};
use super::question::Question;
use super::settings::{CompatSetting, ProbeSettings, Settings, UnknownPolicy};
use super::time;
use super::{endpoint, judging, name};
use crate::fleet::{Probe, SocketOptions};

const WINDOW_DEFAULT: u8 = 8;
const THRESHOLD_DEFAULT: u8 = 3;
/// HAProxy's defaults of `fall` and `rise`.
const FALL_DEFAULT: u8 = 3;
const RISE_DEFAULT: u8 = 2;
/// More would let a probe meet the next one.
const JITTER_PERCENT_MAX: u8 = 50;

/// Probes one instance can have: as many as pools, which take a word of the bitmap at least.
const PROBES_MAX: usize = (BACKENDS_MAX / WORD_BACKENDS) as usize;

/// Every probe, in the order of names; what is wrong is reported and stands at its default.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Vec<Probe> {
    let count = settings.probe.len();
    if PROBES_MAX < count {
        let problem = format!("there are {count} probes; {PROBES_MAX} are the most");
        report.error(&["probe".into()], problem, "let pools share them");
    }
    let mut probes = Vec::with_capacity(count);
    for (name, probe) in &settings.probe {
        if report.is_full() {
            break;
        }
        probes.push(validate_one(name, probe, report));
    }
    probes
}

/// One probe; what is wrong is reported and stands at its default.
pub(super) fn validate_one(name: &str, probe: &ProbeSettings, report: &mut Report<'_>) -> Probe {
    Draft { name, probe, report }.validate()
}

struct Draft<'a, 'r, 's> {
    name: &'a str,
    probe: &'a ProbeSettings,
    report: &'r mut Report<'s>,
}

impl<'a> Draft<'a, '_, '_> {
    fn validate(mut self) -> Probe {
        let settings = self.probe;
        name::check_section(self.report, &["probe".into(), self.name.into()], self.name);
        if self.name == judging::NONE {
            let problem = "\"none\" is no probe's name: in a pool it says that there is no probe";
            let place = ["probe".into(), self.name.into()];
            self.report.error(&place, problem, "give the probe another name");
        }
        let interval = INTERVAL_NS_MIN..=INTERVAL_NS_MAX;
        let timeout = TIMEOUT_NS_MIN..=TIMEOUT_NS_MAX;
        let place = self.at("interval");
        let interval_ns =
            time::nanos(self.report, &place, &settings.interval, interval, 5_000_000_000);
        let place = self.at("timeout");
        let timeout_ns =
            time::nanos(self.report, &place, &settings.timeout, timeout, 2_000_000_000);
        let rule = self.rule();
        let initial = self.initial(rule);
        let pace = self.pace(interval_ns);
        let socket = self.socket();
        let question = Question { name: self.name, probe: settings, report: self.report }.read();
        let compat = self.compat();
        Probe {
            name: self.name.to_owned(),
            spec: ProbeSpec { interval_ns, timeout_ns, kind: question.kind, pace, compat },
            rule,
            initial,
            on_unknown: match settings.on_unknown {
                UnknownPolicy::Keep => OnUnknown::Keep,
                UnknownPolicy::Sick => OnUnknown::Sick,
            },
            close: settings.close,
            request: question.request,
            send: question.send,
            proxy_header: question.proxy_header,
            socket,
        }
    }

    fn at(&self, key: &'a str) -> [Step<'a>; 3] {
        ["probe".into(), self.name.into(), key.into()]
    }

    fn rule(&mut self) -> Rule {
        let settings = self.probe;
        let consecutive = settings.fall.is_some() || settings.rise.is_some();
        if !consecutive {
            return self.window_rule();
        }
        for (key, given) in [("window", settings.window), ("threshold", settings.threshold)] {
            if given.is_some() {
                let place = self.at(key);
                let problem = format!("{key} cannot be mixed with fall and rise");
                self.report.error(
                    &place,
                    problem,
                    "give either window and threshold, or fall and rise",
                );
            }
        }
        let fall = self.count("fall", settings.fall).unwrap_or(FALL_DEFAULT);
        let rise = self.count("rise", settings.rise).unwrap_or(RISE_DEFAULT);
        Rule::Consecutive { fall, rise }
    }

    /// Varnish: window without threshold is an error; threshold alone makes the window one more
    /// (there 65 for 64; here 64, which counts the same bits).
    fn window_rule(&mut self) -> Rule {
        let settings = self.probe;
        let (at_window, at_threshold) = (self.at("window"), self.at("threshold"));
        let fallback = Rule::Window { window: WINDOW_DEFAULT, threshold: THRESHOLD_DEFAULT };
        if self.report.is_marred(&at_window) || self.report.is_marred(&at_threshold) {
            return fallback;
        }
        if settings.window.is_some() && settings.threshold.is_none() {
            let mend = "add threshold: the good results in the window that make a backend healthy";
            self.report.error(&at_window, "Must specify threshold with window", mend);
        }
        let window = self.count("window", settings.window);
        let threshold = self.count("threshold", settings.threshold);
        let (window, threshold) = match (window, threshold) {
            (Some(window), Some(threshold)) => (window, threshold),
            (None, Some(threshold)) => ((threshold + 1).min(WINDOW_MAX), threshold),
            _ => return fallback,
        };
        if settings.window.is_some() && window < threshold {
            let problem =
                format!("Threshold cannot be greater than window, but {threshold} > {window}");
            let mend = format!("lower it to {window} or less, or raise window");
            self.report.error(&at_threshold, problem, mend);
            return fallback;
        }
        Rule::Window { window, threshold }
    }

    /// A count of results, 1 to 64. (Varnish takes 0 for "not given".)
    fn count(&mut self, key: &'a str, value: Option<i64>) -> Option<u8> {
        let value = value?;
        let place = self.at(key);
        let max = i64::from(WINDOW_MAX);
        let capital = capitalised(key);
        if max < value {
            let problem = format!("{capital} must be {max} or less, but is {value}");
            self.report.error(&place, problem, format!("write {max} or less"));
        } else if value < 1 {
            let problem = format!("{capital} must be 1 or more, but is {value}");
            self.report.error(&place, problem, "write 1 or more, or leave it out");
        }
        u8::try_from(value).ok().filter(|count| (1..=WINDOW_MAX).contains(count))
    }

    /// Varnish: threshold - 1 when not given, and never more than the threshold.
    fn initial(&mut self, rule: Rule) -> u8 {
        let goods = rule.goods_to_healthy();
        let Some(initial) = self.probe.initial else {
            return goods.saturating_sub(1);
        };
        let place = self.at("initial");
        let initial = self.report.whole(&place, initial, 0..=i64::from(WINDOW_MAX)).unwrap_or(0);
        u8::try_from(initial).unwrap_or(WINDOW_MAX).min(goods)
    }

    fn pace(&mut self, interval_ns: Nanos) -> Pace {
        let settings = self.probe;
        let fast_ns = settings.interval_fast.as_ref().map(|text| {
            let place = self.at("interval_fast");
            let limits = INTERVAL_NS_MIN..=interval_ns;
            time::nanos(self.report, &place, text, limits, interval_ns)
        });
        let sick_ns = settings.interval_sick.as_ref().map(|text| {
            let place = self.at("interval_sick");
            let limits = INTERVAL_NS_MIN..=INTERVAL_NS_MAX;
            time::nanos(self.report, &place, text, limits, interval_ns)
        });
        Pace { fast_ns, sick_ns, jitter_percent: self.jitter() }
    }

    fn socket(&mut self) -> SocketOptions {
        let settings = self.probe;
        let source = settings.source.as_deref().and_then(|text| {
            let parsed = text.parse().map_err(|_| {
                let mend = "write one of this host's, such as \"192.0.2.250\", without a port";
                (format!("{} is not an IP address", quoted(text)), mend.to_owned())
            });
            let place = self.at("source");
            let checked = parsed.and_then(|source| endpoint::check(source).map(|()| source));
            checked.map_err(|(problem, mend)| self.report.error(&place, problem, mend)).ok()
        });
        if let Some(interface) = &settings.interface {
            let place = self.at("interface");
            name::check_interface(self.report, &place, interface);
        }
        let mark = settings.mark.and_then(|mark| {
            let place = self.at("mark");
            self.report.whole(&place, mark, 1..=i64::from(u32::MAX))
        });
        SocketOptions { source, interface: settings.interface.clone(), mark }
    }

    fn compat(&mut self) -> Compat {
        let settings = self.probe;
        if settings.compat.is_none() && settings.expect_close.is_some() {
            let place = self.at("expect_close");
            let problem = "expect_close has no meaning without compat: the framing ends a response";
            self.report.error(&place, problem, "remove it, or write compat = \"varnish\"");
        }
        let beyond = [
            ("expect_header", settings.expect_header.is_some()),
            ("expect_body", settings.expect_body.is_some()),
            ("jitter", settings.jitter.is_some()),
        ];
        for (key, _) in beyond.into_iter().filter(|(_, given)| *given && settings.compat.is_some())
        {
            let place = self.at(key);
            let problem = format!("{key} is not known to Varnish, whose behaviour is asked for");
            self.report.error(&place, problem, "remove it, or remove compat");
        }
        match settings.compat {
            None => Compat::Off,
            Some(CompatSetting::Varnish) => {
                Compat::Varnish { expect_close: settings.expect_close.unwrap_or(true) }
            }
        }
    }

    fn jitter(&mut self) -> u8 {
        let Some(text) = self.probe.jitter.as_deref() else {
            return 0;
        };
        let place = self.at("jitter");
        let written = (text, "no part of the interval");
        percent(self.report, &place, written, 0..=JITTER_PERCENT_MAX).unwrap_or(0)
    }
}

fn capitalised(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
