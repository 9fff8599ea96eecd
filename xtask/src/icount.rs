//! Instructions of the server as it is shipped, for fixed scenarios, by callgrind, beside a committed baseline.
//!
//! A count needs no quiet machine, unlike a time. Each scenario runs twice, shortly and for longer. The difference in
//! instructions, divided by the difference in operations, has neither start nor end of the program in it.
//!
//! valgrind emulates a processor without AVX-512, so a baseline holds for all processors that have its features.

mod baseline;
mod run;
mod scenario;

use std::path::{Path, PathBuf};

use crate::outcome::{Failure, Outcome};
use crate::process::output;
use crate::stage::Context;
use crate::{cargo, paths};
use baseline::Baseline;
use run::Run;
use scenario::{FULL, Per, SCENARIOS, Scenario};

/// Growth above which a scenario fails.
const MOST_GROWTH: f64 = 0.02;

/// Seconds of load in the short and in the long run.
const SECONDS: [u32; 2] = [1, 4];

/// The scenario without a server, and the example of `tautline-ws` that is run for it.
const FRAME: &str = "frame parse, 64 B masked";
const FRAMES: &str = "decode_frames";

/// Frames that are decoded in the short and in the long run.
const DECODED: [u32; 2] = [10_000, 40_000];

/// The counts that become the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bless {
    Nothing,
    /// Those of scenarios that the baseline lacks. The others are compared.
    New,
    /// All, instead of comparing them.
    All,
}

/// Counts all scenarios, and compares them with the baseline.
pub(crate) fn count(context: &Context, bless: Bless) -> Outcome {
    if output(std::process::Command::new("valgrind").arg("--version")).is_none() {
        return Err(Failure::Skipped("valgrind is not installed".to_owned()));
    }
    let build = ["build", "--profile", "dist", "--locked", "-p", "tautline-cli", "--features", "http2"];
    let build = cargo::cargo(&build);
    let [program] = cargo::executables(context, build, ["taut"])?;
    let path = file();
    let before = Baseline::read(&path)?;
    let mut now = Baseline::default();
    let mut grown = Vec::new();
    let mut judge = |name: &'static str, count: f64, now: &mut Baseline| {
        let told = match before.get(name) {
            Some(before) => {
                let growth = count / before - 1.0;
                if growth > MOST_GROWTH {
                    grown.push(name);
                }
                format!("{:+.1} % of {before:.0}", growth * 100.0)
            }
            None => "not in the baseline".to_owned(),
        };
        println!("{name:<26}{count:>12.0}  {told}");
        now.set(name, count);
    };
    for scenario in SCENARIOS {
        let count = measure(&program, scenario, now.get(FULL), context)?;
        judge(scenario.name, count, &mut now);
    }
    judge(FRAME, frame(context)?, &mut now);
    match bless {
        Bless::All => return now.write(&path),
        Bless::New => before.with_new(now).write(&path)?,
        Bless::Nothing => {}
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "more than {:.0} % above {}: {}; find out why, or accept it with `cargo xtask icount --bless`",
        MOST_GROWTH * 100.0,
        path.display(),
        grown.join(", ")
    )))
}

/// Instructions for each operation of a scenario. `full` is what a full handshake takes.
fn measure(program: &Path, scenario: &Scenario, full: Option<f64>, context: &Context) -> Result<f64, Failure> {
    let [short, long] = SECONDS.map(|seconds| run::run(program, scenario, seconds, context));
    let (short, long) = (short?, long?);
    let full = full.filter(|_| scenario.per == Per::Resumed);
    slope(&short, &long, full).ok_or_else(|| {
        let why = format!("`{}`: the long run did no more than the short one: {short:?}, {long:?}", scenario.name);
        Failure::Failed(why)
    })
}

/// Instructions for one frame that is decoded in memory.
fn frame(context: &Context) -> Result<f64, Failure> {
    let build = cargo::cargo(&["build", "--profile", "dist", "--locked", "-p", "tautline-ws", "--example", FRAMES]);
    let [program] = cargo::executables(context, build, [FRAMES])?;
    let [short, long] = DECODED.map(|count| run::decode(&program, count, context));
    let (short, long) = (short?, long?);
    slope(&short, &long, None).ok_or_else(|| Failure::Failed(format!("`{FRAME}`: {short:?}, {long:?}")))
}

/// Instructions for each operation that the long run has more than the short one, without those of `other` operations.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn slope(short: &Run, long: &Run, other: Option<f64>) -> Option<f64> {
    let operations = long.operations.checked_sub(short.operations).filter(|more| *more > 0)?;
    let others = long.others.checked_sub(short.others)?;
    let instructions = long.instructions.checked_sub(short.instructions)? as f64;
    Some((instructions - other.unwrap_or_default() * others as f64) / operations as f64)
}

/// The baseline of processors like this one.
fn file() -> PathBuf {
    #[cfg(target_arch = "x86_64")]
    let features = if std::arch::is_x86_feature_detected!("avx2") { "-avx2" } else { "" };
    #[cfg(not(target_arch = "x86_64"))]
    let features = "";
    paths::root().join(format!("xtask/icount/{}{features}.txt", std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::{Run, slope};

    #[test]
    fn start_and_end_of_the_program_do_not_count() {
        let run = |instructions, operations, others| Run { instructions, operations, others };
        assert_eq!(slope(&run(1_000_100, 10, 0), &run(1_000_400, 40, 0), None), Some(10.0));
        assert_eq!(slope(&run(1_000_100, 10, 0), &run(1_000_400, 10, 0), None), None, "nothing was done");
        assert_eq!(slope(&run(1_000_100, 10, 1), &run(1_000_400, 40, 4), Some(50.0)), Some(5.0));
    }
}
