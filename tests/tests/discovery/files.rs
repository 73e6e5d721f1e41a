//! Files of backends: edits are followed, mistakes are not.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use sickbay::control::view::ProbeState;

use crate::{
    FARM, Stage, client, configuration, each, members, replace, scratch, source, wait_for_fault,
    wait_for_members,
};

fn follows(path: &std::path::Path) -> String {
    format!("backends_file = \"{}\"", path.display())
}

#[test]
fn edits_by_rename_and_in_place_are_in_force_within_a_second() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, stage.list(0..2)).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    assert_eq!(members(&agent), each([stage.backend(0), stage.backend(1)]));
    let mut quickest = Duration::MAX;
    for round in 2..8 {
        let list = stage.list([0, round]);
        let start = Instant::now();
        if round % 2 == 0 {
            replace(&path, &list);
        } else {
            fs::write(&path, &list).unwrap();
        }
        wait_for_members(&agent, &each([stage.backend(0), stage.backend(round)]));
        quickest = quickest.min(start.elapsed());
    }
    // Each of them, on a machine that has time; one of six on any.
    assert!(quickest < Duration::from_secs(1), "the quickest took {quickest:?}");
    let views = client(&agent).backends(Some("web.*")).unwrap();
    let first = views.iter().find(|view| view.address == stage.backend(0)).unwrap();
    assert_eq!(first.origin, format!("file {}", path.display()));
    // Nothing was forgotten of the one that stayed: good results in a row from its first on.
    assert_eq!(first.state, ProbeState::Healthy);
    let results = first.registers.bits_happy;
    assert_eq!(results & (results + 1), 0, "{results:b}");
    assert!(3 <= results.count_ones(), "{results:b}");
}

#[test]
fn weights_names_and_the_file_sd_form_are_followed() {
    let stage = Stage::new(FARM);
    let path = scratch("web.json");
    let group = |weight: u32, targets: &[u32]| {
        let targets: Vec<String> =
            targets.iter().map(|it| format!("\"{}\"", stage.backend(*it))).collect();
        let targets = targets.join(", ");
        format!("{{\"targets\": [{targets}], \"labels\": {{\"weight\": \"{weight}\"}}}}")
    };
    fs::write(&path, format!("[{}]", group(2, &[0, 1]))).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    assert_eq!(members(&agent), [(stage.backend(0), 2), (stage.backend(1), 2)]);
    replace(&path, &format!("[{}, {}]", group(5, &[0]), group(1, &[2])));
    wait_for_members(&agent, &[(stage.backend(0), 5), (stage.backend(2), 1)]);
}

#[test]
fn another_name_for_a_backend_is_followed_and_its_results_stay() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, format!("{} name=one\n", stage.backend(0))).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    let before = client(&agent).backends(Some("web.one")).unwrap().remove(0);
    replace(&path, &format!("{} name=two\n", stage.backend(0)));
    sickbay_lab::clock::wait_until("it is called two", crate::PATIENCE, || {
        client(&agent).backends(Some("web.two")).ok()?.pop()
    })
    .unwrap_or_else(|error| panic!("{error}; the agent said:\n{}", agent.said()));
    let after = client(&agent).backends(Some("web.two")).unwrap().remove(0);
    assert_eq!(before.last_change_ns, after.last_change_ns);
    assert!(before.registers.bits_happy <= after.registers.bits_happy);
}

#[test]
fn mistakes_keep_the_last_answer_with_one_line_each_and_are_shown() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, stage.list(0..2)).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    let before = each([stage.backend(0), stage.backend(1)]);
    // Cut in the middle of a line, as a write that is not done yet.
    let mut file = File::create(&path).unwrap();
    file.write_all(&stage.list(0..9).as_bytes()[..21]).unwrap();
    wait_for_fault(&agent, ":2:1: ");
    assert_eq!(members(&agent), before);
    File::create(&path).unwrap();
    wait_for_fault(&agent, "lists no backend");
    assert_eq!(members(&agent), before);
    fs::remove_file(&path).unwrap();
    wait_for_fault(&agent, "cannot be read");
    assert_eq!(members(&agent), before);
    let said = agent.said();
    let told = said.lines().filter(|line| line.contains("its last answer, 2 backends, holds"));
    assert_eq!(told.count(), 3, "{said}");
    fs::write(&path, stage.list(0..3)).unwrap();
    wait_for_members(&agent, &each((0..3).map(|index| stage.backend(index))));
    assert_eq!(source(&agent).fault, None);
}

#[test]
fn file_that_is_meant_to_be_empty_empties_the_pool() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, stage.list(0..2)).unwrap();
    let pool = format!("{}\nallow_empty = true", follows(&path));
    let service = "[service.web]\naddress = \"198.51.100.1\"\nport = 80\npool = \"web\"\n\
                   all_sick = \"drop\"\n";
    let agent = stage.start(&configuration("", &pool, service));
    replace(&path, "# nobody\n");
    wait_for_members(&agent, &[]);
    replace(&path, &stage.list([3]));
    wait_for_members(&agent, &each([stage.backend(3)]));
}

#[test]
fn links_of_a_mounted_directory_are_followed() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    let mount = path.parent().unwrap();
    for (version, indices) in [("v1", 0..1), ("v2", 1..3)] {
        fs::create_dir(mount.join(version)).unwrap();
        fs::write(mount.join(version).join("web.list"), stage.list(indices)).unwrap();
    }
    symlink("v1", mount.join("..data")).unwrap();
    symlink("..data/web.list", &path).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    assert_eq!(members(&agent), each([stage.backend(0)]));
    symlink("v2", mount.join("..data_new")).unwrap();
    fs::rename(mount.join("..data_new"), mount.join("..data")).unwrap();
    wait_for_members(&agent, &each([stage.backend(1), stage.backend(2)]));
}

#[test]
fn operators_word_over_members_stands_while_the_file_says_the_same_of_them() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, stage.list(0..3)).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    let say = |words: &[&str]| {
        let output = agent.ask(words).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    say(&["backend", "remove", &format!("web.{}", stage.backend(1))]);
    say(&["backend", "add", "web", &stage.backend(9)]);
    replace(&path, &stage.list([0, 1, 2, 4]));
    wait_for_members(&agent, &each([0, 2, 4, 9].map(|index| stage.backend(index))));
}

#[test]
fn list_that_outgrows_its_pool_is_put_in_force_as_a_whole() {
    let stage = Stage::new(FARM);
    let path = scratch("web.list");
    fs::write(&path, stage.list(0..2)).unwrap();
    let agent = stage.start(&configuration("", &follows(&path), ""));
    let before = client(&agent).backends(Some(&format!("web.{}", stage.backend(0)))).unwrap();
    // A pool of two has room for 64.
    replace(&path, &stage.list(0..150));
    wait_for_members(&agent, &each((0..150).map(|index| stage.backend(index))));
    let after = client(&agent).backends(Some(&format!("web.{}", stage.backend(0)))).unwrap();
    assert_eq!(before[0].last_change_ns, after[0].last_change_ns, "no verdict changed");
}

#[test]
fn file_that_is_not_there_at_the_start_is_refused_in_one_line() {
    let stage = Stage::new(1);
    let path = scratch("absent.list");
    let text = configuration("", &follows(&path), "");
    let file = path.with_file_name("sickbay.toml");
    fs::write(&file, text).unwrap();
    let binary = sickbay_lab::agent::binary().unwrap();
    let mut command = std::process::Command::new(binary);
    command.arg("run").arg("-c").arg(&file);
    let output = stage.home.run(|| command.output()).unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(error.contains("absent.list cannot be read: No such file or directory"), "{error}");
}
