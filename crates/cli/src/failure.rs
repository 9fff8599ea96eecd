use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;

/// Kind of a failure: its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run failed, or replies were wrong.
    Failed = 1,
    /// Arguments, files or configuration cannot work.
    Usage = 2,
    /// The network or TLS failed.
    Network = 3,
    /// A signal ended the run early (128 + SIGINT).
    Interrupted = 130,
    /// The reader of the output went away: what shells report for a program that SIGPIPE ended (128 + 13).
    OutputClosed = 141,
}

/// The failure of a command: a line with the problem and the remedy, or such a line for each problem of a file.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    what: String,
    /// Whether ends of lines part problems. Elsewhere they may be a peer's text.
    is_list: bool,
}

impl Failure {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, what: what.into(), is_list: false }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, what: what.into(), is_list: false }
    }

    /// Problems of a file, each in a line of its own.
    pub(crate) fn faults(lines: impl Into<String>) -> Self {
        Self { is_list: true, ..Self::usage(lines) }
    }

    /// The lines to tell.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.what.split(|c| self.is_list && c == '\n')
    }

    pub(crate) fn network(what: impl Into<String>) -> Self {
        Self { kind: Kind::Network, what: what.into(), is_list: false }
    }

    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self { kind: Kind::Interrupted, what: what.into(), is_list: false }
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let kind = if error.kind() == ErrorKind::BrokenPipe { Kind::OutputClosed } else { Kind::Failed };
        Self { kind, what: format!("cannot write to standard output: {error}"), is_list: false }
    }
}

/// The text with its control characters escaped, except line ends and tabs.
///
/// A peer's text could otherwise command the terminal that shows it: move the cursor, set the title, hide what follows. The
/// marks that turn the direction of writing are escaped as well.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\n' && is_command(c))
}

/// The text as [`printable`] has it, and in one line: a peer's text could otherwise forge lines of a log.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, is_command)
}

fn is_command(c: char) -> bool {
    c.is_control() && c != '\t'
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let escaped = |c: char| if is_escaped(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<tautline_lab::Error> for Failure {
    fn from(error: tautline_lab::Error) -> Self {
        use tautline_lab::Error;
        let what = error.to_string();
        match error {
            Error::Usage(_) => Self::usage(what),
            Error::Network(_) => Self::network(what),
            _ => Self::failed(what),
        }
    }
}

impl From<tautline_probe::Unusable> for Failure {
    fn from(error: tautline_probe::Unusable) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<tautline::Error> for Failure {
    fn from(error: tautline::Error) -> Self {
        use tautline::{Address, Error};
        match &error {
            Error::Listen { address: Address::Tcp(address), error: io } if io.kind() == ErrorKind::AddrInUse => {
                let by =
                    crate::port_owner::of(*address).map_or_else(String::new, |port_owner| format!(" by {port_owner}"));
                Self::network(format!(
                    "cannot listen at {address}: it is in use{by}; stop that or pass another --listen"
                ))
            }
            Error::Tls(_) | Error::NothingToListenAt => Self::usage(format!("{error:#}")),
            Error::Connect(error) => Self::from(error),
            Error::Loop(_) => Self::failed(format!("{error:#}")),
            _ => Self::network(format!("{error:#}")),
        }
    }
}

impl From<&tautline::ConnectError> for Failure {
    fn from(error: &tautline::ConnectError) -> Self {
        let what = tautline_lab::load::explain(error);
        if error.is_permanent() { Self::usage(what) } else { Self::network(what) }
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_escaped() {
        for text in ["", "plain text\twith\nlines", "wörld 🦀"] {
            assert_eq!(printable(text), text);
        }
        assert_eq!(printable("\x1b[2Jgone\r\x07"), "\\u{1b}[2Jgone\\r\\u{7}");
        assert_eq!(printable("\u{9b}31m\x7f\u{202e}"), "\\u{9b}31m\\u{7f}\\u{202e}");
    }
}
