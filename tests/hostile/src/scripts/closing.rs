//! Close frames: codes and reasons (RFC 6455, section 7.4).

use crate::script::{Expect, Script, Step};
use crate::wire::{CLOSE, close, masked};

const GROUP: &str = "close codes";

pub(super) fn scripts() -> Vec<Script> {
    let send = |name: String, bytes: Vec<u8>, code: u16| {
        Script::new(GROUP, name, vec![Step::Send(bytes)], Expect::Close(code))
    };
    let mut all = vec![
        send("no code".to_owned(), masked(CLOSE, b""), 0).or(Expect::Close(1000)),
        send("one byte".to_owned(), masked(CLOSE, &[3]), 1002),
        send("a reason of 123 bytes".to_owned(), close(1000, &[b'x'; 123]), 1000),
        send("a reason that is no UTF-8".to_owned(), close(1000, b"\xff\xfe"), 1007),
        send("a reason with half a character".to_owned(), close(1000, b"\xe2\x82"), 1007),
        send("terminal escapes in the reason".to_owned(), close(1000, b"\x1b[2J\x1b]0;x\x07"), 1000),
    ];
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999] {
        all.push(send(format!("code {code}"), close(code, b""), code));
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        all.push(send(format!("invalid code {code}"), close(code, b""), 1002));
    }
    all
}
