//! What a probe asks and which answer is good: the request, and what is expected of the response.

use sickbay_core::content::{Content, WantedHeader};
use sickbay_core::limits::RESPONSE_BYTES_MAX;
use sickbay_core::pattern::{PATTERN_BYTES_MAX, Pattern};
use sickbay_core::plan::ProbeKind;
use sickbay_core::statuses::{STATUS_MAX, STATUS_MIN, Statuses};

use super::problem::{Report, Step, quoted};
use super::settings::{ProbeSettings, ProbeType, StatusEntry, StatusSetting};
use crate::fleet::{Probe, ProxyHeader, Request};

/// Most bytes of a response that may be asked for.
const BODY_BYTES_MAX: i64 = 16 << 20;
/// Most bytes of one request, what is sent by a tcp probe included. Servers take 8 to 32 KiB of
/// headers.
pub(super) const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Most bytes of the requests of all targets, each of which has its own. The most backends, asked as
/// usual, have half of it.
pub(super) const REQUESTS_BYTES_MAX: usize = 512 << 20;

/// What is read.
pub(super) struct Answer {
    pub(super) kind: ProbeKind,
    pub(super) request: Option<Request>,
    pub(super) send: Vec<u8>,
    pub(super) proxy_header: Option<ProxyHeader>,
}

/// The bytes that `probe` sends to a backend whose Host is `host`; none for a mere connection.
pub(super) fn request_bytes(probe: &Probe, host: &str) -> Vec<u8> {
    let mut bytes = probe.proxy_header.map_or(Vec::new(), |it| it.fixed_bytes().to_vec());
    match &probe.request {
        None => bytes.extend(&probe.send),
        Some(request) => bytes.extend(request_text(request, host).bytes()),
    }
    bytes
}

fn request_text(request: &Request, host: &str) -> String {
    if !request.raw.is_empty() {
        return request.raw.iter().map(|line| format!("{line}\r\n")).collect::<String>() + "\r\n";
    }
    let Request { method, url, headers, body, .. } = request;
    let mut text = format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n");
    let has = |name: &str| headers.iter().any(|line| header_name(line).eq_ignore_ascii_case(name));
    if !has("User-Agent") {
        // Without a version: a target is known by what is asked of it, and is to be known to the next
        // version too.
        text.push_str("User-Agent: sickbay\r\n");
    }
    if !has("Connection") {
        text.push_str("Connection: close\r\n");
    }
    headers.iter().for_each(|line| text.extend([line, "\r\n"]));
    // RFC 9110, section 8.6: a method that means a body says that there is none.
    if body.is_some() || matches!(method.as_str(), "POST" | "PUT") {
        let length = body.as_ref().map_or(0, String::len);
        text.push_str(&format!("Content-Length: {length}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body.as_deref().unwrap_or_default());
    text
}

/// The settings of one probe as far as they say what it asks.
pub(super) struct Question<'a, 'r, 's> {
    pub(super) name: &'a str,
    pub(super) probe: &'a ProbeSettings,
    pub(super) report: &'r mut Report<'s>,
}

impl<'a> Question<'a, '_, '_> {
    pub(super) fn read(mut self) -> Answer {
        let proxy_header = self.proxy_header();
        if self.probe.r#type == ProbeType::Tcp {
            return self.tcp(proxy_header);
        }
        self.forbid(
            "a http probe",
            "remove it, or write type = \"tcp\"",
            &[("send", self.probe.send.is_some()), ("expect", self.probe.expect.is_some())],
        );
        if self.probe.body_max.is_some() && self.probe.expect_body.is_none() {
            let place = self.at("body_max");
            let problem = "body_max has no meaning without expect_body";
            self.report.error(&place, problem, "remove it, or add expect_body");
        }
        let request = self.request();
        let head = match request.raw.first() {
            Some(line) => line.starts_with("HEAD "),
            None => request.method == "HEAD",
        };
        let content = Content {
            header: self.expect_header(),
            body: self.pattern("expect_body", self.probe.expect_body.as_deref()),
            body_bytes_max: self.body_max(),
        };
        if head && content.body.is_some() {
            let place = self.at("expect_body");
            let problem = "the response to HEAD has no body";
            self.report.error(&place, problem, "ask by another method, or remove expect_body");
        }
        let kind = ProbeKind::Http { expected: self.expected_response(), head, content };
        Answer { kind, request: Some(request), send: Vec::new(), proxy_header }
    }

    fn tcp(mut self, proxy_header: Option<ProxyHeader>) -> Answer {
        let settings = self.probe;
        self.forbid(
            "a tcp probe",
            "remove it, or write type = \"http\"",
            &[
                ("url", settings.url.is_some()),
                ("method", settings.method.is_some()),
                ("headers", !settings.headers.is_empty()),
                ("body", settings.body.is_some()),
                ("request", !settings.request.is_empty()),
                ("host", settings.host.is_some()),
                ("expected_response", settings.expected_response.is_some()),
                ("expect_header", settings.expect_header.is_some()),
                ("expect_body", settings.expect_body.is_some()),
                ("compat", settings.compat.is_some()),
            ],
        );
        if settings.expect.is_none() {
            self.forbid(
                "a tcp probe without expect",
                "remove it, or add expect",
                &[
                    ("send", settings.send.is_some()),
                    ("body_max", settings.body_max.is_some()),
                    ("proxy_header", settings.proxy_header.is_some()),
                ],
            );
        }
        let bytes_max = self.body_max();
        let kind = match self.pattern("expect", settings.expect.as_deref()) {
            Some(expected) => ProbeKind::Banner { expected, bytes_max },
            None => ProbeKind::Tcp,
        };
        let send = settings.send.clone().unwrap_or_default().into_bytes();
        self.check_length(&["send"], send.len());
        Answer { kind, request: None, send, proxy_header }
    }

    fn at(&self, key: &'a str) -> [Step<'a>; 3] {
        ["probe".into(), self.name.into(), key.into()]
    }

    /// Reports those keys that are given though they say nothing to `whom`.
    fn forbid(&mut self, whom: &str, mend: &str, keys: &[(&'a str, bool)]) {
        for (key, _) in keys.iter().filter(|(_, given)| *given) {
            let place = self.at(key);
            self.report.error(&place, format!("{key} has no meaning for {whom}"), mend);
        }
    }

    fn request(&mut self) -> Request {
        let settings = self.probe;
        if !settings.request.is_empty() {
            self.forbid(
                "a probe whose whole request is given",
                "remove it, or remove request",
                &[
                    ("url", settings.url.is_some()),
                    ("method", settings.method.is_some()),
                    ("headers", !settings.headers.is_empty()),
                    ("body", settings.body.is_some()),
                    ("host", settings.host.is_some()),
                ],
            );
            if settings.request.iter().any(|line| line.contains(['\r', '\n'])) {
                let place = self.at("request");
                let problem = "a line has a line's end in it";
                self.report.error(&place, problem, "write one text for each line");
            }
        }
        for line in &settings.headers {
            self.check_header_line(line);
        }
        let given = [&settings.url, &settings.host, &settings.body];
        let texts = given.into_iter().flatten().chain(&settings.headers).chain(&settings.request);
        let length = texts.map(|text| text.len() + "\r\n".len()).sum();
        self.check_length(&["request", "body", "headers", "url", "host"], length);
        Request {
            method: settings.method.unwrap_or_default().name().to_owned(),
            url: self.url(),
            host: self.host(),
            headers: settings.headers.clone(),
            body: settings.body.clone(),
            raw: settings.request.clone(),
        }
    }

    /// Reports a request of more bytes than one may have, at its probe.
    fn check_length(&mut self, what: &[&str], length: usize) {
        if REQUEST_BYTES_MAX < length {
            let problem =
                format!("what is sent has {length} bytes; {REQUEST_BYTES_MAX} are the most");
            let mend = format!("shorten {}", what.join(", "));
            self.report.error(&["probe".into(), self.name.into()], problem, mend);
        }
    }

    fn check_header_line(&mut self, line: &str) {
        let name = header_name(line);
        let place = self.at("headers");
        if !is_name(name) || !line[name.len()..].starts_with(':') || line.contains(char::is_control)
        {
            let problem = format!("{} is no header line", quoted(line));
            self.report.error(&place, problem, "write it as \"Name: value\"");
            return;
        }
        let mend = match name.to_ascii_lowercase().as_str() {
            "host" => "write it as host = \"…\"",
            "content-length" => "remove it: it is added to a body",
            "transfer-encoding" => "remove it: the body is sent whole",
            _ => return,
        };
        self.report.error(&place, format!("{} cannot be given here", quoted(name)), mend);
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

    fn proxy_header(&mut self) -> Option<ProxyHeader> {
        let place = self.at("proxy_header");
        match self.probe.proxy_header? {
            1 => Some(ProxyHeader::V1Own),
            2 => Some(ProxyHeader::V2Local),
            other => {
                let problem = format!("{other} is no version of the PROXY protocol");
                self.report.error(&place, problem, "write proxy_header = 1 or 2");
                None
            }
        }
    }

    fn expect_header(&mut self) -> Option<WantedHeader> {
        let text = self.probe.expect_header.as_deref()?;
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        if !is_name(name) || value.contains(char::is_control) || PATTERN_BYTES_MAX < text.len() {
            let place = self.at("expect_header");
            let problem = format!("{} is no header", quoted(text));
            self.report.error(&place, problem, "write it as \"Name\" or \"Name: value\"");
            return None;
        }
        Some(WantedHeader {
            name: name.to_ascii_lowercase().into_bytes().into(),
            value: Pattern::new(value.trim().as_bytes()),
        })
    }

    fn pattern(&mut self, key: &'a str, text: Option<&str>) -> Option<Pattern> {
        let text = text?;
        let pattern = Pattern::new(text.as_bytes());
        if pattern.is_none() {
            let place = self.at(key);
            let problem = format!("{key} has {} bytes", text.len());
            let mend = format!("write 1 to {PATTERN_BYTES_MAX}, or leave it out");
            self.report.error(&place, problem, mend);
        }
        pattern
    }

    fn body_max(&mut self) -> u64 {
        let Some(given) = self.probe.body_max else {
            return RESPONSE_BYTES_MAX;
        };
        let place = self.at("body_max");
        let bytes = self.report.whole(&place, given, 1..=BODY_BYTES_MAX).map(u64::from);
        bytes.unwrap_or(RESPONSE_BYTES_MAX)
    }

    fn expected_response(&mut self) -> Statuses {
        let one = |status: i64| StatusEntry::One(status);
        let entries = match self.probe.expected_response.clone() {
            None => return Statuses::only(200),
            Some(StatusSetting::One(status)) => vec![one(status)],
            Some(StatusSetting::Range(text)) => vec![StatusEntry::Range(text)],
            Some(StatusSetting::Several(entries)) => entries,
        };
        if entries.is_empty() {
            let place = self.at("expected_response");
            self.report.error(&place, "no status is good", "write at least one");
        }
        entries.iter().fold(Statuses::NONE, |statuses, entry| match self.range(entry) {
            Some((first, last)) => statuses.with(first, last),
            None => statuses,
        })
    }

    fn range(&mut self, entry: &StatusEntry) -> Option<(u16, u16)> {
        let place = self.at("expected_response");
        let status = |number: i64| {
            u16::try_from(number).ok().filter(|it| (STATUS_MIN..=STATUS_MAX).contains(it))
        };
        match entry {
            StatusEntry::One(number) => {
                let found = status(*number).map(|status| (status, status));
                if found.is_none() {
                    let problem = "Must specify expected_response with exactly three digits \
                                   (100 <= x <= 999)";
                    self.report.error(&place, problem, format!("write a status, not {number}"));
                }
                found
            }
            StatusEntry::Range(text) => {
                let bounds = text.split_once('-').and_then(|(first, last)| {
                    Some((status(first.trim().parse().ok()?)?, status(last.trim().parse().ok()?)?))
                });
                let found = bounds.filter(|(first, last)| first <= last);
                if found.is_none() {
                    let problem = format!("{} is no range of statuses", quoted(text));
                    self.report.error(&place, problem, "write it as \"300-399\"");
                }
                found
            }
        }
    }
}

/// What stands before the colon.
fn header_name(line: &str) -> &str {
    line.split(':').next().unwrap_or(line)
}

/// RFC 9110, section 5.6.2.
fn is_name(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}
