//! A second try of tests that failed.
//!
//! Some tests wait for other processes and for the kernel's timers, on a machine that compiles beside them. One that fails
//! once in some hundred runs is a fault, and the summary names it. It should not cost the result of an hour.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::run_copied;
use crate::stage::Context;

/// Runs `cargo test` with all its tests. If this stage is tried again, it runs those that failed before.
pub(crate) fn tests(test: &mut Command, name: &str, context: &Context) -> Outcome {
    let log = paths::log(name);
    let before = if context.again { fs::read(&log)? } else { Vec::new() };
    let before = String::from_utf8_lossy(&before);
    let selections = failed(&before);
    if selections.is_empty() {
        return run_copied(test, &log, context.deadline);
    }
    let mut output = String::new();
    for selection in selections {
        let mut some = Command::new(test.get_program());
        // A selection brings its own arguments for the tests.
        some.args(test.get_args().take_while(|argument| *argument != "--")).args(selection).current_dir(paths::root());
        some.envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
        run_copied(&mut some, &log, context.deadline)?;
        output += &fs::read_to_string(&log)?;
    }
    match names(&before, "FAILED").find(|failed| names(&output, "ok").all(|passed| passed != *failed)) {
        Some(missing) => Err(Failure::Failed(format!("the test `{missing}` did not run again"))),
        None => Ok(()),
    }
}

/// The names of tests with this result.
fn names<'l>(log: &'l str, result: &str) -> impl Iterator<Item = &'l str> {
    log.lines().filter_map(move |line| {
        let name = line.strip_prefix("test ")?.strip_suffix(result)?.strip_suffix(" ... ")?;
        // libtest says so behind the name.
        let modes = [" - should panic", " - compile fail", " - compile"];
        Some(modes.iter().find_map(|mode| name.strip_suffix(mode)).unwrap_or(name))
    })
}

/// The arguments of `cargo test` that choose what failed in this log; none if all has to run. Cargo runs the tests of documents
/// by a command of their own, which runs all of them.
fn failed(log: &str) -> Vec<Vec<String>> {
    // Cargo ends with a line for each program of tests: `-p tautline-cli --test program`.
    let programs = log.lines().skip_while(|line| !line.starts_with("error: ") || !line.ends_with(" failed:")).skip(1);
    let programs: Vec<&str> = programs.map_while(|line| line.trim().strip_prefix("`-p ")?.strip_suffix('`')).collect();
    // The package stays unnamed: the features of dependencies are those of all chosen packages together.
    let kinds: BTreeSet<&str> = programs.iter().filter_map(|program| Some(program.split_once(' ')?.1)).collect();
    // A program that was killed names no test: then each of these programs runs whole.
    let ended = log.lines().filter(|line| line.starts_with("test result: FAILED.")).count();
    let tests: Vec<&str> = if ended == programs.len() { names(log, "FAILED").collect() } else { Vec::new() };
    let (documents, others): (Vec<&str>, Vec<&str>) = kinds.iter().partition(|kind| **kind == "--doc");
    // rustdoc parts the names of its tests at their spaces, so they cannot be chosen.
    let documents = if documents.is_empty() { Vec::new() } else { vec![vec!["--doc".to_owned()]] };
    let exact = if tests.is_empty() { &[][..] } else { &["--", "--exact"] };
    let words = |kinds: Vec<&str>| -> Vec<String> {
        let tests = tests.iter().filter(|name| !name.contains(' '));
        let kinds = kinds.iter().flat_map(|kind| kind.split(' '));
        kinds.chain(exact.iter().copied()).chain(tests.copied()).map(str::to_owned).collect()
    };
    let others = if others.is_empty() { None } else { Some(words(others)) };
    documents.into_iter().chain(others).collect()
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
        assert_eq!(failed(&log), [["--test", "program", "--", "--exact", "plain::closes"]]);
    }

    #[test]
    fn programs_that_were_killed_run_whole() {
        let log =
            format!("{ENDED}error: 2 targets failed:\n    `-p tautline-cli --test program`\n    `-p tautline --lib`\n");
        assert_eq!(failed(&log), [["--lib", "--test", "program"]]);
    }

    #[test]
    fn tests_of_documents_have_a_command_of_their_own() {
        let log = format!(
            "{ENDED}test src/drain.rs - Drain (line 10) - compile ... FAILED\ntest result: FAILED. 0 passed\n\
             error: 2 targets failed:\n    `-p tautline-cli --test program`\n    `-p tautline-tokio --doc`\n"
        );
        assert_eq!(failed(&log), [&["--doc"][..], &["--test", "program", "--", "--exact", "plain::closes"]]);
    }

    #[test]
    fn everything_runs_again_if_nothing_was_compiled() {
        assert!(failed("error: could not compile `tautline` (lib) due to 1 previous error\n").is_empty());
    }
}
