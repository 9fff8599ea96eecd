//! The opening handshake on a stream of HTTP/2: extended CONNECT (RFC 8441).
//!
//! It has no key and no `Upgrade`. All other rules are those of HTTP/1.1, so the request is judged in that form.

use http::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Version};
use tautline_ws::handshake::{self, Accepted, Policy, Refusal};

/// Accepts the WebSocket that a request asks for. `protocol`: that of an extended CONNECT request.
///
/// # Errors
/// The response that says why it is refused.
pub(crate) fn accept(
    request: &Request<()>,
    protocol: Option<&str>,
    policy: &Policy,
) -> Result<Accepted, Box<Response<String>>> {
    if cfg!(not(feature = "http2")) {
        let why = "tautline-tokio opens WebSockets over HTTP/2 with its feature http2 only";
        return Err(refuse(StatusCode::NOT_IMPLEMENTED, why));
    }
    if request.method() != Method::CONNECT {
        let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket over HTTP/2 is opened with CONNECT");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("CONNECT"));
        return Err(response);
    }
    if protocol != Some("websocket") {
        return Err(refuse(StatusCode::NOT_IMPLEMENTED, "a CONNECT request has not the :protocol websocket"));
    }
    let mut accepted = handshake::accept(&as_http1(request), policy).map_err(|refused| {
        let mut response = refused.response;
        // 426 asks for an upgrade, which HTTP/2 has not.
        if refused.reason == Refusal::Version {
            *response.status_mut() = StatusCode::BAD_REQUEST;
        }
        strip(&mut response);
        response
    })?;
    *accepted.response.status_mut() = StatusCode::OK;
    strip(&mut accepted.response);
    Ok(accepted)
}

/// The request in the form of HTTP/1.1.
fn as_http1(request: &Request<()>) -> Request<()> {
    let mut form = Request::new(());
    *form.uri_mut() = request.uri().clone();
    *form.version_mut() = Version::HTTP_11;
    *form.headers_mut() = request.headers().clone();
    let headers = form.headers_mut();
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="));
    // All bytes behind the head are the WebSocket's.
    headers.remove(CONTENT_LENGTH);
    form
}

/// Removes fields that HTTP/2 has not.
fn strip<B>(response: &mut Response<B>) {
    for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
        response.headers_mut().remove(name);
    }
}

fn refuse(status: StatusCode, why: &str) -> Box<Response<String>> {
    let mut response = Response::new(format!("{why}\n"));
    *response.status_mut() = status;
    Box::new(response)
}

#[cfg(test)]
#[cfg(feature = "http2")]
mod tests {
    use super::*;
    use http::HeaderMap;
    use http::request::Builder;
    use tautline_ws::deflate::DeflateConfig;

    fn connect() -> Builder {
        let request = Request::connect("https://a.example/chat").version(Version::HTTP_2);
        request.header("sec-websocket-version", "13")
    }

    /// The fields of the answer, or the status of a refusal.
    fn answer(request: Builder, protocol: Option<&str>) -> Result<HeaderMap, u16> {
        let mut policy = Policy::default();
        policy.subprotocols = vec!["chat".to_owned()];
        policy.deflate = Some(DeflateConfig::default());
        match accept(&request.body(()).expect("a request"), protocol, &policy) {
            Ok(accepted) => {
                assert_eq!(accepted.response.status(), StatusCode::OK);
                Ok(accepted.response.headers().clone())
            }
            Err(response) => {
                assert!(!response.headers().contains_key(UPGRADE) && !response.headers().contains_key(CONNECTION));
                Err(response.status().as_u16())
            }
        }
    }

    #[test]
    fn a_stream_is_accepted_by_the_rules_of_an_upgrade() {
        assert!(answer(connect(), Some("websocket")).unwrap().is_empty());
        let request = connect().header("sec-websocket-protocol", "other, chat").header("origin", "https://a.example");
        let headers =
            answer(request.header("sec-websocket-extensions", "permessage-deflate"), Some("websocket")).unwrap();
        assert_eq!((headers.len(), headers["sec-websocket-protocol"].as_bytes()), (2, &b"chat"[..]));
    }

    #[test]
    fn a_refusal_has_no_field_of_http1() {
        let websocket = Some("websocket");
        assert_eq!(answer(Request::get("https://a.example/").version(Version::HTTP_2), websocket), Err(405));
        assert_eq!(answer(connect(), None), Err(501));
        assert_eq!(answer(connect(), Some("connect-udp")), Err(501));
        assert_eq!(answer(connect().header("origin", "https://b.example"), websocket), Err(403));
        assert_eq!(answer(connect().header("sec-websocket-version", "8"), websocket), Err(400));
        assert_eq!(answer(Request::connect("https://a.example/").version(Version::HTTP_2), websocket), Err(400));
    }
}
