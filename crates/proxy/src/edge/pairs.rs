//! Pairs whose messages pass: the ends of two WebSockets in one loop.

use super::answer::{put, switch};
use super::peer::MOST_WAITING;
use super::side::{Exchange, Side};
use crate::messages::{End, Party, Rules, Slower, told};
use crate::tally::{Present, Rule};
use std::mem::take;
use tautline::http::Response;
use tautline::layers::engine::Raw;
use tautline::{Cause, CloseCode, Closed, Conn, ConnId, Delivery, Message, Outgoing};

/// Bytes of a message from which the whole of it may wait although the kernel was not slow before.
const LARGE: usize = MOST_WAITING / 4;

/// The server has accepted a WebSocket: makes one of both connections. The bytes behind its head are frames.
///
/// # Errors
/// The server broke a rule, in words. Its client has got nothing yet.
pub(super) fn join(
    raw: &mut Raw<'_, Side>,
    client: ConnId,
    exchange: &mut Exchange,
    response: &Response<()>,
    open: &mut Option<Present>,
) -> Result<(), &'static str> {
    let Some(offer) = exchange.offer.take() else { return Err("it was not asked for an upgrade") };
    let mut response = response.clone();
    let (of_client, of_server) = offer.answer(&mut response)?;
    switch(&mut raw.others(), client, exchange, response);
    let lease = exchange.lease.take();
    let (client_meter, server_meter) = exchange.meter.tunnel(open.take());
    let (messages, backend) = (offer.messages.clone(), exchange.backend.clone());
    let rules = Rules { max_size: messages.settings.max_size, messages, backend };
    let client_end = End::of_client(rules.clone(), raw.id(), exchange.source, lease, client_meter);
    let server_end = End::of_server(rules, client, server_meter);
    let mut others = raw.others();
    put(&mut others, client, Side::Pair(client_end));
    let is_open = others.open(client, &of_client);
    *raw.state() = Side::Pair(server_end);
    if is_open {
        raw.open(of_server);
    } else {
        // The client has ended its direction, so it closes nothing, and hears nothing.
        raw.others().end(client);
        raw.reset();
    }
    Ok(())
}

/// Passes a message to the other side.
#[inline]
pub(super) fn pass(conn: &mut Conn<'_, Side>, message: Message<'_>) {
    let Side::Pair(end) = conn.state() else { return };
    let len = message.data().len();
    if let Err(excess) = end.take(len) {
        let partner = end.partner;
        end.meter.closed(excess.rule());
        conn.close(CloseCode::POLICY, excess.reason());
        return conn.others().close(partner, CloseCode::GOING_AWAY, "the client sent too many messages");
    }
    let (partner, policy, slower) = (end.partner, end.policy, end.slower);
    let mut others = conn.others();
    let waits = match others.send(partner, Outgoing::from(&message).with_policy(policy)) {
        Delivery::Queued(waits) => waits,
        Delivery::Sent if len >= LARGE => others.buffered(partner).unwrap_or(0),
        _ => return,
    };
    if waits > MOST_WAITING && slower == Slower::Pauses {
        others.notify_drain(partner);
        conn.pause(true);
    }
}

/// All has left for this side, so the other one is read again.
pub(super) fn drained(conn: &mut Conn<'_, Side>) {
    if let Side::Pair(end) = conn.state() {
        let partner = end.partner;
        conn.others().pause(partner, false);
    }
}

/// Messages to a slow client were dropped.
pub(super) fn dropped(conn: &mut Conn<'_, Side>, count: u32) {
    if let Side::Pair(end) = conn.state() {
        end.meter.dropped(count);
    }
}

/// One side has ended: closes the other one.
pub(super) fn ended(conn: &mut Conn<'_, Side>, closed: &Closed) {
    let Side::Pair(end) = take(conn.state()) else { return };
    match &closed.cause {
        Cause::WebSocket(error) if error.close_code() == CloseCode::MESSAGE_TOO_BIG => {
            end.meter.closed(Rule::MaxSize);
        }
        Cause::SlowConsumer if end.side == Party::Client => end.meter.closed(Rule::Slow),
        _ => {}
    }
    let (code, reason) = told(closed, end.side);
    conn.others().close(end.partner, code, reason);
}
