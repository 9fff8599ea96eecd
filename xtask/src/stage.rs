//! Stages: tasks with a time limit, run one after the other and summarised.

use std::cell::RefCell;
use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::outcome::{Failure, Outcome};
use crate::process::Deadline;

/// Stages and parts that may be skipped even if everything else must run, each with its reason.
const MAY_BE_SKIPPED: &[(&str, &str)] = &[
    ("deny: advisories", "the advisory database is fetched from a git host, which a closed network does not reach"),
    ("uring", "needs Linux 6.12, and a machine that permits io_uring"),
    ("autobahn uring", "needs Linux 6.12, and a machine that permits io_uring"),
    ("miri", "needs a nightly toolchain and the component server"),
    ("alerts", "needs promtool, which not every distribution has as a package"),
    ("browser", "needs Chromium, which not every distribution has as a package"),
    ("package", "needs a machine that permits to mount an overlay above the root folder"),
    ("acme: ARI", "needs Go 1.25 or newer, which Debian 12 does not have"),
    ("java", "needs Maven and a JDK that Debian 12 does not have"),
    ("sanitize: Rust", "needs a nightly toolchain"),
];

/// Stages of many tests, whose second try runs only the tests that failed (`again`).
const TRIED_IN_PARTS: [&str; 4] = ["test", "everything", "uring", "engines"];

/// Names the second of Unix time at which no stage of `cargo xtask test --rest` begins any more, and a running one is stopped.
///
/// A run of CI that reaches the limit of its machine tells nothing at all, so it ends before, and names what it did not get to.
const UNTIL: &str = "TAUTLINE_TEST_UNTIL";

/// Longest that another stage may take before it fails, and be tried again. No stage is tried again that was stopped: its limit
/// would pass once more, and CI has one of its own.
const AGAIN_WITHIN: Duration = Duration::from_secs(8 * 60);

/// One thing that `cargo xtask` does.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The stage is stopped and has failed after this many minutes.
    pub(crate) minutes: u64,
    pub(crate) run: Box<dyn Fn(&Context) -> Outcome>,
}

/// Something that a run does not do, and the reason.
pub(crate) type LeftOut = (&'static str, &'static str);

/// The deadline and the skipped parts of a running stage.
pub(crate) struct Context {
    pub(crate) deadline: Deadline,
    /// Whether the stage failed and is tried once more.
    pub(crate) again: bool,
    skipped: RefCell<Vec<(String, String)>>,
}

impl Context {
    /// Reports that a part of the stage is skipped.
    pub(crate) fn skip(&self, part: &str, reason: &str) {
        eprintln!("SKIPPED {part}: {reason}");
        self.skipped.borrow_mut().push((part.to_owned(), reason.to_owned()));
    }

    /// The result of a part of the stage. `None` if it is skipped, which is reported.
    pub(crate) fn unless_skipped<T>(&self, part: &str, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Err(Failure::Skipped(reason)) => {
                self.skip(part, &reason);
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}

/// Runs every stage, even after a failure, and ends with a summary whose last line counts them.
pub(crate) fn run(stages: &[Stage]) -> ExitCode {
    run_within(Duration::MAX, stages, ("", &[]))
}

/// Runs every stage likewise, warns if all of them take longer than `most`, and lists what is left out below a heading.
///
/// Where everything must run, a stage that fails is tried once more, and the summary names it if it passes then.
pub(crate) fn run_within(most: Duration, stages: &[Stage], left_out: (&str, &[LeftOut])) -> ExitCode {
    run_strictly(everything_must_run(), Limits { most, until: None }, stages, left_out)
}

/// Runs every stage likewise that begins before [`UNTIL`].
pub(crate) fn run_until(most: Duration, stages: &[Stage], left_out: (&str, &[LeftOut])) -> ExitCode {
    let until = env::var(UNTIL).ok().and_then(|second| second.parse().ok());
    let until = until.map(|second| UNIX_EPOCH + Duration::from_secs(second));
    run_strictly(everything_must_run(), Limits { most, until }, stages, left_out)
}

/// The times of a run.
#[derive(Clone, Copy)]
struct Limits {
    /// All stages together are too slow beyond it.
    most: Duration,
    /// The end of the run.
    until: Option<SystemTime>,
}

impl Limits {
    fn left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.duration_since(SystemTime::now()).unwrap_or_default())
    }
}

fn run_strictly(strict: bool, limits: Limits, stages: &[Stage], (heading, left_out): (&str, &[LeftOut])) -> ExitCode {
    let mut rows = Vec::new();
    let mut parts = Vec::new();
    let mut unstable = Vec::new();
    for stage in stages {
        let (start, used) = (Instant::now(), processor_time());
        if limits.left().is_zero() {
            let outcome = Err(Failure::Skipped("OUT OF TIME before it began".to_owned()));
            rows.push(Row { name: stage.name, time: Duration::ZERO, processor: Duration::ZERO, outcome });
            continue;
        }
        let (mut outcome, mut skipped) = attempt(stage, strict, false, limits.left());
        if let Err(Failure::Failed(reason)) = &outcome
            && strict
            && start.elapsed() < if TRIED_IN_PARTS.contains(&stage.name) { limit(stage) } else { AGAIN_WITHIN }
        {
            let (second, more) = attempt(stage, strict, true, limits.left());
            unstable.extend(second.is_ok().then(|| (stage.name, reason.clone())));
            outcome = second;
            skipped.extend(more);
        }
        if matches!(outcome, Err(Failure::Failed(_))) && limits.left().is_zero() {
            outcome = Err(Failure::Skipped("OUT OF TIME amid it".to_owned()));
        }
        rows.push(Row { name: stage.name, time: start.elapsed(), processor: processor_time() - used, outcome });
        parts.extend(skipped);
    }
    if !left_out.is_empty() {
        println!("\n=== {heading}");
    }
    left_out.iter().for_each(|(name, reason)| println!("{name:<20}{reason}"));
    summarise(limits.most, &rows, &parts, &unstable)
}

/// The time after which a stage is stopped.
const fn limit(stage: &Stage) -> Duration {
    Duration::from_secs(stage.minutes * 60)
}

/// Runs a stage once, and returns its outcome and the parts that it skipped.
fn attempt(stage: &Stage, strict: bool, again: bool, left: Duration) -> (Outcome, Vec<(String, String)>) {
    eprintln!("\n=== {} ({}at most {} min)", stage.name, if again { "again, " } else { "" }, stage.minutes);
    let deadline = Deadline::after(limit(stage).min(left));
    let context = Context { deadline, again, skipped: RefCell::default() };
    let mut outcome = (stage.run)(&context);
    let skipped = context.skipped.into_inner();
    if strict && outcome.is_ok() {
        outcome = skipped.iter().try_for_each(|(part, _)| refuse_new_skip(part));
    }
    if let Err(Failure::Skipped(reason)) = &outcome {
        eprintln!("SKIPPED {}: {reason}", stage.name);
        if strict && let Err(refusal) = refuse_new_skip(stage.name) {
            outcome = Err(refusal);
        }
    }
    if let Err(Failure::Failed(reason)) = &outcome {
        // A line that starts with FAILED is one of the summary, and counts.
        eprintln!("failed {}: {reason}", stage.name);
    }
    (outcome, skipped)
}

/// A stage that has ended.
struct Row {
    name: &'static str,
    time: Duration,
    /// Time of the processors that its processes took. It hardly depends on what else the machine does.
    processor: Duration,
    outcome: Outcome,
}

/// The time that processors spent on the processes which this one started and waited for.
fn processor_time() -> Duration {
    // proc_pid_stat(5): the fields 16 and 17 are in ticks, of which Linux has 100 per second on every architecture.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn summarise(most: Duration, rows: &[Row], parts: &[(String, String)], unstable: &[(&str, String)]) -> ExitCode {
    println!("\n=== summary");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for Row { name, time, processor, outcome } in rows {
        let (word, reason, count) = match outcome {
            Ok(()) => ("passed", "", &mut passed),
            Err(Failure::Failed(reason)) => ("FAILED", reason.as_str(), &mut failed),
            Err(Failure::Skipped(reason)) => ("SKIPPED", reason.as_str(), &mut skipped),
        };
        *count += 1;
        let (time, processor) = (time.as_secs_f64(), processor.as_secs_f64());
        println!("{word:<8}{name:<20}{time:>8.1} s {processor:>8.1} s of CPU  {reason}");
    }
    for (part, reason) in parts {
        println!("SKIPPED {part}: {reason}");
    }
    for (name, reason) in unstable {
        println!("UNSTABLE {name}: passed at the second try; at the first: {reason}");
    }
    let total: Duration = rows.iter().map(|row| row.time).sum();
    if total > most {
        // This is no failure: the machine may have been slow, and every test passed.
        println!("TOO SLOW: the limit for all stages together is {:.0} min", minutes(most));
    }
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("{passed} passed, {failed} failed{skipped} in {:.1} min", minutes(total));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

/// Whether a skip is a failure: CI that runs as root can install every tool, so a skip there hides something.
fn everything_must_run() -> bool {
    env::var("CI").is_ok_and(|value| value == "true") && is_root()
}

/// Whether packages can be installed.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn refuse_new_skip(name: &str) -> Outcome {
    if MAY_BE_SKIPPED.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "`{name}` was skipped, but must run here; xtask/src/stage.rs lists the stages that may be skipped"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::process::Command;
    use std::rc::Rc;

    const ENDLESS: Limits = Limits { most: Duration::MAX, until: None };

    #[test]
    fn only_listed_skips_pass() {
        assert!(refuse_new_skip("miri").is_ok());
        assert!(matches!(refuse_new_skip("interop"), Err(Failure::Failed(_))));
    }

    fn row(name: &'static str, minutes: u64, outcome: Outcome) -> Row {
        let time = Duration::from_secs(minutes * 60);
        Row { name, time, processor: time, outcome }
    }

    #[test]
    fn a_failure_anywhere_fails_the_run() {
        let wrong = Err(Failure::Failed("because".to_owned()));
        let rows = [row("a", 0, Ok(())), row("b", 0, wrong)];
        assert_eq!(summarise(Duration::MAX, &rows, &[], &[]), ExitCode::FAILURE);
        assert_eq!(summarise(Duration::MAX, &rows[..1], &[], &[]), ExitCode::SUCCESS);
    }

    #[test]
    fn a_failure_fails_and_a_slow_run_does_not() {
        let half = Duration::from_secs(30 * 60);
        let rows = |b| [row("a", 30, Ok(())), row("b", 30, b)];
        assert_eq!(summarise(half, &rows(Ok(())), &[], &[]), ExitCode::SUCCESS);
        let failed = Err(Failure::Failed("why".to_owned()));
        assert_eq!(summarise(half * 2, &rows(failed), &[], &[]), ExitCode::FAILURE);
    }

    #[test]
    fn a_stage_that_fails_is_tried_once_more_where_everything_must_run() {
        for (strict, failures, tries, code) in [
            (true, 0, 1, ExitCode::SUCCESS),
            (true, 1, 2, ExitCode::SUCCESS),
            (true, 2, 2, ExitCode::FAILURE),
            (false, 1, 1, ExitCode::FAILURE),
        ] {
            let tried = Rc::new(Cell::new(0));
            let counter = tried.clone();
            let run = move |context: &Context| {
                assert_eq!(context.again, counter.get() > 0);
                counter.set(counter.get() + 1);
                if counter.get() > failures { Ok(()) } else { Err(Failure::Failed("late".to_owned())) }
            };
            let stages = [Stage { name: "a", minutes: 1, run: Box::new(run) }];
            assert_eq!(run_strictly(strict, ENDLESS, &stages, ("", &[])), code, "{failures} failures");
            assert_eq!(tried.get(), tries, "{failures} failures");
        }
    }

    #[test]
    fn no_stage_begins_when_the_time_is_over() {
        let began = Rc::new(Cell::new(0));
        let counter = began.clone();
        let run = move |_: &Context| {
            counter.set(counter.get() + 1);
            Ok(())
        };
        let stages = [Stage { name: "a", minutes: 1, run: Box::new(run) }];
        for (until, begins) in [(SystemTime::now() + Duration::from_secs(60), 1), (SystemTime::now(), 1)] {
            let limits = Limits { until: Some(until), ..ENDLESS };
            assert_eq!(run_strictly(true, limits, &stages, ("", &[])), ExitCode::SUCCESS);
            assert_eq!(began.get(), begins);
        }
    }

    #[test]
    fn a_stage_that_the_end_stops_has_not_failed() {
        let run = |_: &Context| {
            std::thread::sleep(Duration::from_millis(20));
            Err(Failure::Failed("killed".to_owned()))
        };
        let stages = [Stage { name: "a", minutes: 1, run: Box::new(run) }];
        let limits = |left| Limits { until: Some(SystemTime::now() + Duration::from_millis(left)), ..ENDLESS };
        assert_eq!(run_strictly(true, limits(10), &stages, ("", &[])), ExitCode::SUCCESS);
        assert_eq!(run_strictly(true, limits(60_000), &stages, ("", &[])), ExitCode::FAILURE);
    }

    #[test]
    fn processor_time_of_a_child_counts() {
        let before = processor_time();
        let mut child = Command::new("sh");
        child.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
        assert!(child.status().unwrap().success());
        assert!(processor_time() > before);
    }
}
