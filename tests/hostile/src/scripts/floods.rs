//! Floods: much of what is allowed, to servers whose answers nobody reads or everybody must wait for.

use crate::script::{Expect, Script, Step};
use crate::wire::{BINARY, CONTINUES, ENDS, PING, PONG, TEXT, TEXT_BEGINS, masked};
use std::time::Duration;

const GROUP: &str = "floods";

pub(super) fn scripts() -> Vec<Script> {
    let flood = |name: &str, frame: Vec<u8>, times: usize| {
        let batch = frame.repeat((16_000 / frame.len()).max(1));
        let rounds = times * frame.len() / batch.len();
        let last = masked(TEXT, b"still there");
        let steps = vec![Step::Times(rounds, vec![Step::Send(batch)]), Step::Send(last)];
        Script::new(GROUP, name, steps, Expect::Echo("still there".to_owned()))
    };
    let unread = |name: &str, frame: Vec<u8>| {
        let steps = vec![Step::Times(2_000, vec![Step::Send(frame)]), Step::Reset];
        Script::new(GROUP, name, steps, Expect::Gone)
    };
    vec![
        flood("100,000 pongs", masked(PONG, b"x"), 100_000),
        flood("100,000 empty continuations", [masked(TEXT_BEGINS, b""), masked(ENDS, b"")].concat(), 50_000)
            .or(Expect::Close(1008)),
        Script::new(
            GROUP,
            "a message of 200,000 empty fragments",
            vec![
                Step::Send(masked(TEXT_BEGINS, b"")),
                Step::Times(100, vec![Step::Send(masked(CONTINUES, b"").repeat(2_000))]),
                Step::Send(masked(ENDS, b"end")),
            ],
            Expect::Echo("end".to_owned()),
        )
        .or(Expect::Close(1008))
        .or(Expect::Close(1009)),
        Script::new(
            GROUP,
            "20,000 pings, read only behind them",
            vec![
                Step::Times(20, vec![Step::Send(masked(PING, b"0123456789").repeat(1_000))]),
                Step::Send(masked(TEXT, b"still there")),
            ],
            Expect::Echo("still there".to_owned()),
        ),
        Script::new(
            GROUP,
            "10,000 messages, read only behind them",
            vec![
                Step::Times(10, vec![Step::Send(masked(TEXT, b"x").repeat(1_000))]),
                Step::Send(masked(TEXT, b"still there")),
            ],
            Expect::Echo("still there".to_owned()),
        ),
        unread("pings whose answers nobody reads", masked(PING, &[1; 125]).repeat(100)),
        unread("messages whose echoes nobody reads", masked(BINARY, &[1; 16_000])),
        unread("small messages whose echoes nobody reads", masked(TEXT, b"x").repeat(2_000)),
        Script::new(
            GROUP,
            "closes behind a close",
            vec![Step::Send(crate::wire::close(1000, b"").repeat(1_000)), Step::Pause(Duration::from_millis(20))],
            Expect::Close(1000),
        ),
        Script::new(
            GROUP,
            "data behind a close",
            vec![
                Step::Send(crate::wire::close(1000, b"")),
                Step::Times(100, vec![Step::Send(masked(BINARY, &[1; 16_000]))]),
            ],
            Expect::Close(1000),
        ),
    ]
}
