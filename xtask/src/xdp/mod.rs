//! Tests of the driver over AF_XDP, in network namespaces.

mod program;
mod spaces;

pub(crate) use program::{autobahn, program};

use crate::cargo::{cargo, everything};
use crate::outcome::{Failure, Outcome};
use crate::process::run;
use crate::stage::{Context, is_root};

/// The driver's own tests.
pub(crate) fn driver(context: &Context) -> Outcome {
    check_root()?;
    run(&mut cargo(&["test", "--locked", "-p", "tautline-xdp"]), context.deadline)
}

/// Servers and clients over AF_XDP. The driver's own tests are among the ordinary ones.
pub(crate) fn test(context: &Context) -> Outcome {
    check_root()?;
    run(&mut everything(&["test", "--test", "xdp"]), context.deadline)
}

fn check_root() -> Outcome {
    if is_root() {
        return Ok(());
    }
    Err(Failure::Skipped("only root can make network namespaces and load XDP programs".to_owned()))
}
