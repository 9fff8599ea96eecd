//! A second try of tests that failed.
//!
//! Some tests wait for other processes and for the kernel's timers, on a machine that compiles beside them. One that fails
//! once in some hundred runs is a fault, and the summary names it. It should not cost the result of an hour.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::outcome::Outcome;
use crate::paths;
use crate::process::run_copied;
use crate::stage::Context;

/// Runs `cargo test` with all its tests. If this stage is tried again, it runs those that failed before.
pub(crate) fn tests(test: &mut Command, name: &str, context: &Context) -> Outcome {
    let log = paths::log(name);
    let arguments = if context.again { selection(&log) } else { Vec::new() };
    run_copied(test.args(arguments), &log, context.deadline)
}

/// The arguments of `cargo test` that choose what failed in this log; none if all has to run.
fn selection(log: &Path) -> Vec<String> {
    let log = fs::read(log).unwrap_or_default();
    failed(&String::from_utf8_lossy(&log)).unwrap_or_default()
}

fn failed(log: &str) -> Option<Vec<String>> {
    // Cargo ends with a line for each program of tests: `-p tautline-cli --test program`.
    let programs = log.lines().skip_while(|line| !line.starts_with("error: ") || !line.ends_with(" failed:")).skip(1);
    let programs: Vec<&str> = programs.map_while(|line| line.trim().strip_prefix("`-p ")?.strip_suffix('`')).collect();
    let mut arguments: Vec<String> = Vec::new();
    for program in &programs {
        // The package stays unnamed: the features of dependencies are those of all chosen packages together.
        let (_, kind) = program.split_once(' ')?;
        if !arguments.join(" ").contains(kind) {
            arguments.extend(kind.split(' ').map(str::to_owned));
        }
    }
    // A program that was killed names no test: then each of these programs runs whole.
    let ended = log.lines().filter(|line| line.starts_with("test result: FAILED.")).count();
    if ended == programs.len() && ended > 0 {
        arguments.extend(["--", "--exact"].map(str::to_owned));
        let tests = log.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        arguments.extend(tests.map(str::to_owned));
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: &str = "\
running 2 tests
test plain::answers ... ok
test plain::closes ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed, to rerun pass `-p tautline-cli --test program`
";

    #[test]
    fn only_the_tests_that_failed_run_again() {
        let log = format!("{ENDED}error: 1 target failed:\n    `-p tautline-cli --test program`\n");
        assert_eq!(failed(&log).unwrap(), ["--test", "program", "--", "--exact", "plain::closes"]);
    }

    #[test]
    fn programs_that_were_killed_run_whole() {
        let log =
            format!("{ENDED}error: 2 targets failed:\n    `-p tautline-cli --test program`\n    `-p tautline --lib`\n");
        assert_eq!(failed(&log).unwrap(), ["--test", "program", "--lib"]);
    }

    #[test]
    fn everything_runs_again_if_nothing_was_compiled() {
        assert_eq!(failed("error: could not compile `tautline` (lib) due to 1 previous error\n").unwrap(), [""; 0]);
    }
}
