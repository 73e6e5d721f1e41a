//! The agent as a service: what the service manager is told, what the unit allows, what the package
//! puts where.
#![expect(clippy::unwrap_used, reason = "the helpers of a test panic as the test does")]

/// The unit under a real systemd.
mod booted;
/// Ready, alive, reloading, stopping.
mod manager;
/// The Debian package, installed and removed in a root of its own.
mod package;
/// A root file system for it.
mod root;
/// The unit file, and a process held to what it says.
mod unit;

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sickbay_lab::agent::{PIN_DIRECTORY, binary};
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::Configuration;
use sickbay_lab::network::Network;
use sickbay_lab::nginx::Nginx;
use sickbay_lab::private;
use sickbay_lab::stage::serve;

/// What has not come by then does not come, busy as the machine may be.
const PATIENCE: Duration = Duration::from_secs(30);
/// The watchdog's time; a quarter of it is longer than a probing thread may be silent.
const WATCHDOG: Duration = Duration::from_secs(3);

/// An agent over two backends, a probing thread each, started as the unit has it started. Dropping
/// it kills it; what it pinned goes with the private environment.
struct Service {
    child: Child,
    manager: UnixDatagram,
    directory: PathBuf,
    instance: String,
    _servers: Vec<Option<Nginx>>,
    network: Network,
}

impl Service {
    fn start() -> Self {
        private::require();
        let network = Network::new(2).unwrap();
        let servers = serve(&network);
        let configuration = Configuration::usual();
        let text = configuration.text(&network).replace("shards = 1", "shards = 2");
        let directory = private::scratch().join(format!("service-{}", monotonic_ns()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("sickbay.toml"), text).unwrap();
        let manager = UnixDatagram::bind(directory.join("notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        let log = File::create(directory.join("log")).unwrap();
        let mut command = unit::confined(binary().unwrap().as_os_str());
        command
            .arg("run")
            .arg("-c")
            .arg(directory.join("sickbay.toml"))
            .env("NOTIFY_SOCKET", directory.join("notify"))
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = network.host.namespace.spawn(&mut command).unwrap();
        let instance = configuration.instance;
        Self { child, manager, directory, instance, _servers: servers, network }
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join("sickbay.toml")
    }

    fn pins(&self) -> PathBuf {
        PathBuf::from(PIN_DIRECTORY).join(&self.instance)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn process(&self) -> Pid {
        // setpriv became the agent: it is the child itself.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(self.process(), signal).unwrap();
    }

    /// What the manager was told since it last listened.
    fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut datagram = [0; 4096];
        while let Ok(length) = self.manager.recv(&mut datagram) {
            told.push(String::from_utf8(datagram[..length].to_vec()).unwrap());
        }
        told
    }

    /// Waits for a message that begins with this; it, and all that came before it.
    fn wait_for(&self, begin: &str) -> (String, Vec<String>) {
        let mut before = Vec::new();
        let found = wait_until(&format!("the manager is told {begin}"), PATIENCE, || {
            let mut datagram = [0; 4096];
            while let Ok(length) = self.manager.recv(&mut datagram) {
                let text = String::from_utf8(datagram[..length].to_vec()).unwrap();
                if text.starts_with(begin) {
                    return Some(text);
                }
                before.push(text);
            }
            None
        });
        match found {
            Ok(text) => (text, before),
            Err(error) => panic!("{error}; told {before:?}; the agent said:\n{}", self.said()),
        }
    }

    /// Runs `sickbay` with these words where the agent runs, without being held to the unit.
    fn sickbay(&self, words: &[&str]) -> std::process::Output {
        let mut command = Command::new(binary().unwrap());
        command.args(words);
        self.network.host.namespace.run(|| command.output()).unwrap()
    }

    fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        wait_until("the agent has ended", PATIENCE, || self.child.try_wait().unwrap()).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It may have ended in between.
            let _ended = self.child.kill();
            let _ended = self.child.wait();
        }
        let detached = self.sickbay(&["detach", "-c", &self.configuration().to_string_lossy()]);
        if !detached.status.success() {
            eprintln!("not detached: {}", String::from_utf8_lossy(&detached.stderr));
        }
    }
}
