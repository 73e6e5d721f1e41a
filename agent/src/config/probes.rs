//! Probes: Varnish's attributes, defaults and rules (vcc_backend.c, cache_backend_probe.c), and the
//! consecutive rule beside them.

use sickbay_core::limits::{
    INTERVAL_NS_MAX, INTERVAL_NS_MIN, TIMEOUT_NS_MAX, TIMEOUT_NS_MIN, WINDOW_MAX,
};
use sickbay_core::plan::{Compat, OnUnknown, ProbeKind, ProbeSpec, Rule};

use super::name;
use super::problem::{Report, Step, quoted};
use super::settings::{CompatSetting, Method, ProbeSettings, ProbeType, Settings, UnknownPolicy};
use super::time;
use crate::fleet::{Probe, Request};

const WINDOW_DEFAULT: u8 = 8;
const THRESHOLD_DEFAULT: u8 = 3;
/// HAProxy's defaults of `fall` and `rise`.
const FALL_DEFAULT: u8 = 3;
const RISE_DEFAULT: u8 = 2;

/// Every probe, in the order of names; what is wrong is reported and stands at its default.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Vec<Probe> {
    settings.probe.iter().map(|(name, probe)| Draft { name, probe, report }.validate()).collect()
}

/// The bytes of the request to a backend whose Host is `host`.
pub(super) fn request_bytes(request: &Request, host: &str) -> Vec<u8> {
    let Request { method, url, .. } = request;
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{method} {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sickbay/{version}\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes()
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
        let (kind, request) = self.kind();
        let compat = self.compat();
        Probe {
            name: self.name.to_owned(),
            spec: ProbeSpec { interval_ns, timeout_ns, kind, compat },
            rule,
            initial,
            on_unknown: match settings.on_unknown {
                UnknownPolicy::Keep => OnUnknown::Keep,
                UnknownPolicy::Sick => OnUnknown::Sick,
            },
            close: settings.close,
            request,
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

    fn kind(&mut self) -> (ProbeKind, Option<Request>) {
        let settings = self.probe;
        if settings.r#type == ProbeType::Tcp {
            let given = [
                ("url", settings.url.is_some()),
                ("method", settings.method.is_some()),
                ("host", settings.host.is_some()),
                ("expected_response", settings.expected_response.is_some()),
                ("compat", settings.compat.is_some()),
            ];
            for (key, _) in given.into_iter().filter(|(_, given)| *given) {
                let place = self.at(key);
                let problem = format!("{key} has no meaning for a tcp probe");
                self.report.error(&place, problem, "remove it, or write type = \"http\"");
            }
            return (ProbeKind::Tcp, None);
        }
        let method = settings.method.unwrap_or_default();
        let request = Request {
            method: match method {
                Method::Get => "GET".to_owned(),
                Method::Head => "HEAD".to_owned(),
            },
            url: self.url(),
            host: self.host(),
        };
        let expected_status = self.expected_status();
        (ProbeKind::Http { expected_status, head: method == Method::Head }, Some(request))
    }

    fn compat(&mut self) -> Compat {
        let settings = self.probe;
        if settings.compat.is_none() && settings.expect_close.is_some() {
            let place = self.at("expect_close");
            let problem = "expect_close has no meaning without compat: the framing ends a response";
            self.report.error(&place, problem, "remove it, or write compat = \"varnish\"");
        }
        match settings.compat {
            None => Compat::Off,
            Some(CompatSetting::Varnish) => {
                Compat::Varnish { expect_close: settings.expect_close.unwrap_or(true) }
            }
        }
    }

    fn url(&mut self) -> String {
        let url = self.probe.url.as_deref().unwrap_or("/");
        let place = self.at("url");
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let problem = format!("{} has a blank or a control character", quoted(url));
            self.report.error(&place, problem, "write it percent-encoded, such as %20");
        } else if !url.starts_with('/') {
            let problem = format!("{} is not a path", quoted(url));
            self.report.error(
                &place,
                problem,
                "begin it with \"/\"; the address comes from the pool",
            );
        }
        url.to_owned()
    }

    fn host(&mut self) -> Option<String> {
        let host = self.probe.host.as_deref()?;
        let place = self.at("host");
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let problem = format!("{} is no Host header", quoted(host));
            self.report.error(&place, problem, "write a name such as \"www.example.com\"");
        }
        Some(host.to_owned())
    }

    fn expected_status(&mut self) -> u16 {
        let status = self.probe.expected_response.unwrap_or(200);
        if !(100..=999).contains(&status) {
            let place = self.at("expected_response");
            let problem = "Must specify expected_response with exactly three digits \
                           (100 <= x <= 999)";
            self.report.error(&place, problem, format!("write a status, not {status}"));
        }
        u16::try_from(status).unwrap_or(200)
    }
}

fn capitalised(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
