//! Texts that are no UTF-8, cut anywhere (RFC 6455, section 8.1).

use crate::script::{Expect, Script, Step};
use crate::wire::{CONTINUES, ENDS, TEXT, TEXT_BEGINS, masked};

const GROUP: &str = "UTF-8";

pub(super) fn scripts() -> Vec<Script> {
    let mut all = Vec::new();
    let invalid: [(&str, &[u8]); 14] = [
        ("a lone continuation byte", b"\x80"),
        ("0xff", b"\xff"),
        ("an overlong slash", b"\xc0\xaf"),
        ("an overlong NUL", b"\xc0\x80"),
        ("an overlong form of three bytes", b"\xe0\x80\xaf"),
        ("an overlong form of four bytes", b"\xf0\x80\x80\xaf"),
        ("a low surrogate", b"\xed\xb0\x80"),
        ("a high surrogate", b"\xed\xa0\x80"),
        ("a pair of surrogates", b"\xed\xa0\xbd\xed\xb2\xa9"),
        ("above U+10FFFF", b"\xf4\x90\x80\x80"),
        ("a form of five bytes", b"\xf8\x88\x80\x80\x80"),
        ("a form of six bytes", b"\xfc\x84\x80\x80\x80\x80"),
        ("two bytes of three", b"\xe2\x82"),
        ("three bytes of four", b"\xf0\x9f\xa6"),
    ];
    for (name, bytes) in invalid {
        let text = [b"valid before ", bytes].concat();
        let whole = Script::new(GROUP, name, vec![Step::Send(masked(TEXT, &text))], Expect::Close(1007));
        all.push(whole);
        let pieces: Vec<u8> = text
            .iter()
            .enumerate()
            .flat_map(|(at, byte)| masked(if at == 0 { TEXT_BEGINS } else { CONTINUES }, &[*byte]))
            .chain(masked(ENDS, b""))
            .collect();
        let name = format!("{name}, in fragments of one byte");
        all.push(Script::new(GROUP, name, vec![Step::Send(pieces)], Expect::Close(1007)));
    }
    // Refused as soon as the byte is there, not when the message is whole.
    all.push(Script::new(
        GROUP,
        "an invalid byte in a message without an end",
        vec![Step::Send(masked(TEXT_BEGINS, b"ab\xff"))],
        Expect::Close(1007),
    ));
    let text = "aé€🦀 κόσμε \u{10ffff}";
    for cut in 1..text.len() {
        let (a, b) = text.as_bytes().split_at(cut);
        let wire = [masked(TEXT_BEGINS, a), masked(ENDS, b)].concat();
        let name = format!("valid text cut behind {cut} bytes");
        all.push(Script::new(GROUP, name, vec![Step::Send(wire)], Expect::Echo(text.to_owned())));
    }
    all
}
