//! The configuration file as it is written: the structs that serde reads, and whose comments are
//! the operator's manual. [`super::example`] prints them.
//!
//! A key that has to be told from its default is an `Option`. Ranges and references are not
//! checked here but in the validation beside this file, which can say where and how to mend.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fleet::{CloseMode, XdpMode};
use crate::log::LogFormat;

/// Names in the DNS.
mod names;
/// Pools and their backends.
mod pool;
/// What the agent gives up.
mod privilege;
/// Services.
mod service;
/// What the kernel program may spend, and the guard against faults of this host.
mod steering;

pub use self::names::{DnsSettings, NameEntry, NameSettings};
pub use self::pool::{BackendEntry, BackendSettings, PoolSettings, ProbeNames};
pub use self::privilege::PrivilegeSettings;
pub use self::service::{PortEntry, PortSetting, ProtocolSetting, ServiceSettings};
pub use self::steering::{GuardSettings, SteeringSettings};

/// The configuration of one sickbay instance.
///
/// Keys that stand here as comments show their default, or an example where there is none.
/// Times are text with a unit: "500ms", "5s", "1m". Check a changed file with
/// `sickbay check -c FILE`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The agent itself. All of it may be left out.
    pub agent: AgentSettings,
    /// How to probe. One table per probe, `[probe.NAME]`; pools refer to it by name.
    pub probe: BTreeMap<String, ProbeSettings>,
    /// Sets of backends, `[pool.NAME]`, each with the probe that judges its backends.
    pub pool: BTreeMap<String, PoolSettings>,
    /// What traffic is steered, `[service.NAME]`: a virtual address and port, and the pool that
    /// its flows go to. Without services sickbay only probes.
    pub service: BTreeMap<String, ServiceSettings>,
    /// The interfaces on which the services' traffic comes in, one `[[attach]]` each.
    pub attach: Vec<AttachSettings>,
    /// What the kernel program may spend. All of it may be left out.
    pub steering: SteeringSettings,
    /// How names of `backends_dns` are looked up. All of it may be left out.
    pub dns: DnsSettings,
    /// Holds the last verdicts when many backends of a pool turn sick at once and the fault looks
    /// like this host's own. Off unless share is given.
    pub guard: GuardSettings,
    /// What the agent gives up when it has started. All of it may be left out; a change needs a
    /// restart.
    pub privilege: PrivilegeSettings,
}

/// A time as text with a unit, such as "500ms", "5s" or "1m 30s".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("format" = "duration"))]
pub struct TimeText(pub String);

impl From<&str> for TimeText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The agent itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Name of this instance: letters, digits, "-", "_". Instances of different names run
    /// side by side.
    pub instance: String,
    /// Where maps and links are pinned, on a bpf file system; the instance name is appended.
    pub pin_directory: String,
    /// Where the admin socket stands; the instance name is appended.
    pub run_directory: String,
    /// A group whose members may look at the agent through its admin socket and read its history,
    /// and change nothing. Nobody but root when not given.
    #[schemars(example = &"sickbay")]
    pub read_group: Option<String>,
    /// Where the history of events and what operators said are kept; the instance name is appended.
    pub state_directory: String,
    /// Probing threads; 0 is one per CPU that the agent may use. At most 256.
    pub shards: i64,
    /// Probes in flight at once, per probing thread: 2 to 65536. Targets that are sick, or whose
    /// last probe ran into its timeout, hold at most half of them.
    pub in_flight: i64,
    /// Steering begins when every target has its first verdict, or after this time.
    pub start_timeout: TimeText,
    /// Mixed into the tables and the flow hash. Hosts that share it and the services choose the
    /// same backend for a flow.
    pub seed: i64,
    /// Whether the agent reads this file again by itself when it has changed, as `sickbay reload`
    /// does: one that is wrong is refused with a line in the log, and what is in force stays. Files
    /// of backends and names are followed in any case.
    pub watch_config: bool,
    /// Where Prometheus reads the metrics (path /metrics), "ADDRESS:PORT" on loopback: nobody is
    /// asked who he is. Off when not given.
    #[schemars(example = &"127.0.0.1:9990")]
    pub metrics: Option<String>,
    /// Whether each backend has metrics of its own, some 13 series each: 50,000 backends are
    /// some 60 MB at every scrape. What its pool sums up is there in any case.
    pub metrics_per_target: bool,
    /// Whether transitions and alarms are written down below state_directory, for
    /// `sickbay history`.
    pub history: bool,
    /// Bytes that the history takes at most; the oldest goes first: 1048576 (1 MiB) to 2147483648 (2
    /// GiB). An event takes some 300.
    pub history_bytes: i64,
    /// How log lines are written. `--log-format` goes before it.
    pub log_format: LogFormat,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            instance: "default".to_owned(),
            pin_directory: "/sys/fs/bpf/sickbay".to_owned(),
            run_directory: "/run/sickbay".to_owned(),
            read_group: None,
            state_directory: "/var/lib/sickbay".to_owned(),
            shards: 0,
            in_flight: 1024,
            start_timeout: "10s".into(),
            seed: 0,
            watch_config: false,
            metrics: None,
            metrics_per_target: false,
            history: true,
            history_bytes: 64 << 20,
            log_format: LogFormat::default(),
        }
    }
}

/// How to probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeSettings {
    /// What is asked of the backend.
    pub r#type: ProbeType,
    /// Path and query that is asked for; http only; "/" when not given. Let it do what real
    /// requests need (a trivial database query, say): a static page only shows that the web server
    /// is up.
    #[schemars(example = "/healthz", extend("x-live" = true))]
    pub url: Option<String>,
    /// The request's method; http only; GET when not given.
    #[schemars(example = &"GET")]
    pub method: Option<Method>,
    /// Header lines to add, "Name: value" each; http only. A User-Agent or Connection given here
    /// replaces the one that is sent otherwise.
    #[schemars(example = ["X-Probe: sickbay"])]
    pub headers: Vec<String>,
    /// The request's body; http only. Its Content-Length is added.
    #[schemars(example = &"{}")]
    pub body: Option<String>,
    /// The whole request instead of url, method, host, headers and body; http only. Each line gets
    /// a CRLF, and one more ends the request. Nothing else is added: "Connection: close" is yours.
    #[schemars(example = ["GET / HTTP/1.1", "Host: www.example.com", "Connection: close"])]
    pub request: Vec<String>,
    /// The Host header; http only. When not given it is the backend's address as it is written,
    /// IPv6 in brackets, followed by the port unless that is 80; for a unix socket it is 0.0.0.0, as
    /// with Varnish.
    #[schemars(example = "www.example.com")]
    pub host: Option<String>,
    /// The status that is good, 100 to 999, or several: [200, 204, "300-399"]; http only; 200 when
    /// not given. A redirect is not followed.
    #[schemars(example = StatusSetting::One(200))]
    pub expected_response: Option<StatusSetting>,
    /// A header that a good response has, and a text that stands in its value: "X-Ready: yes";
    /// http only. The name may be in any case; without a value it need only be there.
    #[schemars(example = &"X-Ready: yes")]
    pub expect_header: Option<String>,
    /// A text that stands in a good response's body; http only.
    #[schemars(example = &"ok")]
    pub expect_body: Option<String>,
    /// Bytes that are read at most to find expect_body or expect: 1 to 16777216; 65536 when not
    /// given.
    #[schemars(example = 65536)]
    pub body_max: Option<i64>,
    /// Text that is sent once the connection is open, "\r\n" for a line's end; tcp only, with
    /// expect.
    #[schemars(example = &"PING\r\n")]
    pub send: Option<String>,
    /// Text that must come; tcp only. Without it a connection that opens is good.
    #[schemars(example = &"+PONG")]
    pub expect: Option<String>,
    /// A PROXY header before the request: 2 sends version 2's LOCAL, the header of a connection
    /// that the proxy opens for itself; 1 sends version 1 with the connection's own address on both
    /// sides, as Varnish does, and costs a descriptor of the process while it connects.
    #[schemars(example = 2)]
    pub proxy_header: Option<i64>,
    /// From the start of one probe to the start of the next, "10ms" to "24h".
    pub interval: TimeText,
    /// The interval while the last result disagrees with a pool's verdict, and until there is one:
    /// counted from the last probe. Not longer than interval, which it is when not given.
    #[schemars(example = TimeText::from("1s"))]
    pub interval_fast: Option<TimeText>,
    /// The interval while the backend is sick and the last result agrees; that of interval when not
    /// given. A longer one spares a dead backend, and is slower to see it recover.
    #[schemars(example = TimeText::from("30s"))]
    pub interval_sick: Option<TimeText>,
    /// Each probe is late by its own share of this part of the interval, "0%" to "50%". The rate
    /// stays the same on average; probes of one backend by several hosts drift apart.
    #[schemars(example = &"10%")]
    pub jitter: Option<String>,
    /// One deadline for the whole probe, connect to end of response: "1ms" to "1h". Keep it below
    /// the interval: probes of a backend never overlap, so one that takes longer delays the next.
    pub timeout: TimeText,
    /// Results that are looked at, the newest ones: 1 to 64. 8 when neither window nor threshold is
    /// given; with it the threshold must be given. A larger window is smoother, a smaller one
    /// quicker.
    #[schemars(example = 8)]
    pub window: Option<i64>,
    /// Good results in the window that make a backend healthy: 1 to window. 3 when not given. Given
    /// alone, the window is one more, 64 at most.
    #[schemars(example = 3)]
    pub threshold: Option<i64>,
    /// Good results assumed before the first probe; threshold - 1 (or rise - 1) when not given: the
    /// first good probe makes a backend healthy. More than the threshold has no effect.
    #[schemars(example = 2)]
    pub initial: Option<i64>,
    /// Instead of window and threshold: bad results in a row that make a backend sick, 1 to 64;
    /// 3 when only rise is given.
    #[schemars(example = 3)]
    pub fall: Option<i64>,
    /// Instead of window and threshold: good results in a row that make a backend healthy, 1 to 64;
    /// 2 when only fall is given.
    #[schemars(example = 2)]
    pub rise: Option<i64>,
    /// The address that probes come from; one of this host's. Needs kernel 6.11.
    #[schemars(example = &"192.0.2.250")]
    pub source: Option<String>,
    /// The interface that probes leave by (SO_BINDTODEVICE). Needs kernel 6.7.
    #[schemars(example = &"eth1")]
    pub interface: Option<String>,
    /// The mark of the probes' packets (SO_MARK), for routing rules: 1 to 4294967295. Needs
    /// CAP_NET_ADMIN and kernel 6.7.
    #[schemars(example = 100)]
    pub mark: Option<i64>,
    /// Whose behaviour the probe has; http only; its own when not given.
    #[schemars(example = &"varnish")]
    pub compat: Option<CompatSetting>,
    /// With compat only: whether a backend that does not close the connection in time has failed
    /// (true, the default, as Varnish 7.1 and older always have it); false judges what has come by
    /// then. Without compat the response's framing ends it.
    #[schemars(example = true)]
    pub expect_close: Option<bool>,
    /// How a probe's connection is closed.
    pub close: CloseMode,
    /// What becomes of the verdict when this host could not probe (no descriptors, no memory, …)
    /// for ten intervals, and 30s at least.
    pub on_unknown: UnknownPolicy,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self {
            r#type: ProbeType::default(),
            url: None,
            method: None,
            headers: Vec::new(),
            body: None,
            request: Vec::new(),
            host: None,
            expected_response: None,
            expect_header: None,
            expect_body: None,
            body_max: None,
            send: None,
            expect: None,
            proxy_header: None,
            interval: "5s".into(),
            interval_fast: None,
            interval_sick: None,
            jitter: None,
            timeout: "2s".into(),
            window: None,
            threshold: None,
            initial: None,
            fall: None,
            rise: None,
            source: None,
            interface: None,
            mark: None,
            compat: None,
            expect_close: None,
            close: CloseMode::default(),
            on_unknown: UnknownPolicy::default(),
        }
    }
}

/// What is asked of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeType {
    /// An HTTP/1.1 request; good is the expected response.
    #[default]
    Http,
    /// A TCP connection; good is that it opens.
    Tcp,
}

/// The method of an HTTP probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// With the body.
    #[default]
    Get,
    /// Without the body.
    Head,
    /// As a form or a call would.
    Post,
    /// To store.
    Put,
    /// What the server can do.
    Options,
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Options => "OPTIONS",
        }
    }
}

/// The statuses that are good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("format" = "statuses"))]
pub enum StatusSetting {
    /// One.
    One(i64),
    /// A range.
    Range(String),
    /// Several of them.
    Several(Vec<StatusEntry>),
}

/// One of several statuses that are good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusEntry {
    /// One.
    One(i64),
    /// `FIRST-LAST`.
    Range(String),
}

/// Whose behaviour a probe has.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum CompatSetting {
    /// Varnish's (7.1.1): the same outcome, bits and text for each probe. The response ends when
    /// the backend closes, its first line is read leniently, informational responses are not
    /// passed over, the interval runs from one probe's end to the next one's start, and initial
    /// weighs on the average.
    Varnish,
}

/// What becomes of the verdict over a target of which nothing is known any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownPolicy {
    /// The last verdict holds.
    #[default]
    Keep,
    /// Sick until the next result.
    Sick,
}

/// An interface on which services' traffic comes in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AttachSettings {
    /// Name of the interface.
    #[schemars(example = &"eth0", extend("x-live" = true))]
    pub interface: Option<String>,
    /// Which program does the steering there.
    pub program: ProgramSetting,
    /// How the XDP program is run; xdp only; "auto" when not given.
    #[schemars(example = &"auto")]
    pub xdp_mode: Option<XdpMode>,
}

/// Which program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProgramSetting {
    /// Before the stack sees the packet: the fastest.
    #[default]
    Xdp,
    /// At TC ingress: for interfaces where XDP cannot run.
    Tc,
}
