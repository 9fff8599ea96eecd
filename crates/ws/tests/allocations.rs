//! Messages cost no allocation once the buffers are warm.

#[path = "../../testkit/counting/sys.rs"]
mod counting;

use counting::allocations;
use tautline_buf::{Buf, Pool};
use tautline_ws::deflate::{DeflateParams, Deflater, Inflater};
use tautline_ws::{Decoder, Encoder, Error, Event, Kind, Role};

/// Sends a message from a client to a server in pieces of `step` bytes, and echoes it.
fn echo(ends: &mut Ends, payload: &[u8], step: usize) -> Result<(), Error> {
    let Ends { client, server, answers, at_client, wire, back, pool } = ends;
    client.message(Kind::Text, payload, true, || [1, 2, 3, 4], wire, pool)?;
    let mut answered = false;
    while !wire.is_empty() {
        let there = wire.len().min(step);
        let decoded = server.decode(&mut wire.filled_mut()[..there], pool)?;
        let used = decoded.used;
        if let Some(Event::Message(message)) = decoded.event {
            assert_eq!(message.data(), payload);
            let mut pool_of_answers = Pool::new(0);
            answers.message(message.kind(), message.data(), false, || [0; 4], back, &mut pool_of_answers)?;
            answered = true;
        }
        wire.take(used);
        server.recycle(pool);
    }
    assert!(answered);
    let decoded = at_client.decode(back.filled_mut(), pool)?;
    assert!(matches!(decoded.event, Some(Event::Message(message)) if message.data() == payload));
    back.clear();
    Ok(())
}

struct Ends {
    client: Encoder,
    server: Decoder,
    answers: Encoder,
    at_client: Decoder,
    wire: Buf,
    back: Buf,
    pool: Pool,
}

#[test]
fn a_message_costs_no_allocation_when_warm() {
    let params = DeflateParams {
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    };
    for compress in [false, true] {
        let mut ends = Ends {
            client: Encoder::new(Role::Client),
            server: Decoder::new(Role::Server, 1 << 20),
            answers: Encoder::new(Role::Server),
            at_client: Decoder::new(Role::Client, 1 << 20),
            wire: Buf::new(),
            back: Buf::new(),
            pool: Pool::new(1 << 22),
        };
        if compress {
            ends.client = ends.client.with_deflater(Deflater::new(&params, Role::Client, 1));
            ends.server = ends.server.with_inflater(Inflater::new(&params, Role::Server, u32::MAX));
        }
        let payload = vec![b'a'; 100_000];
        let mut run = || {
            for len in [0, 5, 64, 125, 126, 1000, 65_536, 100_000] {
                for step in [usize::MAX, 50_000, 700] {
                    echo(&mut ends, &payload[..len], step).unwrap();
                }
            }
        };
        run();
        run();
        let before = allocations();
        run();
        let after = allocations();
        assert!(before > 0);
        assert_eq!(after - before, 0, "allocations where compress is {compress}");
    }
}
