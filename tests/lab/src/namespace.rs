//! One unnamed network namespace: it lives as long as a descriptor or a process of its.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace without a name. Clones mean the same one; it vanishes with the last of them
/// and the last process inside.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    descriptor: Arc<OwnedFd>,
}

impl Namespace {
    /// A new, empty namespace with loopback up. `name` is for texts only.
    ///
    /// # Errors
    /// Without the privilege (CAP_SYS_ADMIN), or when `ip` fails.
    pub fn new(name: &str) -> Result<Self> {
        // unshare moves the thread that calls it, so one that ends right after does.
        let made = on_own_thread(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
            bring_loopback_up()?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        Ok(Self { name: name.to_owned(), descriptor: Arc::new(made?.into()) })
    }

    /// What it is called in texts.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a fresh thread inside.
    ///
    /// # Panics
    /// When `work` does, or the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_own_thread(|| {
            self.enter();
            work()
        })
    }

    /// Moves the calling thread inside, for good. For threads made for this namespace.
    ///
    /// # Panics
    /// Without the privilege.
    pub fn enter(&self) {
        setns(&*self.descriptor, CloneFlags::CLONE_NEWNET).expect("the namespace can be entered");
    }

    /// Starts `command` inside. The private environment's end is the child's end too.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let program = command.get_program().to_owned();
        self.run(|| command.spawn()).with_context(|| format!("cannot start {}", program.display()))
    }

    /// Runs a command inside to its end and returns what it printed.
    ///
    /// # Errors
    /// When it cannot be started or fails; the text carries its standard error.
    pub fn tool(&self, words: &[&str]) -> Result<String> {
        self.run(|| run_tool(words, ""))
            .with_context(|| format!("in the namespace of {}", self.name))
    }

    /// Runs `ip -batch` inside over `lines`.
    ///
    /// # Errors
    /// When a line fails.
    pub fn ip(&self, lines: &str) -> Result<()> {
        self.run(|| run_tool(&["ip", "-batch", "-"], lines))
            .with_context(|| format!("in the namespace of {}", self.name))?;
        Ok(())
    }

    /// Sets `/proc/sys/net/<key>` inside.
    ///
    /// # Errors
    /// When the kernel does not know the key or refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.run(|| fs::write(&path, value)).with_context(|| format!("cannot set {path}"))
    }

    /// Index of a network interface inside.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn interface_index(&self, interface: &str) -> Result<u32> {
        self.run(|| nix::net::if_::if_nametoindex(interface))
            .with_context(|| format!("no interface {interface} in {}", self.name))
    }

    /// A path to the namespace that other processes may open while this one lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }
}

/// Brings loopback up in the namespace of the calling thread.
///
/// # Errors
/// When `ip` is missing or refuses.
pub(crate) fn bring_loopback_up() -> Result<()> {
    run_tool(&["ip", "link", "set", "lo", "up"], "")?;
    Ok(())
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run_tool(words: &[&str], input: &str) -> Result<String> {
    let [program, arguments @ ..] = words else { bail!("no command given") };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}): {}", words.join(" "), output.status, error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
