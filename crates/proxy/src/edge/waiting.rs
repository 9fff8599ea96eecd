//! Requests that wait until a server has room.

use super::side::{Exchange, Side};
use super::{Edge, fail};
use crate::balance::{Lease, Unavailable};
use crate::plan::Backend;
use std::mem::take;
use std::time::{Duration, Instant};
use tautline::ConnId;
use tautline::http::{HeaderValue, StatusCode};
use tautline::layers::engine::{Others, Raw};

/// Chooses a server, or has the request wait for one: `None`.
pub(super) fn lease(
    others: &mut Others<'_, Side>,
    client: ConnId,
    exchange: &mut Exchange,
    now: Instant,
) -> Result<Option<Lease>, (StatusCode, String)> {
    let backend = exchange.backend.clone();
    let queue = backend.group.queue();
    let choose =
        |exchange: &Exchange| backend.choose(&exchange.headers, exchange.source, &exchange.tried, Instant::now());
    // Nobody overtakes those that wait.
    let is_late = exchange.place.is_none() && backend.wait.most > 0 && !queue.is_empty();
    let mut chosen = if is_late { Err(Unavailable::Full) } else { choose(exchange) };
    let may_wait = exchange.wait_end.is_none_or(|end| now < end);
    if chosen.as_ref().err() == Some(&Unavailable::Full) && exchange.place.is_none() && may_wait {
        let loop_of_client = others.shard().handle();
        exchange.place = queue.join(backend.wait.most, Box::new(move || _ = loop_of_client.notify(client)));
        exchange.wait_end = exchange.wait_end.or_else(|| now.checked_add(backend.wait.time));
        if exchange.place.as_ref().is_some_and(crate::balance::Place::may_try) {
            chosen = choose(exchange);
        }
    }
    match (chosen, &exchange.place) {
        (Ok(lease), _) => {
            exchange.place = None;
            Ok(Some(lease))
        }
        (Err(Unavailable::Full), Some(place)) => {
            if !exchange.tried.is_empty() {
                place.pass();
            }
            exchange.due = exchange.wait_end.unwrap_or(now);
            Ok(None)
        }
        (Err(error), _) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// The time after which a client that got 503 may ask again, in seconds.
pub(super) fn retry_after(backend: &Backend) -> HeaderValue {
    let time = backend.wait.time.saturating_add(Duration::from_millis(999));
    HeaderValue::from(time.as_secs().max(1))
}

impl Edge {
    /// A server may have room for a request that waits.
    pub(super) fn notified(&mut self, raw: &mut Raw<'_, Side>) {
        match take(raw.state()) {
            Side::Client(mut exchange) if exchange.place.as_ref().is_some_and(crate::balance::Place::may_try) => {
                let id = raw.id();
                match self.begin(&mut raw.others(), id, &mut exchange) {
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
}
