//! Replays the corpora of the fuzz targets for feeds, so that every test run covers what fuzzing has found.

use crate::{fuzz, fuzz_record as record, fuzz_sbe as sbe_messages};
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", folder.display());
}

#[test]
fn json() {
    replay("feed_json", fuzz::json::run);
}

#[test]
fn number() {
    replay("feed_number", fuzz::number::run);
}

#[test]
fn sbe_message() {
    replay("feed_sbe", sbe_messages::run);
}

#[test]
fn recording() {
    replay("feed_record", record::run);
}
