use tautline::http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};

/// Whether a server's 101 accepts the WebSocket that it was asked for. `accept` is the value for the client's key.
///
/// A connection on which another protocol follows would carry what no rule of the proxy has seen.
///
/// # Errors
/// The rule that the server broke, in words.
pub fn check_switching(headers: &HeaderMap, accept: Option<&HeaderValue>) -> Result<(), &'static str> {
    let mut upgrades = tokens(headers, &UPGRADE).peekable();
    let is_upgrade = upgrades.peek().is_some() && upgrades.all(|token| token.eq_ignore_ascii_case("websocket"));
    if !is_upgrade || !tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")) {
        return Err("its 101 names no upgrade to WebSocket");
    }
    let mut accepts = headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
    if accept.is_none() || accepts.next() != accept || accepts.next().is_some() {
        return Err("its Sec-WebSocket-Accept does not fit the key");
    }
    Ok(())
}

/// The parts of a list. One that is no text is no part of any known name.
pub(super) fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_101_accepts_the_websocket_of_the_request_and_nothing_else() {
        let accept = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let own = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (fields, is_accepted) in [
            (&[("upgrade", "websocket"), ("connection", "Upgrade"), own][..], true),
            (&[("upgrade", "WebSocket"), ("connection", "keep-alive, upgrade"), own], true),
            (&[("upgrade", "h2c"), ("connection", "Upgrade"), own], false),
            (&[("upgrade", "h2c, websocket"), ("connection", "Upgrade"), own], false),
            (&[("upgrade", "websocket"), ("upgrade", "h2c"), ("connection", "Upgrade"), own], false),
            (&[("connection", "Upgrade"), own], false),
            (&[("upgrade", "websocket"), own], false),
            (&[("upgrade", "websocket"), ("connection", "Upgrade")], false),
            (&[("upgrade", "websocket"), ("connection", "Upgrade"), own, own], false),
            (&[("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-accept", "x")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            assert_eq!(check_switching(&headers, Some(&accept)).is_ok(), is_accepted, "{fields:?}");
            assert!(check_switching(&headers, None).is_err());
        }
    }
}
