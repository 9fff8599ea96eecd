//! Windows that are too small, and calls that allocate nothing.
//!
//! With `TAUTLINE_WHOLE` set, the tests are as long as the promise: `cargo xtask test --rest` does that.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../testkit/counting/sys.rs"]
mod counting;
mod support;

use counting::allocations;
use support::{CEngine, CSession, io, slice, window};
use tautline::{Fused, Rustls};
use tautline_capi::sys::*;
use tautline_testkit::Random;
use tautline_testkit::pair::{Pair, Split};
use tautline_testkit::rustls_peer::Fixture;
use tautline_tls::{EngineKind as _, Versions};

type End = CSession<true>;

fn is_whole() -> bool {
    std::env::var_os("TAUTLINE_WHOLE").is_some()
}

/// An established pair of sessions.
fn pair(can: &'static tautline_tls::Capabilities, versions: Versions) -> (End, End) {
    let fixture = Fixture::default();
    let server = CEngine::new(can, Some(&fixture.server(versions)), None).unwrap();
    let client = CEngine::new(can, None, Some(&fixture.client(versions))).unwrap();
    let mut pair = Pair::new(&client, &server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    // A message each way ends the client's wait for tickets.
    for _ in 0..20 {
        pair.server.send(&[b"ready"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
    }
    (pair.client.session, pair.server.session)
}

fn open(end: &End, io: &mut TlsIo) {
    // SAFETY: a session, and windows of the caller.
    assert_eq!(unsafe { taut_tls_open(end.tls, &raw mut *io) }, TAUT_OK);
}

fn seal(end: &End, io: &mut TlsIo) {
    // SAFETY: as above.
    assert_eq!(unsafe { taut_tls_seal(end.tls, &raw mut *io) }, TAUT_OK);
}

/// Passes one message from one end to the other, through windows of 16 bytes and more: each call overflows.
fn pass(from: &End, to: &End, data: &[u8], random: &mut Random, wire: &mut Vec<u8>, got: &mut Vec<u8>) -> usize {
    wire.clear();
    got.clear();
    let (mut rest, mut records) = (data, 0);
    let mut out = [0; 64];
    loop {
        let slices = [slice(&rest[..rest.len() / 2]), slice(&rest[rest.len() / 2..])];
        let mut io = io();
        (io.data, io.data_count) = (slices.as_ptr(), slices.len());
        let room = 1 + random.below(out.len());
        io.out = window(&mut out[..room]);
        seal(from, &mut io);
        wire.extend_from_slice(&out[..io.written]);
        rest = &rest[io.taken..];
        records += io.records;
        assert!(io.out_waiting <= 16_384 + 64, "one record at most waits");
        if rest.is_empty() && io.want == TAUT_WANT_NONE {
            assert_eq!(io.out_waiting, 0);
            break;
        }
        assert_eq!(io.want, TAUT_WANT_WRITE);
    }
    let (mut used, mut plain) = (0, [0; 64]);
    loop {
        let mut io = io();
        io.r#in = window(&mut wire[used..]);
        let room = random.below(plain.len());
        io.plain = window(&mut plain[..room]);
        open(to, &mut io);
        got.extend_from_slice(&plain[io.plain_offset..io.plain_offset + io.plain_len]);
        used += io.taken;
        assert!(io.plain_waiting <= 16_384, "one record at most waits");
        if io.want == TAUT_WANT_READ {
            break;
        }
        assert!([TAUT_WANT_ROOM, TAUT_WANT_NONE].contains(&io.want));
    }
    assert_eq!(used, wire.len());
    records
}

#[test]
fn tiny_windows_lose_nothing() {
    let most = if is_whole() { 500_000 } else { 5_000 };
    for (can, versions) in [
        (Fused.capabilities(), Versions::Tls13),
        (Fused.capabilities(), Versions::Tls12),
        (Rustls.capabilities(), Versions::Tls13),
    ] {
        let (mut client, mut server) = pair(can, versions);
        (client.checks, server.checks) = (false, false);
        let mut random = Random::new(7);
        let data = random.bytes(40_000);
        let (mut wire, mut got, mut records, mut messages) = (Vec::new(), Vec::new(), 0, 0_u64);
        while records < most {
            let len = if messages % 500 == 0 { random.below(data.len()) } else { 65 + random.below(100) };
            let (from, to) = if messages % 2 == 0 { (&client, &server) } else { (&server, &client) };
            records += pass(from, to, &data[..len], &mut random, &mut wire, &mut got);
            assert!(got == data[..len], "message {messages} of {len} bytes");
            messages += 1;
        }
        let ((spilled, _), (_, carried)) = (client.counters(), server.counters());
        assert!(spilled >= messages / 2 && carried >= messages / 2 - messages / 50);
    }
}

/// A handshake, a key update and a close through windows of a few bytes.
#[test]
fn handshakes_fit_tiny_windows() {
    let fixture = Fixture::default();
    let can = Fused.capabilities();
    let server = CEngine::<true>::new(can, Some(&fixture.server(Versions::Tls13)), None).unwrap();
    let client = CEngine::<true>::new(can, None, Some(&fixture.client(Versions::Tls13))).unwrap();
    let Pair { client, server } = Pair::new(&client, &server, "localhost").unwrap();
    let mut ends = [client.session, server.session];
    let mut inboxes = [Vec::new(), Vec::new()];
    let mut done = [false; 2];
    let mut turns = 0;
    while done != [true; 2] {
        for index in 0..2 {
            ends[index].checks = false;
            let mut out = [0; 48];
            let mut io = io();
            io.out = window(&mut out);
            if !done[index] {
                io.r#in = window(&mut inboxes[index]);
                // SAFETY: a session, and windows of this call.
                assert_eq!(unsafe { taut_tls_handshake(ends[index].tls, &raw mut io) }, TAUT_OK);
                inboxes[index].drain(..io.taken);
                done[index] = io.want == TAUT_WANT_NONE;
            }
            inboxes[1 - index].extend_from_slice(&out[..io.written]);
        }
        turns += 1;
        assert!(turns < 1000);
    }
    let mut wire = Vec::new();
    for function in [0, 1] {
        loop {
            let mut out = [0; 3];
            let mut io = io();
            io.out = window(&mut out);
            let (tls, io_of_call) = (ends[0].tls, &raw mut io);
            let code = match function {
                // SAFETY: a session, and windows of this call.
                0 if wire.is_empty() => unsafe { taut_tls_key_update(tls, 1, io_of_call) },
                // SAFETY: as above.
                0 => unsafe { taut_tls_open(tls, io_of_call) },
                // SAFETY: as above.
                _ => unsafe { taut_tls_close(tls, io_of_call) },
            };
            assert_eq!(code, TAUT_OK);
            wire.extend_from_slice(&out[..io.written]);
            if io.want != TAUT_WANT_WRITE {
                break;
            }
        }
    }
    let mut io = io();
    inboxes[1].extend_from_slice(&wire);
    io.r#in = window(&mut inboxes[1]);
    io.plain = io.r#in;
    open(&ends[1], &mut io);
    assert_eq!((io.want, io.plain_len), (TAUT_WANT_CLOSED, 0));
}

/// The calls with windows as arguments do what those with windows in a struct do.
#[test]
fn windows_can_be_arguments() {
    for can in [Fused.capabilities(), Rustls.capabilities()] {
        let (client, server) = pair(can, Versions::Tls13);
        let (data, mut wire, mut plain) = (Random::new(3).bytes(40_000), vec![0; 50_000], vec![0; 50_000]);
        let mut sealed = io();
        let (out, room) = (wire.as_mut_ptr(), wire.len());
        // SAFETY: a session, and memory of this test.
        let code = unsafe { taut_tls_seal_into(client.tls, data.as_ptr(), data.len(), out, room, &raw mut sealed) };
        assert_eq!((code, sealed.taken, sealed.records), (TAUT_OK, data.len(), 3));
        // SAFETY: as above; the windows overlap, which the call reports.
        let code = unsafe { taut_tls_seal_into(client.tls, out, 9, out, room, &raw mut sealed) };
        assert_eq!(code, TAUT_ERR_OVERLAP);
        let mut used = 0;
        let mut opened = Vec::new();
        while opened.len() < data.len() {
            let mut one = io();
            one.max_records = 1;
            let (rest, into) = (wire[used..].as_mut_ptr(), plain.as_mut_ptr());
            let (len, room) = (wire.len() - used, plain.len());
            // SAFETY: as above.
            let code = unsafe { taut_tls_open_into(server.tls, rest, len, rest, len, &raw mut one) };
            assert_eq!(code, TAUT_ERR_OVERLAP);
            // SAFETY: as above.
            let code = unsafe { taut_tls_open_into(server.tls, rest, len, into, room, &raw mut one) };
            assert_eq!((code, one.records), (TAUT_OK, 1));
            opened.extend_from_slice(&plain[one.plain_offset..one.plain_offset + one.plain_len]);
            used += one.taken;
        }
        assert!(opened == data);
        // SAFETY: null is an error and no crash.
        let code = unsafe { taut_tls_open_into(server.tls, core::ptr::null_mut(), 9, out, 9, &raw mut sealed) };
        assert_eq!(code, TAUT_ERR_NULL);
    }
}

/// Steady calls allocate nothing, and no window is too small.
#[test]
fn steady_calls_allocate_nothing() {
    let calls = if is_whole() { 10_000_000 } else { 20_000 };
    let (client, server) = pair(Fused.capabilities(), Versions::Tls13);
    let (data, mut wire, mut plain) = (vec![7; 20_000], vec![0; 40_000], vec![0; 20_000]);
    let mut turn = |len: usize, in_place: bool| {
        let slices = [slice(&data[..len / 3]), slice(&data[len / 3..len])];
        let mut one = io();
        // Every third message is one slice.
        (one.data, one.data_count) = (slices.as_ptr(), slices.len());
        one.out = window(&mut wire);
        seal(&client, &mut one);
        assert_eq!((one.taken, one.want), (len, TAUT_WANT_NONE));
        let mut two = io();
        two.r#in = window(&mut wire[..one.written]);
        two.plain = if in_place { two.r#in } else { window(&mut plain) };
        open(&server, &mut two);
        assert_eq!((two.taken, two.plain_len, two.records), (one.written, len, len.div_ceil(16_384)));
    };
    for len in [64, 20_000] {
        turn(len, true);
        turn(len, false);
    }
    let before = allocations();
    for call in 0..calls / 2 {
        turn(if call % 1000 == 0 { 20_000 } else { 64 }, call % 2 == 0);
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!((client.counters(), server.counters()), ((0, 0), (0, 0)));
}
