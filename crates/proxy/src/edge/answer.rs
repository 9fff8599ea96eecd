//! The heads of responses, on their way to the client.

use super::{Exchange, ServerSide, Side};
use crate::balance::Lease;
use crate::forward::head::{remove_hop_by_hop, write_switching};
use crate::forward::{Body, Flaw, Form, Framing};
use std::time::Instant;
use tautline::ConnId;
use tautline::http::header::{HeaderMap, SET_COOKIE};
use tautline::http::{Method, Response, StatusCode, Version};
use tautline::layers::buf::Buf;
use tautline::layers::engine::{Others, Raw};
use tautline::layers::ws::handshake::{Framing as Written, Reply as Shape, write_response_head};

/// Writes the head of a response to the client. Returns its body, which follows.
pub(super) fn write_head(
    raw: &mut Raw<'_, Side>,
    client: ConnId,
    exchange: &mut Exchange,
    server: &mut ServerSide,
    mut response: Response<()>,
) -> Result<Body, Flaw> {
    let old = exchange.version == Version::HTTP_10;
    let framing = Framing::of_response(&response, &exchange.method)?;
    let stated = Framing::stated(response.headers(), response.version())?;
    let written = match stated {
        Some(Framing::Length(len)) => Written::Length(len),
        Some(Framing::Chunked) if !old => Written::Chunked,
        Some(Framing::Empty) => Written::Length(0),
        _ if framing == Framing::Empty && exchange.method != Method::HEAD => Written::Length(0),
        _ => Written::UntilEnd,
    };
    // Its end would be the end of the connection. A client that still sends its body would not be heard either.
    let may_follow = exchange.keep_alive && exchange.body.is_whole();
    // A server that announces bytes where none may be might send them, and they would be read as the next response.
    let is_odd = response.status() == StatusCode::NO_CONTENT && stated.is_some_and(|stated| stated != Framing::Empty);
    server.keeps &= framing != Framing::UntilEnd && !is_odd;
    remove_hop_by_hop(response.headers_mut());
    edit(exchange, response.headers_mut());
    let shape = Shape { head_only: exchange.method == Method::HEAD, keep_alive: may_follow, old };
    let mut out = Buf::new();
    let ends = written == Written::UntilEnd && framing != Framing::Empty;
    let (_, keep_alive) =
        write_response_head(&response, written, Shape { keep_alive: may_follow && !ends, ..shape }, None, &mut out);
    exchange.keep_alive = keep_alive;
    exchange.is_answered = true;
    let took = exchange.meter.head(response.status(), Instant::now());
    let mut others = raw.others();
    others.note(client, |notes| notes.set("head", took));
    let _ = others.write(client, out.filled());
    others.note_status(client, response.status());
    Ok(Body::new(framing, if old { Form::Bytes } else { Form::AsIs }))
}

/// Passes the response of a server that has changed the protocol on to the client.
pub(super) fn switch(others: &mut Others<'_, Side>, client: ConnId, exchange: &Exchange, mut response: Response<()>) {
    edit(exchange, response.headers_mut());
    let mut head = Vec::new();
    write_switching(&response, &mut head);
    let took = exchange.meter.head(response.status(), Instant::now());
    exchange.lease.iter().for_each(Lease::succeeded);
    let _ = others.write(client, &head);
    others.note(client, |notes| notes.set("head", took));
    others.note_status(client, response.status());
}

/// Changes the fields of a response as its route asks, and binds the client to the server if the backend does that by a cookie.
fn edit(exchange: &Exchange, fields: &mut HeaderMap) {
    exchange.edits.apply(fields);
    if let Some(lease) = &exchange.lease
        && let Some(cookie) = exchange.backend.set_cookie(&exchange.headers, lease.server(), exchange.is_secure)
    {
        fields.append(SET_COOKIE, cookie);
    }
}

pub(super) fn put(others: &mut Others<'_, Side>, client: ConnId, side: Side) {
    if let Some(state) = others.state(client) {
        *state = side;
    }
}
