//! A program that measures one round for each line of its input.

use crate::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Time for a round beside its length.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running worker.
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    pub(super) fn start(command: &mut Command) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot start a worker: {error}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed("a worker has no pipes".to_owned()));
        };
        let (sender, answers) = channel();
        // It ends with the worker.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, answers })
    }

    /// Measures one round, and returns its figures with their names.
    pub(super) fn measure(&mut self, case: &str, engine: &str, time: Duration) -> Result<Vec<(String, f64)>, Error> {
        let ended = || Error::Failed("the worker has ended".to_owned());
        writeln!(self.input, "{case} {engine} {}", time.as_millis()).map_err(|_| ended())?;
        self.input.flush().map_err(|_| ended())?;
        self.answer(time + PATIENCE)
    }

    /// The next answer. A worker that does not answer in time is ended: it would answer the next question with it.
    fn answer(&mut self, longest: Duration) -> Result<Vec<(String, f64)>, Error> {
        let answer = self.answers.recv_timeout(longest);
        parse(&answer.map_err(|_| {
            let _ = self.child.kill();
            Error::Failed("the worker does not answer".to_owned())
        })?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The figures of a line `NAME VALUE NAME VALUE`, or the reason of `failed REASON`.
fn parse(line: &str) -> Result<Vec<(String, f64)>, Error> {
    if let Some(reason) = line.strip_prefix("failed ") {
        return Err(Error::Failed(reason.to_owned()));
    }
    let wrong = || Error::Failed(format!("the worker answered {line:?}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let figure = |pair: &[&str]| Ok((pair[0].to_owned(), pair[1].parse().map_err(|_| wrong())?));
    words.chunks(2).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_figures_or_a_reason() {
        assert_eq!(parse("read 1.5 write 2").unwrap(), [("read".to_owned(), 1.5), ("write".to_owned(), 2.0)]);
        assert_eq!(parse("failed no uvloop").unwrap_err().to_string(), "no uvloop");
        for wrong in ["", "read", "read fast"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_worker_that_does_not_answer_is_ended() {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let mut worker = Worker::start(&mut sleep).unwrap();
        assert!(worker.answer(Duration::from_millis(1)).is_err());
        assert!(!worker.child.wait().unwrap().success());
    }

    #[test]
    fn a_worker_answers_line_by_line_and_its_end_is_noticed() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read case engine time; echo cpu_us $time; read line; exit"]);
        let mut worker = Worker::start(&mut shell).unwrap();
        let time = Duration::from_millis(7);
        assert_eq!(worker.measure("get", "jdk", time).unwrap(), [("cpu_us".to_owned(), 7.0)]);
        assert!(worker.measure("get", "jdk", time).is_err());
    }
}
