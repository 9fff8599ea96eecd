//! The messages to send: lines of the input, the whole input, those of the command line, or those of a recording.

use super::line::Line;
use super::record::Recorded;
use crate::failure::Failure;
use std::io::{BufRead, Read};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Most bytes of an input that is one message.
const MOST_RAW: u64 = 64 << 20;

/// Where messages come from.
pub(super) enum Source {
    /// Lines of the input; of hexadecimal digits, if the flag is set.
    Lines { binary: bool },
    /// The whole input as one binary message.
    Raw,
    /// The messages of the command line; of hexadecimal digits, if the flag is set.
    Given { messages: Vec<String>, binary: bool },
    /// The messages that were sent in a recording, at its pace.
    Recording(Vec<(Duration, Line)>),
}

impl Source {
    /// The messages that a recording has sent.
    pub(super) fn recording(recorded: Vec<Recorded>) -> Self {
        let sent = recorded.into_iter().filter(|one| one.is_sent);
        Self::Recording(sent.map(|one| (one.at, one.line)).collect())
    }

    /// Reads the messages on a thread of its own, and passes each to `take`, until that returns false, and the end to `end`. The thread
    /// may block for ever: on the input, or when it is far `ahead`.
    pub(super) fn read(
        self,
        ahead: SyncSender<()>,
        take: impl Fn(Line) -> bool + Send + 'static,
        end: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) {
        // The main thread takes no more lines once the connection has ended.
        std::thread::spawn(move || end(self.each(|line| ahead.send(()).is_ok() && take(line))));
    }

    fn each(self, send: impl Fn(Line) -> bool) -> Result<(), Failure> {
        let unreadable = |error| Failure::failed(format!("cannot read the input: {error}"));
        match self {
            Self::Lines { binary } => {
                for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
                    send(Line::new(line.map_err(unreadable)?, number, binary)?);
                }
            }
            Self::Given { messages, binary } => {
                for (number, message) in (1..).zip(messages) {
                    send(Line::new(message, number, binary)?);
                }
            }
            Self::Raw => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().take(MOST_RAW + 1).read_to_end(&mut bytes).map_err(unreadable)?;
                if bytes.len() as u64 > MOST_RAW {
                    return Err(Failure::usage(format!("--raw: the input is longer than {MOST_RAW} bytes")));
                }
                send(Line::Binary(bytes));
            }
            Self::Recording(lines) => {
                let mut before = lines.first().map_or(Duration::ZERO, |(at, _)| *at);
                for (at, line) in lines {
                    std::thread::sleep(at.saturating_sub(before));
                    before = at;
                    send(line);
                }
            }
        }
        Ok(())
    }
}
