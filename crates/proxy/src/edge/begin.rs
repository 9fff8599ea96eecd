//! The beginning of a request that is passed on.

use super::meter::{Meter, note_request};
use super::side::{Exchange, Side};
use crate::decision::{proxy_before, source};
use crate::forward::head::{Client, remove_expectation, remove_hop_by_hop, set_forwarded, websocket_upgrade};
use crate::forward::identity::set_identity;
use crate::forward::{Body, Form, Framing};
use crate::identity::{Random, identify};
use crate::messages::Offer;
use crate::plan::{Backend, Forward, Plan, Route};
use std::sync::Arc;
use std::time::Instant;
use tautline::Request;
use tautline::http::header::{HeaderMap, HeaderValue};
use tautline::http::{Response, Version};
use tautline::layers::engine::Raw;
use tautline::layers::ws::handshake::{BodyReader, Reply as Shape};

/// A request whose route and backend are known.
pub(super) struct Begin<'p> {
    pub(super) plan: &'p Arc<Plan>,
    pub(super) backend: Arc<Backend>,
    pub(super) route: &'p Route,
    pub(super) forward: &'p Forward,
    /// The target of the request for the server.
    pub(super) target: String,
    pub(super) framing: Framing,
}

impl Begin<'_> {
    /// The request as it is passed on. No server is chosen yet.
    ///
    /// # Errors
    /// The response to a handshake that breaks a rule.
    pub(super) fn exchange(
        self,
        raw: &mut Raw<'_, Side>,
        request: &Request<'_>,
        random: &mut Random,
    ) -> Result<Box<Exchange>, Box<Response<Vec<u8>>>> {
        let Self { plan, backend, route, forward, target, framing } = self;
        let old = request.http.version() == Version::HTTP_10;
        let upgrade = if old || framing != Framing::Empty { None } else { upgrade_of(request) };
        let (mut headers, id) = fields(raw, (plan, route), request, random);
        let preface = backend.proxy_protocol.map(|version| version.of_client(request, raw.local(), id.as_deref()));
        let offer = offered(forward, request, &mut headers)?;
        forward.request.apply(&mut headers);
        let (shard, now) = (raw.id().shard(), Instant::now());
        Ok(Box::new(Exchange {
            lease: None,
            place: None,
            wait_end: None,
            tried: Vec::new(),
            source: source(request.peer),
            is_secure: request.tls.version.is_some(),
            method: request.http.method().clone(),
            target,
            version: request.http.version(),
            headers,
            host: forward.host.clone(),
            preface: preface.unwrap_or_default(),
            framing,
            upgrade,
            offer,
            expects: BodyReader::is_awaited(request.http),
            edits: forward.response.clone(),
            body: Body::new(framing, Form::AsIs),
            server: None,
            dial: None,
            repeats: 0,
            keep_alive: Shape::after_body(request.http).keep_alive,
            is_answered: false,
            drains: false,
            due: now,
            meter: Meter::new(plan.tally(Some(route), shard), shard, now),
            plan: plan.clone(),
            backend,
        }))
    }
}

/// The fields of a client's request for the server, and the request's id.
fn fields(
    raw: &mut Raw<'_, Side>,
    (plan, route): (&Plan, &Route),
    request: &Request<'_>,
    random: &mut Random,
) -> (HeaderMap, Option<String>) {
    let mut headers = request.http.headers().clone();
    remove_hop_by_hop(&mut headers);
    if request.http.version() == Version::HTTP_10 {
        remove_expectation(&mut headers);
    }
    let (address, is_secure) = (source(request.peer), request.tls.version.is_some());
    let proxy = proxy_before(request);
    set_forwarded(&mut headers, Client { address, proxy, is_secure });
    let identity = identify(plan, &mut headers, proxy.is_some(), random);
    raw.note(|notes| note_request(notes, &route.name, &identity));
    if let Some(certificate) = request.tls.peer_certificates.first() {
        set_identity(&mut headers, certificate);
    }
    (headers, identity.request)
}

/// The part of a client's handshake that goes on to the server, on a route with messages.
///
/// # Errors
/// The response to a handshake that breaks a rule.
fn offered(
    forward: &Forward,
    request: &Request<'_>,
    headers: &mut HeaderMap,
) -> Result<Option<Box<Offer>>, Box<Response<Vec<u8>>>> {
    let Some(messages) = forward.messages.as_ref().filter(|_| request.is_upgrade) else { return Ok(None) };
    let offer = Offer::take(request.http, headers, messages);
    offer.map(|offer| Some(Box::new(offer))).map_err(|refused| Box::new(refused.response.map(String::into_bytes)))
}

/// The protocol to which a client wants to change, if it asks for that.
fn upgrade_of(request: &Request<'_>) -> Option<HeaderValue> {
    if request.is_upgrade { websocket_upgrade(request.http.headers()) } else { None }
}
