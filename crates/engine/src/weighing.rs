//! The search for the connections of a shard that hold the most memory.

use crate::core::{Core, Slot};
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::phase::Phase;
use crate::weight::Weight;
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Core<E, H> {
    /// The heaviest connections, at most `most`, the heaviest first.
    pub(crate) fn weigh(&self, most: usize) -> Vec<Weight> {
        let heaviest = self.account.heaviest(most).into_iter();
        let weighed = heaviest.filter_map(|(token, held)| match self.slots.get(token.index as usize) {
            Some(Slot::Link(link)) if link.token == token => Some(Weight {
                conn: ConnId { shard: self.shared.shard, token },
                peer: link.info.peer.clone(),
                state: state(&link.phase),
                heads: held.heads,
                partial: held.partial,
                sending: held.sending,
                queued: held.queued,
                published: held.shared,
                deflate: held.deflate,
            }),
            _ => None,
        });
        weighed.collect()
    }
}

const fn state(phase: &Phase) -> &'static str {
    match phase {
        Phase::Open => "open",
        Phase::Overrun | Phase::CloseQueued | Phase::CloseSent | Phase::Linger(_) | Phase::Gone { .. } => "closing",
        Phase::Proxy(_) | Phase::Tls | Phase::Offloaded(_) | Phase::Answer(_) => "handshake",
        Phase::Request(_) | Phase::Waiting(_) | Phase::Streaming(_) => "http",
    }
}
