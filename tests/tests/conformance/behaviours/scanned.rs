//! Status lines that only `sscanf` takes, or that even it does not.

use super::{Row, STRICT, answer};

/// What becomes of `HTTP/%f %u`.
pub(super) fn rows() -> Vec<Row> {
    /// The same text, but not good.
    macro_rules! strict {
        ($name:literal, $line:literal) => {
            answer($name, concat!($line, "\r\n\r\n").as_bytes())
                .default(&[("4---X-R-", $line)], STRICT)
        };
    }
    /// As with Varnish.
    macro_rules! refused {
        ($name:literal, $line:literal) => {
            answer($name, concat!($line, "\r\n\r\n").as_bytes())
        };
    }
    vec![
        strict!("http2", "HTTP/2 200"),
        strict!("zero_padded", "HTTP/1.1 0200 OK"),
        strict!("glued_reason", "HTTP/1.1 200x"),
        strict!("infinite", "HTTP/inf 200 OK"),
        strict!("not_a_number", "HTTP/nan 200 OK"),
        strict!("hexadecimal", "HTTP/0x1p1 200 OK"),
        strict!("exponent", "HTTP/1e3 200 OK"),
        strict!("negative_version", "HTTP/-1 200 OK"),
        strict!("positive_version", "HTTP/+1.1 200 OK"),
        strict!("blank_version", "HTTP/ 1.1 200 OK"),
        strict!("long_version", "HTTP/1.1000000000000000001 200 OK"),
        strict!("two_blanks", "HTTP/1.1  200 OK"),
        strict!("positive_status", "HTTP/1.1 +200 OK"),
        strict!("wrapped_status", "HTTP/1.1 4294967496 OK"),
        strict!("negative_wrapped_status", "HTTP/1.1 -4294967096 OK"),
        answer("tab", b"HTTP/1.1\t200 OK\r\n\r\n")
            .default(&[("4---X-R-", r"HTTP/1.1\x09200 OK")], STRICT),
        refused!("foreign", "FROBOZ 200 OK"),
        refused!("lower_case", "http/1.1 200 OK"),
        refused!("leading_blank", " HTTP/1.1 200 OK"),
        refused!("glued_status", "HTTP/1.1200 OK"),
        refused!("third_version_part", "HTTP/1.1.1 200 OK"),
        refused!("negative_status", "HTTP/1.1 -200 OK"),
        refused!("short_status", "HTTP/1.1 20 OK"),
        refused!("long_status", "HTTP/1.1 2000 OK"),
        refused!("blank_in_status", "HTTP/1.1 2 00 OK"),
        refused!("hexadecimal_status", "HTTP/1.1 0xc8 OK"),
        refused!("no_status", "HTTP/1.1 OK"),
        refused!("only_version", "HTTP/1.1"),
        refused!("version_letters", "HTTP/one 200 OK"),
        refused!("no_slash", "HTTP 200 OK"),
        refused!("ftp", "220 ready"),
        refused!("ssh", "SSH-2.0-OpenSSH_9.2"),
        answer("html", b"<html>It works</html>\n"),
    ]
}
