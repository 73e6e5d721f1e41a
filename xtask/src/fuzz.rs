//! `cargo xtask fuzz`: libFuzzer looks for bytes that a parser does not stand, and its corpus is
//! kept. What the targets are, and what must hold of them, stands in `tests/fuzz`.

/// What the fuzzer says of a run.
mod report;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use report::Report;

use crate::{build_ebpf, cargo};

/// What to fuzz.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Targets: status, framing, reply, vcl, config, admin, lists; all of them when none is named
    targets: Vec<String>,
    /// How long each target is fuzzed
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// Targets at once, each on a core
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

/// How a target is fuzzed.
struct Target {
    name: &'static str,
    /// Longest input that is tried, in bytes.
    length_max: u32,
    /// Words that its texts are made of; a file in `tests/fuzz/dictionaries`.
    dictionary: &'static str,
    /// Where texts of its kind stand already.
    seeds: Option<&'static str>,
}

const TARGETS: [Target; 7] = [
    Target { name: "status", length_max: 256, dictionary: "http", seeds: None },
    Target { name: "framing", length_max: 512, dictionary: "http", seeds: None },
    Target { name: "reply", length_max: 192, dictionary: "http", seeds: None },
    Target { name: "vcl", length_max: 4096, dictionary: "vcl", seeds: Some("agent/tests/vcl") },
    Target {
        name: "config",
        length_max: 4096,
        dictionary: "config",
        seeds: Some("tests/fuzz/seeds/config"),
    },
    Target {
        name: "admin",
        length_max: 2048,
        dictionary: "admin",
        seeds: Some("tests/fuzz/seeds/admin"),
    },
    Target {
        name: "lists",
        length_max: 1024,
        dictionary: "lists",
        seeds: Some("tests/fuzz/seeds/lists"),
    },
];

/// Coverage as cargo-fuzz asks rustc for it: these work on a stable toolchain.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// How libFuzzer names inputs that broke something: they are never dropped from a corpus.
const BROKEN: [&str; 3] = ["crash-", "timeout-", "oom-"];
/// What an input may hold, in MiB: several times what the largest fleet takes.
const MEMORY_MIB_MAX: u32 = 4096;
/// What an input may take, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// Fuzzes the targets, minimises what was found into their corpora, and says what came of it.
///
/// # Errors
/// The fuzzer cannot be built or started.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    std::env::set_current_dir(build_ebpf::workspace_directory())?;
    let waiting = Mutex::new(chosen(&arguments.targets)?);
    let fuzzer = build()?;
    let next = || waiting.lock().ok()?.pop_front();
    let work = || -> Result<Vec<Report>> {
        std::iter::from_fn(next).map(|target| fuzz(&fuzzer, target, arguments.seconds)).collect()
    };
    let worked: Vec<Result<Vec<Report>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut reports: Vec<Report> = worked.into_iter().collect::<Result<Vec<_>>>()?.concat();
    reports.sort_by_key(|report| TARGETS.iter().position(|target| target.name == report.name));
    println!("\n{}", Report::HEADER);
    reports.iter().for_each(|report| println!("{report}"));
    let broken = reports.iter().any(|report| !report.broken.is_empty());
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn chosen(names: &[String]) -> Result<VecDeque<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => Ok(target),
        None => {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            bail!("no fuzzing target is called {name}; there are {}", known.join(", "))
        }
    };
    names.iter().map(find).collect()
}

/// Builds the fuzzer beside everything else: its instrumentation is nothing for other programs.
fn build() -> Result<PathBuf> {
    let compiler = Command::new("c++").arg("--version").output();
    ensure!(
        compiler.is_ok_and(|output| output.status.success()),
        "libFuzzer is built with a C++ compiler, and there is no c++; mend: apt-get install g++"
    );
    let host = host()?;
    let words = [
        "build",
        "--profile",
        "fuzz",
        "--package",
        "sickbay-fuzz",
        "--features",
        "libfuzzer",
        "--bin",
        "fuzz",
        "--target-dir",
        "target/fuzz",
        "--target",
        &host,
    ];
    println!("$ RUSTFLAGS=\"{}\" cargo {}", INSTRUMENTATION.join(" "), words.join(" "));
    let status = cargo::command(&words)
        .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\x1f"))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the fuzzer does not build");
    Ok(Path::new("target/fuzz").join(host).join("fuzz/fuzz"))
}

/// What rustc calls this machine. With a target named, build scripts are not instrumented.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc's version is UTF-8")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it calls this machine")?.to_owned())
}

/// Where a target's files are.
struct Places {
    /// The corpus that is kept with the source.
    kept: PathBuf,
    /// All that was ever of use here: where the next run begins.
    found: PathBuf,
    /// What is to be kept.
    merged: PathBuf,
    /// What broke something.
    broken: PathBuf,
    /// What the fuzzer says.
    log: PathBuf,
}

impl Places {
    fn of(target: &Target) -> Result<Self> {
        let name = target.name;
        let work = Path::new("target/fuzz/work").join(name);
        let places = Self {
            kept: Path::new("tests/fuzz/corpus").join(name),
            found: work.join("found"),
            merged: work.join("merged"),
            broken: work.join("broken"),
            log: work.join("log"),
        };
        for emptied in [&places.merged, &places.broken] {
            if emptied.exists() {
                fs::remove_dir_all(emptied)?;
            }
        }
        for made in [&places.kept, &places.found, &places.merged, &places.broken] {
            fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
        }
        Ok(places)
    }
}

fn fuzz(fuzzer: &Path, target: &Target, seconds: u32) -> Result<Report> {
    let places = Places::of(target)?;
    println!("{}: {seconds} s; its log: {}", target.name, places.log.display());
    let mut command = command(fuzzer, target);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-dict=tests/fuzz/dictionaries/{}.txt", target.dictionary))
        .arg(format!("-artifact_prefix={}/", places.broken.display()))
        .args([&places.found, &places.kept])
        .args(target.seeds);
    let good = logged(command, &places.log)?;
    let text = fs::read(&places.log).context("cannot read the fuzzer's log")?;
    let mut report = Report::of(target.name, &String::from_utf8_lossy(&text))?;
    for file in files(&places.broken)? {
        let name = name(&file);
        if BROKEN.iter().any(|kind| name.starts_with(kind)) {
            let kept = places.kept.join(&name);
            fs::copy(&file, &kept)?;
            report.broken.push(kept);
        }
    }
    ensure!(good || !report.broken.is_empty(), "the fuzzer failed: see {}", places.log.display());
    if report.broken.is_empty() {
        minimise(fuzzer, target, &places)?;
    }
    for file in files(&places.kept)? {
        report.kept_files += 1;
        report.kept_bytes += fs::metadata(file)?.len();
    }
    Ok(report)
}

/// Keeps the fewest inputs that cover what all of them cover, and those that once broke something.
fn minimise(fuzzer: &Path, target: &Target, places: &Places) -> Result<()> {
    for file in files(&places.kept)? {
        let name = name(&file);
        if BROKEN.iter().any(|kind| name.starts_with(kind)) {
            fs::copy(&file, places.merged.join(name))?;
        }
    }
    let mut command = command(fuzzer, target);
    command
        .args(["-set_cover_merge=1", "-use_counters=0"])
        .args([&places.merged, &places.kept, &places.found])
        .args(target.seeds);
    let log = places.log.with_extension("merge");
    ensure!(logged(command, &log)?, "the corpus cannot be minimised: see {}", log.display());
    for file in files(&places.kept)? {
        fs::remove_file(file)?;
    }
    for file in files(&places.merged)? {
        fs::copy(&file, places.kept.join(name(&file)))?;
    }
    Ok(())
}

fn command(fuzzer: &Path, target: &Target) -> Command {
    let mut command = Command::new(fuzzer);
    command
        .env("SICKBAY_FUZZ_TARGET", target.name)
        .arg(format!("-max_len={}", target.length_max))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .stdin(Stdio::null());
    command
}

/// Runs it with all that it says in the log; whether it found nothing wrong.
fn logged(mut command: Command, log: &Path) -> Result<bool> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = command.stdout(file.try_clone()?).stderr(file).status();
    Ok(status.context("cannot start the fuzzer")?.success())
}

/// The files of a directory, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_what_it_is_fuzzed_with() {
        let root = build_ebpf::workspace_directory();
        let kept = files(&root.join("tests/fuzz/corpus")).unwrap();
        let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        names.sort_unstable();
        assert_eq!(kept.iter().map(|corpus| name(corpus)).collect::<Vec<_>>(), names);
        for target in &TARGETS {
            let dictionary = format!("tests/fuzz/dictionaries/{}.txt", target.dictionary);
            assert!(root.join(&dictionary).is_file(), "{dictionary}");
            assert!(target.seeds.is_none_or(|seeds| root.join(seeds).is_dir()), "{}", target.name);
        }
    }

    #[test]
    fn target_that_does_not_exist_is_refused_by_name() {
        let error = chosen(&["vlc".to_owned()]).err().unwrap().to_string();
        let known = "status, framing, reply, vcl, config, admin, lists";
        assert_eq!(error, format!("no fuzzing target is called vlc; there are {known}"));
        assert_eq!(chosen(&[]).unwrap().len(), 7);
    }
}
