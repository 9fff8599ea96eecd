//! Windows and tables of both ends, around the time at which the peer learns of ours.

use super::{Bench, GET};
use crate::block::TABLE;
use crate::frame::{flag, kind};
use crate::limits::Limits;
use http::{HeaderMap, StatusCode};

#[test]
fn a_body_may_be_longer_than_a_small_window_until_the_peer_knows_that() {
    // RFC 9113, section 6.9.3: a body that left before our settings arrived.
    let mut bench = Bench::begun(Limits { stream_window: 1_000, ..Limits::default() });
    bench.ask(1, &GET, false).unwrap();
    for _ in 0..3 {
        bench.send(kind::DATA, 0, 1, &[7; 16_384]).unwrap();
    }
    bench.send(kind::SETTINGS, flag::ACK, 0, &[]).unwrap();
    assert_eq!((bench.data.len(), bench.take().len()), (3 * 16_384, 4), "the request and its bytes");
    bench.answers();
    // The peer's window is 1,000 below what it has sent. It comes back once the application has taken all.
    bench.server.took(1, 3 * 16_384, &mut bench.out);
    let back = bench.answers();
    assert_eq!(back, [(kind::WINDOW_UPDATE, 0, 1, (3 * 16_384_u32).to_be_bytes().to_vec())]);
    bench.send(kind::DATA, 0, 1, &[7; 1_000]).unwrap();
    assert_eq!(bench.take(), ["1 1000 false"]);
    bench.send(kind::DATA, 0, 1, &[7]).unwrap();
    assert_eq!(bench.take(), ["1 reset FLOW_CONTROL_ERROR: more DATA than the stream's window allows"]);
}

#[test]
fn a_small_window_comes_back_though_it_was_once_larger() {
    let mut bench = Bench::begun(Limits { stream_window: 1_000, ..Limits::default() });
    bench.ask(1, &GET, false).unwrap();
    bench.send(kind::DATA, 0, 1, &[7; 600]).unwrap();
    bench.server.took(1, 600, &mut bench.out);
    bench.send(kind::SETTINGS, flag::ACK, 0, &[]).unwrap();
    bench.send(kind::DATA, 0, 1, &[7; 400]).unwrap();
    bench.server.took(1, 400, &mut bench.out);
    let back = bench.answers();
    assert!(back.contains(&(kind::WINDOW_UPDATE, 0, 1, 1_000_u32.to_be_bytes().to_vec())), "{back:?}");
}

#[test]
fn frames_on_their_way_for_all_streams_that_were_reset_at_once_are_ignored() {
    let mut bench = Bench::new(Limits::default());
    let streams: Vec<u32> = (0..100).map(|number| 2 * number + 1).collect();
    for stream in &streams {
        bench.ask(*stream, &GET, false).unwrap();
    }
    for stream in &streams {
        bench.server.reset(*stream, crate::code::Code::NO_ERROR, &mut bench.out);
    }
    bench.take();
    bench.answers();
    for stream in &streams {
        for _ in 0..4 {
            bench.send(kind::DATA, 0, *stream, &[7; 1_024]).unwrap();
        }
    }
    assert_eq!((bench.take().len(), bench.answers().len()), (0, 0));
}

#[test]
fn a_peer_that_keeps_a_smaller_table_is_told_that_we_fill_none() {
    // RFC 7541, section 4.2: nghttp2 ends a connection that does not say so.
    for (table, first) in [(0, 0x20), (TABLE - 1, 0x20), (TABLE, 0x88), (1 << 20, 0x88)] {
        let mut bench = Bench::new(Limits::default());
        let setting = [&[0, 1][..], &table.to_be_bytes()].concat();
        bench.send(kind::SETTINGS, 0, 0, &setting).unwrap();
        for stream in [1, 3] {
            bench.ask(stream, &GET, true).unwrap();
            bench.answers();
            assert!(bench.server.respond(stream, StatusCode::OK, &HeaderMap::new(), true, &mut bench.out));
            let section = bench.answers().remove(0).3;
            assert_eq!(section[0], if stream == 1 { first } else { 0x88 }, "a table of {table}");
        }
    }
}

#[test]
fn a_large_head_leaves_in_several_frames() {
    let mut bench = Bench::new(Limits::default());
    bench.ask(1, &GET, true).unwrap();
    bench.answers();
    let value = "v".repeat(20_000);
    let mut headers = HeaderMap::new();
    headers.insert("x-large", value.parse().unwrap());
    headers.insert("x-more", value.parse().unwrap());
    assert!(bench.server.respond(1, StatusCode::OK, &headers, true, &mut bench.out));
    let frames = bench.answers();
    let kinds: Vec<_> = frames.iter().map(|(kind, flags, _, payload)| (*kind, *flags, payload.len())).collect();
    assert_eq!(kinds[..2], [(kind::HEADERS, flag::END_STREAM, 16_384), (kind::CONTINUATION, 0, 16_384)]);
    assert_eq!((kinds.len(), kinds[2].1), (3, flag::END_HEADERS));
    let block: Vec<u8> = frames.into_iter().flat_map(|(_, _, _, payload)| payload).collect();
    let fields = crate::block::BlockDecoder::new().decode(&block, &Limits { fields: 1 << 20, ..Limits::default() });
    assert_eq!(fields.unwrap().iter().map(|(_, value)| value.len()).collect::<Vec<_>>(), [3, 20_000, 20_000]);
}
