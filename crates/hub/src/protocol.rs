//! The protocol between clients and the hub: one JSON object per text message. `docs/hub.md` describes it.

use crate::log::Position;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write;

/// Deepest nesting of a message's data. Parsers of many languages fail beyond it, and a topic with history would keep what they
/// fail at.
pub(crate) const MOST_DEPTH: usize = 128;

/// A message of a client.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Request<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) action: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(crate) topic: Option<Cow<'a, str>>,
    /// The last offset that the client has.
    #[serde(default)]
    pub(crate) after: Option<u64>,
    /// The epoch of that offset.
    #[serde(default, borrow)]
    pub(crate) epoch: Option<Cow<'a, str>>,
    /// Whether the client wants to know the members.
    #[serde(default)]
    pub(crate) presence: bool,
    /// Whether the client wants to know the number of members.
    #[serde(default)]
    pub(crate) count: bool,
    /// The name as a member.
    #[serde(default, rename = "as", borrow)]
    pub(crate) member: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) key: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) token: Option<Cow<'a, str>>,
    /// The version of the protocol that the client speaks.
    #[serde(default)]
    pub(crate) version: Option<u64>,
    #[serde(default, borrow, deserialize_with = "value")]
    pub(crate) data: Option<&'a RawValue>,
}

/// A message of the hub, as a client reads it.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) action: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(crate) topic: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(crate) offset: Option<u64>,
    #[serde(default, borrow)]
    pub(crate) epoch: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) key: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) reason: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) reach: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(crate) member: Option<Cow<'a, str>>,
    /// Seconds that a token still holds.
    #[serde(default)]
    pub(crate) expires: Option<u64>,
    /// The version of the protocol that both speak.
    #[serde(default)]
    pub(crate) version: Option<u64>,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub(crate) retry: bool,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) members: Option<Vec<(String, String)>>,
    /// The number of members.
    #[serde(default)]
    pub(crate) number: Option<u64>,
    /// Whether these members add to those before.
    #[serde(default)]
    pub(crate) more: bool,
    #[serde(default, borrow, deserialize_with = "value")]
    pub(crate) data: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Reads a message. An array of the members' values would do for the parser, too, and is none.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        if !text.trim_ascii_start().starts_with('{') {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

impl Answer<'_> {
    /// The place that it names.
    pub(crate) fn position(&self) -> Option<Position> {
        Some(Position { epoch: self.epoch.as_deref()?.into(), offset: self.offset? })
    }
}

/// A member that is there. Its value may be `null`.
fn value<'a, 'de: 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A JSON object under construction.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new(action: &str) -> Self {
        let mut text = String::with_capacity(128);
        text.push_str("{\"type\":\"");
        text.push_str(action);
        text.push('"');
        Self(text)
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        let value = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
        // Writing to a string does not fail.
        let _ = write!(self.0, ",\"{name}\":{value}");
        self
    }

    pub(crate) fn optional(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    pub(crate) fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// Adds a member whose value is JSON already.
    pub(crate) fn raw(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.0, ",\"{name}\":{value}");
        self
    }

    pub(crate) fn position(self, at: &Position) -> Self {
        self.text("epoch", &at.epoch).number("offset", at.offset)
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// The number of arrays and objects around the innermost value of a JSON text.
pub(crate) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut is_string) = (0_usize, 0, false);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_string = !is_string,
            b'\\' => _ = bytes.next(),
            b'[' | b'{' if !is_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A name that no other has: 16 random bytes in hex.
#[must_use]
pub fn random_name() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Without random numbers, the process and the time have to do.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes[..8].copy_from_slice(&now.as_nanos().to_le_bytes()[..8]);
        bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Answer, Object, Request, depth};

    #[test]
    fn depth_counts_arrays_and_objects_outside_of_strings() {
        let texts =
            [("1", 0), ("[]", 1), (r#"{"a":[1,[2]],"b":[]}"#, 3), (r#"["[[\"[[\\",[[]]]"#, 3), (r#""{{\\""#, 0)];
        for (text, expected) in texts {
            serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(depth(text), expected, "{text}");
        }
    }

    #[test]
    fn frames_are_json_whatever_their_names() {
        let nasty = "a\"b\\c\n\u{7}\u{1f600}";
        let frame = Object::new("message").text("topic", nasty).number("offset", 7).raw("data", "[1, {}]").end();
        let answer: Answer<'_> = serde_json::from_str(&frame).unwrap();
        assert_eq!((answer.topic.unwrap().as_ref(), answer.offset), (nasty, Some(7)));
        assert_eq!(answer.data.unwrap().get(), "[1, {}]");
    }

    #[test]
    fn garbage_is_refused() {
        for text in ["", "1", "[]", "{}", "{\"type\":1}", "{\"type\":\"publish\",\"after\":-1}", "{\"type\":\"x\"} {}"]
        {
            assert!(serde_json::from_str::<Request<'_>>(text).is_err(), "{text}");
        }
        let deep = format!("{{\"type\":\"publish\",\"data\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        // Either is fine, but not a stack overflow.
        let _ = serde_json::from_str::<Request<'_>>(&deep);
    }
}
