//! One attack against one server.

use crate::honest::Honest;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::report::Row;
use crate::script::{Act, Expect, Over, Script};
use crate::seen::{End, Seen};
use crate::server::{Server, Target};
use crate::wire;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Longest wait for the outcome of a script.
const PATIENCE: Duration = Duration::from_secs(8);
/// Longest wait for that of a slow one: above every deadline of the preset.
const LONG_PATIENCE: Duration = Duration::from_secs(45);
/// Least samples of honest connections beside an attack.
const LEAST_SAMPLES: usize = 10;

/// Whether a script is for a server.
pub(crate) fn applies(script: &Script, target: &Target) -> bool {
    match script.over {
        Over::All => !target.client_certificates && !target.http2,
        Over::Tls => target.tls.is_some() && !target.client_certificates && !target.http2,
        Over::Http2 => target.http2,
        Over::ClientCertificates => target.client_certificates,
    }
}

/// Runs a script beside honest connections.
pub(crate) fn run(server: &Server, honest: Option<&Honest>, number: &str, script: &Script) -> Row {
    if let Some(honest) = honest {
        // Those of before are forgotten. A failure is told below.
        let _ = honest.p99(0);
    }
    let (before, _) = server.memory();
    server.forget_peak();
    let expected = script.expected(server.target.tls.as_deref());
    let begun = Instant::now();
    let result = attack(server, script);
    let time = begun.elapsed();
    let mut row = Row::new(server.target.to_string(), number.to_owned(), script);
    (row.outcome, row.passed) = match result {
        Ok(seen) => (seen.outcome(), expected.iter().any(|expect| meets(&seen, expect))),
        Err(error) => (error.to_string(), false),
    };
    if !server.is_alive() {
        (row.outcome, row.passed) = ("THE SERVER HAS ENDED".to_owned(), false);
    }
    match honest.map(|honest| honest.p99(LEAST_SAMPLES)) {
        None => {}
        Some(Ok(p99)) => row.p99 = Some(p99),
        Some(Err(failure)) => (row.outcome, row.passed) = (failure.to_string(), false),
    }
    row.seconds = time.as_secs_f64();
    row.growth = server.memory().1.saturating_sub(before);
    row
}

/// Does what a script says, and returns what the server did.
pub(crate) fn attack(server: &Server, script: &Script) -> Result<Seen> {
    match &script.act {
        Act::Program(program) => program(server),
        Act::Steps(steps) => {
            let mut peer = Peer::begin(server, script.begin)?;
            peer.act(server, steps, &AtomicBool::new(false))?;
            let expected = script.expected(server.target.tls.as_deref());
            let patience = if script.slow { LONG_PATIENCE } else { PATIENCE };
            if script.expect == [Expect::Gone] {
                return Ok(Seen::default());
            }
            Ok(peer.observe(patience, |seen| seen.end.is_some() || expected.iter().any(|e| is_decided(seen, e))))
        }
    }
}

/// Whether nothing more has to be awaited.
fn is_decided(seen: &Seen, expect: &Expect) -> bool {
    match expect {
        // These must be the last that the server says, so its end is awaited.
        Expect::Close(_) | Expect::Alert(_) | Expect::Hangup | Expect::DataThenAlert => false,
        // A server may keep the connection after an HTTP answer.
        Expect::Status(_) => seen.status.is_some(),
        _ => meets(seen, expect),
    }
}

/// Whether the server did what it should.
fn meets(seen: &Seen, expect: &Expect) -> bool {
    let in_order = seen.end.is_none() && seen.alert.is_none() && seen.close().is_none();
    match expect {
        Expect::Status(status) => seen.status == Some(*status),
        Expect::Extensions(value) => {
            let extensions: Vec<&str> = seen.head.lines().filter_map(extension).collect();
            let as_expected = if value.is_empty() { extensions.is_empty() } else { extensions == [*value] };
            seen.status == Some(101) && as_expected
        }
        Expect::Close(code) => seen.close() == Some(*code) && seen.end == Some(End::Finished),
        Expect::Alert(codes) => {
            let data = seen.frames.is_empty() && seen.status.is_none();
            data && seen.end.is_some() && seen.alert.is_some_and(|alert| codes.is_empty() || codes.contains(&alert))
        }
        Expect::Echo(text) => {
            let data = seen.frames.iter().rfind(|frame| frame.first & 0x0f < 8);
            in_order && data.is_some_and(|frame| frame.payload == text.as_bytes())
        }
        Expect::DataThenAlert => seen.frames.len() == 1 && seen.alert.is_some(),
        Expect::Data => in_order && seen.frames.iter().any(|frame| frame.first & 0x0f < 3),
        Expect::Pong(payload) => {
            in_order && seen.frames.iter().any(|frame| frame.first == wire::PONG && frame.payload == *payload)
        }
        Expect::Hangup => seen.end.is_some() && seen.frames.is_empty() && seen.status.is_none() && seen.alert.is_none(),
        Expect::Word(word) => seen.word == *word,
        Expect::GoAway(code) => seen.go_away == Some(*code) && seen.end.is_some(),
        Expect::StreamReset(code) => seen.resets.contains(code) && seen.go_away.is_none(),
        Expect::Ends(streams) => seen.ended >= *streams,
        Expect::Gone => true,
    }
}

fn extension(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("Sec-WebSocket-Extensions").then(|| value.trim())
}
