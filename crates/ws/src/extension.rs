//! The header `Sec-WebSocket-Extensions` (RFC 6455, section 9.1): extensions with parameters, in order of preference.

use crate::fields::is_token_byte;
use core::fmt::{self, Write as _};
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_EXTENSIONS;

/// One extension of the list, offered by a client or accepted by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The registered name, such as `permessage-deflate`; case does not matter.
    pub name: String,
    /// The parameters in the order sent. A name may occur twice; the extension decides whether that is valid.
    pub params: Vec<Param>,
}

/// A parameter of an [`Extension`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The name.
    pub name: String,
    /// The value: a token, without the quotes that it may have been sent in.
    pub value: Option<String>,
}

/// A list does not follow the grammar, so that the handshake must fail (RFC 6455, section 9.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MalformedExtensions;

impl fmt::Display for MalformedExtensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("peer sent a malformed Sec-WebSocket-Extensions header")
    }
}

impl fmt::Debug for MalformedExtensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for MalformedExtensions {}

impl Extension {
    /// Makes an extension without parameters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), params: Vec::new() }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<&str>) -> Self {
        self.params.push(Param { name: name.to_owned(), value: value.map(str::to_owned) });
        self
    }

    /// Reads the extensions of a head, from all of its header lines.
    ///
    /// # Errors
    /// A header line does not follow the grammar.
    pub fn from_headers(headers: &HeaderMap) -> Result<Vec<Self>, MalformedExtensions> {
        let mut extensions = Vec::new();
        for value in headers.get_all(SEC_WEBSOCKET_EXTENSIONS) {
            Self::parse_list(value.as_bytes(), &mut extensions)?;
        }
        Ok(extensions)
    }

    /// Appends the extensions of one header line; skips empty members of the list.
    ///
    /// # Errors
    /// The line does not follow the grammar; `extensions` holds the extensions before the fault.
    pub fn parse_list(line: &[u8], extensions: &mut Vec<Self>) -> Result<(), MalformedExtensions> {
        let mut cursor = Cursor { rest: line };
        loop {
            cursor.skip_blanks();
            match cursor.rest.first() {
                None => return Ok(()),
                Some(b',') => cursor.advance(1),
                Some(_) => {
                    extensions.push(cursor.extension()?);
                    if !matches!(cursor.rest.first(), None | Some(b',')) {
                        return Err(MalformedExtensions);
                    }
                }
            }
        }
    }
}

/// Writes the extension as in the header. Values are written without quotes, since parsed ones are tokens.
impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for param in &self.params {
            f.write_str("; ")?;
            f.write_str(&param.name)?;
            if let Some(value) = &param.value {
                f.write_char('=')?;
                f.write_str(value)?;
            }
        }
        Ok(())
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn extension(&mut self) -> Result<Extension, MalformedExtensions> {
        let mut extension = Extension { name: self.token()?, params: Vec::new() };
        self.skip_blanks();
        while self.eat(b';') {
            self.skip_blanks();
            let name = self.token()?;
            self.skip_blanks();
            let value = if self.eat(b'=') {
                self.skip_blanks();
                Some(if self.eat(b'"') { self.quoted()? } else { self.token()? })
            } else {
                None
            };
            self.skip_blanks();
            extension.params.push(Param { name, value });
        }
        Ok(extension)
    }

    fn token(&mut self) -> Result<String, MalformedExtensions> {
        let len = self.rest.iter().take_while(|&&byte| is_token_byte(byte)).count();
        let token = self.rest[..len].iter().copied().map(char::from).collect::<String>();
        self.advance(len);
        if token.is_empty() { Err(MalformedExtensions) } else { Ok(token) }
    }

    /// Reads the rest of a quoted string. Its content must be a token once `\` escapes are removed.
    fn quoted(&mut self) -> Result<String, MalformedExtensions> {
        let mut token = String::new();
        loop {
            let (byte, used) = match *self.rest {
                [b'"', ..] => break,
                [b'\\', byte, ..] => (byte, 2),
                [byte, ..] => (byte, 1),
                [] => return Err(MalformedExtensions),
            };
            if !is_token_byte(byte) {
                return Err(MalformedExtensions);
            }
            token.push(char::from(byte));
            self.advance(used);
        }
        self.advance(1);
        if token.is_empty() { Err(MalformedExtensions) } else { Ok(token) }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let there = self.rest.first() == Some(&byte);
        if there {
            self.advance(1);
        }
        there
    }

    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', ..] = self.rest {
            self.advance(1);
        }
    }

    fn advance(&mut self, n: usize) {
        self.rest = &self.rest[n..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn parse(line: &str) -> Result<Vec<String>, MalformedExtensions> {
        let mut extensions = Vec::new();
        Extension::parse_list(line.as_bytes(), &mut extensions)?;
        Ok(extensions.iter().map(Extension::to_string).collect())
    }

    #[test]
    fn reads_the_lists_of_rfc_6455() {
        assert_eq!(parse("foo").unwrap(), ["foo"]);
        assert_eq!(parse("bar; baz=2").unwrap(), ["bar; baz=2"]);
        assert_eq!(parse("deflate-stream").unwrap(), ["deflate-stream"]);
        assert_eq!(
            parse("mux; max-channels=4; flow-control, deflate-stream").unwrap(),
            ["mux; max-channels=4; flow-control", "deflate-stream"]
        );
    }

    #[test]
    fn accepts_quotes_blanks_and_empty_members() {
        assert_eq!(parse(" , a ;\tb = \"c\\d\" ;e,, f;g ,").unwrap(), ["a; b=cd; e", "f; g"]);
        assert_eq!(parse("").unwrap(), [""; 0]);
    }

    #[test]
    fn rejects_lines_outside_the_grammar() {
        for wrong in [
            ";",
            "=",
            "a;",
            "a;;b",
            "a b",
            "a; b=",
            "a; b=,",
            "a; =c",
            "a; b=\"\"",
            "a; b=\"c",
            "a; b=\"c\\",
            "a; b=\"c d\"",
            "a; b=\"c\"d",
            "a; b=c=d",
            "a\0",
            "a, b\u{e4}",
            "\"a\"",
            "a; \"b\"",
        ] {
            assert_eq!(parse(wrong), Err(MalformedExtensions), "{wrong:?}");
        }
    }

    #[test]
    fn joins_header_lines() {
        let mut headers = HeaderMap::new();
        headers.append(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static("a; b"));
        headers.append(SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static("c"));
        let names: Vec<_> = Extension::from_headers(&headers).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    proptest! {
        #[test]
        fn parse_list_reverses_display(
            list in proptest::collection::vec(("[a-z!#$%&'*+.^_`|~-]{1,9}", proptest::collection::vec(
                ("[a-zA-Z0-9-]{1,9}", proptest::option::of("[a-zA-Z0-9-]{1,9}")), 0..4)), 0..4)
        ) {
            let list: Vec<_> = list.into_iter().map(|(name, params)| Extension {
                name,
                params: params.into_iter().map(|(name, value)| Param { name, value }).collect(),
            }).collect();
            let line = list.iter().map(Extension::to_string).collect::<Vec<_>>().join(", ");
            let mut again = Vec::new();
            Extension::parse_list(line.as_bytes(), &mut again).unwrap();
            prop_assert_eq!(again, list);
        }

        #[test]
        fn arbitrary_lines_do_not_panic(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Extension::parse_list(&line, &mut Vec::new());
        }
    }
}
