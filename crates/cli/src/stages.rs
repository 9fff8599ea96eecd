//! Where the time of messages goes, told on standard error.

use tautline::{Remote, Stages};

/// What the probes of loops found so far.
pub(crate) fn tell(remotes: &[Remote]) {
    let stages = remotes.iter().filter_map(|remote| remote.stages().ok().flatten());
    tell_all(stages.reduce(|mut all, one| {
        all.merge(&one);
        all
    }));
}

/// What they found in the end.
pub(crate) fn tell_all(stages: Option<Box<Stages>>) {
    if let Some(stages) = stages {
        eprint!("{stages}");
    }
}
