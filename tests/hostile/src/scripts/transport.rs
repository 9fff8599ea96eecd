//! TCP: resets, half-closes, and peers that never read.

use crate::script::{Begin, Expect, Script, Step};
use crate::wire::{BINARY, TEXT, header, masked, upgrade};
use std::time::Duration;

const GROUP: &str = "transport";

pub(super) fn scripts() -> Vec<Script> {
    let gone = |name: &str, begin: Begin, steps: Vec<Step>| {
        let steps = [steps, vec![Step::Reset]].concat();
        Script::new(GROUP, name, steps, Expect::Gone).begin(begin)
    };
    let half = |name: &str, begin: Begin, steps: Vec<Step>| {
        let steps = [steps, vec![Step::HalfClose]].concat();
        Script::new(GROUP, name, steps, Expect::Hangup).begin(begin)
    };
    let partial = Step::Send([header(BINARY, 0x80, 1000), vec![0; 500]].concat());
    vec![
        gone("a reset before a byte", Begin::Tcp, Vec::new()),
        gone("a reset in the request", Begin::Secure, vec![Step::Send(b"GET / HT".to_vec())]),
        gone("a reset behind the request", Begin::Secure, vec![Step::Send(upgrade(""))]),
        gone("a reset of an open WebSocket", Begin::Open, Vec::new()),
        gone("a reset in a message", Begin::Open, vec![partial.clone()]),
        gone("a reset behind 1,000 messages", Begin::Open, vec![Step::Send(masked(TEXT, b"x").repeat(1_000))]),
        half("a half-close before a byte", Begin::Tcp, Vec::new()),
        half("a half-close in the request", Begin::Secure, vec![Step::Send(b"GET / HT".to_vec())])
            .or(Expect::Status(400))
            .or(Expect::Alert(&[])),
        half("a half-close of an open WebSocket", Begin::Open, Vec::new()).or(Expect::Close(0)),
        half("a half-close in a message", Begin::Open, vec![partial]).or(Expect::Close(0)),
        Script::new(
            GROUP,
            "a half-close behind a message",
            vec![Step::Send(masked(TEXT, b"last words")), Step::HalfClose],
            Expect::Data,
        )
        .or(Expect::Hangup),
        Script::new(
            GROUP,
            "one byte in each segment",
            vec![Step::Pieces(masked(TEXT, &[b'x'; 300]), 1)],
            Expect::Echo("x".repeat(300)),
        ),
        Script::new(
            GROUP,
            "a window that stays shut",
            vec![
                Step::Times(400, vec![Step::Send(masked(BINARY, &[7; 16_000]))]),
                Step::Pause(Duration::from_secs(1)),
                Step::Reset,
            ],
            Expect::Gone,
        ),
        // No server here expects one.
        Script::new(
            GROUP,
            "a header of the PROXY protocol, version 1",
            vec![Step::Wire([b"PROXY TCP4 127.0.0.9 127.0.0.1 4711 443\r\n".as_slice(), &upgrade("")].concat())],
            Expect::Status(400),
        )
        .begin(Begin::Tcp)
        .or(Expect::Alert(&[]))
        .or(Expect::Hangup),
        Script::new(
            GROUP,
            "a header of the PROXY protocol, version 2, of 64 KiB",
            vec![Step::Wire([b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".as_slice(), &[0; 0xffff], &upgrade("")].concat())],
            Expect::Status(400),
        )
        .begin(Begin::Tcp)
        .or(Expect::Status(431))
        .or(Expect::Alert(&[]))
        .or(Expect::Hangup),
    ]
}
