//! Text for terminals of any width: labels on the left, wrapped sentences beside them.

use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, stdout};

/// Width of lines where nobody says how wide the output is.
const USUAL: usize = 100;

/// Columns of labels, with the gap behind them.
const LABEL: usize = 16;

/// Least columns of sentences; below it a terminal breaks lines itself.
const LEAST: usize = 20;

/// The width of the output: that of the terminal, of `COLUMNS`, or 100 characters.
pub fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let out = stdout();
    let terminal = || tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    let found = if out.is_terminal() { terminal().or(told) } else { told };
    found.unwrap_or(USUAL).min(USUAL)
}

/// A power of two of bytes, or any other number of them.
pub fn bytes(count: u64) -> String {
    match count.trailing_zeros() {
        _ if count == 0 => "0 bytes".to_owned(),
        20.. => format!("{} MiB", count >> 20),
        10.. => format!("{} KiB", count >> 10),
        _ => format!("{count} bytes"),
    }
}

/// A text that grows row by row.
#[derive(Clone, Debug)]
pub struct Layout {
    width: usize,
    text: String,
}

impl Layout {
    /// An empty text for lines of this width.
    pub const fn new(width: usize) -> Self {
        Self { width, text: String::new() }
    }

    /// A line of its own, wrapped.
    pub fn line(&mut self, text: &str) {
        self.wrapped(0, text);
    }

    /// A heading, with an empty line before it.
    pub fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(text);
    }

    /// A label, and a text beside it. An empty label continues the row above.
    pub fn row(&mut self, label: &str, text: &str) {
        let indent = if self.width < LABEL + LEAST { 2 } else { LABEL };
        let label = format!("  {label}");
        let room = label.chars().count() < indent;
        if room {
            self.text += &format!("{label:<indent$}");
        } else {
            self.text += label.trim_end();
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', indent));
        }
        self.wrapped(indent, text);
    }

    /// Words up to the width; lines behind the first begin at `indent`.
    fn wrapped(&mut self, indent: usize, text: &str) {
        let width = self.width.max(indent + LEAST);
        let mut column = indent;
        for word in text.split_whitespace() {
            let len = word.chars().count();
            if column > indent {
                if column + 1 + len > width {
                    self.text.push('\n');
                    self.text.extend(std::iter::repeat_n(' ', indent));
                    column = indent;
                } else {
                    self.text.push(' ');
                    column += 1;
                }
            }
            self.text += word;
            column += len;
        }
        self.text.push('\n');
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn sentences_are_whole_at_any_width() {
        let sentence = "Every connection takes a descriptor, so raise the limit with ulimit -Hn 1048576.";
        for width in [1, 20, 40, 72, 100, 200] {
            let mut layout = Layout::new(width);
            layout.heading("limits");
            layout.row("descriptors", sentence);
            layout.row("a label that is longer", sentence);
            let text = layout.into_text();
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(words.join(" ").matches(sentence).count(), 2, "{text}");
            let longest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
            assert!(longest <= width.max(36), "{longest} at {width}: {text}");
        }
    }
}
