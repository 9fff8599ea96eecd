//! Requests that wait until a server has room.

use super::side::{Exchange, Side};
use crate::balance::{Lease, Unavailable};
use std::time::Instant;
use tautline::ConnId;
use tautline::http::StatusCode;
use tautline::layers::engine::Others;

/// Chooses a server, or has the request wait for one: `None`.
pub(super) fn lease(
    others: &mut Others<'_, Side>,
    client: ConnId,
    exchange: &mut Exchange,
    now: Instant,
) -> Result<Option<Lease>, (StatusCode, String)> {
    let backend = exchange.backend.clone();
    let queue = backend.group.queue();
    let choose = |exchange: &Exchange| backend.choose(&exchange.headers, exchange.source, &exchange.tried, now);
    // Nobody overtakes those that wait.
    let is_late = exchange.place.is_none() && backend.wait.most > 0 && !queue.is_empty();
    let mut chosen = if is_late { Err(Unavailable::Full) } else { choose(exchange) };
    let may_wait = exchange.wait_end.is_none_or(|end| now < end);
    if chosen.as_ref().err() == Some(&Unavailable::Full) && exchange.place.is_none() && may_wait {
        let loop_of_client = others.shard().handle();
        exchange.place = queue.join(backend.wait.most, Box::new(move || _ = loop_of_client.notify(client)));
        exchange.wait_end = exchange.wait_end.or_else(|| now.checked_add(backend.wait.time));
        if exchange.may_try() {
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
