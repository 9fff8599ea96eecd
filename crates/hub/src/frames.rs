//! Several messages in a frame: the protocol's second version.
//!
//! A client that says `hello` with this version gets and sends JSON arrays of messages. One message alone is as in the first.

use crate::access::code;
use crate::protocol::Object;
use serde::Deserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use tautline::{CloseCode, Conn};

/// The versions of the protocol.
const ONE_EACH: u64 = 1;
const MANY: u64 = 2;
/// Messages of a frame of a client at most.
pub(crate) const MOST: usize = 256;

/// Takes the messages of a frame.
struct Messages;

impl<'de> Visitor<'de> for Messages {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MOST} messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = seq.next_element::<&RawValue>()? {
            if messages.len() >= MOST {
                return Err(A::Error::custom("too many messages"));
            }
            messages.push(message.get());
        }
        Ok(messages)
    }
}

/// The client says the version of the protocol that it speaks. Returns whether it takes several messages in a frame. `None` if the
/// hub does not speak that version: the connection closes.
pub(crate) fn hello(conn: &mut Conn<'_, ()>, version: Option<u64>) -> Result<Option<bool>, &'static str> {
    let version = version.ok_or("a `hello` without `version`")?;
    if version != ONE_EACH && version != MANY {
        let reason = "this hub speaks versions 1 and 2 of the protocol";
        conn.text(&Object::new("error").text("reason", reason).raw("versions", "[1,2]").end());
        conn.close(CloseCode::new(code::VERSION), reason);
        return Ok(None);
    }
    let many = version == MANY;
    conn.join_texts(many);
    let answer = Object::new("hello").number("version", version);
    conn.text(&if many { answer.number("most", MOST as u64) } else { answer }.end());
    Ok(Some(many))
}

/// Whether a frame of a client has an array of messages.
pub(crate) fn is_array(text: &str) -> bool {
    text.trim_ascii_start().starts_with('[')
}

/// The messages of an array. `Err` has the reason if it is none, or has too many.
pub(crate) fn messages(array: &str) -> Result<Vec<&str>, &'static str> {
    let mut parser = serde_json::Deserializer::from_str(array);
    let messages = parser.deserialize_seq(Messages).and_then(|messages| parser.end().map(|()| messages));
    messages.map_err(|_| "no JSON array of at most 256 messages")
}

#[cfg(test)]
mod tests {
    use super::{MOST, messages};

    #[test]
    fn a_frame_has_a_bounded_number_of_messages() {
        let read = |text: &str| messages(text).map(|all| all.len());
        assert_eq!(read("[]").unwrap(), 0);
        assert_eq!(read("[{}, 1,[2]]").unwrap(), 3);
        assert_eq!(read(&format!("[{}1]", "1,".repeat(MOST - 1))).unwrap(), MOST);
        for text in [&*format!("[{}1]", "1,".repeat(MOST)), "[1", "{}", "[1]]"] {
            assert!(read(text).is_err());
        }
    }
}
