//! Where a request has its token: header, query or cookie.

use crate::rules::Tokens;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline::http::{HeaderMap, Request, header};

/// The token of a request, and the reason why it has none that may be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'r> {
    Token(&'r str),
    None,
    Bad(&'static str),
}

/// Finds the token of a request. A header counts before a query, and that before a cookie.
pub(crate) fn find<'r>(request: &'r Request<()>, tokens: &Tokens) -> Found<'r> {
    match bearer(request.headers()) {
        Found::None => {}
        found => return found,
    }
    if let Some(name) = &tokens.query
        && let Some(token) = parameter(request.uri().query().unwrap_or_default(), name)
    {
        return Found::Token(token);
    }
    let Some(token) = tokens.cookie.as_ref().and_then(|name| cookie(request.headers(), name)) else {
        return Found::None;
    };
    // Browsers send cookies for whatever page asks (RFC 6455, section 10.2).
    if tokens.origins.allow(request) { Found::Token(token) } else { Found::Bad("a page of another origin") }
}

/// The token of `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Found<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Found::None,
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Found::Bad("two Authorization headers"),
    };
    let parts = value.to_str().ok().and_then(|value| value.split_once(' '));
    match parts {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Found::Token(token.trim()),
        _ => Found::Bad("an Authorization header that is not `Bearer TOKEN`"),
    }
}

/// A parameter of a query. The letters of a token need no encoding.
pub(crate) fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(';')).find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
}

/// The time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Found, find};
    use crate::rules::Tokens;
    use tautline::http::Request;

    fn tokens() -> Tokens {
        Tokens { cookie: Some("session".into()), query: Some("token".into()), ..Tokens::default() }
    }

    fn request(target: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::get(target).header("host", "hub.example");
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn tokens_are_found_in_header_query_and_cookie() {
        type Headers<'h> = &'h [(&'h str, &'h str)];
        let table: [(&str, Headers<'_>, Found<'_>); 12] = [
            ("/", &[], Found::None),
            ("/", &[("authorization", "Bearer a.b.c")], Found::Token("a.b.c")),
            ("/", &[("authorization", "bearer  a.b.c ")], Found::Token("a.b.c")),
            ("/?token=q", &[("authorization", "Bearer a")], Found::Token("a")),
            ("/?x=1&token=q.q&y", &[], Found::Token("q.q")),
            ("/?tokens=q", &[], Found::None),
            ("/?xtoken=q", &[], Found::None),
            ("/", &[("cookie", "a=1; session=c.c.c; b=2")], Found::Token("c.c.c")),
            ("/", &[("cookie", "xsession=1")], Found::None),
            ("/", &[("cookie", "session=c"), ("origin", "https://hub.example")], Found::Token("c")),
            ("/?token=q", &[("cookie", "session=c"), ("origin", "https://evil.example")], Found::Token("q")),
            ("/", &[("authorization", "Basic x"), ("cookie", "session=c")], Found::Bad("")),
        ];
        for (target, headers, expected) in table {
            let request = request(target, headers);
            let found = find(&request, &tokens());
            let is_same = found == expected || matches!((&found, &expected), (Found::Bad(_), Found::Bad(_)));
            assert!(is_same, "{target} {headers:?}: {found:?}");
        }
    }

    #[test]
    fn a_cookie_of_a_foreign_page_is_no_token() {
        for origin in ["https://evil.example", "null", "https://hub.example.evil.example", "garbage"] {
            let request = request("/", &[("cookie", "session=c"), ("origin", origin)]);
            assert!(matches!(find(&request, &tokens()), Found::Bad(_)), "{origin}");
        }
        let twice = request("/", &[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
        assert!(matches!(find(&twice, &tokens()), Found::Bad(_)));
    }

    #[test]
    fn without_names_only_the_header_counts() {
        let request = request("/?token=q", &[("cookie", "session=c")]);
        assert_eq!(find(&request, &Tokens::default()), Found::None);
    }
}
