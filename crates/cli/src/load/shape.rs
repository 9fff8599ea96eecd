//! The messages of a load, and when they are sent.

use super::threshold::{Threshold, percentile};
use crate::failure::Failure;
use crate::files;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_lab::load::{RateStage, Template};
use tautline_probe::duration;

/// The course of a load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Course and messages")]
pub(super) struct ShapeArguments {
    /// Open the connections evenly over this time, as 30s.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["handshakes", "broadcast", "idle"])]
    ramp: Option<Duration>,
    /// Part of an open loop: go evenly to this rate over this time. May be repeated, as `--stage 1000:30s --stage 1000:2m --stage 0:10s`.
    #[arg(long, value_name = "RATE:TIME", value_parser = stage, conflicts_with_all = ["rate", "pipeline", "duration", "handshakes", "broadcast", "idle"])]
    stage: Vec<RateStage>,
    /// Wait of a connection between a reply and its next message: 200ms, or at random between two: 100ms-1s.
    #[arg(long, value_name = "TIME[-TIME]", value_parser = think, conflicts_with_all = ["rate", "stage", "handshakes", "broadcast", "idle"])]
    think: Option<(Duration, Duration)>,
    /// Text to send in place of bytes, with {{connection}}, {{message}}, {{random}} and {{value}} in it. May be repeated: each
    /// connection sends them in turn.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["size", "handshakes", "broadcast", "idle"])]
    payload: Vec<String>,
    /// File whose lines are such texts.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "size", "handshakes", "broadcast", "idle"])]
    payload_file: Option<PathBuf>,
    /// File whose lines are the values of {{value}}, one for each connection.
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    /// Take any message as the reply, for servers that answer something else than the message itself.
    #[arg(long, conflicts_with_all = ["handshakes", "broadcast", "idle"])]
    any_reply: bool,
    /// Send this text, which may have placeholders, on each connection first, and then only receive. May be repeated.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["rate", "stage", "think", "payload", "payload_file", "any_reply", "pipeline", "size", "handshakes", "broadcast", "idle"])]
    subscribe: Vec<String>,
    /// Percentiles of the latency, by default 50,99,99.9. JSON always has these.
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = percentile, conflicts_with_all = ["idle", "subscribe"])]
    pub(super) percentiles: Vec<f64>,
    /// Threshold that makes the exit code 1 if it is missed: p99=50ms, max=1s, rate=1000, errors=10 or errors=0.1%. May be
    /// repeated. Without one about errors, none is permitted.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) slo: Vec<Threshold>,
}

/// The course of a load, with its files read.
pub(super) struct Shape {
    pub(super) ramp: Duration,
    pub(super) stages: Vec<RateStage>,
    pub(super) think: Option<(Duration, Duration)>,
    pub(super) template: Option<Template>,
    pub(super) takes_any_reply: bool,
    pub(super) subscriptions: Vec<Template>,
}

fn stage(text: &str) -> Result<RateStage, String> {
    const HOW: &str = "write RATE:TIME, as 1000:30s";
    let (rate, time) = text.split_once(':').ok_or(HOW)?;
    let rate = rate.parse().ok().filter(|rate: &f64| (0.0..=1e7).contains(rate)).ok_or(HOW)?;
    Ok(RateStage { rate, time: duration(time)? })
}

fn think(text: &str) -> Result<(Duration, Duration), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (duration(least)?, duration(most)?);
    if least <= most { Ok((least, most)) } else { Err("write the shorter time first, as 100ms-1s".to_owned()) }
}

impl ShapeArguments {
    pub(super) fn read(&self) -> Result<Shape, Failure> {
        let wrong = |option: &str| {
            let option = option.to_owned();
            move |why: String| Failure::usage(format!("{option}: {why}"))
        };
        let values = self.values.as_deref().map(lines).transpose()?.unwrap_or_default();
        if self.values.is_some() && values.is_empty() {
            return Err(Failure::usage("--values: the file has no line"));
        }
        let texts = match &self.payload_file {
            Some(file) => Some(lines(file)?),
            None => Some(self.payload.clone()).filter(|payload| !payload.is_empty()),
        };
        let all = texts.iter().flatten().chain(&self.subscribe);
        if self.values.is_some() && !all.into_iter().any(|text| text.contains("{{value}}")) {
            return Err(Failure::usage(
                "--values needs a --payload, --payload-file or --subscribe with {{value}} in it",
            ));
        }
        let template = |lines: &[String]| Template::new(lines.iter().map(String::as_str), values.clone());
        let option = if self.payload_file.is_some() { "--payload-file" } else { "--payload" };
        let messages = texts.map(|texts| template(&texts)).transpose().map_err(wrong(option))?;
        let subscriptions = self.subscribe.iter().map(|text| template(std::slice::from_ref(text)));
        Ok(Shape {
            ramp: self.ramp.unwrap_or_default(),
            stages: self.stage.clone(),
            think: self.think,
            template: messages,
            takes_any_reply: self.any_reply,
            subscriptions: subscriptions.collect::<Result<_, _>>().map_err(wrong("--subscribe"))?,
        })
    }
}

/// The lines of a file, without empty ones.
fn lines(file: &Path) -> Result<Vec<String>, Failure> {
    let bytes = files::read(file, "file")?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::usage(format!("{} is no UTF-8 text", file.display())))?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_waits_are_read() {
        assert_eq!(stage("1000:30s"), Ok(RateStage { rate: 1000.0, time: Duration::from_secs(30) }));
        assert_eq!(think("200ms"), Ok((Duration::from_millis(200), Duration::from_millis(200))));
        assert_eq!(think("100ms-1s"), Ok((Duration::from_millis(100), Duration::from_secs(1))));
        for bad in ["1000", "x:1s", "-1:1s", "10:5", "NaN:1s"] {
            assert!(stage(bad).is_err(), "{bad}");
        }
        assert!(think("1s-100ms").unwrap_err().contains("shorter time first"));
    }
}
