//! How header fields are read: lists, tokens, fields that may be there once.

use http::header::{AsHeaderName, HeaderMap, HeaderValue};

/// The members of a comma-separated list that may span several header lines, trimmed; empty ones are skipped as
/// RFC 9110, section 5.6.1 asks.
pub(crate) fn list(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(trim).filter(|item| !item.is_empty())
}

/// Whether the list has `token`, in any case.
pub(crate) fn has_token(headers: &HeaderMap, name: impl AsHeaderName, token: &str) -> bool {
    list(headers, name).any(|item| item.eq_ignore_ascii_case(token.as_bytes()))
}

/// The one value of a field; `Err` where there are several.
pub(crate) fn at_most_one(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&HeaderValue>, Several> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(Several),
    }
}

/// A field that may be there once is there several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Several;

/// Whether `bytes` is a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Whether `byte` may stand in a token.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// Cuts spaces and tabs off both ends.
pub(crate) const fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{CONNECTION, HOST};

    #[test]
    fn a_list_spans_lines_and_skips_what_is_empty() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static(" keep-alive ,, \t"));
        headers.append(CONNECTION, HeaderValue::from_static("x,UPGRADE\t, y"));
        let items: Vec<_> = list(&headers, CONNECTION).collect();
        assert_eq!(items, [&b"keep-alive"[..], b"x", b"UPGRADE", b"y"]);
        assert!(has_token(&headers, CONNECTION, "upgrade"));
        assert!(!has_token(&headers, CONNECTION, "keep"));
        assert_eq!(at_most_one(&headers, CONNECTION), Err(Several));
        assert_eq!(at_most_one(&headers, HOST), Ok(None));
    }

    #[test]
    fn tokens_have_no_separators() {
        assert!(is_token(b"chat.v1+json!#$%&'*^_`|~-"));
        for wrong in ["", " ", "a b", "a,b", "a;b", "\"a\"", "a=b", "a/b", "\u{e4}", "a\0"] {
            assert!(!is_token(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
