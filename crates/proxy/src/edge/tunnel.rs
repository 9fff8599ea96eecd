//! Tunnels: the bytes of one connection pass to the other, both ways.

use super::answer::{put, switch};
use super::side::{Exchange, Side};
use crate::tally::Present;
use std::time::Duration;
use tautline::ConnId;
use tautline::http::Response;
use tautline::layers::engine::Raw;

/// The server has changed the protocol: joins both connections to a tunnel.
pub(super) fn join(
    raw: &mut Raw<'_, Side>,
    client: ConnId,
    exchange: Box<Exchange>,
    response: &Response<()>,
    open: Option<Present>,
) {
    switch(&mut raw.others(), client, &exchange, response.clone());
    let Exchange { lease, backend, meter, .. } = *exchange;
    let (of_client, of_server) = meter.tunnel(open);
    let (own, heard) = (raw.id(), raw.turn_millis());
    *raw.state() = Side::Tunnel { partner: client, heard, lease: None, backend: backend.clone(), meter: of_server };
    let mut others = raw.others();
    put(&mut others, client, Side::Tunnel { partner: own, heard, lease, backend, meter: of_client });
    // It may have sent messages ahead.
    others.pause(client, false);
}

/// Ends a tunnel on which nothing has come for its time, or sets the timer for another look.
pub(super) fn look(raw: &mut Raw<'_, Side>, timer: u64) {
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
        Some(left) => raw.set_timer(left, timer),
        None => {
            others.end(partner);
            raw.end();
        }
    }
}
