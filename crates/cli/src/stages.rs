//! Prints the stages of messages on standard error.

use std::io::Write;
use tautline::{ShardHandle, Stages};

/// Prints the results so far of the probes of all loops.
pub(crate) fn report(shards: &[ShardHandle]) {
    print(merged(shards));
}

/// The results so far of the probes of all loops, if they have probes.
pub(crate) fn merged(shards: &[ShardHandle]) -> Option<Box<Stages>> {
    let stages = shards.iter().filter_map(|shard| shard.stages().ok().flatten());
    stages.reduce(|mut all, one| {
        all.merge(&one);
        all
    })
}

/// Prints results, if there are any.
pub(crate) fn print(stages: Option<Box<Stages>>) {
    if let Some(stages) = stages {
        // No panic where the disk of the log is full.
        let _ = write!(std::io::stderr(), "{stages}");
    }
}
