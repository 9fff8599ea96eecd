//! Text messages that differ by connection and number.

use std::io::Write as _;
use tautline_measure::SplitMix;

/// Messages made of lines with placeholders.
///
/// | placeholder | text |
/// |---|---|
/// | `{{connection}}` | the number of the connection, from 0 |
/// | `{{message}}` | the number of the connection's message, from 0 |
/// | `{{random}}` | a number below 2^32 that follows from these two |
/// | `{{value}}` | the connection's line of the values, which repeat if there are more connections |
#[derive(Clone, Debug)]
pub struct Template {
    lines: Vec<Vec<Part>>,
    values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Connection,
    Message,
    Random,
    Value,
}

impl Template {
    /// Reads lines, which are the messages of each connection in turn.
    ///
    /// # Errors
    /// If there is no line, or a placeholder is not known or has no values.
    pub fn new<'l>(lines: impl IntoIterator<Item = &'l str>, values: Vec<String>) -> Result<Self, String> {
        let lines = lines.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if lines.is_empty() {
            return Err("there is no message".to_owned());
        }
        if values.is_empty() && lines.iter().flatten().any(|part| *part == Part::Value) {
            return Err("{{value}} needs --values".to_owned());
        }
        Ok(Self { lines, values })
    }

    /// The longest of the first messages of some connections, in bytes: about what all have.
    #[must_use]
    pub fn typical_len(&self) -> usize {
        let mut text = Vec::new();
        let first = (0..self.values.len().clamp(1, 100))
            .flat_map(|connection| (0..self.lines.len()).map(move |message| (connection, message as u64)));
        let lengths = first.map(|(connection, message)| {
            self.write(connection, message, &mut text);
            text.len()
        });
        lengths.max().unwrap_or(0)
    }

    /// Writes a message of a connection in place of what is there.
    pub(super) fn write(&self, connection: usize, message: u64, out: &mut Vec<u8>) {
        out.clear();
        let line = usize::try_from(message % self.lines.len() as u64).unwrap_or(0);
        for part in &self.lines[line] {
            // A vector takes everything.
            let _ = match part {
                Part::Text(text) => out.write_all(text.as_bytes()),
                Part::Connection => write!(out, "{connection}"),
                Part::Message => write!(out, "{message}"),
                Part::Random => {
                    let mut random = SplitMix((connection as u64).rotate_left(32) ^ message);
                    write!(out, "{}", random.next() >> 32)
                }
                Part::Value => out.write_all(self.values[connection % self.values.len()].as_bytes()),
            };
        }
    }
}

fn parse(line: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), line);
    while let Some((text, tail)) = rest.split_once("{{") {
        let Some((name, tail)) = tail.split_once("}}") else {
            return Err(format!("a placeholder has no end: {{{{{tail}"));
        };
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(match name.trim() {
            "connection" => Part::Connection,
            "message" => Part::Message,
            "random" => Part::Random,
            "value" => Part::Value,
            other => return Err(format!("{other:?} is no placeholder: write connection, message, random or value")),
        });
        rest = tail;
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::Template;

    fn text(template: &Template, connection: usize, message: u64) -> String {
        let mut out = b"before".to_vec();
        template.write(connection, message, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_connection_has_its_own_value_and_each_message_its_number() {
        let lines = ["{\"user\":\"{{value}}\",\"n\":{{ message }}}", "{{connection}}"];
        let template = Template::new(lines, vec!["ann".to_owned(), "bob".to_owned()]).unwrap();
        assert_eq!(text(&template, 1, 4), "{\"user\":\"bob\",\"n\":4}");
        assert_eq!((text(&template, 2, 0), text(&template, 7, 3)), ("{\"user\":\"ann\",\"n\":0}".into(), "7".into()));
        assert_eq!(template.typical_len(), 20);
    }

    #[test]
    fn random_numbers_are_the_same_in_each_run() {
        let template = Template::new(["{{random}}"], Vec::new()).unwrap();
        assert_eq!(text(&template, 3, 9), text(&template, 3, 9));
        assert_ne!(text(&template, 3, 9), text(&template, 3, 10));
        assert!(text(&template, 0, 1).parse::<u32>().is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        let error = |line| Template::new([line], Vec::new()).unwrap_err();
        assert!(error("{{user}}").contains("\"user\" is no placeholder"));
        assert!(error("a {{message").contains("no end"));
        assert!(error("{{value}}").contains("--values"));
        assert!(Template::new([], Vec::new()).unwrap_err().contains("no message"));
        assert_eq!(text(&Template::new([""], Vec::new()).unwrap(), 0, 0), "");
    }
}
