//! The state of a server, for operators.

use super::query::Wanted;
use crate::{ConnId, Reloads, ServerHandle, Upgrades};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tautline_engine::probe::Stages;
use tautline_engine::{Listing, ShardHandle, Weight};
use tautline_metrics::{CertificateExpiry, Figures, LoopFigures, ProcessFigures, ReloadFigures, UpgradeFigures};

/// The time in which all loops have to answer one request.
const WITHIN: Duration = Duration::from_secs(1);

/// The least time that a loop gets, if others have used up the time.
const LEAST: Duration = Duration::from_millis(10);

/// The time that is left for the loops of a request.
struct Left(Instant);

impl Left {
    fn begin() -> Self {
        Self(Instant::now() + WITHIN)
    }

    fn time(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now()).max(LEAST)
    }
}

/// Copies what a server counts.
pub(super) fn figures(server: &ServerHandle) -> Figures {
    let of = |shard: &ShardHandle| {
        let mut figures = LoopFigures::new(shard.number(), shard.is_running(), shard.counters(), shard.outcomes());
        figures.draining = shard.is_draining();
        figures
    };
    let mut figures = Figures::default();
    figures.loops = server.shards().iter().map(of).collect();
    figures.stages = stages(server);
    let reloader = server.reloader();
    let chains = reloader.certificate_chains();
    figures.certificates = chains.iter().filter_map(|chain| CertificateExpiry::of_chain(chain)).collect();
    let Reloads { done, failed, .. } = reloader.reloads();
    figures.reloads = (!chains.is_empty()).then_some(ReloadFigures { done, failed });
    let Upgrades { done, failed, pause, moved, refused, staying } = server.upgrades();
    figures.upgrades = Some(UpgradeFigures { done, failed, pause, moved, refused, staying });
    figures.broker = server.broker_counters();
    figures.process = ProcessFigures::read();
    figures
}

/// Copies the state of a certificate that the server orders itself.
#[cfg(feature = "acme")]
pub(super) fn acme(status: &crate::acme::Status) -> tautline_metrics::AcmeFigures {
    let names = crate::acme::FailureKind::ALL.map(crate::acme::FailureKind::name);
    tautline_metrics::AcmeFigures {
        expiry: status.expiry.map(|at| at.as_secs()),
        last_success: status.last_success.map(|at| at.as_secs()),
        due: status.due.map(|at| at.as_secs()),
        orders: status.orders,
        failures: names.into_iter().zip(status.failures).collect(),
        orders_itself: status.orders_itself,
        responses: status.names_responder.then(|| tautline_metrics::ResponseFigures {
            expiry: status.response_expiry.map(|at| at.as_secs()),
            done: status.responses,
            failed: status.response_failures,
        }),
    }
}

/// The stages of all loops, if stages are measured. `None` as well if a loop does not answer in time: without its part the
/// counts would go back.
fn stages(server: &ServerHandle) -> Option<Box<Stages>> {
    if !server.measures_stages() {
        return None;
    }
    let left = Left::begin();
    let mut of_loops = server.shards().iter().map(|shard| shard.stages_within(left.time()).ok().flatten());
    let mut all = of_loops.next()??;
    for one in of_loops {
        all.merge(&*one?);
    }
    all.keep_scale();
    Some(all)
}

/// Why the server is not healthy: a loop has failed, or does not turn.
pub(super) fn illness(server: &ServerHandle) -> Option<String> {
    server.check(WITHIN).err().map(|error| error.to_string())
}

/// Why the server should get no new connections.
pub(super) fn unreadiness(server: &ServerHandle) -> Option<String> {
    server.shards().iter().find_map(|shard| {
        let number = shard.number();
        if shard.is_draining() {
            Some("the server is being drained".to_owned())
        } else {
            (!shard.is_running()).then(|| format!("loop {number} has ended"))
        }
    })
}

/// The connections that are asked for, as JSON.
pub(super) fn connections(server: &ServerHandle, wanted: Wanted) -> Value {
    let left = Left::begin();
    let (mut listed, mut silent) = (Vec::new(), Vec::new());
    for shard in server.shards() {
        let listing = match wanted.after {
            _ if !wanted.in_order => Listing::Heaviest(wanted.most),
            Some(after) if shard.number() < after.shard() => continue,
            after => Listing::InOrder {
                after: after.filter(|after| after.shard() == shard.number()),
                most: wanted.most - listed.len(),
            },
        };
        match shard.connections(listing, left.time()) {
            Ok(weights) => listed.extend(weights),
            Err(error) => silent.push(json!({ "loop": shard.number(), "error": error.to_string() })),
        }
        if wanted.in_order && listed.len() == wanted.most {
            break;
        }
    }
    if !wanted.in_order {
        listed.sort_by_key(|weight| std::cmp::Reverse(weight.total()));
        listed.truncate(wanted.most);
    }
    // A page that is not full is the last one.
    let last = listed.last().filter(|_| wanted.in_order && listed.len() == wanted.most);
    json!({
        "connections": listed.iter().map(connection).collect::<Vec<_>>(),
        "next": last.map(|last| format!("/connections?most={}&after={}", wanted.most, last.conn)),
        "unanswered": silent,
    })
}

/// A connection that is there, or the reason why it is not.
pub(super) fn find(server: &ServerHandle, conn: ConnId) -> Result<(&ShardHandle, Weight), String> {
    let shard = server.shards().iter().find(|shard| shard.number() == conn.shard());
    let shard = shard.ok_or_else(|| format!("there is no connection {conn}"))?;
    let found = shard.connections(Listing::One(conn), WITHIN);
    let found = found.map_err(|error| format!("loop {}: {error}", shard.number()))?;
    let weight = found.into_iter().next().ok_or_else(|| format!("there is no connection {conn}; it may have ended"))?;
    Ok((shard, weight))
}

pub(super) fn connection(weight: &Weight) -> Value {
    let Weight { conn, peer, state, heads, partial, sending, queued, published, deflate, .. } = weight;
    json!({
        "id": conn.to_string(),
        "peer": peer.to_string(),
        "direct": weight.direct.as_ref().map(ToString::to_string),
        "state": state,
        "carrier": weight.carrier.map(|carrier| carrier.to_string()),
        "streams": weight.streams.as_ref().map(|streams| streams.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "path": weight.path,
        "user_agent": weight.user_agent,
        "age_s": weight.since_request.map(|age| age.as_secs()),
        "traffic": weight.traffic.map(|traffic| json!({
            "messages_in": traffic.messages_in,
            "messages_out": traffic.messages_out,
            "bytes_in": traffic.bytes_in,
            "bytes_out": traffic.bytes_out,
        })),
        "bytes": weight.total(),
        "heads": heads,
        "partial": partial,
        "sending": sending,
        "queued": queued,
        "published": published,
        "deflate": deflate,
    })
}
