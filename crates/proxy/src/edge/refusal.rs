//! Responses of the proxy itself.

use super::peer::Peer;
use super::side::{Exchange, Side};
use crate::plan::{Backend, Plan, Route};
use std::time::Duration;
use tautline::http::header::{HeaderValue, RETRY_AFTER};
use tautline::http::{Method, Response, StatusCode, Version};
use tautline::layers::buf::Buf;
use tautline::layers::engine::Raw;
use tautline::layers::ws::handshake::{Reply as Shape, write_response};

/// Answers a request without a server, and counts that. Returns that the request is taken.
pub(super) fn respond(
    raw: &mut Raw<'_, Side>,
    plan: &Plan,
    route: Option<&Route>,
    response: &Response<Vec<u8>>,
    shape: Shape,
) -> bool {
    plan.tally(route, raw.id().shard()).answered(Some(response.status()));
    answer(raw, response, shape);
    true
}

/// Answers a request that gets no response from a server. One that is cut off is shown by a reset.
pub(super) fn fail(client: &mut impl Peer, exchange: &Exchange, status: StatusCode, why: &str) {
    if exchange.is_answered {
        return client.reset();
    }
    exchange.meter.unanswered(Some(status));
    let shape = Shape {
        head_only: exchange.method == Method::HEAD,
        keep_alive: exchange.keep_alive && exchange.body.is_whole(),
        old: exchange.version == Version::HTTP_10,
    };
    let mut response = exchange.plan.status(status, why);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, retry_after(&exchange.backend));
    }
    answer(client, &response, shape);
}

/// Refuses a WebSocket that would be cut at the end of the drain. Another process serves by then.
pub(super) fn refuse_tunnel(client: &mut impl Peer, exchange: &Exchange) {
    let why = "the proxy is being replaced: connect again";
    let mut response = exchange.plan.status(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    exchange.meter.unanswered(Some(response.status()));
    answer(client, &response, Shape::LAST);
}

fn answer(client: &mut impl Peer, response: &Response<Vec<u8>>, shape: Shape) {
    let mut out = Buf::new();
    let keep_alive = write_response(response, shape, None, &mut out);
    client.write(out.filled());
    client.note_status(response.status());
    if keep_alive { client.next_request() } else { client.end() }
}

/// The time after which a client that got 503 may ask again, in seconds.
fn retry_after(backend: &Backend) -> HeaderValue {
    let time = backend.wait.time.saturating_add(Duration::from_millis(999));
    HeaderValue::from(time.as_secs().max(1))
}
