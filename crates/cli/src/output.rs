//! The place of output: nothing else in this program writes to standard output or standard error.
//!
//! Commands print their results with [`print()`], and wait for the reader. Those whose work goes on meanwhile have
//! [`results`]. They, the log and everything else go through bounded queues and threads, so that no loop ever waits for a
//! descriptor. A queue's lines are written at the end of the program, unless the descriptor is stuck.

mod form;
mod lines;
mod standard;

use crate::failure::{Failure, Kind, one_line};
pub(crate) use form::{LogFormat, is_json, json_line, set_format};
use form::{log_line, object};
pub(crate) use lines::{Lines, Target};
use log::Level;
use standard::{Log, Out, Results};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline::layers::metrics::prometheus_client::metrics::counter::Counter;
use tautline::layers::metrics::prometheus_client::metrics::family::Family;

/// The time that the end of the program waits for lines which nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lines that were lost, by the log to which they belong.
static LOST: LazyLock<Lost> = LazyLock::new(Lost::default);

/// Standard error.
static ERR: LazyLock<Lines> = LazyLock::new(|| Lines::new(Log, lost_of("program")));

/// Standard output of a server.
static OUT: LazyLock<Lines> = LazyLock::new(|| Lines::new(Out, lost_of("output")));

/// Files of a server.
static FILES: Mutex<Vec<Lines>> = Mutex::new(Vec::new());

/// Counters with the name of the log as their label.
pub(crate) type Lost = Family<[(&'static str, &'static str); 1], Counter>;

/// Counters of lost lines, for the metrics of a server.
pub(crate) fn lost() -> Lost {
    LOST.clone()
}

/// The counter of lost lines of the log with this name.
pub(crate) fn lost_of(log: &'static str) -> Counter {
    LOST.get_or_create(&[("log", log)]).clone()
}

/// Starts the threads that write. Until then lines wait.
pub(crate) fn begin() {
    ERR.begin();
    OUT.begin();
    files().iter().for_each(Lines::begin);
}

/// Lines to a file, whose lost lines count under this name. [`begin`] and [`finish`] include them.
pub(crate) fn lines_to(file: impl Target, name: &'static str) -> Lines {
    let lines = Lines::new(file, lost_of(name));
    files().push(lines.clone());
    lines
}

fn files() -> MutexGuard<'static, Vec<Lines>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the lines that wait. A descriptor that is stuck delays that for at most two seconds.
pub(crate) fn finish() {
    let deadline = Instant::now() + PATIENCE;
    // The log is the last, since it tells of lines that others have lost.
    files().iter().for_each(|lines| lines.finish(deadline));
    OUT.finish(deadline);
    ERR.finish(deadline);
}

/// Calls [`finish`] when it is dropped, also by a panic.
pub(crate) struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        finish();
    }
}

/// Writes `text` to standard output and flushes it. It waits for the reader.
///
/// # Errors
/// If the output takes no more. [`Failure::output`] tells how the program ends then.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Standard output as a queue, for a server.
pub(crate) fn standard_output() -> &'static Lines {
    &OUT
}

/// Standard output as a queue, for a command whose work goes on while the reader rests. `on_error` gets errors of writes, and
/// the counter lines that were lost. [`finish`] writes those that wait.
pub(crate) fn results(on_error: impl FnMut(&std::io::Error) + Send + 'static) -> (Lines, Counter) {
    let lines = lines_to(Results(on_error), "results");
    lines.begin();
    (lines, lost_of("results"))
}

/// Tells the user something on standard error, in one line. The level is that in JSON.
fn tell(level: Level, text: &str) {
    if is_json() {
        ERR.add(object(level, "taut", text.strip_prefix("taut: ").unwrap_or(text)).as_bytes());
    } else {
        ERR.add(format!("{}\n", one_line(text)).as_bytes());
    }
}

/// Tells the user a fact on standard error, in one line.
pub(crate) fn note(text: impl Display) {
    tell(Level::Info, &text.to_string());
}

/// Tells the user several lines on standard error. In JSON each is an object of this level.
pub(crate) fn report(level: Level, text: impl Display) {
    text.to_string().lines().for_each(|line| tell(level, line));
}

/// Adds a line to the log.
pub(crate) fn log(level: Level, target: &str, text: &str) {
    ERR.add(log_line(level, target, text).as_bytes());
}

/// Tells a failure, and returns the exit code. A closed output is no news for its reader.
pub(crate) fn fail(failure: &Failure) -> ExitCode {
    if failure.kind != Kind::OutputClosed {
        failure.lines().for_each(|line| tell(Level::Error, &format!("taut: {line}")));
    }
    ExitCode::from(failure.kind as u8)
}

/// Has panics of all threads told like other lines.
pub(crate) fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        tell(Level::Error, &panicked(panic));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            report(Level::Error, backtrace);
        }
    }));
}

fn panicked(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let (name, text) = (thread.name().unwrap_or("without a name"), panic.payload_as_str().unwrap_or("(no text)"));
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    format!("thread {name:?} panicked{place}: {text}")
}

#[cfg(test)]
mod tests {
    use super::form::object;
    use super::panicked;
    use log::Level;
    use std::panic::{catch_unwind, set_hook, take_hook};
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_panic_is_one_line_with_its_thread_and_its_place() {
        let (told, own) = (Arc::<Mutex<String>>::default(), std::thread::current().id());
        let (heard, before) = (told.clone(), take_hook());
        set_hook(Box::new(move |panic| {
            // Other tests may panic meanwhile.
            if std::thread::current().id() == own {
                *heard.lock().unwrap() = panicked(panic);
            }
        }));
        let caught = catch_unwind(|| panic!("first\nsecond"));
        set_hook(before);
        assert!(caught.is_err());
        let told = told.lock().unwrap();
        assert!(told.contains("\" panicked at crates/cli/src/output.rs:"), "{told}");
        let line = object(Level::Error, "taut", &told);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(read["message"].as_str().unwrap().ends_with("first\nsecond"), "{line}");
    }
}
