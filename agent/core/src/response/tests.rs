use super::*;

fn whole(input: &[u8], head: bool) -> End {
    let mut response = Response::new(head);
    response
        .on_bytes(input)
        .unwrap_or_else(|| response.on_close())
}

#[test]
fn plain_answer_is_complete() {
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(whole(input, false), End::Complete { status: 200 });
}
