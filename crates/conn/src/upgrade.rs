//! The answer of a server to a request for a WebSocket.

use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderMap, HeaderValue, Request};
use tautline_buf::Buf;
use tautline_ws::handshake::{self, Negotiated, Policy, Refused, Reply};

/// The reason why no WebSocket was opened.
#[derive(Debug)]
pub enum Flaw {
    /// The request breaks a rule, or the policy forbids it. [`refuse`] writes the response.
    Request(Refused),
    /// The application chose this subprotocol, which the client did not offer.
    Subprotocol(String),
}

/// Accepts the WebSocket that `request` asks for. Writes the response, with further headers, to `out`.
///
/// A `subprotocol` takes the place of the one that the policy chose.
///
/// # Errors
/// [`Flaw`], and nothing is written.
pub fn accept(
    request: &Request<()>,
    policy: &Policy,
    headers: HeaderMap,
    subprotocol: Option<String>,
    out: &mut Buf,
) -> Result<Negotiated, Flaw> {
    let mut accepted = handshake::accept(request, policy).map_err(Flaw::Request)?;
    accepted.response.headers_mut().extend(headers);
    if let Some(name) = subprotocol {
        let Some(value) = offered(request, &name) else { return Err(Flaw::Subprotocol(name)) };
        accepted.response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, value);
        accepted.negotiated.subprotocol = Some(name);
    }
    accepted.write(out);
    Ok(accepted.negotiated)
}

/// Writes the response to a request that is refused. No other response follows.
pub fn refuse(request: &Request<()>, refused: &Refused, date: &HeaderValue, out: &mut Buf) {
    let reply = Reply { keep_alive: false, ..Reply::to(request) };
    handshake::write_response(&refused.response, reply, Some(date), out);
}

/// The name of a subprotocol as a header, if the client offered it.
fn offered(request: &Request<()>, name: &str) -> Option<HeaderValue> {
    let lists = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    let is_offered = lists.flat_map(|list| list.split(',')).any(|one| one.trim() == name);
    HeaderValue::try_from(name).ok().filter(|_| is_offered)
}
