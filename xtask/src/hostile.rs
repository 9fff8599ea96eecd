//! Scripted attackers against `taut serve`, a thousand of them at once, and soaks (`tests/hostile`).

mod scan;

use std::path::Path;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::run;
use crate::stage::Context;
use crate::{paths, taut};

pub(crate) use scan::scan;

/// The TLS engines under attack: both of rustls, and one library of the OpenSSL family. `ws` is no TLS.
const ENGINES: [&str; 4] = ["ws", "fused", "rustls", "openssl"];

/// Every attack on every engine and driver, one after the other. `further` arguments go to the kit.
pub(crate) fn attacks(context: &Context, further: &[String]) -> Outcome {
    let server = taut::with_everything(context)?;
    let mut attacks = kit(&server, "attacks");
    attacks.args(ENGINES.map(|engine| ["--engine", engine]).as_flattened());
    run(drivers(context, &mut attacks)?.args(further), context.deadline)
}

/// The attacks on resources by many at once, for this many seconds each, on every engine and driver, against this program or the
/// one that is built as released. `further` arguments go to the kit.
pub(crate) fn crowds(context: &Context, seconds: u64, program: Option<&Path>, further: &[String]) -> Outcome {
    let program = program.map_or_else(|| taut::released(context), |program| Ok(program.to_owned()))?;
    let mut crowds = kit(&program, "crowds");
    crowds.args(ENGINES.map(|engine| ["--engine", engine]).as_flattened()).args(["--seconds", &seconds.to_string()]);
    run(drivers(context, &mut crowds)?.args(further), context.deadline)
}

/// Ten thousand connections for this many seconds.
pub(crate) fn soak(context: &Context, seconds: u64) -> Outcome {
    let mut soak = kit(&taut::program(), "soak");
    run(soak.args(["--seconds", &seconds.to_string()]), context.deadline)
}

/// The kit against this program. Logs of its servers are in the folder.
fn kit(server: &Path, task: &str) -> Command {
    let mut command = Command::new(taut::example("hostile"));
    command.arg("--taut").arg(server).arg("--folder").arg(paths::own("hostile").join(task)).arg(task);
    command
}

/// Names every driver that works here.
fn drivers<'a>(context: &Context, command: &'a mut Command) -> Result<&'a mut Command, Failure> {
    let drivers = taut::drivers()?;
    if let Some((name, reason)) = drivers.lacking {
        context.skip(name, &reason);
    }
    Ok(command.args(drivers.working.iter().flat_map(|driver| ["--driver", driver])))
}
