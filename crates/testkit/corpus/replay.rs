//! Replays the corpus of a fuzz target, for test binaries to include.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

use std::path::Path;

/// Gives every file of a target's corpus to `run`. The corpus must have at least `least` files.
pub(crate) fn replay(target: &str, least: usize, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= least, "{count} files in {}", folder.display());
}
