//! Reads header fields: lists, tokens, and fields that may occur once.

use http::header::{AsHeaderName, HeaderMap, HeaderValue};

/// Returns the members of a comma-separated list, which may span several header lines.
///
/// Members are trimmed, and empty ones are skipped (RFC 9110, section 5.6.1).
pub(crate) fn list(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(trim).filter(|item| !item.is_empty())
}

/// Whether the list has `token`; case does not matter.
pub(crate) fn has_token(headers: &HeaderMap, name: impl AsHeaderName, token: &str) -> bool {
    list(headers, name).any(|item| item.eq_ignore_ascii_case(token.as_bytes()))
}

/// Returns the value of a field that may occur once; `Err` if it occurs more often.
pub(crate) fn at_most_one(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&HeaderValue>, Duplicate> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(Duplicate),
    }
}

/// A field that may occur once occurs more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duplicate;

/// Whether `bytes` is a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Whether `byte` may be part of a token.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// Removes spaces and tabs from both ends.
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
    fn a_list_spans_lines_and_skips_empty_members() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static(" keep-alive ,, \t"));
        headers.append(CONNECTION, HeaderValue::from_static("x,UPGRADE\t, y"));
        let items: Vec<_> = list(&headers, CONNECTION).collect();
        assert_eq!(items, [&b"keep-alive"[..], b"x", b"UPGRADE", b"y"]);
        assert!(has_token(&headers, CONNECTION, "upgrade"));
        assert!(!has_token(&headers, CONNECTION, "keep"));
        assert_eq!(at_most_one(&headers, CONNECTION), Err(Duplicate));
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
