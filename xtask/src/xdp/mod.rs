//! The driver over AF_XDP, in network namespaces that its tests make.

mod program;
mod spaces;

pub(crate) use program::{autobahn, program};

use crate::cargo::cargo;
use crate::process::run;
use crate::stage::{Context, Failure, Outcome, is_root};

/// What cargo's own stage leaves out, as the feature is off by default.
pub(crate) fn test(context: &Context) -> Outcome {
    check_root()?;
    run(&mut cargo(&["test", "--locked", "-p", "tautline-xdp"]), context.deadline)?;
    run(&mut cargo(&["test", "--locked", "-p", "tautline", "--features", "xdp", "--test", "xdp"]), context.deadline)
}

fn check_root() -> Outcome {
    if is_root() {
        return Ok(());
    }
    Err(Failure::Skipped("it takes root to make network namespaces and to load XDP programs".to_owned()))
}
