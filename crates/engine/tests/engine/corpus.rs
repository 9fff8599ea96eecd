//! Replays the corpus of the fuzz targets for whole connections, so that every test run covers what fuzzing has found.

#[path = "../fuzz/mod.rs"]
mod fuzz;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

fn replay(target: &str, run: impl Fn(&[u8])) {
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
fn server_connection() {
    replay("server_connection", fuzz::server_connection::run);
}

#[test]
fn client_connection() {
    replay("client_connection", fuzz::client_connection::run);
}

#[test]
fn saved_connection() {
    let accepted = AtomicUsize::new(0);
    replay("saved_connection", |data| {
        accepted.fetch_add(usize::from(fuzz::saved_connection::run(data)), Ordering::Relaxed);
    });
    // Refused ones cover little: a new version of the format needs new files.
    let accepted = accepted.into_inner();
    assert!(accepted >= 40, "{accepted} are accepted");
}

#[test]
fn retry_after() {
    replay("retry_after", fuzz::retry_after::run);
}
