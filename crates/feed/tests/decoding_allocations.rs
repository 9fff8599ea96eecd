//! Decoding and recording allocate nothing.

#[path = "../../testkit/counting/sys.rs"]
mod counting;
mod encoded;
mod sbe;

use counting::allocations;
use sbe::market::{AnyMessage, DepthEvent};
use std::hint::black_box;
use std::io;
use tautline_feed::json::{JsonError, Scanner};
use tautline_feed::record::{Direction, Event, Kind, Recorder, Recording, Storage};

/// Allocations of the calls of a function, after one that may still allocate.
fn counted(calls: u32, mut call: impl FnMut()) -> u64 {
    call();
    let before = allocations();
    (0..calls).for_each(|_| call());
    allocations() - before
}

const DEPTH: &[u8] = br#"{"e":"depthUpdate","E":1764300000000,"s":"BTCUSDT","U":157,"u":160,"b":[["67321.45000000","0.00120000"],["67321.44000000","0.00000000"]],"a":[["67321.46000000","93452345678900.50000000"],["1.5e3","1"]],"x":{"y":[null,true,"\u00e9"]}}"#;

fn best(text: &[u8]) -> Result<i64, JsonError> {
    let (mut json, mut best) = (Scanner::new(text), 0);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"b" | b"a" => {
                json.begin_array()?;
                while json.next_element()? {
                    json.begin_array()?;
                    while json.next_element()? {
                        best = best.max(json.fixed()?.at(8).unwrap_or(0));
                    }
                }
            }
            b"s" => drop(json.string()?.as_str()?),
            b"U" => best = best.max(json.i64()?),
            _ => json.skip()?,
        }
    }
    json.end()?;
    Ok(best)
}

#[test]
fn json_is_decoded_without_allocation() {
    let cut = &DEPTH[..DEPTH.len() - 1];
    let count = counted(25_000, || {
        black_box(best(black_box(DEPTH)).unwrap());
        black_box(best(black_box(cut)).unwrap_err());
    });
    assert_eq!(count, 0);
}

#[test]
fn sbe_is_decoded_without_allocation() {
    let (depth, trades, instrument) = (encoded::depth(5), encoded::trades(1), encoded::instrument(2));
    let quote = encoded::best_bid_ask();
    let cut = &depth[..100];
    let count = counted(25_000, || {
        let event = DepthEvent::decode(black_box(&depth)).unwrap();
        black_box(event.bids().map(|level| level.price()).max());
        black_box(AnyMessage::decode(black_box(&trades)).is_ok());
        black_box(AnyMessage::decode(black_box(&instrument)).is_ok());
        black_box(DepthEvent::decode(black_box(cut)).unwrap_err());
        black_box(AnyMessage::decode(black_box(&quote)).is_ok());
    });
    assert_eq!(count, 0);
}

/// A disk that takes everything at once.
struct Nowhere;

impl Storage for Nowhere {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn events_are_recorded_without_allocation() {
    let mut recorder = Recorder::with(Box::new(Nowhere), &Recording::default()).unwrap();
    let mut at = 0;
    let mut record = || {
        at += 1_000;
        let event = Event { at, connection: 1, direction: Direction::In, kind: Kind::Text, payload: DEPTH };
        recorder.record(black_box(event));
    };
    // Queues that threads have not used yet set themselves up when they are first used.
    (0..10_000).for_each(|_| record());
    assert_eq!(counted(50_000, record), 0);
}
