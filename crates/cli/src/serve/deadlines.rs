//! `--ping`, `--idle` and the other times that a client may take.

use crate::failure::Failure;
use std::time::Duration;
use tautline::Config;
use tautline_probe::duration;

/// Times that a client may take. Each replaces that of the preset.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Deadlines")]
pub(super) struct DeadlineArguments {
    /// Send a ping to a client that has sent nothing for this time, as 30s; `off` sends none. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = time_or_off)]
    ping: Option<Bound>,
    /// Close a connection without input for this time, as 75s; `off` closes none. A pong is input. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = time_or_off)]
    idle: Option<Bound>,
    /// Close a connection without a message for this time. Pings and pongs are no messages. Default: off.
    #[arg(long, value_name = "TIME", value_parser = time_or_off)]
    silence: Option<Bound>,
    /// Time from the TCP connection to the WebSocket, TLS and the request included. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    handshake_time: Option<Duration>,
    /// Time from the first plain HTTP answer on a connection to its end. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    http_time: Option<Duration>,
    /// Time for the answer to a request that waits, as for the application that the rules of a hub ask. The client then
    /// gets status 408. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    answer_time: Option<Duration>,
    /// Time after which a client is disconnected if bytes wait and it takes none. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    send_time: Option<Duration>,
    /// Time from the server's close frame to the end of the connection. Default: by --preset.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    close_time: Option<Duration>,
}

/// A time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound(Option<Duration>);

fn time_or_off(text: &str) -> Result<Bound, String> {
    if text == "off" {
        return Ok(Bound(None));
    }
    duration(text).map(|time| Bound(Some(time))).map_err(|how| format!("{how}; or off"))
}

impl DeadlineArguments {
    /// Replaces the deadlines of the preset.
    ///
    /// # Errors
    /// If every quiet connection would be closed before its first ping.
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        let deadlines = &mut config.deadlines;
        let bounds = [
            (self.ping, &mut deadlines.ping),
            (self.idle, &mut deadlines.idle),
            (self.silence, &mut deadlines.silence),
        ];
        for (given, bound) in bounds {
            given.into_iter().for_each(|Bound(time)| *bound = time);
        }
        let times = [
            (self.handshake_time, &mut deadlines.handshake),
            (self.http_time, &mut deadlines.http),
            (self.answer_time, &mut deadlines.answer),
            (self.send_time, &mut deadlines.send),
            (self.close_time, &mut deadlines.close),
        ];
        for (given, time) in times {
            given.into_iter().for_each(|given| *time = given);
        }
        match (deadlines.ping, deadlines.idle) {
            (Some(ping), Some(idle)) if ping >= idle && (self.ping.is_some() || self.idle.is_some()) => {
                Err(Failure::usage(format!(
                    "--idle {idle:?} closes quiet connections before the first ping after {ping:?}: add --ping {:?}, or \
                     --ping off if clients send often enough",
                    idle / 3
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DeadlineArguments;
    use clap::Parser;
    use std::time::Duration;
    use tautline::Config;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        deadlines: DeadlineArguments,
    }

    fn config(line: &[&str]) -> Result<Config, String> {
        let parsed = Line::try_parse_from([&["serve"], line].concat()).map_err(|error| error.to_string())?;
        let mut config = Config::many_connections();
        parsed.deadlines.apply(&mut config).map_err(|failure| failure.to_string())?;
        Ok(config)
    }

    #[test]
    fn each_option_replaces_one_deadline_of_the_preset() {
        let seconds = Duration::from_secs;
        let preset = Config::many_connections().deadlines;
        assert_eq!(format!("{:?}", config(&[]).unwrap().deadlines), format!("{preset:?}"));
        let line = ["--ping", "5s", "--idle", "1m", "--silence", "2m", "--handshake-time", "3s", "--http-time", "4s"];
        let deadlines =
            config(&[&line[..], &["--answer-time", "30s", "--send-time", "500ms", "--close-time", "1s"]].concat());
        let deadlines = deadlines.unwrap().deadlines;
        assert_eq!((deadlines.ping, deadlines.idle), (Some(seconds(5)), Some(seconds(60))));
        assert_eq!((deadlines.silence, deadlines.handshake), (Some(seconds(120)), seconds(3)));
        assert_eq!((deadlines.http, deadlines.close), (seconds(4), seconds(1)));
        assert_eq!((deadlines.send, deadlines.answer), (Duration::from_millis(500), seconds(30)));
    }

    #[test]
    fn a_ping_and_an_idle_time_can_be_turned_off() {
        let deadlines = config(&["--ping", "off", "--idle", "off", "--silence", "off"]).unwrap().deadlines;
        assert_eq!((deadlines.ping, deadlines.idle, deadlines.silence), (None, None, None));
    }

    #[test]
    fn an_idle_time_that_no_ping_can_keep_is_refused_with_a_remedy() {
        let error = config(&["--idle", "15s"]).unwrap_err();
        assert!(error.contains("--ping 5s") && error.contains("--ping off"), "{error}");
        assert!(config(&["--idle", "15s", "--ping", "5s"]).is_ok());
        assert!(config(&["--idle", "15s", "--ping", "off"]).is_ok());
        for bad in ["0s", "5", "soon"] {
            assert!(config(&["--ping", bad]).unwrap_err().contains("or off"), "{bad}");
        }
    }
}
