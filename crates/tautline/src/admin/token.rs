//! The token of an admin listener.

use http::{HeaderMap, header};
use std::fmt;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Least bytes of a token. Shorter ones could be guessed.
const LEAST: usize = 16;

/// The secret that requests to an [`Admin`](crate::Admin) must have, as `Authorization: Bearer TOKEN`.
///
/// `Debug` does not show it.
#[derive(Clone)]
pub struct AdminToken(Arc<[u8]>);

impl AdminToken {
    /// A token of 16 visible ASCII characters or more, such as those of `openssl rand -hex 32`. White space around it is left out.
    ///
    /// # Errors
    /// If it is shorter, or has other characters.
    pub fn new(token: &str) -> Result<Self, InvalidAdminToken> {
        let token = token.trim().as_bytes();
        if token.len() < LEAST || !token.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidAdminToken);
        }
        Ok(Self(token.into()))
    }

    /// Whether a request has this token. The time of the comparison says nothing about the token but its length.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && token.trim_ascii().ct_eq(&self.0).into()
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

/// A text is no token of an admin listener.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InvalidAdminToken;

impl fmt::Display for InvalidAdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a token has {LEAST} visible ASCII characters or more; make one by `openssl rand -hex 32`")
    }
}

impl fmt::Debug for InvalidAdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for InvalidAdminToken {}

#[cfg(test)]
mod tests {
    use super::{AdminToken, InvalidAdminToken};
    use http::{HeaderMap, HeaderValue, header};

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = AdminToken::new(" 0123456789abcdef\n").unwrap();
        for good in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "Bearer  0123456789abcdef"] {
            assert!(token.is_in(&headers(&[good])), "{good}");
        }
        for bad in [
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "",
        ] {
            assert!(!token.is_in(&headers(&[bad])), "{bad}");
        }
        assert!(!token.is_in(&headers(&[])));
        assert!(!token.is_in(&headers(&["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"])));
    }

    #[test]
    fn short_tokens_and_those_that_no_header_has_are_refused() {
        for bad in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\u{e9}", "0123456789abcdef\nmore"] {
            assert_eq!(AdminToken::new(bad).unwrap_err(), InvalidAdminToken, "{bad:?}");
        }
        assert!(!format!("{:?}", AdminToken::new("0123456789abcdef").unwrap()).contains("0123"));
    }
}
