//! The words of the servers that deliver published messages.

use tautline_measure::named;

named! {
    /// A protocol of topics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Dialect {
        /// Ours.
        Hub = "hub",
        /// The bidirectional one of Centrifugo, in JSON.
        Centrifugo = "centrifugo",
    }
}

/// The meaning of a line from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Subscribed,
    /// A published message, by its number.
    Message(u64),
    /// It wants a sign of life.
    Ping,
    Other,
    Wrong,
}

impl Dialect {
    /// The first words of a connection, if there are any.
    pub(super) const fn hello(self) -> Option<&'static str> {
        match self {
            Self::Hub => None,
            Self::Centrifugo => Some(r#"{"id":1,"connect":{}}"#),
        }
    }

    /// A subscription. No two of a connection have the same number.
    pub(super) fn subscribe(self, topic: &str, number: u64) -> String {
        match self {
            Self::Hub => format!(r#"{{"type":"subscribe","topic":"{topic}"}}"#),
            Self::Centrifugo => format!(r#"{{"id":{},"subscribe":{{"channel":"{topic}"}}}}"#, number + 2),
        }
    }

    /// A message with a number and some bytes, which the server answers.
    pub(super) fn publish(self, topic: &str, number: u64, size: usize) -> String {
        let data = format!(r#"{{"n":{number},"text":"{:.<size$}"}}"#, "");
        match self {
            Self::Hub => format!(r#"{{"type":"publish","topic":"{topic}","data":{data},"id":"{number}"}}"#),
            Self::Centrifugo => {
                format!(r#"{{"id":{},"publish":{{"channel":"{topic}","data":{data}}}}}"#, number + 1_000)
            }
        }
    }

    /// The answer to [`Heard::Ping`].
    pub(super) const fn alive(self) -> &'static str {
        "{}"
    }

    pub(super) fn hear(self, line: &str) -> Heard {
        match self {
            Self::Hub if line.starts_with(r#"{"type":"message""#) => number(line),
            Self::Hub if line.starts_with(r#"{"type":"subscribed""#) => Heard::Subscribed,
            Self::Hub if line.starts_with(r#"{"type":"published""#) => Heard::Other,
            Self::Centrifugo if line.starts_with(r#"{"push":{"#) && line.contains(r#""pub":{"#) => number(line),
            Self::Centrifugo if line == self.alive() => Heard::Ping,
            Self::Centrifugo if line.starts_with(r#"{"id":"#) && !line.contains(r#""error":{"#) => {
                if line.contains(r#""subscribe":{"#) { Heard::Subscribed } else { Heard::Other }
            }
            Self::Hub | Self::Centrifugo => Heard::Wrong,
        }
    }
}

/// The number of a message.
fn number(line: &str) -> Heard {
    let digits = line.split_once(r#""n":"#).map(|(_, rest)| rest.split(|other: char| !other.is_ascii_digit()));
    let number = digits.and_then(|mut digits| digits.next()?.parse().ok());
    number.map_or(Heard::Wrong, Heard::Message)
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Heard};

    #[test]
    fn lines_of_each_server_are_understood() {
        let hub = |line| Dialect::Hub.hear(line);
        assert_eq!(hub(r#"{"type":"subscribed","topic":"t"}"#), Heard::Subscribed);
        assert_eq!(hub(r#"{"type":"message","topic":"t","offset":9,"data":{"n":17,"text":"."}}"#), Heard::Message(17));
        assert_eq!(hub(r#"{"type":"published","id":"17","reach":"all"}"#), Heard::Other);
        for wrong in [r#"{"type":"error","reason":"no"}"#, r#"{"type":"resync","topic":"t"}"#, "{}", ""] {
            assert_eq!(hub(wrong), Heard::Wrong, "{wrong}");
        }
        let other = |line| Dialect::Centrifugo.hear(line);
        assert_eq!(other("{}"), Heard::Ping);
        assert_eq!(other(r#"{"id":1,"connect":{"client":"c","version":"6.9.1","ping":25,"pong":true}}"#), Heard::Other);
        assert_eq!(other(r#"{"id":2,"subscribe":{}}"#), Heard::Subscribed);
        assert_eq!(
            other(r#"{"push":{"channel":"t","pub":{"data":{"n":3,"text":"."},"offset":7}}}"#),
            Heard::Message(3)
        );
        for wrong in [r#"{"id":2,"error":{"code":103,"message":"permission denied"}}"#, r#"{"push":{"disconnect":{}}}"#]
        {
            assert_eq!(other(wrong), Heard::Wrong, "{wrong}");
        }
    }

    #[test]
    fn what_is_said_is_json() {
        for dialect in Dialect::ALL {
            let words = [dialect.subscribe("log:a-1", 0), dialect.publish("log:a-1", 7, 16)];
            for text in words.iter().map(String::as_str).chain(dialect.hello()) {
                assert!(serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value.is_object()), "{text}");
            }
            assert!(words[1].contains(r#""n":7,"text":"................""#), "{}", words[1]);
        }
    }
}
