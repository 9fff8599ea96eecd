//! Frames at every edge of their bits and lengths (RFC 6455, section 5).

use crate::script::{Expect, Script, Step};
use crate::wire::{
    BINARY, CONTINUES, ENDS, PING, PONG, RSV1, TEXT, TEXT_BEGINS, header, long_header, masked, middle_header, unmasked,
};

const GROUP: &str = "frames";
/// The longest message that the preset accepts.
const MOST: u64 = 1 << 20;

pub(super) fn scripts() -> Vec<Script> {
    let mut all = bits();
    all.extend(lengths());
    all.extend(fragments());
    all
}

fn send(name: impl Into<String>, bytes: Vec<u8>, expect: Expect) -> Script {
    Script::new(GROUP, name, vec![Step::Send(bytes)], expect)
}

fn refused(name: impl Into<String>, bytes: Vec<u8>) -> Script {
    send(name, bytes, Expect::Close(1002))
}

/// Every first byte that is not valid, and masks.
fn bits() -> Vec<Script> {
    let mut all = Vec::new();
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        all.push(refused(format!("reserved opcode {opcode}"), masked(0x80 | opcode, b"x")));
    }
    for rsv in [0x40, 0x20, 0x10, 0x60, 0x50, 0x30, 0x70] {
        all.push(refused(format!("reserved bits {rsv:#x} of a text"), masked(TEXT | rsv, b"x")));
        all.push(refused(format!("reserved bits {rsv:#x} of a ping"), masked(PING | rsv, b"x")));
    }
    for (name, opcode) in [("close", 8), ("ping", 9), ("pong", 10)] {
        all.push(refused(format!("a fragmented {name}"), masked(opcode, b"")));
        all.push(refused(format!("an announced {name} of 126 bytes"), middle_header(0x80 | opcode, 126)));
        all.push(refused(format!("an announced {name} of 2^62 bytes"), long_header(0x80 | opcode, 1 << 62)));
        all.push(refused(format!("an unmasked {name}"), unmasked(0x80 | opcode, b"")));
    }
    all.push(refused("an unmasked text", unmasked(TEXT, b"bare")));
    all.push(refused("an unmasked empty text", unmasked(TEXT, b"")));
    all.push(refused("an unmasked continuation", [masked(TEXT_BEGINS, b"a"), unmasked(ENDS, b"b")].concat()));
    all.push(refused("an unmasked header alone", header(BINARY, 0, 1 << 16)));
    all.push(refused("every bit of the header", vec![0xff; 14]));
    all.push(refused("1 MiB of 0xff", vec![0xff; 1 << 20]));
    all.push(refused("RSV1 without the extension", masked(TEXT | RSV1, b"squeezed")));
    // A first fragment with FIN clear, opcode text, no mask.
    all.push(refused("zeros", vec![0; 1000]));
    all
}

/// Every edge of the length, in each form that it can have.
fn lengths() -> Vec<Script> {
    let mut all = Vec::new();
    for len in [0, 1, 124, 125, 126, 127, 128, 65_534, 65_535, 65_536, 65_537, 1 << 20] {
        let text = "x".repeat(len);
        all.push(send(format!("{len} bytes"), masked(TEXT, text.as_bytes()), Expect::Echo(text.clone())));
    }
    for len in [0, 1, 125] {
        all.push(refused(format!("{len} bytes in two bytes of length"), middle_header(BINARY, len)));
    }
    for len in [0, 1, 125, 126, 65_535] {
        all.push(refused(format!("{len} bytes in eight bytes of length"), long_header(BINARY, len)));
    }
    for shift in [63, 62, 48, 40, 32, 31] {
        let code = if shift == 63 { 1002 } else { 1009 };
        all.push(send(format!("2^{shift} bytes"), long_header(BINARY, 1 << shift), Expect::Close(code)));
    }
    all.push(refused("2^64 - 1 bytes", long_header(BINARY, u64::MAX)));
    all.push(send("2^63 - 1 bytes", long_header(BINARY, u64::MAX >> 1), Expect::Close(1009)));
    all.push(send("one byte above the limit", long_header(BINARY, MOST + 1), Expect::Close(1009)));
    let half = vec![b'x'; 1 << 19];
    let more = [&half[..], b"x"].concat();
    let both = [masked(TEXT_BEGINS, &half), masked(ENDS, &more)].concat();
    all.push(send("one byte above the limit in two fragments", both, Expect::Close(1009)));
    let announced = [masked(TEXT_BEGINS, &half), long_header(ENDS, (1 << 19) + 1)].concat();
    all.push(send("a fragment that would pass the limit, announced", announced, Expect::Close(1009)));
    // The sum of these lengths overflows 64 bits.
    let sum = [masked(TEXT_BEGINS, &half), long_header(CONTINUES, u64::MAX >> 1)].concat();
    all.push(send("lengths whose sum overflows", sum, Expect::Close(1009)));
    for cut in 1..14 {
        let frame = [long_header(TEXT, 65_536), masked(TEXT, b"")[2..].to_vec()].concat();
        let head = frame.get(..cut).unwrap_or_default().to_vec();
        let script = Script::new(
            GROUP,
            format!("a header cut behind {cut} bytes, then a half-close"),
            vec![Step::Send(head), Step::HalfClose],
            Expect::Hangup,
        );
        all.push(script.or(Expect::Alert(&[])).or(Expect::Close(0)).or(Expect::Close(1002)));
    }
    all
}

/// Sequences of fragments and control frames.
fn fragments() -> Vec<Script> {
    let ping = masked(PING, b"between");
    vec![
        send(
            "a message in three fragments with a ping",
            [masked(TEXT_BEGINS, b"a"), ping, masked(CONTINUES, b""), masked(ENDS, b"b")].concat(),
            Expect::Echo("ab".to_owned()),
        ),
        refused("a continuation of nothing", masked(CONTINUES, b"a")),
        refused("an end of nothing", masked(ENDS, b"a")),
        refused("a continuation behind a whole message", [masked(TEXT, b"a"), masked(ENDS, b"b")].concat()),
        refused("a text inside a text", [masked(TEXT_BEGINS, b"a"), masked(TEXT, b"b")].concat()),
        refused("a binary message inside a text", [masked(TEXT_BEGINS, b"a"), masked(BINARY, b"b")].concat()),
        refused("a second beginning", [masked(TEXT_BEGINS, b"a"), masked(TEXT_BEGINS, b"b")].concat()),
        refused("a reserved bit in a continuation", [masked(TEXT_BEGINS, b"a"), masked(ENDS | RSV1, b"b")].concat()),
        send(
            "an empty message of 1,000 fragments",
            [masked(TEXT_BEGINS, b""), masked(CONTINUES, b"").repeat(998), masked(ENDS, b"")].concat(),
            Expect::Echo(String::new()),
        ),
        send(
            "a message of 1,000 fragments of one byte",
            [masked(TEXT_BEGINS, b"x"), masked(CONTINUES, b"x").repeat(998), masked(ENDS, b"x")].concat(),
            Expect::Echo("x".repeat(1000)),
        ),
        Script::new(
            GROUP,
            "every byte in a piece of its own",
            vec![Step::Pieces([masked(TEXT_BEGINS, b"he"), masked(ENDS, b"llo")].concat(), 1)],
            Expect::Echo("hello".to_owned()),
        ),
        send("a ping of 125 bytes", masked(PING, &[7; 125]), Expect::Pong(vec![7; 125])),
        send("an empty ping", masked(PING, b""), Expect::Pong(Vec::new())),
        send(
            "pongs that nobody asked for",
            [masked(PONG, b"no").repeat(100), masked(TEXT, b"still")].concat(),
            Expect::Echo("still".to_owned()),
        ),
    ]
}
