//! Texts that grow in one way each: memory grows with the text and no faster, nothing overflows
//! the stack, and what would take the square of its length would not end within the suite's time.

use std::path::Path;

use sickbay::config::{ConfigError, Configuration, Overrides, parse};
use sickbay::control::client::read_response;
use sickbay::vcl::{self, Listing, Vcl};
use sickbay_fuzz::memory::measured;
use sickbay_tests::figures;

/// Bytes of the smaller text; the larger one has eight times as many.
const SMALL: usize = 64 << 10;
/// Of both: what does not grow.
const FIXED_BYTES: u64 = 3 << 20;

fn repeated(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect()
}

/// Lines of figures, and that eight times the text takes no more than nine times the memory.
#[track_caller]
fn check(what: &str, peak: impl Fn(usize) -> (usize, u64)) {
    let (small, large) = (peak(SMALL), peak(8 * SMALL));
    let per_byte = |(length, peak): (usize, u64)| peak / length as u64;
    figures::show(&format!(
        "growth, {what}: {} then {} bytes held for each of {} then {}",
        per_byte(small),
        per_byte(large),
        small.0,
        large.0
    ));
    assert!(large.1 <= 9 * small.1 + FIXED_BYTES, "{what}: {small:?}, then {large:?}");
}

fn configuration(text: &str) -> (Result<Configuration, ConfigError>, u64) {
    let path = Path::new("/nonexistent/growth.toml");
    let (read, spent) = measured(|| parse(text, path, &Overrides::default()));
    (read, spent.peak_bytes)
}

/// Of one way to grow a configuration file.
#[track_caller]
fn check_config(what: &str, text: impl Fn(usize) -> String) {
    check(what, |length| {
        let text = text(length);
        (text.len(), configuration(&text).1)
    });
}

/// The whole work on a VCL: it is read, and every entry of it is made and shown.
fn shown(text: &str) -> (Result<Vcl, ConfigError>, u64) {
    let (read, spent) = measured(|| {
        let read = vcl::parse("t.vcl", text.as_bytes());
        if let Ok(vcl) = &read {
            serde_json::to_writer(std::io::sink(), &Listing::of(vcl)).expect("a sink takes all");
        }
        read
    });
    (read, spent.peak_bytes)
}

#[track_caller]
fn check_vcl(what: &str, text: impl Fn(usize) -> String) {
    check(what, |length| {
        let text = text(length);
        (text.len(), shown(&text).1)
    });
}

const POOL: &str = "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n";

#[test]
fn mistakes_in_a_configuration() {
    check_config("mistakes under a long name", |length| {
        let keys = repeated(length / 16, |index| format!("k{index}=1\n"));
        format!("[probe.{}]\n{keys}", "x".repeat(length / 2))
    });
    check_config("unknown sections", |length| repeated(length / 8, |at| format!("[k{at}]\n")));
    check_config("wrong values on one line", |length| {
        let list = "1,".repeat(length / 2);
        format!("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [{list}]\n")
    });
    check_config("pools with unknown probes", |length| {
        let one = |at| format!("[probe.p{at}]\n[pool.p{at}]\nprobe=\"q{at}\"\n");
        repeated(length / 32, one)
    });
    check_config("no TOML", |length| "= =\n".repeat(length / 4));
    check_config("keys defined again", |length| "a=1\n".repeat(length / 4));
}

#[test]
fn nesting_in_a_configuration() {
    check_config("arrays in arrays", |length| "a=".to_owned() + &"[".repeat(length));
    check_config("tables in tables", |length| "a=".to_owned() + &"{a=".repeat(length / 3));
    check_config("dotted keys", |length| "a.".repeat(length / 2) + "a=1\n");
    check_config("dotted sections", |length| format!("[{}a]\n", "a.".repeat(length / 2)));
    check_config("closed arrays", |length| {
        format!("a={}{}\n", "[".repeat(length / 2), "]".repeat(length / 2))
    });
}

#[test]
fn good_configurations() {
    check_config("backends", |length| {
        let one = |at| format!("\"10.0.{}.{}:80\",", at / 256, at % 256);
        let list = repeated(length / 16, one);
        format!("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [{list}]\n")
    });
    check_config("probes of a pool", |length| {
        let probes = repeated(length / 40, |at| format!("[probe.p{at}]\n"));
        let names = repeated(length / 40, |at| format!("\"p{at}\","));
        format!("{probes}[pool.p]\nprobe = [{names}]\nbackends = [\"192.0.2.1:80\"]\n")
    });
    check_config("services", |length| {
        let one = |at| {
            let (high, low) = (at / 256, at % 256);
            format!("[service.s{at}]\naddress=\"10.1.{high}.{low}\"\nport=80\npool=\"p\"\n")
        };
        POOL.to_owned() + &repeated(length / 160, one)
    });
    check_config("comments", |length| POOL.to_owned() + &"# a comment\n".repeat(length / 12));
}

/// Few bytes that stand for much: limits of the product hold the memory, and the text says so.
#[test]
fn ranges_and_requests_are_held_by_limits() {
    let range = "backends_range = \"10.0.0.0-10.0.255.255:80\"\n";
    let pools = |count| repeated(count, |at| format!("[pool.p{at}]\nprobe = \"p\"\n{range}"));
    let told = |text: &str| {
        let (read, peak_bytes) = configuration(text);
        let errors = read.expect_err("it is too much").errors;
        figures::show(&format!("growth, limits: {} bytes held; {}", peak_bytes, errors[0]));
        (errors[0].problem.clone(), peak_bytes)
    };
    let (problem, peak_bytes) = told(&format!("[probe.p]\n{}", pools(100)));
    assert_eq!(problem, "the pools up to this one have 1114112 backends; 1048576 are the most");
    assert!(peak_bytes < 256 << 20, "{peak_bytes}");

    let probes = repeated(100, |at| format!("[probe.p{at}]\n"));
    let names = repeated(100, |at| format!("\"p{at}\","));
    let text = format!("{probes}[pool.p]\nprobe = [{names}]\n{range}");
    let (problem, peak_bytes) = told(&text);
    assert_eq!(
        problem,
        "all pools together have 6553600 pairs of a backend and its probe; 2097152 are the most"
    );
    assert!(peak_bytes < 64 << 20, "{peak_bytes}");

    let long = |length| format!("[probe.p]\nurl = \"/{}\"\n{}", "x".repeat(length), pools(1));
    let (problem, peak_bytes) = told(&long(16 << 10));
    assert_eq!(problem, "what is sent has 16387 bytes; 16384 are the most");
    assert!(peak_bytes < 64 << 20, "{peak_bytes}");

    let (problem, peak_bytes) = told(&long(12 << 10));
    assert_eq!(problem, "the requests of all targets together have more than 512 MiB");
    assert!(peak_bytes < 768 << 20, "{peak_bytes}");

    let text = repeated(16_385, |at| format!("[probe.p{at}]\n")) + POOL;
    let (problem, _) = told(&text);
    assert_eq!(problem, "there are 16386 probes; 16384 are the most");
}

#[test]
fn nesting_in_a_vcl() {
    for open in ["{", "sub x {", "backend b { .probe = {", "(", "acl a { {", "C{", "/*", "{\""] {
        check_vcl(open, |length| format!("vcl 4.1; {}", open.repeat(length / open.len())));
        check_vcl(open, |length| format!("vcl 4.1; sub y {}", open.repeat(length / open.len())));
    }
}

#[test]
fn good_vcls() {
    let host = ".host = \"192.0.2.1\";";
    check_vcl("backends on one line", |length| {
        "vcl 4.1;".to_owned() + &repeated(length / 20, |at| format!("backend b{at} none;"))
    });
    check_vcl("one URL for all backends", |length| {
        let url = "x".repeat(length / 16);
        let probe = format!("probe default {{ .url = \"/{url}\"; }}");
        let one = |at| format!("backend b{at} {{ {host} }}");
        format!("vcl 4.1; {probe} {}", repeated(length / 400, one))
    });
    check_vcl("probes in backends", |length| {
        let one = |at| format!("backend b{at} {{ {host} .probe = {{ }} }}");
        "vcl 4.1;".to_owned() + &repeated(length / 56, one)
    });
    check_vcl("sockets that are not there", |length| {
        let one = |at| format!("backend b{at} {{ .path = \"/nonexistent\"; }}");
        "vcl 4.1;".to_owned() + &repeated(length / 48, one)
    });
    check_vcl("names in what is skipped", |length| {
        let names = repeated(length / 8, |at| format!("n{at} "));
        format!("vcl 4.1; backend b none; sub x {{ {names} }}")
    });
}

#[test]
fn largest_files_are_read_in_time() {
    let backends = repeated(65_536, |at| {
        let host = format!("10.{}.{}.{}", at >> 16, at >> 8 & 255, at & 255);
        format!("backend b{at} {{ .host = \"{host}\"; .probe = {{ .url = \"/\"; }} }}\n")
    });
    let (read, peak_bytes) = shown(&format!("vcl 4.1;\n{backends}"));
    assert_eq!(read.expect("it is right").backends.len(), 65_536);
    figures::show(&format!("growth, 65,536 backends in a VCL: {peak_bytes} bytes held"));

    let backends = repeated(65_536, |at| {
        let address = format!("10.{}.{}.{}:80", at >> 16, at >> 8 & 255, at & 255);
        format!("{{ name = \"b{at}\", address = \"{address}\", weight = 1 }},\n")
    });
    let text = format!("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\n{backends}]\n");
    let (read, peak_bytes) = configuration(&text);
    assert_eq!(read.expect("it is right").fleet.backends.len(), 65_536);
    figures::show(&format!("growth, 65,536 backends in a configuration: {peak_bytes} bytes held"));
}

#[test]
fn files_larger_than_the_limit_are_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("large");
    std::fs::write(&file, vec![b'#'; (16 << 20) + 1]).expect("it is written");
    let problem = |error: ConfigError| error.errors[0].problem.clone();
    let read = sickbay::config::load(&file, &Overrides::default());
    assert_eq!(problem(read.expect_err("it is too large")), "is larger than 16 MiB");
    let read = vcl::load(&file);
    let expected = "cannot be read: the files together are larger than 16 MiB";
    assert_eq!(problem(read.expect_err("it is too large")), expected);
}

#[test]
fn answers_to_a_client() {
    let texts = |what: &str, good: bool, answer: &dyn Fn(usize) -> String| {
        check(what, |length| {
            let line = answer(length) + "\n";
            let (read, spent) = measured(|| read_response(line.as_bytes()));
            assert_eq!(read.is_ok(), good, "{what}");
            (line.len(), spent.peak_bytes)
        });
    };
    texts("a list of nothing", true, &|length| {
        let list = vec!["\"\""; length / 3].join(",");
        format!("{{\"protocol\":1,\"reply\":{{\"set\":[{list}]}}}}")
    });
    texts("arrays in arrays", false, &|length| "[".repeat(length));
    texts("an unknown word", false, &|length| {
        format!("{{\"protocol\":1,\"reply\":\"{}\"}}", "\\u0001".repeat(length / 6))
    });
}
