//! A real proxy in a namespace: HAProxy, listening on a TCP port and on a unix socket, with nothing
//! on disk outside the scratch directory.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};

use crate::clock::wait_until;
use crate::namespace::Namespace;
use crate::nginx::process_of;
use crate::private;

/// A machine needs this long at most to start or stop it, busy as it may be.
const PATIENCE: Duration = Duration::from_secs(10);

/// One running HAProxy. It answers `/healthz` with 200 itself; for every other path it has a backend
/// without servers, and so answers with its own 503.
#[derive(Debug)]
pub struct Haproxy {
    child: Child,
    directory: PathBuf,
}

impl Haproxy {
    /// Starts HAProxy inside `namespace` on `port` of every IPv4 address, and waits until it
    /// listens. One of the same name has the same unix socket.
    ///
    /// # Errors
    /// When HAProxy is missing, refuses its configuration, or does not listen in time.
    pub fn start(namespace: &Namespace, name: &str, port: u16) -> Result<Self> {
        let directory = directory(name);
        Self::start_with(namespace, name, port, &configuration_text(port, &directory))
    }

    /// The same with a configuration of the caller's, which listens on `port` of every IPv4
    /// address. It need not have a unix socket.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(namespace: &Namespace, name: &str, port: u16, text: &str) -> Result<Self> {
        let directory = directory(name);
        fs::create_dir_all(&directory)?;
        let configuration = directory.join("haproxy.cfg");
        fs::write(&configuration, text)?;
        let log = fs::File::create(directory.join("log"))?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = namespace
            .spawn(&mut command)
            .context("HAProxy cannot be started; it is in Debian's package haproxy")?;
        let mut haproxy = Self { child, directory };
        haproxy.wait_until_listening(namespace, port).with_context(|| {
            let log = fs::read_to_string(haproxy.directory.join("log"));
            format!("HAProxy said: {}", log.unwrap_or_default().trim())
        })?;
        Ok(haproxy)
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    /// Ends it (SIGTERM: connections are cut) and waits for that.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<()> {
        self.terminate()
    }

    fn wait_until_listening(&mut self, namespace: &Namespace, port: u16) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until(&format!("HAProxy listens on {address}"), PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(Err(status));
            }
            namespace.run(|| TcpStream::connect(address)).ok().map(|_| Ok(()))
        })?
        .or_else(|status| bail!("HAProxy ended: {status}"))
    }

    fn terminate(&mut self) -> Result<()> {
        kill(process_of(&self.child), Signal::SIGTERM).context("cannot stop HAProxy")?;
        wait_until("HAProxy has ended", PATIENCE, || self.child.try_wait().ok()?)?;
        let _ = fs::remove_dir_all(&self.directory);
        Ok(())
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // Already waited for: its number may be somebody else's by now.
        if let Ok(None) = self.child.try_wait()
            && self.terminate().is_err()
        {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn directory(name: &str) -> PathBuf {
    private::scratch().join(format!("haproxy-{name}"))
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("haproxy.sock")
}

fn configuration_text(port: u16, directory: &Path) -> String {
    format!(
        "global
    maxconn 1000
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend web
    bind 0.0.0.0:{port}
    bind unix@{}
    http-request return status 200 content-type text/plain string ok if {{ path /healthz }}
    default_backend nobody
backend nobody
",
        socket(directory).display()
    )
}
