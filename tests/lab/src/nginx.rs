//! A real web server in a namespace: nginx, with nothing on disk outside the scratch directory.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::{monotonic_ns, wait_until};
use crate::namespace::Namespace;
use crate::private;

/// A machine needs this long at most to start or stop nginx, busy as it may be.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of [`DOWNLOAD`].
pub const DOWNLOAD_BYTES: u64 = 100 << 20;
/// A file that each server sends at 6 MiB a second, so in some seventeen.
pub const DOWNLOAD: &str = "/download";

/// One running nginx. It answers `/healthz` with 200, [`DOWNLOAD`] slowly, and every other path
/// with its name, in the body and in the header `X-Backend`.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    directory: PathBuf,
}

/// When a server was told to stop and when it was gone, CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Just before the signal.
    pub asked_ns: u64,
    /// When its process had ended.
    pub gone_ns: u64,
}

impl Nginx {
    /// Starts nginx inside `namespace` on `port` of every address, IPv4 and IPv6, and waits until
    /// it listens.
    ///
    /// # Errors
    /// When nginx is missing, refuses its configuration, or does not listen in time.
    pub fn start(namespace: &Namespace, name: &str, port: u16) -> Result<Self> {
        let directory = private::scratch().join(format!("nginx-{name}-{}", monotonic_ns()));
        fs::create_dir_all(&directory)?;
        let configuration = directory.join("nginx.conf");
        fs::write(&configuration, configuration_text(name, port, &directory))?;
        // It takes no room: nothing was ever written into it.
        File::create(directory.join(&DOWNLOAD[1..]))?.set_len(DOWNLOAD_BYTES)?;
        let log = directory.join("error.log");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&directory).arg("-c").arg(&configuration).arg("-e").arg(&log);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut nginx = Self { child: namespace.spawn(&mut command)?, directory };
        nginx.wait_until_listening(namespace, name, port).with_context(|| {
            format!("nginx said: {}", fs::read_to_string(&log).unwrap_or_default().trim())
        })?;
        Ok(nginx)
    }

    /// Tells it to stop (SIGTERM, the fast way: open connections are cut) and waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<Stopped> {
        let asked_ns = monotonic_ns();
        self.terminate()?;
        Ok(Stopped { asked_ns, gone_ns: monotonic_ns() })
    }

    fn wait_until_listening(&mut self, namespace: &Namespace, name: &str, port: u16) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until(&format!("{name} listens on {address}"), PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(Err(status));
            }
            namespace.run(|| TcpStream::connect(address)).ok().map(|_| Ok(()))
        })?
        .or_else(|status| bail!("{name} ended: {status}"))
    }

    fn terminate(&mut self) -> Result<()> {
        kill(process_of(&self.child), Signal::SIGTERM).context("cannot stop nginx")?;
        let status = wait_until("nginx has ended", PATIENCE, || self.child.try_wait().ok()?)?;
        if let Some(signal) = status.signal() {
            bail!("nginx died of signal {signal}");
        }
        let _ = fs::remove_dir_all(&self.directory);
        Ok(())
    }
}

impl Drop for Nginx {
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

pub(crate) fn process_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive i32"))
}

fn configuration_text(name: &str, port: u16, directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "daemon off;
user root;
pid {directory}/nginx.pid;
worker_processes 1;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    default_type text/plain;
    keepalive_timeout 600s;
    keepalive_requests 10000000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 0.0.0.0:{port} backlog=1024;
        listen [::]:{port} ipv6only=on backlog=1024;
        location = /healthz {{ return 200 \"ok\\n\"; }}
        location = {DOWNLOAD} {{ root {directory}; limit_rate 6m; add_header X-Backend {name}; }}
        location / {{ add_header X-Backend {name} always; return 200 \"{name}\\n\"; }}
    }}
}}
"
    )
}
