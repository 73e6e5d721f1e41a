//! The agent in a namespace: the built binary, run as an operator runs it.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::board::Board;
use crate::clock::{monotonic_ns, wait_until};
use crate::namespace::Namespace;
use crate::nginx::process_of;
use crate::private;

/// Names another binary than the one built beside this program.
pub const BINARY_VARIABLE: &str = "SICKBAY_BINARY";
/// Where the lab's agents pin, the instance's directory inside.
pub const PIN_DIRECTORY: &str = "/sys/fs/bpf/sickbay";
/// Where the lab's agents put their admin socket, the instance's directory inside.
pub const RUN_DIRECTORY: &str = "/run/sickbay";
/// Where the lab's agents keep what outlives them, the instance's directory inside.
pub const STATE_DIRECTORY: &str = "/run/sickbay-state";
/// Its configuration's file name.
const CONFIGURATION: &str = "sickbay.toml";
/// The agent is up, or gone, within this, busy as the machine may be.
const PATIENCE: Duration = Duration::from_secs(20);

/// It has checked, loaded and refused its programs within this.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(60);

/// A running agent. Dropping it kills it and takes what it left out of the kernel.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    namespace: Namespace,
    instance: String,
    log: PathBuf,
    launch: Launch,
}

/// How an agent is started besides its configuration.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The kernel object in place of its own: another version's.
    pub object: Option<PathBuf>,
    /// Whether what it attached stays when it is told to stop, as with a package's upgrade.
    pub keeps: bool,
    /// Environment variables, and their values.
    pub environment: Vec<(&'static str, String)>,
}

impl Agent {
    /// Starts `sickbay run` inside `namespace` with this configuration, whose instance is
    /// `instance`, and waits until every backend has its first verdict and as many programs as the
    /// configuration has `[[attach]]` tables are attached.
    ///
    /// # Errors
    /// When it ends or is not ready in time; the text carries what it said.
    pub fn start(namespace: &Namespace, instance: &str, configuration: &str) -> Result<Self> {
        let directory = private::scratch().join(format!("agent-{instance}-{}", monotonic_ns()));
        fs::create_dir_all(&directory)?;
        let file = directory.join(CONFIGURATION);
        fs::write(&file, configuration)?;
        let log = directory.join("log");
        File::create(&log)?;
        let launch = Launch::default();
        let mut agent = Self {
            child: spawn(namespace, &file, &log, &launch)?,
            namespace: namespace.clone(),
            instance: instance.to_owned(),
            log,
            launch,
        };
        agent.become_ready(configuration)?;
        Ok(agent)
    }

    /// Starts it again after [`Self::crash`] or [`Self::end`], with the configuration of its file,
    /// and waits as [`Self::start`] does.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_again(&mut self) -> Result<()> {
        let file = self.log.with_file_name(CONFIGURATION);
        self.child = spawn(&self.namespace, &file, &self.log, &self.launch)?;
        self.become_ready(&fs::read_to_string(&file)?)
    }

    /// Starts it again, and waits until it has ended by itself, which must be a failure; what it
    /// said since.
    ///
    /// # Errors
    /// When it does not end, or ends well.
    pub fn start_in_vain(&mut self) -> Result<String> {
        let before = self.said().len();
        let file = self.log.with_file_name(CONFIGURATION);
        self.child = spawn(&self.namespace, &file, &self.log, &self.launch)?;
        let ended =
            wait_until("the agent has ended", REFUSAL_PATIENCE, || self.child.try_wait().ok()?);
        let said = self.said().split_off(before);
        let status = ended.with_context(|| format!("the agent said:\n{said}"))?;
        ensure!(!status.success(), "the agent ended well; it said:\n{said}");
        Ok(said)
    }

    /// How it is started from now on.
    pub fn set_launch(&mut self, launch: Launch) {
        self.launch = launch;
    }

    fn become_ready(&mut self, configuration: &str) -> Result<()> {
        let attached = configuration.lines().filter(|line| line.trim() == "[[attach]]").count();
        self.wait_until_ready(attached).with_context(|| format!("the agent said:\n{}", self.said()))
    }

    /// Runs another `sickbay` command against this agent, to its end.
    ///
    /// # Errors
    /// When it cannot be started; what it answers is the caller's to judge.
    pub fn ask(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(binary()?);
        command.args(words).args(["--instance", &self.instance, "--run-directory", RUN_DIRECTORY]);
        self.namespace.run(|| command.output()).context("cannot run sickbay")
    }

    /// Runs a listing command with `-o json`.
    ///
    /// # Errors
    /// When it fails or prints no JSON; the text carries its standard error.
    pub fn ask_json(&self, words: &[&str]) -> Result<Value> {
        let mut all = words.to_vec();
        all.extend(["--output", "json"]);
        let output = self.ask(&all)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`sickbay {}`: {}", all.join(" "), error.trim());
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("`sickbay {}` printed no JSON", all.join(" ")))
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> Pid {
        process_of(&self.child)
    }

    /// Its instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Its history, by `sickbay history` with these words behind it.
    ///
    /// # Errors
    /// When it fails; the text carries its standard error.
    pub fn history(&self, words: &[&str]) -> Result<String> {
        history(&self.instance, words)
    }

    /// Its pinned maps.
    ///
    /// # Errors
    /// When they are not there.
    pub fn board(&self) -> Result<Board> {
        Board::open(&self.pin_directory())
    }

    /// Where it pins: `maps` and `links`.
    #[must_use]
    pub fn pin_directory(&self) -> PathBuf {
        Path::new(PIN_DIRECTORY).join(&self.instance)
    }

    /// Writes its configuration file anew; it reads it when it is told to.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn rewrite(&self, configuration: &str) -> Result<()> {
        Ok(fs::write(self.log.with_file_name(CONFIGURATION), configuration)?)
    }

    /// Its configuration file, as it is now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn configuration(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log.with_file_name(CONFIGURATION))?)
    }

    /// Has it read its configuration again, by SIGHUP.
    ///
    /// # Errors
    /// When it is gone.
    pub fn hang_up(&self) -> Result<()> {
        kill(process_of(&self.child), Signal::SIGHUP).context("cannot signal the agent")
    }

    /// What it has printed so far.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Tells it to stop (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.end()
    }

    /// The same; it can be started again.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn end(&mut self) -> Result<ExitStatus> {
        kill(process_of(&self.child), Signal::SIGTERM).context("cannot stop the agent")?;
        wait_until("the agent has ended", PATIENCE, || self.child.try_wait().ok()?)
    }

    /// Kills it (SIGKILL), as a crash would. What it attached stays until this is dropped.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn crash(&mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    /// Stops it where it stands (SIGSTOP), as a host that hangs would, until
    /// [`Self::resume`].
    ///
    /// # Errors
    /// When it is gone already.
    pub fn pause(&self) -> Result<()> {
        kill(process_of(&self.child), Signal::SIGSTOP).context("cannot stop the agent")
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn resume(&self) -> Result<()> {
        kill(process_of(&self.child), Signal::SIGCONT).context("cannot let the agent go on")
    }

    fn wait_until_ready(&mut self, attached: usize) -> Result<()> {
        wait_until("the agent has judged every backend and is attached", PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(Err(status));
            }
            let status = self.ask_json(&["status"]).ok()?;
            let warming = status.get("warming_count")?.as_u64()?;
            let programs = status.get("attached")?.as_array()?.len();
            // Before its shards run nobody is warming.
            let shards = status.get("shards")?.as_array()?.len();
            (0 < shards && warming == 0 && attached <= programs).then_some(Ok(()))
        })?
        .or_else(|status| bail!("the agent ended: {status}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // Maps of a quarter of a million flows would add up over a suite.
        if self.pin_directory().exists()
            && let Ok(binary) = binary()
        {
            let mut command = Command::new(binary);
            command.args(["detach", "--instance", &self.instance]);
            command.args(["--pin-directory", PIN_DIRECTORY]).stdout(Stdio::null());
            let _ = self.namespace.run(|| command.status());
        }
    }
}

fn spawn(
    namespace: &Namespace,
    configuration: &Path,
    log: &Path,
    launch: &Launch,
) -> Result<Child> {
    let mut command = Command::new(binary()?);
    command.arg("run").arg("-c").arg(configuration);
    if !launch.keeps {
        command.arg("--detach-on-exit");
    }
    if let Some(object) = &launch.object {
        command.arg("--object").arg(object);
    }
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    // In place of the file's: nothing is left on the machine, whatever the file says.
    command.args(["--state-directory", STATE_DIRECTORY]);
    command.stdin(Stdio::null()).stdout(File::options().append(true).open(log)?);
    command.stderr(File::options().append(true).open(log)?);
    namespace.spawn(&mut command)
}

/// The history of an instance of the lab, whose agent need not run.
///
/// # Errors
/// When it cannot be read; the text carries the standard error.
pub fn history(instance: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(binary()?);
    command.arg("history").args(words);
    command.args(["--instance", instance, "--state-directory", STATE_DIRECTORY]);
    let output = command.output().context("cannot run sickbay")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`sickbay history`: {}", error.trim());
    String::from_utf8(output.stdout).context("`sickbay history` printed no text")
}

/// The `sickbay` binary: what the environment names, else the one built beside this program.
///
/// # Errors
/// When there is none.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os(BINARY_VARIABLE) {
        return Ok(path.into());
    }
    let program = env::current_exe()?;
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("sickbay"))
        .find(|path| path.is_file())
        .context("no sickbay beside this program: `cargo build -p sickbay` makes it")
}
