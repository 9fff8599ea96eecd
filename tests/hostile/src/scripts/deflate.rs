//! Compressed messages (RFC 7692): bombs in one message and in many, and streams that are none.

use crate::script::{Begin, Expect, Script, Step};
use crate::wire::{BINARY, CONTINUES, ENDS, RSV1, TEXT, TEXT_BEGINS, deflated, long_header, masked};

const GROUP: &str = "compression";

pub(super) fn scripts() -> Vec<Script> {
    let send = |name: &str, bytes: Vec<u8>, expect: Expect| {
        Script::new(GROUP, name, vec![Step::Send(bytes)], expect).begin(Begin::Deflate)
    };
    let squeezed = |payload: &[u8]| masked(BINARY | RSV1, payload);
    let broken = |name: &str, bytes: &[u8]| send(name, squeezed(bytes), Expect::Close(1007)).or(Expect::Close(1002));
    let bomb = |megabytes: usize| deflated(&vec![0; megabytes << 20]);
    let in_fragments = |payload: &[u8], len: usize| {
        let mut wire = Vec::new();
        for (at, piece) in payload.chunks(len).enumerate() {
            wire.extend(masked(if at == 0 { 0x02 | RSV1 } else { CONTINUES }, piece));
        }
        [wire, masked(ENDS, b"")].concat()
    };
    vec![
        send("a compressed text", masked(TEXT | RSV1, &deflated(b"hello hello")), Expect::Close(0)).expecting_data(),
        send("a bomb of 16 MiB", squeezed(&bomb(16)), Expect::Close(1009)),
        send("a bomb of 1 GiB", squeezed(&bomb(1024)), Expect::Close(1009)),
        send("one byte above the limit", squeezed(&deflated(&vec![0; (1 << 20) + 1])), Expect::Close(1009)),
        send("a bomb in fragments of 10 bytes", in_fragments(&bomb(64), 10), Expect::Close(1009)),
        Script::new(
            GROUP,
            "300 messages of 1 MiB in 1 KB each",
            vec![Step::Times(300, vec![Step::Send(squeezed(&bomb(1)))]), Step::Reset],
            Expect::Gone,
        )
        .begin(Begin::Deflate),
        broken("random bytes", &[0xde, 0xad, 0xbe, 0xef, 0x12, 0x34]),
        broken("a reserved kind of block", &[0x07]),
        broken("a stored block with a wrong length", &[0x00, 0x05, 0x00, 0x00, 0x00, 1, 2, 3, 4, 5]),
        broken("a distance before the beginning", &[0x03, 0x02, 0x05, 0x00]),
        broken("bytes behind the last block", &[0x03, 0x00, 0xff, 0xff, 0xff, 0xff]).expecting_any(),
        send("an empty payload", squeezed(b""), Expect::Close(1007)).expecting_any(),
        send(
            "RSV1 in a continuation",
            [masked(TEXT_BEGINS | RSV1, b"\xf2"), masked(ENDS | RSV1, b"x")].concat(),
            Expect::Close(1002),
        ),
        send("RSV1 in a ping", masked(0x89 | RSV1, b""), Expect::Close(1002)),
        send("compressed text that is no UTF-8", masked(TEXT | RSV1, &deflated(b"ab\xff")), Expect::Close(1007)),
        send("a compressed frame of 2^62 bytes", long_header(BINARY | RSV1, 1 << 62), Expect::Close(1009)),
        Script::new(
            GROUP,
            "blocks that inflate to nothing, without an end",
            vec![
                Step::Send(masked(0x02 | RSV1, &[0, 0, 0, 0xff, 0xff])),
                Step::Times(2_000, vec![Step::Send(masked(CONTINUES, &[0, 0, 0, 0xff, 0xff].repeat(1_000)))]),
            ],
            Expect::Close(1009),
        )
        .begin(Begin::Deflate),
        send("4,096 empty stored blocks", squeezed(&[0, 0, 0, 0xff, 0xff].repeat(4_096)), Expect::Close(1007))
            .expecting_any(),
    ]
}

impl Script {
    /// Takes an echo instead of the first expectation.
    fn expecting_data(mut self) -> Self {
        self.expect = vec![Expect::Data];
        self
    }

    /// Takes an echo too: the bytes are unusual, but not wrong.
    fn expecting_any(self) -> Self {
        self.or(Expect::Data)
    }
}
