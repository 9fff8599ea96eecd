//! Replays the corpora of the fuzz targets for feeds, so that every test run covers what fuzzing has found.

#[path = "../../../testkit/corpus/replay.rs"]
mod replay;

use crate::{fuzz, fuzz_record as record, fuzz_sbe as sbe_messages};
use replay::replay;

#[test]
fn json() {
    replay("feed_json", 5, fuzz::json::run);
}

#[test]
fn number() {
    replay("feed_number", 5, fuzz::number::run);
}

#[test]
fn sbe_message() {
    replay("feed_sbe", 5, sbe_messages::run);
}

#[test]
fn recording() {
    replay("feed_record", 5, record::run);
}
