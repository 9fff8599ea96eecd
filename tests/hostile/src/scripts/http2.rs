//! HTTP/2: floods that cost the server more than the attacker, and frames that break its rules.
//!
//! A server that is attacked says why in GOAWAY and ends the connection, or it resets a stream and the connection is in order.

use crate::http2::{
    ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR, HAS_PRIORITY, HEADERS, PADDED, PING, PRIORITY, PRIORITY_UPDATE, PROTOCOL_ERROR, REFUSED_STREAM,
    SETTINGS, STREAM_CLOSED, field, fields, frame, get, ping, post, preface, priority_update, reset, setting, string,
    websocket, window,
};
use crate::script::{Begin, Expect, Over, Script, Step};
use crate::wire::{BINARY, masked};

const GROUP: &str = "HTTP/2";
/// The setting of the window with which streams begin (section 6.5.2).
pub(crate) const WINDOW: u16 = 4;
/// More frames than any limit permits.
const MANY: u32 = 10_000;

pub(super) fn scripts() -> Vec<Script> {
    let mut all: Vec<Script> = floods().into_iter().map(|(name, bytes)| flood(name, bytes)).collect();
    all.extend(held());
    all.extend(rules());
    all
}

fn script(name: &str, steps: Vec<Step>, expect: Expect) -> Script {
    Script::new(GROUP, name, steps, expect).begin(Begin::Http2).over(Over::Http2)
}

/// A flood, which ends with GOAWAY.
fn flood(name: &str, bytes: Vec<u8>) -> Script {
    let sends = bytes.chunks(16_000).map(|part| Step::Send(part.to_vec())).collect();
    let flood = script(name, sends, Expect::GoAway(ENHANCE_YOUR_CALM));
    // A stream may have had its answer before the data comes, and is no more then.
    if name.contains("behind the end") { flood.or(Expect::GoAway(STREAM_CLOSED)) } else { flood }
}

/// The numbers of a client's streams.
pub(crate) fn streams(number: u32) -> impl Iterator<Item = u32> {
    (0..number).map(|number| 2 * number + 1)
}

/// A WebSocket on a stream, and a message of 16,000 bytes for it.
pub(crate) fn echo(stream: u32) -> Vec<u8> {
    [websocket(stream), frame(DATA, 0, stream, &masked(BINARY, &[7; 16_000]))].concat()
}

/// A request with a bomb of this number of compressed fields.
pub(crate) fn bomb(stream: u32, number: usize) -> Vec<u8> {
    // An entry of 4,000 bytes, which each further byte names again.
    let entry = [&[0x40][..], &string(b"bomb"), &string(&[b'v'; 3_900])].concat();
    let bomb = [fields(b"GET"), entry, vec![0xbe; number]].concat();
    let (first, rest) = bomb.split_at(bomb.len() / 2);
    [frame(HEADERS, END_STREAM, stream, first), frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
}

/// The floods, by name, that cost the server more than the attacker. Crowds use them too.
pub(crate) fn floods() -> Vec<(&'static str, Vec<u8>)> {
    let each = |number: u32, frames: &dyn Fn(u32) -> Vec<u8>| streams(number).flat_map(frames).collect::<Vec<u8>>();
    let times = |frame: Vec<u8>| frame.repeat(MANY as usize);
    let head = |flags: u8, payload: &[u8]| frame(HEADERS, flags, 1, payload);
    let opened = |more: Vec<u8>| [websocket(1), more].concat();
    vec![
        ("10,000 streams at once", each(MANY, &websocket)),
        ("a rapid reset (CVE-2023-44487)", each(MANY, &|stream| [get(stream), reset(stream)].concat())),
        ("a rapid reset of WebSockets", each(MANY, &|stream| [websocket(stream), reset(stream)].concat())),
        (
            "made to reset by windows of nothing (CVE-2025-8671)",
            each(MANY, &|stream| [post(stream), window(stream, 0)].concat()),
        ),
        (
            "made to reset by windows that overflow (CVE-2025-8671)",
            each(MANY, &|stream| [post(stream), window(stream, 0x7fff_ffff)].concat()),
        ),
        (
            "made to reset by data behind the end (CVE-2025-8671)",
            each(MANY, &|stream| [get(stream), frame(DATA, END_STREAM, stream, b"x")].concat()),
        ),
        (
            "made to reset by streams that depend on themselves (CVE-2025-8671)",
            each(MANY, &|stream| {
                let on = [&stream.to_be_bytes()[..], &[16]].concat();
                [post(stream), frame(PRIORITY, 0, stream, &on)].concat()
            }),
        ),
        (
            "made to reset by malformed requests",
            each(MANY, &|stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &field(b":method", b"GET"))),
        ),
        (
            "10,000 empty continuations (VU#421644)",
            [head(0, &fields(b"GET")), times(frame(CONTINUATION, 0, 1, &[]))].concat(),
        ),
        (
            "continuations of 16 KiB without an end",
            [head(0, &fields(b"GET")), frame(CONTINUATION, 0, 1, &field(b"x", &[b'x'; 16_000])).repeat(100)].concat(),
        ),
        ("a bomb of 12,000 compressed fields", bomb(1, 12_000)),
        ("a bomb of 700 compressed fields, 1,300 times", each(1_300, &|stream| bomb(stream, 700))),
        (
            "heads with 700 fields, 1,300 times",
            each(1_300, &|stream| {
                let all = [fields(b"GET"), field(b"a", b"b").repeat(700)].concat();
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &all)
            }),
        ),
        ("10,000 SETTINGS", times(frame(SETTINGS, 0, 0, &[]))),
        ("10,000 pings", times(frame(PING, 0, 0, b"attacker"))),
        ("10,000 answers to no ping", times(frame(PING, ACK, 0, b"attacker"))),
        ("10,000 priorities", times(frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 16]))),
        ("10,000 priorities of RFC 9218", times(priority_update(1, b"u=1"))),
        ("10,000 unknown frames", times(frame(0x77, 0, 0, b"x"))),
        ("10,000 windows of one byte", opened(times(window(1, 1)))),
        (
            "10,000 windows of one byte for a stream that has ended",
            [websocket(1), reset(1), times(window(1, 1))].concat(),
        ),
        (
            "10,000 empty DATA frames for a stream that was reset",
            [post(1), window(1, 0), times(frame(DATA, 0, 1, &[]))].concat(),
        ),
        ("10,000 empty DATA frames", opened(times(frame(DATA, 0, 1, &[])))),
        ("10,000 DATA frames of padding", opened(times(frame(DATA, PADDED, 1, &[3, 0, 0, 0])))),
    ]
}

/// Attacks that a limit bounds. The connection is in order behind most of them.
fn held() -> Vec<Script> {
    let alive = || Expect::Pong(b"attacker".to_vec());
    let all = |each: &dyn Fn(u32) -> Vec<u8>, number: u32| {
        streams(number).map(|stream| Step::Send(each(stream))).collect::<Vec<_>>()
    };
    let and = |mut steps: Vec<Step>, last: Vec<u8>| {
        steps.push(Step::Send(last));
        steps
    };
    vec![
        script("101 streams at once", all(&websocket, 101), Expect::StreamReset(REFUSED_STREAM)),
        script("100 streams at once", and(all(&websocket, 100), ping()), alive()),
        script(
            "echoes to windows of nothing",
            [vec![Step::Send(setting(WINDOW, 0))], and(all(&echo, 50), ping())].concat(),
            alive(),
        ),
        script(
            "echoes to windows of one byte",
            [vec![Step::Send(setting(WINDOW, 1))], and(all(&echo, 50), ping())].concat(),
            alive(),
        ),
        script(
            "a head of 20 KiB",
            vec![Step::Send(
                [
                    frame(HEADERS, END_STREAM, 1, &[fields(b"GET"), field(b"a", &[b'a'; 10_000])].concat()),
                    frame(CONTINUATION, END_HEADERS, 1, &field(b"b", &[b'b'; 10_000])),
                ]
                .concat(),
            )],
            Expect::Status(431),
        ),
        script("100 requests whose bodies never come", all(&post, 100), Expect::Ends(100)).slow(),
        script("a preface alone", Vec::new(), Expect::Gone),
        script("half a frame", vec![Step::Send(get(1)[..20].to_vec()), Step::Reset], Expect::Gone),
        script("a reset with 100 open WebSockets", [all(&websocket, 100), vec![Step::Reset]].concat(), Expect::Gone),
    ]
}

/// Frames that no client sends, each of which ends the connection or its stream.
fn rules() -> Vec<Script> {
    let ends = |name: &str, bytes: Vec<u8>, code: u32| script(name, vec![Step::Send(bytes)], Expect::GoAway(code));
    let resets =
        |name: &str, bytes: Vec<u8>, code: u32| script(name, vec![Step::Send(bytes)], Expect::StreamReset(code));
    vec![
        ends("a window of the connection that overflows", window(0, 0x7fff_ffff), FLOW_CONTROL_ERROR),
        ends("a window of nothing for the connection", window(0, 0), PROTOCOL_ERROR),
        resets("a stream's window that overflows", [websocket(1), window(1, 0x7fff_ffff)].concat(), FLOW_CONTROL_ERROR),
        ends("a frame of 16,385 bytes", frame(DATA, 0, 1, &[0; 16_385]), FRAME_SIZE_ERROR),
        ends("a stream with an even number", websocket(2), PROTOCOL_ERROR),
        ends("data for a stream that has not begun", frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        ends("a field that no table has", frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0x7f]), COMPRESSION_ERROR),
        ends(
            "a frame between a head's frames",
            [frame(HEADERS, 0, 1, &fields(b"GET")), ping()].concat(),
            PROTOCOL_ERROR,
        ),
        ends(
            "a head with more padding than bytes",
            frame(HEADERS, END_HEADERS | PADDED, 1, &[200, 0, 0]),
            PROTOCOL_ERROR,
        ),
        ends(
            "a head too short for its priority",
            frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, &[0; 3]),
            FRAME_SIZE_ERROR,
        ),
        ends("a priority on a stream of its own", frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]), PROTOCOL_ERROR),
        ends("a priority of the stream 0", priority_update(0, b"u=1"), PROTOCOL_ERROR),
        ends(
            "priorities of 101 streams",
            streams(101).flat_map(|one| priority_update(one, b"")).collect(),
            PROTOCOL_ERROR,
        ),
        ends("a second preface", preface()[..24].to_vec(), FRAME_SIZE_ERROR).or(Expect::GoAway(PROTOCOL_ERROR)),
        resets(
            "a request with transfer-encoding",
            frame(HEADERS, END_HEADERS, 1, &[fields(b"POST"), field(b"transfer-encoding", b"chunked")].concat()),
            PROTOCOL_ERROR,
        ),
        resets(
            "a request with LF in a value",
            frame(HEADERS, END_HEADERS, 1, &[fields(b"GET"), field(b"a", b"b\nc: d")].concat()),
            PROTOCOL_ERROR,
        ),
    ]
}
