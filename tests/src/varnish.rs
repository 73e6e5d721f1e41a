//! Varnish itself as the oracle: a varnishd with one probed backend per behaviour, and the
//! `Backend_health` records that it logs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sickbay_core::text::Legible;
use sickbay_lab::clock::wait_until;

use crate::script::Address;

/// Records that Varnish logs of a backend before its first poll: creation, and warming up.
pub const RECORDS_BEFORE_POLLS: usize = 2;

/// Parameters of all probes, as VCL writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeParameters {
    /// One deadline.
    pub timeout_ms: u32,
    /// From the end of a poll to the next.
    pub interval_ms: u32,
    /// Results looked at.
    pub window: u8,
    /// Good ones needed.
    pub threshold: u8,
    /// Good ones assumed.
    pub initial: u8,
    /// The status that is good.
    pub expected_response: u16,
    /// The version of the PROXY header before the request; 0 = none. (Of the backends, in VCL.)
    pub proxy_header: u8,
}

/// A record of `Backend_health`: `BACKEND WENT STATE BITS GOOD THRESHOLD WINDOW LAST AVERAGE "TEXT"`.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthRecord {
    /// `Went` or `Still`.
    pub turn: String,
    /// `healthy` or `sick`.
    pub state: String,
    /// Eight characters.
    pub bits: String,
    /// Good results in the window.
    pub good: u32,
    /// Good results needed.
    pub threshold: u32,
    /// Results looked at.
    pub window: u32,
    /// Time of the reception, in s.
    pub last_s: f64,
    /// Moving average, in s.
    pub average_s: f64,
    /// What stands between the quotes; bytes that are not printable ASCII as `\xNN`.
    pub text: String,
}

impl HealthRecord {
    /// Reads what stands behind `Backend_health - `: the backend's name, and its record.
    ///
    /// # Errors
    /// When a field is missing or none.
    pub fn parse(record: &[u8]) -> Result<(String, Self)> {
        let shown = || record.escape_ascii().to_string();
        let fields: Vec<&[u8]> = record.splitn(10, |byte| *byte == b' ').collect();
        ensure!(fields.len() == 10, "not ten fields: {}", shown());
        let word = |index: usize| String::from_utf8_lossy(fields[index]).into_owned();
        let number = |index: usize| word(index).parse::<u32>().with_context(shown);
        let seconds = |index: usize| word(index).parse::<f64>().with_context(shown);
        let quoted = fields[9].strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        let text = quoted.with_context(|| format!("the text is not quoted: {}", shown()))?;
        let record = Self {
            turn: word(1),
            state: word(2),
            bits: word(3),
            good: number(4)?,
            threshold: number(5)?,
            window: number(6)?,
            last_s: seconds(7)?,
            average_s: seconds(8)?,
            // sickbay's is escaped already, which leaves nothing to escape.
            text: Legible(text).to_string(),
        };
        Ok((word(0), record))
    }
}

/// Records by backend, in the order they were logged.
pub type Records = BTreeMap<String, Vec<HealthRecord>>;

/// Reads the lines `0 Backend_health - RECORD` of a log.
///
/// # Errors
/// When a line is none.
pub fn read_log(log: &[u8]) -> Result<Records> {
    let mut records = Records::new();
    for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let start = line.iter().position(|byte| *byte != b' ').unwrap_or(0);
        let record = line[start..]
            .strip_prefix(b"0 Backend_health - ")
            .with_context(|| format!("not a record: {}", line.escape_ascii()))?;
        let (name, record) = HealthRecord::parse(record)?;
        records.entry(name).or_default().push(record);
    }
    Ok(records)
}

/// A running varnishd. Dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Varnish {
    process: Child,
    directory: PathBuf,
}

impl Varnish {
    /// Starts varnishd with a probed backend for each name and address.
    ///
    /// # Errors
    /// When the Debian package `varnish` is not installed, or varnishd ends at once.
    pub fn start(
        directory: &Path,
        backends: &[(&str, Address)],
        probe: ProbeParameters,
    ) -> Result<Self> {
        Self::of_vcl(directory, &vcl(backends, probe), false)
    }

    /// Starts varnishd with this VCL; of a host with two families `prefer_ipv6` has IPv6 go first.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn of_vcl(directory: &Path, text: &str, prefer_ipv6: bool) -> Result<Self> {
        fs::create_dir_all(directory).context("cannot make varnishd's directory")?;
        let file = directory.join("conformance.vcl");
        fs::write(&file, text).context("cannot write the VCL")?;
        let output = fs::File::create(directory.join("output"))?;
        let process = Command::new("varnishd")
            .args(["-F", "-j", "none", "-a", "127.0.0.1:6081", "-s", "malloc,16m"])
            // One default director, and no request: most backends are unused.
            .args(["-p", "vcc_err_unref=off", "-p", "vsl_space=32M", "-p"])
            .arg(if prefer_ipv6 { "prefer_ipv6=on" } else { "prefer_ipv6=off" })
            .arg("-n")
            .arg(directory.join("work"))
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            .spawn()
            .context("cannot start varnishd: install the Debian package varnish")?;
        Ok(Self { process, directory: directory.to_owned() })
    }

    /// Waits until every backend of `count` has had `polls` polls, and gives the records of these
    /// polls, without those before the first.
    ///
    /// # Errors
    /// When `limit` passes first, or varnishd ends.
    pub fn polls(&mut self, count: usize, polls: usize, limit: Duration) -> Result<Records> {
        let wanted = RECORDS_BEFORE_POLLS + polls;
        let waited = wait_until("varnishd has polled enough", limit, || {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return Some(None);
            }
            std::thread::sleep(Duration::from_millis(200));
            let records = self.log().ok()?;
            let enough = |records: &Records| {
                records.len() == count && records.values().all(|all| wanted <= all.len())
            };
            enough(&records).then_some(Some(records))
        })?;
        let Some(mut records) = waited else {
            let output = fs::read_to_string(self.directory.join("output")).unwrap_or_default();
            bail!("varnishd has ended:\n{output}");
        };
        for all in records.values_mut() {
            all.truncate(wanted);
            all.drain(..RECORDS_BEFORE_POLLS);
        }
        Ok(records)
    }

    /// Everything that was logged of backends so far.
    fn log(&self) -> Result<Records> {
        let output = Command::new("varnishlog")
            .args(["-d", "-g", "raw", "-i", "Backend_health", "-n"])
            .arg(self.directory.join("work"))
            .stdin(Stdio::null())
            .output()
            .context("cannot start varnishlog: install the Debian package varnish")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        read_log(&output.stdout)
    }
}

impl Drop for Varnish {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).expect("process numbers are small");
        // It stops its child and then itself. When it has ended already, so much the better.
        let _ended = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let _ended = self.process.wait();
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

fn vcl(backends: &[(&str, Address)], probe: ProbeParameters) -> String {
    let mut text = String::from("vcl 4.1;\n");
    let mut line = |line: String| {
        writeln!(text, "{line}").expect("a String takes all text");
    };
    line(format!(
        "probe p {{ .url = \"/\"; .timeout = {}ms; .interval = {}ms; .window = {}; .threshold = {}; \
         .initial = {}; .expected_response = {}; }}",
        probe.timeout_ms,
        probe.interval_ms,
        probe.window,
        probe.threshold,
        probe.initial,
        probe.expected_response,
    ));
    for (name, address) in backends {
        let place = match address {
            Address::Inet(address) => {
                format!(".host = \"{}\"; .port = \"{}\";", address.ip(), address.port())
            }
            Address::Unix(path) => format!(".path = \"{}\";", path.display()),
        };
        let header = match probe.proxy_header {
            0 => String::new(),
            version => format!(".proxy_header = {version};"),
        };
        line(format!("backend {name} {{ {place} {header} .probe = p; }}"));
    }
    text
}
