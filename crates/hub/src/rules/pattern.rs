//! Patterns of topics' names.

use std::str::FromStr;

/// A pattern for names of topics.
///
/// Names are compared byte for byte: case counts, and so does the Unicode form in which a name is written. A name consists of
/// segments between colons. `*` as the end of a pattern stands for any rest, and as a whole segment before that for one segment.
///
/// | pattern | names |
/// |---|---|
/// | `chat:1` | this one |
/// | `chat:*` | all that begin with `chat:`, also `chat:1:2` and `chat:` itself |
/// | `chat:*:typing` | `chat:1:typing`, and neither `chat:1:2:typing` nor `chat::typing` |
/// | `*` | all |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<str>,
}

/// Most bytes of a pattern: those of a name.
const MOST: usize = 256;

impl Pattern {
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (whole, is_prefix) = match self.text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (&*self.text, false),
        };
        if !whole.contains('*') {
            return if is_prefix { name.starts_with(whole) } else { name == whole };
        }
        let mut left = name;
        let mut segments = whole.split(':').peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                return if is_prefix { left.starts_with(segment) } else { left == segment };
            }
            let Some((first, rest)) = left.split_once(':') else { return false };
            if first != segment && (segment != "*" || first.is_empty()) {
                return false;
            }
            left = rest;
        }
        false
    }

    pub(crate) const fn text(&self) -> &str {
        &self.text
    }

    /// Its memory, in bytes, beside itself.
    pub(crate) const fn memory(&self) -> usize {
        self.text.len()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MOST || text.contains(char::is_control) {
            return Err(format!("a pattern has 1 to {MOST} bytes and no control characters"));
        }
        if text.starts_with('$') {
            return Err("names that begin with `$` are the hub's own".to_owned());
        }
        let inner = text.strip_suffix('*').unwrap_or(text);
        let is_misplaced = |segment: &str| segment.contains('*') && segment != "*";
        if inner.ends_with('*') || inner.split(':').any(is_misplaced) {
            return Err(format!("{text:?}: `*` stands at the end, or for a whole segment between colons"));
        }
        Ok(Self { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn patterns_match_names_byte_for_byte() {
        let table = [
            ("chat:1", "chat:1", true),
            ("chat:1", "chat:12", false),
            ("chat:1", "Chat:1", false),
            ("chat:*", "chat:1:2", true),
            ("chat:*", "chat:", true),
            ("chat:*", "chat", false),
            ("chat:*", "CHAT:1", false),
            ("chat:*", "xchat:1", false),
            ("chat:*", "chat\u{fe55}1", false),
            ("user-*", "user-7", true),
            ("chat:*:typing", "chat:1:typing", true),
            ("chat:*:typing", "chat:1:2:typing", false),
            ("chat:*:typing", "chat::typing", false),
            ("chat:*:typing", "chat:*:typing", true),
            ("*:admin", "a:admin", true),
            ("*:admin", "a:b:admin", false),
            ("*:admin", ":admin", false),
            ("a:*:*", "a:b:c:d", true),
            ("a:*:*", "a:b", false),
            ("a:*:c*", "a:b:cd:e", true),
            ("a:*:c*", "a:b:d", false),
            ("*", "anything:at all", true),
            // The same letter in two Unicode forms is two names.
            ("caf\u{e9}", "cafe\u{301}", false),
            ("caf\u{e9}", "caf\u{e9}", true),
            // A pattern as a name is a name.
            ("chat:1", "chat:*", false),
            ("chat:1", "*", false),
            // Nothing but `*` has a meaning.
            ("a.c", "abc", false),
            ("a?c", "abc", false),
            ("a/+/c", "a/b/c", false),
            ("a/#", "a/b", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_that_could_be_misread_are_errors() {
        let long = "x".repeat(257);
        for bad in ["", "a*b", "a*:b", "*a:b", "**", "a:**", "$presence/*", "a\nb", "a\u{85}", &long] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
        }
    }
}
