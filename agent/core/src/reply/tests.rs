//! First lines, and what Varnish made of them.

use proptest::prelude::*;

use super::*;

fn judged(bytes: &[u8]) -> (Judged, Vec<u8>) {
    let mut reply = Reply::NEW;
    reply.on_bytes(bytes);
    (reply.judged(), reply.line().as_bytes().to_vec())
}

#[test]
fn replies_are_judged_as_varnish_711_judged_them() {
    let long = [&b"HTTP/1.1 200 "[..], &[b'x'; 300], b"\r\n\r\n"].concat();
    let ok = Judged::Status(200);
    let table: [(&[u8], Judged, &[u8]); 15] = [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", ok, b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 200\r\n\r\n", ok, b"HTTP/1.1 200"),
        (b"HTTP/1.1 200 \r\n", ok, b"HTTP/1.1 200 "),
        (b"HTTP/2 200\r\n\r\n", ok, b"HTTP/2 200"),
        (b"HTTP/1.1 200 OK\n\n", ok, b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 0200 OK\r\n\r\n", ok, b"HTTP/1.1 0200 OK"),
        (b"HTTP/1.1 200x\r\n\r\n", ok, b"HTTP/1.1 200x"),
        (b"HTTP/inf 200 OK\r\n\r\n", ok, b"HTTP/inf 200 OK"),
        (&long, ok, &long[..127]),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            Judged::Status(100),
            b"HTTP/1.1 100 Continue",
        ),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Judged::Status(404), b"HTTP/1.1 404 Not Found"),
        (b"FROBOZ 200 OK\r\n\r\n", Judged::NoStatus, b"FROBOZ 200 OK"),
        (b"\r\nHTTP/1.1 200 OK\r\n", Judged::NoStatus, b""),
        (b"HTTP/1.1 20\x000 OK\r\n", Judged::Status(20), b"HTTP/1.1 20"),
        (b"", Judged::Empty, b""),
    ];
    for (bytes, expected, line) in table {
        assert_eq!(judged(bytes), (expected, line.to_vec()), "{}", bytes.escape_ascii());
    }
}

#[test]
fn number_is_what_scanf_takes_it_for() {
    // Each worked out from C17, 7.21.6.2, and tried with glibc's sscanf.
    let table: [(&[u8], Option<u32>); 40] = [
        (b"HTTP/1.1 200", Some(200)),
        (b"HTTP/ 1.1 200", Some(200)),
        (b"HTTP/1.1\t\x0b\x0c 200", Some(200)),
        (b"HTTP/1.1", None),
        (b"HTTP/", None),
        (b"HTTP/1.1 ", None),
        (b"http/1.1 200", None),
        (b" HTTP/1.1 200", None),
        (b"HTTP /1.1 200", None),
        (b"HTTP/1.1200", None),
        (b"HTTP/1.1.200", None),
        (b"HTTP/1.1+200", Some(200)),
        (b"HTTP/1.1 +200", Some(200)),
        (b"HTTP/1.1 -200", Some(4_294_967_096)),
        (b"HTTP/1.1 -4294967096", Some(200)),
        (b"HTTP/1.1 4294967496", Some(200)),
        (b"HTTP/1.1 18446744073709551815", Some(u32::MAX)),
        (b"HTTP/1.1 -18446744073709551815", Some(u32::MAX)),
        (b"HTTP/1.1 + 200", None),
        (b"HTTP/1.1 0x200", Some(0)),
        (b"HTTP/-1.1 200", Some(200)),
        (b"HTTP/+.5 200", Some(200)),
        (b"HTTP/. 200", None),
        (b"HTTP/- 200", None),
        (b"HTTP/5. 200", Some(200)),
        (b"HTTP/1e5 200", Some(200)),
        (b"HTTP/1e 200", Some(200)),
        (b"HTTP/1e+ 200", Some(200)),
        (b"HTTP/1e-200", None),
        (b"HTTP/e5 200", None),
        (b"HTTP/0x1.8p1 200", Some(200)),
        (b"HTTP/0x 200", None),
        (b"HTTP/0x. 200", Some(200)),
        (b"HTTP/0xp1 200", None),
        (b"HTTP/nan200", Some(200)),
        (b"HTTP/NaN(1) 200", None),
        (b"HTTP/infinity 200", Some(200)),
        (b"HTTP/infi 200", None),
        (b"HTTP/INF200", Some(200)),
        (b"HTTP/in 200", None),
    ];
    for (line, expected) in table {
        assert_eq!(scanned_status(line), expected, "{}", line.escape_ascii());
    }
}

#[test]
fn short_reply_is_judged_by_its_own_bytes() {
    // Varnish's buffer would still hold "TTP/1.1 200 OK" behind it.
    let mut reply = Reply::NEW;
    reply.on_bytes(b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(reply.judged(), Judged::Status(200));
    reply = Reply::NEW;
    reply.on_bytes(b"H");
    assert_eq!((reply.judged(), reply.line().as_bytes()), (Judged::NoStatus, &b"H"[..]));
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            "HTTP/[0-9a-finx.+ -]{0,12} [0-9+-]{0,6}[ -~]{0,150}\r?\n?.{0,20}".prop_map(Vec::from),
        ],
        cuts in proptest::collection::vec(0_usize..300, 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut reply = Reply::NEW;
        let mut first = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            reply.on_bytes(&bytes[first..cut]);
            first = cut;
        }
        prop_assert_eq!((reply.judged(), reply.line().as_bytes().to_vec()), judged(&bytes));
    }
}
