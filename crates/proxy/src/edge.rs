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
mod begin;
mod clock;
mod meter;
mod moving;
mod pairs;
mod peer;
mod pool;
mod refusal;
mod side;
mod tunnel;
mod waiting;

pub use side::{Arriving, ArrivingMessages, Exchange, ServerSide, Side};

use crate::balance::{Attempt, Lease};
use crate::decision::Decision;
use crate::forward::{Framing, check_switching};
use crate::identity::Random;
use crate::live::Live;
use crate::plan::{Endpoint, Place};
use crate::resolved::Resolved;
use begin::Begin;
use clock::Clock;
use meter::note_place;
use peer::{Other, Peer, bound};
use pool::Pool;
use refusal::{fail, refuse_tunnel, respond};
use std::collections::HashMap;
use std::mem::take;
use std::time::{Duration, Instant};
use tautline::http::{Method, Response, StatusCode};
use tautline::layers::engine::{Others, Raw, RawEvent};
use tautline::layers::ws::handshake::{Reply as Shape, accept_for};
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
    clock: Clock,
}

impl Edge {
    /// A handler that follows the plan of the moment.
    #[must_use]
    pub fn new(live: Live) -> Self {
        let (pool, pending) = (Pool::default(), HashMap::new());
        Self { live, pool, pending, random: Random::default(), clock: Clock::default() }
    }

    /// Chooses a server for a request, and sends it there or begins to connect.
    fn begin(
        &mut self,
        others: &mut Others<'_, Side>,
        client: ConnId,
        exchange: &mut Exchange,
    ) -> Result<(), (StatusCode, String)> {
        let (now, read) = (self.clock.at(others.turn_millis()), Instant::now());
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
        while exchange.may_share()
            && let Some(idle) = self.pool.take(&endpoint)
        {
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
                exchange.meter.sent(read);
                exchange.due = now + exchange.backend.times.head;
                return Ok(());
            }
        }
        let unusable = |error: String| (StatusCode::BAD_GATEWAY, error);
        let target = target(&endpoint, exchange.backend.times.connect);
        let mut target = target.map_err(|error| unusable(error.to_string()))?;
        target.addresses = exchange.resolved().map(Resolved::next).unwrap_or_default();
        target.preface.clone_from(&exchange.preface);
        let dial = others.shard().handle().connect(target).map_err(|error| unusable(error.to_string()))?;
        exchange.dial = Some(dial);
        exchange.meter.connects(read);
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

    /// A server may have room for a request that waits.
    fn notified(&mut self, raw: &mut Raw<'_, Side>) {
        match take(raw.state()) {
            Side::Client(mut exchange) if exchange.may_try() => {
                let id = raw.id();
                let begun = self.begin(&mut raw.others(), id, &mut exchange);
                let server = exchange.lease.as_ref().map(Lease::server);
                raw.note(|notes| note_place(notes, &exchange.backend.name, server));
                match begun {
                    Ok(()) => {
                        if exchange.server.is_some() {
                            raw.pause(false);
                        }
                        *raw.state() = Side::Client(exchange);
                    }
                    Err((status, why)) => fail(raw, &exchange, status, &why),
                }
            }
            other => *raw.state() = other,
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
        let (took, open) = exchange.meter.connected(Instant::now());
        exchange.server = Some(id);
        exchange.due = self.clock.at(raw.turn_millis()) + exchange.backend.times.head;
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
                let now = self.clock.at(raw.turn_millis());
                exchange.due = now + if exchange.body.is_whole() { times.head } else { times.body };
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
        exchange.due = self.clock.at(raw.turn_millis()) + exchange.backend.times.body;
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
            return match pairs::join(raw, client, &mut exchange, response, &mut server.open) {
                Ok(()) => used,
                Err(flaw) => {
                    log::warn!("{}: no WebSocket is opened: {flaw}", exchange.backend.name);
                    self.give_up(raw, client, exchange, bytes.len())
                }
            };
        }
        let accept = accept_for(&exchange.headers);
        if let Err(flaw) = check_switching(response.headers(), accept.as_ref()) {
            log::warn!("{}: no WebSocket is opened: {flaw}", exchange.backend.name);
            return self.give_up(raw, client, exchange, bytes.len());
        }
        tunnel::join(raw, client, exchange, response, server.open.take());
        let rest = &bytes[used..];
        if let Side::Tunnel { meter, .. } = raw.state() {
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
        let keeps = server.keeps && exchange.body.is_whole() && exchange.may_share();
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
        exchange.server_failed(self.clock.at(others.turn_millis()));
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
        let now = self.clock.at(raw.turn_millis());
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
                tunnel::look(raw, id);
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
        if let Some(response) = plan.too_many(request, self.clock.at(raw.turn_millis())) {
            return respond(raw, &plan, None, &response, Shape::to(request.http));
        }
        let (route, forward, target) = match plan.decide(request) {
            Decision::Forward { route, forward, target } => (route, forward, target),
            Decision::Answer(route, response) => {
                raw.note(|notes| notes.set("route", route.map_or("-", |route| route.name.as_str()).into()));
                let mut shape = Shape::to(request.http);
                // The client is to connect anew.
                shape.keep_alive &= response.status() != StatusCode::MISDIRECTED_REQUEST;
                return respond(raw, &plan, route, &response, shape);
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
        let begin = Begin { plan: &plan, backend, route, forward, target, framing };
        let mut exchange = match begin.exchange(raw, request, &mut self.random) {
            Ok(exchange) => exchange,
            Err(refusal) => {
                return respond(raw, &plan, Some(route), &refusal, Shape { keep_alive: false, ..shape });
            }
        };
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
            Decision::Files { route, folder, path } => {
                let reply = folder.reply(&plan, request, &path);
                let status = match &reply {
                    Reply::Respond(response) => Some(response.status()),
                    Reply::Stream(response) => Some(response.status()),
                    _ => None,
                };
                if let Some(conn) = request.conn() {
                    plan.tally(Some(route), conn.shard()).answered(status);
                }
                reply
            }
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
                meter.passed(bytes.len());
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
            RawEvent::Drained => {
                let now = self.clock.at(raw.turn_millis());
                drained(raw, now);
            }
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
        exchange.server_failed(self.clock.at(others.turn_millis()));
        exchange.tried.extend(exchange.lease.as_ref().map(|lease| lease.server().number));
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
        moving::restore(saved, self.live.plan())
    }

    fn moves_with(&self, side: &Side) -> Option<ConnId> {
        match side {
            Side::Tunnel { partner, .. } => Some(*partner),
            Side::Pair(end) => Some(end.partner),
            _ => None,
        }
    }

    fn restored_max_message(&self, side: &Side) -> Option<usize> {
        if let Side::Arriving(end) = side { end.messages.as_ref().map(|messages| messages.max_size) } else { None }
    }

    fn on_moved_with(&mut self, side: &mut Side, partner: ConnId) {
        *side = match take(side) {
            Side::Arriving(end) => end.with(partner),
            other => other,
        };
    }
}

/// A connection has taken all bytes, so the other one of its pair is read again.
fn drained(raw: &mut Raw<'_, Side>, now: Instant) {
    let own = raw.id();
    match raw.state() {
        Side::Nothing | Side::Arriving(_) | Side::Pair(_) => {}
        Side::Full => {
            *raw.state() = Side::Nothing;
            raw.resume_http();
        }
        Side::Client(exchange) => {
            exchange.goes_on(now);
            let server = exchange.server;
            server.into_iter().for_each(|server| raw.others().pause(server, false));
        }
        Side::Server(server) => {
            let Some(client) = server.client else { return };
            let mut others = raw.others();
            match others.state(client) {
                Some(Side::Client(exchange)) if exchange.server == Some(own) => exchange.goes_on(now),
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
