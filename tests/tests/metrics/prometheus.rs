//! promtool, Prometheus, and scrapers without manners.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sickbay::control::metrics::CONNECTIONS_MAX;
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::namespace::Namespace;
use sickbay_lab::private;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

use super::{METRICS, ask, observed, scraped};

/// Where Prometheus answers.
const PROMETHEUS: &str = "127.0.0.1:9991";

/// A running Prometheus that scrapes the agent. Dropped, it is ended.
struct Prometheus {
    child: Child,
    namespace: Namespace,
}

impl Prometheus {
    fn start(namespace: &Namespace) -> Self {
        let directory = private::scratch().join(format!("prometheus-{}", monotonic_ns()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\nscrape_configs:\n\
             - job_name: sickbay\n  static_configs:\n  - targets: [\"{METRICS}\"]\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
        command.arg(format!("--web.listen-address={PROMETHEUS}"));
        command.arg("--log.level=error").stdin(Stdio::null());
        Self { child: namespace.spawn(&mut command).unwrap(), namespace: namespace.clone() }
    }

    /// The only value of an expression, if it has one now.
    fn value(&self, expression: &str) -> Option<f64> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/api/v1/query?query={escaped}");
        let (_, body) = ask(&self.namespace, PROMETHEUS, &path).ok()?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    #[track_caller]
    fn wait_for(&self, expression: &str, value: f64) {
        wait_until(&format!("{expression} is {value}"), PATIENCE, || {
            (self.value(expression) == Some(value)).then_some(())
        })
        .unwrap();
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_the_agent_and_sees_a_backend_die() {
    let mut stage = Stage::new(3, &observed()).unwrap();
    stage.wait_for_healthy(3).unwrap();
    let prometheus = Prometheus::start(&stage.network.host.namespace);
    prometheus.wait_for("up{job=\"sickbay\"}", 1.0);
    prometheus.wait_for("sickbay_pool_backends{pool=\"web\",state=\"healthy\"}", 3.0);
    prometheus.wait_for("sickbay_attached{program=\"xdp\"}", 1.0);
    stage.servers[1].take().unwrap().stop().unwrap();
    prometheus.wait_for("sickbay_pool_backends{pool=\"web\",state=\"sick\"}", 1.0);
    prometheus.wait_for("sickbay_pool_backends_taking_new_flows{pool=\"web\"}", 2.0);
    prometheus.wait_for("sickbay_transitions_total{pool=\"web\",to=\"sick\"}", 1.0);
    prometheus.wait_for("sum(sickbay_backend_takes_new_flows)", 2.0);
    prometheus.wait_for("sickbay_history_failing", 0.0);
    for (expression, low, high) in [
        // Probes of three backends, five a second each; a busy machine skips some.
        ("sum(rate(sickbay_probes_total[5s]))", 1.0, 60.0),
        ("sum(sickbay_probes_total{outcome=\"bad\",cause=\"refused\"})", 2.0, f64::INFINITY),
        ("sum(sickbay_probes_total{outcome=\"indeterminate\"})", 0.0, 0.0),
        ("sickbay_publish_latency_seconds_count", 4.0, 4.0),
        ("sickbay_pool_last_probe_age_seconds", 0.0, 20.0),
        ("sickbay_shard_heartbeat_age_seconds", 0.0, 20.0),
        ("process_open_fds / process_max_fds", 0.000_001, 0.9),
    ] {
        let within = || prometheus.value(expression).filter(|it| low <= *it && *it <= high);
        let value = wait_until(&format!("{expression} in {low}..={high}"), PATIENCE, within);
        show(&format!("{expression} = {}", value.unwrap()));
    }
    for (what, name) in [
        ("probe", "sickbay_probe_duration_seconds"),
        ("lateness", "sickbay_schedule_lateness_seconds"),
        ("from result to store", "sickbay_publish_latency_seconds"),
    ] {
        let expression = format!("histogram_quantile(0.5, sum by (le) ({name}_bucket))");
        let median = wait_until(&expression, PATIENCE, || {
            prometheus.value(&expression).filter(|value| value.is_finite())
        });
        show(&format!("{what}, median as Prometheus reckons it: {:.6} s", median.unwrap()));
    }
}

#[test]
fn promtool_finds_nothing_to_object_to() {
    let stage = Stage::new(2, &observed()).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let text = scraped(&stage.network.host.namespace);
    let promtool = |text: &str| {
        let mut command = Command::new("promtool");
        command.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    assert_eq!(promtool(&text), (Some(0), String::new()));
    let families = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    show(&format!("promtool check metrics: {families} families, {series} series, no objection"));
    // That it would object: a counter without its ending.
    let (code, said) = promtool(&text.replace("sickbay_late_probes_total", "sickbay_late_probes"));
    assert!(code != Some(0) && said.contains("_total"), "{code:?} {said}");
}

#[test]
fn stuck_scrapers_hold_up_neither_probes_nor_operators() {
    let mut stage = Stage::new(2, &observed()).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let namespace = stage.network.host.namespace.clone();
    let stuck: Vec<TcpStream> = namespace.run(|| {
        let stream = |_| {
            let mut stream = TcpStream::connect(METRICS).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            stream
        };
        (0..CONNECTIONS_MAX).map(stream).collect()
    });
    let (head, _) = ask(&namespace, METRICS, "/metrics").unwrap();
    assert!(head.contains(" 503 "), "{head}");
    stage.servers[0].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(1).unwrap();
    stage.restart(0).unwrap();
    stage.wait_for_healthy(2).unwrap();
    // They hold their connections, not the port: when their time is over it is free again.
    let again = wait_until("the port is free again", Duration::from_secs(60), || {
        let (head, _) = ask(&namespace, METRICS, "/metrics").ok()?;
        head.contains(" 200 ").then_some(())
    });
    again.unwrap();
    drop(stuck);
    let indeterminate = scraped(&namespace);
    let late = indeterminate
        .lines()
        .filter(|line| line.contains("cause=\"loop_late\"") || line.contains("cause=\"no_slot\""))
        .filter(|line| !line.ends_with(" 0"))
        .count();
    assert_eq!(late, 0, "{indeterminate}");
}
