//! Prints the stages of messages on standard error.

use crate::output;
use log::Level;
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
        output::report(Level::Info, stages);
    }
}
