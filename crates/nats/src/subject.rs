//! Subjects of NATS for topics.
//!
//! A topic's name may be any text. A subject's parts, which points divide, may neither be empty nor have some characters. So each
//! part gets a `_` before it, and bytes that might be special become `=` and two hex digits.

use std::fmt::Write;

/// The parts of a subject for a topic or a key.
pub(crate) fn encode(name: &str) -> String {
    let mut subject = String::with_capacity(name.len() + 8);
    subject.push('_');
    for byte in name.bytes() {
        match byte {
            b'.' => subject.push_str("._"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b':' | b'/' => subject.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => _ = write!(subject, "={byte:02X}"),
        }
    }
    subject
}

/// One part of a subject for a name.
pub(crate) fn encode_part(name: &str) -> String {
    encode(name).replace("._", "=2E")
}

/// The name of these parts; `None` if `encode` does not make them.
pub(crate) fn decode(subject: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(subject.len());
    for (index, part) in subject.split('.').enumerate() {
        if index > 0 {
            bytes.push(b'.');
        }
        let mut rest = part.strip_prefix('_')?.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'=' {
                bytes.push(byte);
                continue;
            }
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A pattern for all topics with this prefix, and maybe some more: a pattern ends with whole parts.
pub(crate) fn encode_prefix(prefix: &str) -> String {
    match prefix.rsplit_once('.') {
        Some((parts, _)) => format!("{}.>", encode(parts)),
        None => ">".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encode_part, encode_prefix};

    #[test]
    fn every_name_has_a_subject_of_its_own() {
        let names =
            ["a", "a.b", "a..b", ".", "", "*", ">", "a b", "prices.EUR/USD", "\u{e9}=\n", "_", "log:x", "$presence/r"];
        let mut seen = std::collections::HashSet::new();
        for name in names {
            for subject in [encode(name), encode_part(name)] {
                assert_eq!(decode(&subject).as_deref(), Some(name), "{subject}");
                assert!(subject.split('.').all(|part| !part.is_empty()), "{subject}");
                assert!(!subject.contains([' ', '*', '>', '\n']), "{subject}");
            }
            assert!(seen.insert(encode(name)), "{name}");
        }
        for garbage in ["", "a", "_a.b", "_=", "_=4", "_=XY", "_=FF"] {
            assert_eq!(decode(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn patterns_include_all_topics_with_the_prefix() {
        assert_eq!(encode_prefix(""), ">");
        assert_eq!(encode_prefix("pri"), ">");
        assert_eq!(encode_prefix("prices."), "_prices.>");
        assert_eq!(encode_prefix("prices.EUR"), "_prices.>");
    }
}
