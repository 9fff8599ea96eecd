//! Results of runs in files: JSON, one object per line.

use crate::suites::Outcome;
use crate::{Error, Line, Machine};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, BufRead, Write};

/// Machines and suites of one or more runs.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// One machine for each run.
    pub machines: Vec<Machine>,
    /// Suites, each once.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// Reads a file that [`write_machine`] and [`write_outcome`] wrote, or [`write_json`]. `name` is the file in errors.
    ///
    /// # Errors
    /// Usage, if the input cannot be read or has another form.
    pub fn read(name: &str, input: impl BufRead) -> Result<Self, Error> {
        let mut results = Self::default();
        for (number, line) in input.lines().enumerate() {
            let at = |why: String| Error::Usage(format!("{name}, line {}: {why}", number + 1));
            let line = line.map_err(|error| at(format!("cannot be read: {error}")))?;
            if line.trim().is_empty() {
                continue;
            }
            let other = |why: serde_json::Error| at(format!("is no result of `taut bench --json`: {why}"));
            let mut value: Value = serde_json::from_str(&line).map_err(other)?;
            if let Some(machine) = value.get_mut("machine") {
                results.machines.push(parsed(machine.take()).map_err(other)?);
            } else if let Some(outcome) = value.get_mut("outcome") {
                let outcome: Outcome = parsed(outcome.take()).map_err(other)?;
                let suite = outcome.suite.clone();
                let known = results.outcome(&suite);
                *known = Outcome { lines: std::mem::take(&mut known.lines), ..outcome };
            } else {
                let line: Line = parsed(value).map_err(other)?;
                results.outcome(&line.suite).lines.push(line);
            }
        }
        if results.machines.is_empty() {
            return Err(Error::Usage(format!("{name} names no machine: it is no result of `taut bench --json`")));
        }
        Ok(results)
    }

    /// Adds another run. Its suites replace those of the same name.
    pub fn add(&mut self, other: Self) {
        self.machines.extend(other.machines);
        for outcome in other.outcomes {
            let suite = outcome.suite.clone();
            *self.outcome(&suite) = outcome;
        }
    }

    /// Every result.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.outcomes.iter().flat_map(|outcome| &outcome.lines)
    }

    /// The outcome of this suite, added if it is missing.
    fn outcome(&mut self, suite: &str) -> &mut Outcome {
        let at = self.outcomes.iter().position(|outcome| outcome.suite == suite).unwrap_or_else(|| {
            self.outcomes.push(Outcome::of(suite));
            self.outcomes.len() - 1
        });
        &mut self.outcomes[at]
    }
}

fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value)
}

/// Writes the first object of a file.
///
/// # Errors
/// `out` failed.
pub fn write_machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    #[derive(Serialize)]
    struct First<'a> {
        machine: &'a Machine,
    }
    write_object(out, &First { machine })
}

/// Writes a suite: one object for it, then one for each result.
///
/// # Errors
/// `out` failed.
pub fn write_outcome(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    #[derive(Serialize)]
    struct Suite<'a> {
        outcome: &'a Outcome,
    }
    write_object(out, &Suite { outcome })?;
    outcome.lines.iter().try_for_each(|line| write_object(out, line))?;
    out.flush()
}

/// Writes results without their suites: the machine first, then one object per line.
///
/// # Errors
/// `out` failed.
pub fn write_json(out: &mut impl Write, machine: &Machine, lines: &[Line]) -> io::Result<()> {
    write_machine(out, machine)?;
    lines.iter().try_for_each(|line| write_object(out, line))?;
    out.flush()
}

fn write_object(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Effort;
    use crate::{Case, Metric, Protocol, Target};

    fn line(suite: &str, runs: &[f64]) -> Line {
        let case = Case { protocol: Some(Protocol::Wss), size: Some(64), resumed: Some(true), ..Case::default() };
        Line::new(suite, &case, Metric::ServerCpuPerMsg, runs).unwrap()
    }

    fn stored(outcomes: &[Outcome]) -> String {
        let mut out = Vec::new();
        write_machine(&mut out, &Machine::here()).unwrap();
        outcomes.iter().for_each(|outcome| write_outcome(&mut out, outcome).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let judged =
            Line { target: Some(Target::AtMost(2.0)), name: Some("this".into()), ..line("limits", &[1.0, 3.0, 2.0]) };
        let outcome = Outcome {
            effort: Some(Effort::Quick),
            seconds: 1.5,
            lines: vec![judged, line("limits", &[4.0])],
            text: "a table".into(),
            warnings: vec!["a note".into()],
            advice: Some("advice".into()),
            ..Outcome::of("limits")
        };
        let read = Results::read("file", stored(std::slice::from_ref(&outcome)).as_bytes()).unwrap();
        let [found] = &read.outcomes[..] else { panic!("{:?}", read.outcomes) };
        assert_eq!(found.lines, outcome.lines);
        assert_eq!((found.effort, found.seconds, &found.warnings), (outcome.effort, 1.5, &outcome.warnings));
        assert_eq!((&found.text, &found.advice), (&outcome.text, &outcome.advice));
        assert_eq!(read.machines[0].to_string().lines().next(), Machine::here().to_string().lines().next());
    }

    #[test]
    fn results_without_suites_are_read_too() {
        let mut out = Vec::new();
        write_json(&mut out, &Machine::here(), &[line("load", &[1.0]), line("load", &[2.0])]).unwrap();
        let read = Results::read("file", out.as_slice()).unwrap();
        assert_eq!((read.outcomes.len(), read.lines().count()), (1, 2));
    }

    #[test]
    fn later_suites_replace_earlier_ones() {
        let suite = |name: &str, value| Outcome { lines: vec![line(name, &[value])], ..Outcome::of(name) };
        let mut all = Results::read("a", stored(&[suite("echo", 1.0), suite("idle", 2.0)]).as_bytes()).unwrap();
        all.add(Results::read("b", stored(&[suite("echo", 3.0)]).as_bytes()).unwrap());
        let values: Vec<_> = all.lines().map(|line| (line.suite.as_str(), line.value)).collect();
        assert_eq!((values, all.machines.len()), (vec![("echo", 3.0), ("idle", 2.0)], 2));
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let good = stored(&[]);
        let bad = |text: &str| Results::read("x.json", text.as_bytes()).unwrap_err().to_string();
        assert!(bad("").contains("x.json names no machine"));
        assert!(bad("hello").starts_with("x.json, line 1: is no result"));
        let line = r#"{"suite":"a","case":{},"metric":"speed","runs":[1]}"#;
        assert!(bad(&format!("{good}\n{line}")).contains("line 3: is no result of `taut bench --json`: \"speed\""));
        let empty = line.replace("speed", "throughput").replace("[1]", "[]");
        assert!(bad(&format!("{good}{empty}")).contains("has no numbers"));
        assert!(bad(&good.replace("cores", "colours")).contains("line 1"));
        assert!(Results::read("x", &[b'{', 0xff][..]).is_err());
    }

    #[test]
    fn the_machine_comes_first_with_its_facts() {
        let first: Value = serde_json::from_str(stored(&[]).lines().next().unwrap()).unwrap();
        for fact in ["cpu", "cores", "kernel", "features", "memory", "libraries", "commit", "rustc", "profile", "date"]
        {
            assert!(!first["machine"][fact].is_null(), "{fact} is missing");
        }
    }
}
