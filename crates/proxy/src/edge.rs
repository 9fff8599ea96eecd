//! The handler of a proxy's loops: it takes requests, finds servers for them and forwards both ways.
//!
//! ```text
//!  client ── request ──► plan.decide ──► server chosen ──► idle or new connection ──► head, body ──► server
//!         ◄── response, as it comes ──────────────────────────────────────────────────────────────
//! ```
//! After a 101 both connections are a tunnel: bytes go from one's receive buffer into the other's seal. A side whose bytes wait for
//! the other is not read. On a route with `messages` they are a pair of WebSockets instead. [`Config::raw`](tautline::Config::raw) must
//! be set.

mod answer;
mod meter;
mod moving;
mod pairs;
mod peer;
mod pool;
mod side;
mod waiting;

pub use meter::EndMeter;
pub use side::{Arriving, Exchange, ServerSide, Side};

use crate::balance::{Attempt, Lease};
use crate::decision::{Decision, proxy_before, source};
use crate::forward::head::{Client, remove_expectation, remove_hop_by_hop, set_forwarded};
use crate::forward::identity::set_identity;
use crate::forward::{Body, Form, Framing};
use crate::identity::{Random, identify};
use crate::live::Live;
use crate::messages::Offer;
use crate::plan::{Endpoint, Forward, Place, Plan, Route};
use crate::resolving::Resolved;
use meter::{Meter, note_place, note_request};
use peer::{MOST_WAITING, Other, Peer};
use pool::Pool;
use std::collections::HashMap;
use std::mem::take;
use std::time::{Duration, Instant};
use tautline::http::header::{HeaderMap, HeaderValue, RETRY_AFTER, UPGRADE};
use tautline::http::{Method, Response, StatusCode, Version};
use tautline::layers::buf::Buf;
use tautline::layers::engine::{Others, Raw, RawEvent};
use tautline::layers::ws::handshake::{BodyReader, Reply as Shape, write_response};
use tautline::{
    Address, Cause, CloseCode, Closed, Conn, ConnId, ConnectError, DialId, Handler, Message, Reply, Request, Target,
};

/// The timer of a client's connection.
const DEADLINE: u64 = 1;
/// The timer of an idle connection to a server.
const IDLE: u64 = 2;

/// A proxy's handler in one loop.
#[derive(Debug)]
pub struct Edge {
    live: Live,
    pool: Pool,
    /// Clients that wait for a connection to be made.
    pending: HashMap<DialId, ConnId>,
    random: Random,
}

impl Edge {
    /// A handler that follows the plan of the moment.
    #[must_use]
    pub fn new(live: Live) -> Self {
        Self { live, pool: Pool::default(), pending: HashMap::new(), random: Random::default() }
    }

    /// Chooses a server for a request, and sends it there or begins to connect.
    fn begin(
        &mut self,
        others: &mut Others<'_, Side>,
        client: ConnId,
        exchange: &mut Exchange,
    ) -> Result<(), (StatusCode, String)> {
        let now = Instant::now();
        // The server of an attempt before may have another request now.
        exchange.lease = None;
        (exchange.server, exchange.dial) = (None, None);
        let Some(lease) = waiting::lease(others, client, exchange, now)? else { return Ok(()) };
        exchange.meter.chose(lease.server());
        exchange.lease = Some(lease);
        exchange.due = now + exchange.backend.times.connect;
        let head = exchange.head();
        let Some(endpoint) = exchange.endpoint().cloned() else {
            return Err((StatusCode::BAD_GATEWAY, "the server has no address".to_owned()));
        };
        while let Some(idle) = self.pool.take(&endpoint) {
            if let Some(Side::Server(server)) = others.state(idle)
                && server.client.is_none()
            {
                // Its address may be gone, and another one has the requests from now on.
                if exchange.resolved().is_some_and(|resolved| !resolved.has(&server.address)) {
                    others.end(idle);
                    continue;
                }
                server.reuse(client);
                others.write(idle, &head);
                exchange.server = Some(idle);
                exchange.meter.sent(now);
                exchange.due = now + exchange.backend.times.head;
                return Ok(());
            }
        }
        let unusable = |error: String| (StatusCode::BAD_GATEWAY, error);
        let target = target(&endpoint, exchange.backend.times.connect);
        let mut target = target.map_err(|error| unusable(error.to_string()))?;
        target.addresses = exchange.resolved().map(Resolved::next).unwrap_or_default();
        let dial = others.shard().handle().connect(target).map_err(|error| unusable(error.to_string()))?;
        exchange.dial = Some(dial);
        exchange.meter.connects(now);
        self.pending.insert(dial, client);
        Ok(())
    }

    /// Takes another server after an attempt that failed, or tells the client.
    fn again(&mut self, others: &mut Others<'_, Side>, client: ConnId, mut exchange: Box<Exchange>) {
        exchange.meter.retried();
        match self.begin(others, client, &mut exchange) {
            Ok(()) => {
                let server = exchange.lease.as_ref().map(Lease::server);
                others.note(client, |notes| note_place(notes, &exchange.backend.name, server));
                let is_sent = exchange.server.is_some();
                answer::put(others, client, Side::Client(exchange));
                if is_sent {
                    others.pause(client, false);
                }
            }
            Err((status, why)) => fail(&mut Other(others, client), &exchange, status, &why),
        }
    }

    /// A connection to a server is established.
    fn opened(&mut self, raw: &mut Raw<'_, Side>) {
        let waits = raw.dial().and_then(|dial| Some((dial, self.pending.remove(&dial)?)));
        let id = raw.id();
        let Some((client, mut exchange)) = waits.and_then(|(dial, client)| {
            Some((client, take_exchange(&mut raw.others(), client, |exchange| exchange.dial == Some(dial))?))
        }) else {
            return raw.end();
        };
        let Some(endpoint) = exchange.endpoint().cloned() else { return raw.end() };
        let head = exchange.head();
        let _ = raw.write(&head);
        let now = Instant::now();
        let (took, open) = exchange.meter.connected(now);
        exchange.server = Some(id);
        exchange.due = now + exchange.backend.times.head;
        *raw.state() = Side::Server(Box::new(ServerSide::new(endpoint, raw.peer().clone(), client, open)));
        let mut others = raw.others();
        others.note(client, |notes| notes.set("connect", took));
        answer::put(&mut others, client, Side::Client(exchange));
        others.pause(client, false);
    }

    /// Passes the body of a request on.
    fn client_bytes(&self, raw: &mut Raw<'_, Side>, bytes: &[u8]) -> usize {
        let Side::Client(mut exchange) = take(raw.state()) else { return bytes.len() };
        // Bytes behind the body are the next request, and wait for the answer to this one.
        let Some(server) = exchange.server.filter(|_| !exchange.body.is_whole()) else {
            *raw.state() = Side::Client(exchange);
            return 0;
        };
        let mut waits = None;
        let Exchange { body, meter, .. } = &mut *exchange;
        let passed = body.pass(bytes, |piece| {
            meter.up(piece.len());
            waits = raw.others().write(server, piece);
        });
        match passed {
            Ok(used) => {
                let times = &exchange.backend.times;
                exchange.due = Instant::now() + if exchange.body.is_whole() { times.head } else { times.body };
                *raw.state() = Side::Client(exchange);
                bound(raw, server, waits);
                used
            }
            Err(flaw) => {
                raw.others().reset(server);
                exchange.keep_alive = false;
                fail(raw, &exchange, StatusCode::BAD_REQUEST, flaw.text());
                bytes.len()
            }
        }
    }

    /// The fields of a client's request for the server.
    fn fields(&mut self, raw: &mut Raw<'_, Side>, plan: &Plan, route: &Route, request: &Request<'_>) -> HeaderMap {
        let mut headers = request.http.headers().clone();
        remove_hop_by_hop(&mut headers);
        if request.http.version() == Version::HTTP_10 {
            remove_expectation(&mut headers);
        }
        let (address, is_secure) = (source(request.peer), request.tls.version.is_some());
        let proxy = proxy_before(request);
        set_forwarded(&mut headers, Client { address, proxy, is_secure });
        let identity = identify(plan, &mut headers, proxy.is_some(), &mut self.random);
        raw.note(|notes| note_request(notes, &route.name, &identity));
        if let Some(certificate) = request.tls.peer_certificates.first() {
            set_identity(&mut headers, certificate);
        }
        headers
    }

    /// Passes a response on.
    fn server_bytes(&mut self, raw: &mut Raw<'_, Side>, bytes: &[u8]) -> usize {
        let Side::Server(mut server) = take(raw.state()) else { return bytes.len() };
        let id = raw.id();
        let found = server.client.and_then(|client| Some((client, take_sent(&mut raw.others(), client, id)?)));
        let Some((client, mut exchange)) = found else {
            // Nobody has asked, or nobody waits any more.
            self.pool.forget(&server.endpoint, id);
            raw.end();
            return bytes.len();
        };
        let mut used = 0;
        while server.body.is_none() {
            let (response, more) = match server.head(&bytes[used..]) {
                Ok(Some(whole)) => whole,
                Ok(None) => {
                    *raw.state() = Side::Server(server);
                    answer::put(&mut raw.others(), client, Side::Client(exchange));
                    return bytes.len();
                }
                Err(error) => {
                    log::warn!("{}: the response is malformed: {error}", exchange.backend.name);
                    return self.give_up(raw, client, exchange, bytes.len());
                }
            };
            used += more;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return self.switch(raw, (client, exchange), &mut server, &response, (bytes, used));
            }
            if response.status().is_informational() {
                if response.status() == StatusCode::CONTINUE && exchange.expects {
                    let _ = raw.others().write(client, b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                continue;
            }
            match answer::write_head(raw, client, &mut exchange, &mut server, response) {
                Ok(body) => server.body = Some(body),
                Err(flaw) => {
                    log::warn!("{}: the response is refused: {flaw}", exchange.backend.name);
                    return self.give_up(raw, client, exchange, bytes.len());
                }
            }
        }
        let Some(body) = &mut server.body else { return bytes.len() };
        exchange.due = Instant::now() + exchange.backend.times.body;
        let mut waits = None;
        let passed = body.pass(&bytes[used..], |piece| {
            exchange.meter.down(piece.len());
            waits = raw.others().write(client, piece);
        });
        match passed {
            Ok(more) if body.is_whole() => {
                server.keeps &= used + more == bytes.len();
                self.complete(raw, client, &exchange, server);
            }
            Ok(_) => {
                *raw.state() = Side::Server(server);
                answer::put(&mut raw.others(), client, Side::Client(exchange));
                bound(raw, client, waits);
            }
            Err(flaw) => {
                log::warn!("{}: a response is cut off: {flaw}", exchange.backend.name);
                return self.give_up(raw, client, exchange, bytes.len());
            }
        }
        bytes.len()
    }

    /// The server changes the protocol. Returns the bytes that were used: `used` of them were its head.
    fn switch(
        &self,
        raw: &mut Raw<'_, Side>,
        (client, mut exchange): (ConnId, Box<Exchange>),
        server: &mut ServerSide,
        response: &Response<()>,
        (bytes, used): (&[u8], usize),
    ) -> usize {
        if exchange.upgrade.is_none() || !exchange.body.is_whole() {
            return self.give_up(raw, client, exchange, bytes.len());
        }
        if exchange.drains {
            raw.reset();
            refuse_tunnel(&mut Other(&mut raw.others(), client), &exchange);
            return bytes.len();
        }
        if exchange.offer.is_some() {
            return match pairs::join(raw, client, &mut exchange, response) {
                Ok(()) => used,
                Err(flaw) => {
                    log::warn!("{}: no WebSocket is opened: {flaw}", exchange.backend.name);
                    self.give_up(raw, client, exchange, bytes.len())
                }
            };
        }
        answer::join(raw, client, exchange, response, server.open.take());
        let rest = &bytes[used..];
        if let Side::Tunnel { meter: Some(meter), .. } = raw.state() {
            meter.passed(rest.len());
        }
        let _ = raw.others().write(client, rest);
        bytes.len()
    }

    /// Resets a server that breaks the protocol, and tells the client. Returns `used`.
    fn give_up(&self, raw: &mut Raw<'_, Side>, client: ConnId, exchange: Box<Exchange>, used: usize) -> usize {
        raw.reset();
        let why = "the server's response is malformed";
        fail(&mut Other(&mut raw.others(), client), &exchange, StatusCode::BAD_GATEWAY, why);
        used
    }

    /// The response is complete.
    fn complete(&mut self, raw: &mut Raw<'_, Side>, client: ConnId, exchange: &Exchange, mut server: Box<ServerSide>) {
        if let Some(lease) = &exchange.lease {
            lease.succeeded();
        }
        finish_client(&mut raw.others(), client, exchange.keep_alive && exchange.body.is_whole());
        server.client = None;
        let keeps = server.keeps && exchange.body.is_whole();
        if keeps && self.pool.put(&server.endpoint, raw.id()) {
            raw.pause(false);
            raw.set_timer(exchange.backend.times.idle, IDLE);
            *raw.state() = Side::Server(server);
        } else {
            raw.end();
        }
    }

    /// The connection to a server has ended. `whole` if its last bytes are known to be the last.
    fn server_ended(&mut self, raw: &mut Raw<'_, Side>, mut server: ServerSide, whole: bool) {
        let id = raw.id();
        let mut others = raw.others();
        let Some(client) = server.client else { return self.pool.forget(&server.endpoint, id) };
        let Some(mut exchange) = take_sent(&mut others, client, id) else { return };
        if let Some(body) = &mut server.body {
            return match body.end() {
                Ok(()) if whole => {
                    exchange.lease.iter().for_each(Lease::succeeded);
                    finish_client(&mut others, client, false);
                }
                _ => others.reset(client),
            };
        }
        let attempt = Attempt {
            was_sent: true,
            was_reused: server.is_reused,
            has_answer: server.has_answer(),
            is_idempotent: is_idempotent(&exchange.method),
            has_body: exchange.framing != Framing::Empty,
            repeats: exchange.repeats,
        };
        if attempt.may_repeat() {
            exchange.repeats += 1;
            return self.again(&mut others, client, exchange);
        }
        exchange.server_failed(Instant::now());
        let why = "the server ended the connection without a response";
        fail(&mut Other(&mut others, client), &exchange, StatusCode::BAD_GATEWAY, why);
    }

    /// The peer of a connection has ended its direction.
    fn finished(&mut self, raw: &mut Raw<'_, Side>, whole: bool) {
        match take(raw.state()) {
            Side::Nothing | Side::Full | Side::Arriving(_) => raw.end(),
            // It gives its place to others: most that end their direction have left.
            Side::Client(exchange) if exchange.place.is_some() => raw.end(),
            Side::Client(mut exchange) => {
                // A client that sends nothing more may still read.
                exchange.keep_alive = false;
                if exchange.body.is_whole() {
                    *raw.state() = Side::Client(exchange);
                } else {
                    self.abandon(raw, &exchange);
                    fail(raw, &exchange, StatusCode::BAD_REQUEST, "the body ended early");
                }
            }
            Side::Server(server) => {
                self.server_ended(raw, *server, whole);
                raw.end();
            }
            tunnel @ Side::Tunnel { partner, .. } => {
                *raw.state() = tunnel;
                raw.others().finish(partner);
            }
            // It becomes a WebSocket behind this very call, or ends.
            pair @ Side::Pair(_) => *raw.state() = pair,
        }
    }

    /// Takes a request back from its server, or from the attempt to reach one.
    fn abandon(&mut self, raw: &mut Raw<'_, Side>, exchange: &Exchange) {
        exchange.dial.into_iter().for_each(|dial| _ = self.pending.remove(&dial));
        exchange.server.into_iter().for_each(|server| raw.others().reset(server));
    }

    /// The time for a part of a request or response is up.
    fn overdue(&mut self, raw: &mut Raw<'_, Side>, exchange: &Exchange, now: Instant) {
        if exchange.place.is_some() {
            exchange.backend.group.queue().count_expired();
            return fail(raw, exchange, StatusCode::SERVICE_UNAVAILABLE, "no server had room within wait-time");
        }
        let mut others = raw.others();
        let is_stuck = exchange.server.and_then(|server| others.buffered(server)).is_some_and(|waits| waits > 0);
        let (status, why) = match exchange.server {
            Some(_) if is_stuck => (StatusCode::GATEWAY_TIMEOUT, "the server does not take the body"),
            Some(_) if !exchange.body.is_whole() => (StatusCode::REQUEST_TIMEOUT, "the body takes too long"),
            Some(_) => (StatusCode::GATEWAY_TIMEOUT, "the server did not answer in time"),
            None => (StatusCode::GATEWAY_TIMEOUT, "the server was not reached in time"),
        };
        // A slow client takes no server out.
        if status == StatusCode::GATEWAY_TIMEOUT {
            exchange.server_failed(now);
        }
        self.abandon(raw, exchange);
        fail(raw, exchange, status, why);
    }

    fn timer(&mut self, raw: &mut Raw<'_, Side>, id: u64) {
        let now = Instant::now();
        match take(raw.state()) {
            // A server's end of a tunnel may have been idle before. The client's end has the deadline.
            tunnel @ Side::Tunnel { .. } if id == IDLE => *raw.state() = tunnel,
            Side::Nothing | Side::Arriving(_) => {}
            Side::Full => *raw.state() = Side::Full,
            Side::Client(exchange) => {
                let left = exchange.due.saturating_duration_since(now);
                // The deadline to send is for a client that reads slowly.
                if left.is_zero() && !(exchange.is_answered && raw.buffered() > 0) {
                    return self.overdue(raw, &exchange, now);
                }
                let look = exchange.backend.look();
                raw.set_timer(if left.is_zero() { look } else { left.min(look) }, DEADLINE);
                *raw.state() = Side::Client(exchange);
            }
            Side::Server(server) if server.client.is_none() => {
                self.pool.forget(&server.endpoint, raw.id());
                raw.end();
            }
            other @ (Side::Server(_) | Side::Pair(_)) => *raw.state() = other,
            tunnel @ Side::Tunnel { .. } => {
                *raw.state() = tunnel;
                look_at_tunnel(raw);
            }
        }
    }

    fn closed(&mut self, raw: &mut Raw<'_, Side>, cause: &Cause) {
        match take(raw.state()) {
            Side::Nothing | Side::Full | Side::Arriving(_) => {}
            Side::Client(exchange) => {
                if !exchange.is_answered {
                    exchange.meter.unanswered(None);
                }
                self.abandon(raw, &exchange);
            }
            Side::Server(server) => self.server_ended(raw, *server, false),
            // Both directions have ended, and the other side knows.
            Side::Tunnel { .. } if matches!(cause, Cause::Finished) => {}
            Side::Tunnel { partner, .. } => raw.others().reset(partner),
            pair @ Side::Pair(_) => {
                *raw.state() = pair;
                pairs::ended(raw, &Closed::new(CloseCode::ABNORMAL, cause.clone()));
            }
        }
    }
}

impl Handler for Edge {
    type State = Side;

    fn on_raw_request(&mut self, raw: &mut Raw<'_, Side>, request: &Request<'_>) -> bool {
        let plan = self.live.plan();
        if let Some(response) = plan.too_many(request, Instant::now()) {
            answer(raw, &response, Shape::to(request.http));
            return true;
        }
        let (route, forward, target) = match plan.decide(request) {
            Decision::Forward { route, forward, target } => (route, forward, target),
            Decision::Answer(route, response) => {
                raw.note(|notes| notes.set("route", route.map_or("-", |route| route.name.as_str()).into()));
                return respond(raw, &plan, route, &response, Shape::to(request.http));
            }
            // The loop answers it as any other server does: `on_request`.
            Decision::Files { route, .. } => {
                raw.note(|notes| notes.set("route", route.name.as_str().into()));
                return false;
            }
        };
        let shape = Shape::after_body(request.http);
        let framing = match Framing::of_request(request.http) {
            Ok(framing) => framing,
            Err(flaw) => {
                let response = plan.status(StatusCode::BAD_REQUEST, flaw.text());
                return respond(raw, &plan, Some(route), &response, Shape { keep_alive: false, ..shape });
            }
        };
        let Some(backend) = plan.backends.get(forward.backend).cloned() else { return false };
        log::debug!("{}: {} {target} by {}", request.peer, request.http.method(), route.name);
        let is_secure = request.tls.version.is_some();
        let source = source(request.peer);
        let old = request.http.version() == Version::HTTP_10;
        let upgrade = if old || framing != Framing::Empty { None } else { upgrade_of(request) };
        let mut headers = self.fields(raw, &plan, route, request);
        let offer = match offered(forward, request, &mut headers) {
            Ok(offer) => offer,
            Err(refusal) => {
                return respond(raw, &plan, Some(route), &refusal, Shape { keep_alive: false, ..shape });
            }
        };
        forward.request.apply(&mut headers);
        let now = Instant::now();
        let mut exchange = Box::new(Exchange {
            lease: None,
            place: None,
            wait_end: None,
            tried: Vec::new(),
            source,
            is_secure,
            method: request.http.method().clone(),
            target,
            version: request.http.version(),
            headers,
            host: forward.host.clone(),
            framing,
            upgrade,
            offer,
            expects: BodyReader::is_awaited(request.http),
            edits: forward.response.clone(),
            body: Body::new(framing, Form::AsIs),
            server: None,
            dial: None,
            repeats: 0,
            keep_alive: shape.keep_alive,
            is_answered: false,
            drains: false,
            due: now,
            meter: Meter::new(route.tallies.of(raw.id().shard()), raw.id().shard(), now),
            plan: plan.clone(),
            backend,
        });
        let id = raw.id();
        let begun = self.begin(&mut raw.others(), id, &mut exchange);
        let server = exchange.lease.as_ref().map(Lease::server);
        raw.note(|notes| note_place(notes, &exchange.backend.name, server));
        match begun {
            Ok(()) => {
                raw.set_timer(exchange.backend.look(), DEADLINE);
                *raw.state() = Side::Client(exchange);
            }
            Err((status, why)) => fail(raw, &exchange, status, &why),
        }
        true
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply<Side> {
        let plan = self.live.plan();
        match plan.decide(request) {
            Decision::Files { folder, path, .. } => folder.reply(&plan, request, &path),
            Decision::Answer(_, response) => Reply::Respond(response),
            // A reload came between the head of the request and its body, which was read as one for the folder.
            Decision::Forward { .. } => Reply::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, Side>, bytes: &mut [u8]) -> usize {
        let now = raw.turn_millis();
        match raw.state() {
            Side::Tunnel { partner, heard, meter, .. } => {
                *heard = now;
                meter.iter().for_each(|meter| meter.passed(bytes.len()));
                let partner = *partner;
                let waits = raw.others().write(partner, bytes);
                bound(raw, partner, waits);
                bytes.len()
            }
            Side::Client(_) => self.client_bytes(raw, bytes),
            Side::Server(_) => self.server_bytes(raw, bytes),
            // The next request waits.
            Side::Full => 0,
            Side::Nothing | Side::Arriving(_) | Side::Pair(_) => {
                raw.end();
                bytes.len()
            }
        }
    }

    fn on_raw(&mut self, raw: &mut Raw<'_, Side>, event: RawEvent<'_>) {
        match event {
            RawEvent::Opened => self.opened(raw),
            RawEvent::Finished { whole } => self.finished(raw, whole),
            RawEvent::Drained => drained(raw),
            RawEvent::Timer(id) => self.timer(raw, id),
            RawEvent::Drain => match raw.state() {
                Side::Nothing | Side::Full | Side::Arriving(_) => raw.end(),
                Side::Client(exchange) => (exchange.keep_alive, exchange.drains) = (false, true),
                Side::Server(server) if server.client.is_none() => raw.end(),
                // They have the time of the drain.
                Side::Server(_) | Side::Tunnel { .. } | Side::Pair(_) => {}
            },
            RawEvent::Notified => self.notified(raw),
            RawEvent::Closed(cause) => self.closed(raw, cause),
            _ => {}
        }
    }

    fn on_raw_failed(&mut self, others: &mut Others<'_, Side>, dial: DialId, error: &ConnectError) {
        let Some(client) = self.pending.remove(&dial) else { return };
        let is_its = |exchange: &Exchange| exchange.dial == Some(dial);
        let Some(mut exchange) = take_exchange(others, client, is_its) else { return };
        log::warn!("{}: {error}", exchange.backend.name);
        exchange.server_failed(Instant::now());
        exchange.tried.extend(exchange.lease.as_ref().map(|lease| lease.server().number()));
        if exchange.tried.len() < exchange.backend.group.servers().len() {
            return self.again(others, client, exchange);
        }
        let status = match error {
            ConnectError::Ended(Cause::Timeout(_)) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        fail(&mut Other(others, client), &exchange, status, "no server was reached");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, Side>, message: Message<'_>) {
        pairs::pass(conn, message);
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, Side>) {
        pairs::drained(conn);
    }

    fn on_dropped(&mut self, conn: &mut Conn<'_, Side>, count: u32) {
        pairs::dropped(conn, count);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, Side>, closed: &Closed) {
        pairs::ended(conn, closed);
    }

    fn save_state(&mut self, side: &mut Side, out: &mut Vec<u8>) -> bool {
        moving::save(side, out)
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<Side> {
        moving::restore(saved, &self.live.plan())
    }

    fn moves_with(&self, side: &Side) -> Option<ConnId> {
        if let Side::Tunnel { partner, .. } = side { Some(*partner) } else { None }
    }

    fn on_moved_with(&mut self, side: &mut Side, partner: ConnId) {
        *side = match take(side) {
            Side::Arriving(end) => end.with(partner),
            other => other,
        };
    }
}

/// Answers a request without a server, and counts that. Returns that the request is taken.
fn respond(
    raw: &mut Raw<'_, Side>,
    plan: &Plan,
    route: Option<&Route>,
    response: &Response<Vec<u8>>,
    shape: Shape,
) -> bool {
    plan.tallies(route).of(raw.id().shard()).answered(Some(response.status()));
    answer(raw, response, shape);
    true
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
    if request.is_upgrade { request.http.headers().get(UPGRADE).cloned() } else { None }
}

/// A connection has taken all bytes, so the other one of its pair is read again.
fn drained(raw: &mut Raw<'_, Side>) {
    let own = raw.id();
    match raw.state() {
        Side::Nothing | Side::Arriving(_) | Side::Pair(_) => {}
        Side::Full => {
            *raw.state() = Side::Nothing;
            raw.resume_http();
        }
        Side::Client(exchange) => {
            exchange.goes_on();
            let server = exchange.server;
            server.into_iter().for_each(|server| raw.others().pause(server, false));
        }
        Side::Server(server) => {
            let Some(client) = server.client else { return };
            let mut others = raw.others();
            match others.state(client) {
                Some(Side::Client(exchange)) if exchange.server == Some(own) => exchange.goes_on(),
                _ => return,
            }
            others.pause(client, false);
        }
        Side::Tunnel { partner, .. } => {
            let partner = *partner;
            raw.others().pause(partner, false);
        }
    }
}

/// Ends a tunnel on which nothing has come for its time, or looks again when it has.
fn look_at_tunnel(raw: &mut Raw<'_, Side>) {
    let now = raw.turn_millis();
    let Side::Tunnel { partner, heard, backend, .. } = raw.state() else { return };
    let (partner, own, longest) = (*partner, *heard, backend.times.tunnel);
    let mut others = raw.others();
    let back = match others.state(partner) {
        Some(Side::Tunnel { heard, .. }) => *heard,
        _ => 0,
    };
    let quiet = Duration::from_millis(now.saturating_sub(own.max(back)));
    match longest.checked_sub(quiet).filter(|left| !left.is_zero()) {
        Some(left) => raw.set_timer(left, DEADLINE),
        None => {
            others.end(partner);
            raw.end();
        }
    }
}

/// Pauses the connection of the event if too much waits for another one.
fn bound(raw: &mut Raw<'_, Side>, other: ConnId, waits: Option<usize>) {
    if waits.is_some_and(|waits| waits > MOST_WAITING) {
        raw.pause(true);
        raw.others().notify_drain(other);
    }
}

/// Takes the request of a client, if it is the one that is meant: a connection may have another one meanwhile.
fn take_exchange(
    others: &mut Others<'_, Side>,
    client: ConnId,
    is_meant: impl FnOnce(&Exchange) -> bool,
) -> Option<Box<Exchange>> {
    let state = others.state(client)?;
    match take(state) {
        Side::Client(exchange) if is_meant(&exchange) => Some(exchange),
        other => {
            *state = other;
            None
        }
    }
}

/// Takes the request of a client that this server has.
fn take_sent(others: &mut Others<'_, Side>, client: ConnId, server: ConnId) -> Option<Box<Exchange>> {
    take_exchange(others, client, |exchange| exchange.server == Some(server))
}

/// The response to a client is complete.
fn finish_client(others: &mut Others<'_, Side>, client: ConnId, keep_alive: bool) {
    let mut client = Other(others, client);
    if keep_alive { client.next_request() } else { client.end() }
}

/// Answers a request that gets no response from a server. One that is cut off is shown by a reset.
fn fail(client: &mut impl Peer, exchange: &Exchange, status: StatusCode, why: &str) {
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
        response.headers_mut().insert(RETRY_AFTER, waiting::retry_after(&exchange.backend));
    }
    answer(client, &response, shape);
}

/// Refuses a WebSocket that would be cut at the end of the drain. Another process serves by then.
fn refuse_tunnel(client: &mut impl Peer, exchange: &Exchange) {
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

const fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE)
}

fn target(endpoint: &Endpoint, connect: Duration) -> Result<Target, ConnectError> {
    let scheme = if endpoint.tls { "https" } else { "http" };
    let mut target = Target::raw(&format!("{scheme}://{}", endpoint.authority()))?.with_connect(connect);
    if let Place::Unix(path) = &endpoint.place {
        target.address = Some(Address::Unix(path.clone()));
    }
    Ok(target)
}
