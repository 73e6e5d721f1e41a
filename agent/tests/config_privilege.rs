//! `[privilege]` and `read_group`: everything is given up unless the file says otherwise, and what
//! is misspelt is refused by its place.

use std::path::Path;

use sickbay::config::{ConfigError, Configuration, Overrides, parse};
use sickbay::confine::{Capability, Privilege};

const BASE: &str = "[probe.p]\n[pool.a]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n";

fn read(more: &str) -> Result<Configuration, ConfigError> {
    parse(&format!("{BASE}{more}"), Path::new("/etc/t.toml"), &Overrides::default())
}

fn given_up(more: &str) -> Privilege {
    read(more).expect("it is right").fleet.privilege
}

#[test]
fn everything_is_given_up_unless_it_is_kept() {
    let everything = Privilege {
        drop_capabilities: true,
        keep: Vec::new(),
        seccomp: true,
        landlock: true,
        readable: Vec::new(),
    };
    assert_eq!(given_up(""), everything);
    let told = "[privilege]\nkeep = [\"CAP_DAC_OVERRIDE\"]\nseccomp = false\n\
                readable = [\"/srv/lists\"]\n";
    let expected = Privilege {
        keep: vec![Capability::CAP_DAC_OVERRIDE],
        seccomp: false,
        readable: vec!["/srv/lists".into()],
        ..everything
    };
    assert_eq!(given_up(told), expected);
}

#[test]
fn each_mistake_is_one_line_with_place_reason_and_remedy() {
    for (section, expected) in [
        (
            "[privilege]\nsecomp = false\n",
            "/etc/t.toml:6:1: privilege.secomp: unknown key \"secomp\"; did you mean \"seccomp\"?",
        ),
        (
            "[privileges]\n",
            "/etc/t.toml:5:2: privileges: unknown section \"privileges\"; did you mean \
             \"privilege\"?",
        ),
        (
            "[privilege]\nkeep = [\"CAP_DAC_OVERIDE\"]\n",
            "/etc/t.toml:6:9: privilege.keep[0]: \"CAP_DAC_OVERIDE\" is no capability; did you \
             mean \"CAP_DAC_OVERRIDE\"?",
        ),
        (
            "[privilege]\nkeep = [\"CAP_CHOWN\"]\ndrop_capabilities = false\n",
            "/etc/t.toml:6:1: privilege.keep: has no meaning with drop_capabilities = false; \
             remove one of the two",
        ),
        (
            "[privilege]\nreadable = [\"lists\"]\n",
            "/etc/t.toml:6:13: privilege.readable[0]: \"lists\" is not an absolute path; begin it \
             with \"/\"",
        ),
        (
            "[privilege]\nreadable = [\"/\"]\n",
            "/etc/t.toml:6:13: privilege.readable[0]: \"/\" is every file there is; name the \
             directory that is meant, or set landlock = false",
        ),
        (
            "[privilege]\nreadable = [\"/srv\"]\nlandlock = false\n",
            "/etc/t.toml:6:1: privilege.readable: has no meaning with landlock = false; remove \
             one of the two",
        ),
        (
            "[agent]\nread_group = \"a:b\"\n",
            "/etc/t.toml:6:14: agent.read_group: \"a:b\" is no group's name; write one such as \
             \"sickbay\"",
        ),
        (
            "[agent]\nread_group = \"\"\n",
            "/etc/t.toml:6:14: agent.read_group: \"\" is no group's name; write one such as \
             \"sickbay\"",
        ),
    ] {
        let error = read(section).expect_err(section);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn directories_of_all_files_that_a_configuration_names_are_told() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().canonicalize().expect("it is there");
    for directory in ["lists", "elsewhere"] {
        std::fs::create_dir(root.join(directory)).expect("a directory");
    }
    std::fs::write(root.join("elsewhere/list"), "192.0.2.7:80\n").expect("a list");
    std::os::unix::fs::symlink(root.join("elsewhere/list"), root.join("lists/list"))
        .expect("a link");
    let text = BASE.replace("backends = [\"192.0.2.1:80\"]", "backends_file = \"lists/list\"");
    let read = parse(&text, &root.join("t.toml"), &Overrides::default()).expect("it is right");
    let expected = [root.clone(), root.join("elsewhere"), root.join("lists")];
    assert_eq!(read.directories, expected, "its own, the link's and where that leads");
}
