//! The form of lines on standard error: text for people, or objects for collectors.

use crate::failure::{one_line, printable};
use log::Level;
use serde_json::json;
use std::io::IsTerminal;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether lines of the log are objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether levels have colours.
static HAS_COLOURS: LazyLock<bool> =
    LazyLock::new(|| std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level and text, for people.
    #[default]
    Text,
    /// An object with time, level, target and message, for collectors.
    Json,
}

/// Sets the form of all lines on standard error.
pub(crate) fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether lines of the log are objects.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// A line of the log, with its newline.
pub(super) fn log_line(level: Level, target: &str, text: &str) -> String {
    if is_json() {
        return object(level, target, text);
    }
    let (begin, end) = if *HAS_COLOURS { (colour(level), "\x1b[0m") } else { ("", "") };
    format!("[{:.0} {begin}{level:<5}{end}] {}\n", jiff::Timestamp::now(), one_line(text))
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::Error => "\x1b[1;31m",
        Level::Warn => "\x1b[33m",
        Level::Info => "\x1b[32m",
        Level::Debug => "\x1b[34m",
        Level::Trace => "\x1b[36m",
    }
}

/// A line of the log as an object, with its newline.
pub(super) fn object(level: Level, target: &str, text: &str) -> String {
    json_line(&json!({
        "time": format!("{:.3}", jiff::Timestamp::now()),
        "level": level.as_str().to_ascii_lowercase(),
        "target": target,
        "message": text,
    }))
}

/// A value in one line of ASCII control characters' escapes: no text in it commands a terminal.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    let text = value.to_string();
    if printable(&text) == text {
        return text + "\n";
    }
    // JSON leaves these as they are. All of them have four digits.
    let escape = |c: char| {
        if printable(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8() {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    text.chars().map(escape).chain(["\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::{json_line, log_line};
    use log::Level;

    #[test]
    fn no_text_of_a_peer_begins_a_line_or_commands_a_terminal() {
        let evil = "a\n[2030-01-01T00:00:00Z ERROR] b\r\x1b[2J\u{9b}31m\u{202e}";
        let line = log_line(Level::Warn, "taut", evil);
        assert_eq!(line.matches(['\n', '\r', '\x1b', '\u{9b}', '\u{202e}']).count(), 1, "{line:?}");
        assert!(line.ends_with("b\\r\\u{1b}[2J\\u{9b}31m\\u{202e}\n"), "{line:?}");
        let line = json_line(&serde_json::json!({ "message": evil }));
        assert_eq!(line.matches(['\n', '\r', '\x1b', '\u{9b}', '\u{202e}']).count(), 1, "{line:?}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["message"], evil, "nothing is lost");
    }
}
