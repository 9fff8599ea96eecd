//! Offers of permessage-deflate (RFC 7692, section 7.1). An offer that the server does not accept is declined.

use crate::script::{Begin, Expect, Script, Step};
use crate::wire::upgrade;

const GROUP: &str = "extension offers";
const PLAIN: &str = "permessage-deflate";

pub(super) fn scripts() -> Vec<Script> {
    let offer = |name: &str, value: &str, answer: &'static str| {
        let head = upgrade(&format!("Sec-WebSocket-Extensions: {value}\r\n"));
        Script::new(GROUP, name, vec![Step::Send(head)], Expect::Extensions(answer)).begin(Begin::Secure)
    };
    let bad = |name: &str, value: &str| offer(name, value, "").or(Expect::Status(400));
    let many = format!("x-{}; a=b", "y".repeat(500));
    vec![
        offer("the plain offer", PLAIN, PLAIN).or(Expect::Extensions(ANSWER)),
        offer("an unknown extension", "x-unknown", ""),
        bad("window bits 7", "permessage-deflate; server_max_window_bits=7"),
        bad("window bits 16", "permessage-deflate; server_max_window_bits=16"),
        bad("window bits 010", "permessage-deflate; server_max_window_bits=010"),
        bad("window bits -9", "permessage-deflate; server_max_window_bits=-9"),
        bad("window bits 4294967305", "permessage-deflate; server_max_window_bits=4294967305"),
        bad("window bits without a value", "permessage-deflate; server_max_window_bits"),
        bad("client window bits 99", "permessage-deflate; client_max_window_bits=99"),
        bad("a parameter twice", "permessage-deflate; client_no_context_takeover; client_no_context_takeover"),
        bad("a value where none may be", "permessage-deflate; client_no_context_takeover=1"),
        bad("an unknown parameter", "permessage-deflate; x=y"),
        bad("an open quote", "permessage-deflate; server_max_window_bits=\"10"),
        bad("an empty parameter", "permessage-deflate; ; x"),
        bad("only commas", ",,,,"),
        bad("control characters", "permessage-deflate;\x0bx=y"),
        bad("a backslash at the end", "permessage-deflate; x=\"\\"),
        bad("a name of 5,000 bytes", &"x".repeat(5_000)),
        bad("30 unknown extensions", &["x-unknown; a=b"; 30].join(", ")),
        bad("long names of unknown extensions", &[many.as_str(); 8].join(", ")),
        offer(
            "a good offer behind a bad one",
            "permessage-deflate; server_max_window_bits=7, permessage-deflate",
            PLAIN,
        )
        .or(Expect::Extensions(ANSWER))
        .or(Expect::Status(400)),
        offer("the offer 200 times", &[PLAIN; 200].join(", "), PLAIN).or(Expect::Extensions(ANSWER)),
    ]
}

/// The server compresses each message by itself, so that idle connections hold no window.
const ANSWER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
