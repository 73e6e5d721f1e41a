//! What operators look at: metrics as a real Prometheus reads them, and the history on disk, while
//! servers die, scrapers hang, the agent crashes and the disk is full.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// Bytes that a backend sends and that must not reach an output as they are.
mod escaping;
/// The history over crashes and a full disk.
mod history;
/// promtool, Prometheus, and scrapers without manners.
mod prometheus;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use sickbay_lab::configuration::Configuration;
use sickbay_lab::namespace::Namespace;

/// Where the agents of these tests have their metrics, each in a namespace of its own.
const METRICS: &str = "127.0.0.1:9990";

/// The usual agent, with metrics.
fn observed() -> Configuration {
    let agent = format!("metrics = \"{METRICS}\"\nmetrics_per_target = true\n");
    Configuration { agent, ..Configuration::usual() }
}

/// Asks by HTTP inside the namespace; head and body, as far as they came: one that is refused may see
/// a reset behind the response.
fn ask(namespace: &Namespace, address: &str, path: &str) -> std::io::Result<(String, String)> {
    let response = namespace.run(|| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        let mut response = Vec::new();
        let _reset = stream.write_all(request.as_bytes());
        let _reset = stream.read_to_end(&mut response);
        std::io::Result::Ok(String::from_utf8(response).unwrap())
    })?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    Ok((head.to_owned(), body.to_owned()))
}

/// The agent's metrics.
fn scraped(namespace: &Namespace) -> String {
    let (head, body) = ask(namespace, METRICS, "/metrics").unwrap();
    assert!(head.contains(" 200 "), "{head}");
    body
}

/// The value of a sample, as it is now.
fn value(namespace: &Namespace, sample: &str) -> Option<f64> {
    let text = scraped(namespace);
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}
