//! Every thread of a running agent, by /proc: from the start, over a reload, to a clean end.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use sickbay_lab::agent::{PIN_DIRECTORY, RUN_DIRECTORY, binary};
use sickbay_lab::configuration::Configuration;
use sickbay_lab::private;
use sickbay_lab::stage::Stage;
use sickbay_tests::figures::show;

use crate::{printed, refusal};

/// CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF (capability.h).
const KEPT: u64 = 1 << 12 | 1 << 38 | 1 << 39;

/// Asserts of each thread's status what these lines of it must be; the threads' names.
#[track_caller]
fn assert_threads(stage: &Stage, expected: &[(&str, String)]) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", stage.agent.process())).unwrap();
    let mut names = Vec::new();
    for task in tasks {
        // A worker of the kernel's may have ended since it was listed.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let line = |key: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            found.map(|value| value.trim().to_owned())
        };
        let name = line("Name").unwrap();
        for (key, value) in expected {
            assert_eq!(line(key).as_ref(), Some(value), "{key} of {name}");
        }
        names.push(name);
    }
    names
}

fn confined() -> Vec<(&'static str, String)> {
    let (kept, none) = (format!("{KEPT:016x}"), format!("{:016x}", 0));
    vec![
        ("CapEff", kept.clone()),
        ("CapPrm", kept.clone()),
        ("CapBnd", kept),
        ("CapInh", none.clone()),
        ("CapAmb", none),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
    ]
}

#[test]
fn every_thread_holds_three_capabilities_through_a_reload_to_a_clean_end() {
    let stage = Stage::new(2, &Configuration::usual()).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let names = assert_threads(&stage, &confined());
    for name in ["probe-0", "sickbay-control", "neighbours"] {
        assert!(names.iter().any(|it| it == name), "{name} is not among {names:?}");
    }
    show(&format!("{} threads, each with CapEff = CapBnd = {KEPT:016x}", names.len()));
    let status = stage.agent.ask_json(&["status"]).unwrap();
    let told = &status["privilege"];
    let kept = json!(["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
    assert_eq!((&told["capabilities"], &told["bounding"]), (&kept, &kept));
    assert_eq!(told["no_new_privileges"], true);
    assert_eq!(told["seccomp"], 2);
    assert!(1 <= told["landlock_abi"].as_u64().unwrap(), "{told}");
    let shard = &status["shards"][0];
    assert_eq!(shard["ring_restricted"], true);
    assert!(shard["heartbeat_age_ms"].as_u64().is_some(), "{shard}");
    assert_eq!(status["attached"][0]["mode"], "native");

    // Another program, other shards and rings: all by what is left.
    let more = "[[attach]]\ninterface = \"lo\"\nprogram = \"tc\"\n";
    let text = stage.agent.configuration().unwrap().replace("shards = 1", "shards = 2") + more;
    stage.agent.rewrite(&text).unwrap();
    printed(&stage.agent, &stage.agent.ask(&["reload"]).unwrap());
    let names = assert_threads(&stage, &confined());
    assert!(names.iter().any(|it| it == "probe-1"), "{names:?}");
    stage.wait_for_healthy(2).unwrap();

    let pins = stage.agent.pin_directory();
    let run = Path::new(RUN_DIRECTORY).join(stage.agent.instance());
    assert!(pins.exists() && run.exists());
    assert!(stage.agent.stop().unwrap().success());
    assert!(!pins.exists(), "it detached at its end, and left no pin");
    assert!(!run.exists(), "nor a socket");
}

#[test]
fn reload_reads_only_where_files_stood_at_the_start_and_says_to_restart() {
    let near = private::scratch().join("near");
    let far = private::scratch().join("far");
    for directory in [&near, &far] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("list"), "192.0.2.109:80 name=listed\n").unwrap();
    }
    let more = format!("[privilege]\nreadable = [\"{}\"]\n", near.display());
    let stage = Stage::new(1, &Configuration { more, ..Configuration::usual() }).unwrap();
    let text = stage.agent.configuration().unwrap();
    let listed = |directory: &Path| {
        let file = directory.join("list");
        let pool =
            format!("[pool.listed]\nprobe = \"web\"\nbackends_file = \"{}\"\n", file.display());
        stage.agent.rewrite(&(text.clone() + &pool)).unwrap();
        stage.agent.ask(&["reload"]).unwrap()
    };
    let error = refusal(&listed(&far));
    assert!(error.contains("far/list cannot be read: Permission denied"), "{error}");
    assert!(error.trim_end().ends_with("(see [privilege]): restart it"), "{error}");
    printed(&stage.agent, &listed(&near));
    let backends = stage.agent.ask_json(&["backend", "list", "listed.*"]).unwrap();
    assert_eq!(backends.as_array().unwrap().len(), 1, "{backends}");
}

#[test]
fn agent_whose_pins_were_taken_refuses_a_reload_and_goes_on() {
    let stage = Stage::new(1, &Configuration::usual()).unwrap();
    let taken = ["detach", "--pin-directory", PIN_DIRECTORY, "--instance", stage.agent.instance()];
    let mut command = Command::new(binary().unwrap());
    let host = &stage.network.host.namespace;
    printed(&stage.agent, &host.run(|| command.args(taken).output()).unwrap());
    let text = stage.agent.configuration().unwrap().replace("threshold = 3", "threshold = 2");
    stage.agent.rewrite(&text).unwrap();
    let error = refusal(&stage.agent.ask(&["reload"]).unwrap());
    assert!(error.contains("are gone (by `sickbay detach`?)"), "{error}");
    assert!(error.trim_end().ends_with(": restart it"), "{error}");
    stage.wait_for_healthy(1).unwrap();
}

#[test]
fn what_is_switched_off_is_held_and_a_change_of_it_needs_a_restart() {
    let everything = "[privilege]\ndrop_capabilities = false\nseccomp = false\nlandlock = false\n";
    let more = everything.to_owned();
    let stage = Stage::new(1, &Configuration { more, ..Configuration::usual() }).unwrap();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let expected =
        [("CapEff", own.to_owned()), ("Seccomp", "0".to_owned()), ("NoNewPrivs", "1".to_owned())];
    assert_threads(&stage, &expected);
    let status = stage.agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["privilege"]["landlock_abi"], json!(null));
    let text = stage.agent.configuration().unwrap();
    stage.agent.rewrite(&text.replace(everything, "")).unwrap();
    let error = refusal(&stage.agent.ask(&["reload"]).unwrap());
    assert!(error.contains("privilege is not as it was given up: only a restart"), "{error}");
}

#[test]
fn capability_that_is_to_be_kept_is_kept() {
    let more = "[privilege]\nkeep = [\"CAP_DAC_OVERRIDE\"]\n".to_owned();
    let stage = Stage::new(1, &Configuration { more, ..Configuration::usual() }).unwrap();
    // 1 in capability.h.
    let expected = format!("{:016x}", KEPT | 1 << 1);
    assert_threads(&stage, &[("CapEff", expected.clone()), ("CapBnd", expected)]);
}
