//! `varnishd -C`: its errors, and the C that it makes of a VCL.

use std::fs;
use std::process::Command;

/// What the compiler makes of a text.
pub(crate) enum Answer {
    /// The fields of every probe and backend, as they stand in the C.
    Accepted { probes: Vec<Fields>, backends: Vec<Fields> },
    /// The first line of what it says, and the line it says it of.
    Refused { words: String, line: Option<usize> },
}

/// `.name = value` of a C structure.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str())
    }

    /// A number; `~0U` is the largest.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let value = self.value(name)?;
        Some(if value == "~0U" { 0xffff_ffff } else { value.parse().expect("a number") })
    }

    pub(crate) fn seconds(&self, name: &str) -> Option<f64> {
        self.value(name).map(|value| value.parse().expect("a number"))
    }

    /// C strings that stand side by side, decoded.
    pub(crate) fn text(&self, name: &str) -> Option<Vec<u8>> {
        self.value(name).map(decode)
    }
}

/// Has the text compiled.
pub(crate) fn compile(text: &str) -> Answer {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("t.vcl");
    fs::write(&file, text).expect("a file");
    let output = Command::new("varnishd")
        .args(["-C", "-p", "vcc_allow_inline_c=on", "-f"])
        .arg(&file)
        .arg("-n")
        .arg(directory.path().join("n"))
        .output()
        .expect("varnishd is needed: apt-get install varnish");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Answer::Accepted {
            probes: structures(&said, "static const struct vrt_backend_probe "),
            backends: structures(&said, "static const struct vrt_backend "),
        };
    }
    let message = said.split_once("Message from VCC-compiler:\n");
    let message = message.unwrap_or_else(|| panic!("no message of the compiler: {said}")).1;
    let after_line = message.split_once(" Line ").map(|(_, rest)| rest);
    let line = after_line.and_then(|rest| rest.split(' ').next()?.parse().ok());
    Answer::Refused { words: message.lines().next().unwrap_or_default().trim().to_owned(), line }
}

/// The fields of every structure that begins with `head` at the start of a line.
fn structures(c: &str, head: &str) -> Vec<Fields> {
    let mut found = Vec::new();
    for piece in c.split(&format!("\n{head}")).skip(1) {
        let Some((body, _)) = piece.split_once("\n}") else { continue };
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in body.lines().skip(1) {
            let line = line.trim();
            match line.strip_prefix('.').and_then(|rest| rest.split_once(" =")) {
                Some((name, value)) => fields.push((name.to_owned(), value.trim().to_owned())),
                None => fields.last_mut().expect("a field began before").1.push_str(line),
            }
        }
        for (_, value) in &mut fields {
            *value = value.strip_suffix(',').unwrap_or(value).to_owned();
        }
        found.push(Fields(fields));
    }
    found
}

fn decode(literals: &str) -> Vec<u8> {
    let (mut bytes, mut inside) = (Vec::new(), false);
    let mut rest = literals.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (*first, inside) {
            (b'"', _) => inside = !inside,
            (b'\\', true) => {
                let octal = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
                let (taken, value) = match rest[0] {
                    b'n' => (1, b'\n'),
                    b'r' => (1, b'\r'),
                    b't' => (1, b'\t'),
                    _ if octal == 0 => (1, rest[0]),
                    _ => {
                        let digits = std::str::from_utf8(&rest[..octal]).expect("digits");
                        (octal, u8::from_str_radix(digits, 8).expect("an octal byte"))
                    }
                };
                bytes.push(value);
                rest = &rest[taken..];
            }
            (byte, true) => bytes.push(byte),
            (_, false) => {}
        }
    }
    bytes
}
