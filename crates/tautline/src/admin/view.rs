//! The state of a server, for operators.

use crate::{Reloads, ServerHandle, Upgrades};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tautline_engine::probe::Stages;
use tautline_engine::{ShardHandle, Weight};
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

/// The heaviest connections of all loops, at most `most`, as JSON.
pub(super) fn connections(server: &ServerHandle, most: usize) -> Value {
    let left = Left::begin();
    let (mut heaviest, mut silent) = (Vec::new(), Vec::new());
    for shard in server.shards() {
        match shard.heaviest(most, left.time()) {
            Ok(weights) => heaviest.extend(weights),
            Err(error) => silent.push(json!({ "loop": shard.number(), "error": error.to_string() })),
        }
    }
    heaviest.sort_by_key(|weight| std::cmp::Reverse(weight.total()));
    heaviest.truncate(most);
    json!({ "connections": heaviest.iter().map(connection).collect::<Vec<_>>(), "unanswered": silent })
}

fn connection(weight: &Weight) -> Value {
    let Weight { conn, peer, state, heads, partial, sending, queued, published, deflate, .. } = weight;
    json!({
        "id": conn.to_string(),
        "peer": peer.to_string(),
        "state": state,
        "bytes": weight.total(),
        "heads": heads,
        "partial": partial,
        "sending": sending,
        "queued": queued,
        "published": published,
        "deflate": deflate,
    })
}
