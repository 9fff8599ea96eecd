//! Lists of a shard's connections: what they hold, and what they asked for.

use crate::handler::Handler;
use crate::http::accessing::{Accessing, direct_of};
use crate::ids::ConnId;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::memory::account::{Held, Kept};
use crate::memory::weight::{Listing, Weight};
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use crate::turn::slot::Slot;
use std::time::Duration;
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};

/// The connections of a loop that are asked for.
pub(crate) fn list<E: Engine, H: Handler>(core: &Core<E, H>, driver: &dyn Driver, listing: Listing) -> Vec<Weight> {
    let Core { slots, shared, access, .. } = core;
    Scales { slots, shared, access, driver }.list(listing)
}

/// All that the weight of a connection is read from.
struct Scales<'r, S, T> {
    slots: &'r [Slot<S, T>],
    shared: &'r Shared,
    access: &'r Accessing,
    driver: &'r dyn Driver,
}

impl<S: Session, T> Scales<'_, S, T> {
    /// The connections that are asked for.
    fn list(&self, listing: Listing) -> Vec<Weight> {
        match listing {
            Listing::Heaviest(most) => self.heaviest(most),
            Listing::InOrder { after, most } => {
                let first = after.map_or(0, |after| (after.token.index as usize).saturating_add(1));
                let rest = self.slots.get(first..).unwrap_or_default();
                rest.iter().filter_map(|slot| self.weight(slot)).take(most).collect()
            }
            Listing::One(conn) => {
                let slot = self.slots.get(conn.token.index as usize);
                slot.and_then(|slot| self.weight(slot)).filter(|weight| weight.conn == conn).into_iter().collect()
            }
        }
    }

    /// The heaviest connections first, and then those that hold nothing.
    fn heaviest(&self, most: usize) -> Vec<Weight> {
        let kept = |token: Token| self.link_of(token).map_or_else(Kept::default, Link::kept);
        let heaviest = self.shared.account.heaviest(most, kept).into_iter();
        let heaviest = heaviest.filter_map(|(token, held, kept)| Some((self.link_of(token)?, held, kept)));
        let mut weights: Vec<Weight> = heaviest.map(|(link, held, kept)| self.weigh(link, held, kept)).collect();
        if weights.len() < most {
            let mut listed: Vec<ConnId> = weights.iter().map(|weight| weight.conn).collect();
            listed.sort_unstable();
            let others = self.slots.iter().filter_map(|slot| self.weight(slot));
            let others = others.filter(|weight| listed.binary_search(&weight.conn).is_err());
            weights.extend(others.take(most - listed.len()));
        }
        weights
    }

    fn link_of(&self, token: Token) -> Option<&Link<S, T>> {
        match self.slots.get(token.index as usize) {
            Some(Slot::Link(link)) if link.token == token => Some(link),
            _ => None,
        }
    }

    fn weight(&self, slot: &Slot<S, T>) -> Option<Weight> {
        let Slot::Link(link) = slot else { return None };
        Some(self.weigh(link, self.shared.account.held(link.token), link.kept()))
    }

    fn weigh(&self, link: &Link<S, T>, held: Held, kept: Kept) -> Weight {
        let record = self.access.table.as_ref().and_then(|table| table.get(link.token));
        let asked = record.and_then(|record| Some((record, record.asked.as_ref()?)));
        let id = |token| ConnId { shard: self.shared.shard, token };
        let streams = || self.driver.carried_by(link.token).into_iter().map(id).collect();
        Weight {
            conn: id(link.token),
            peer: link.info.peer.clone(),
            direct: direct_of(link).cloned(),
            state: state(&link.phase),
            carrier: self.driver.carrier(link.token).map(id),
            streams: link.phase.carries().then(streams),
            path: asked.map(|(_, asked)| asked.path.clone()),
            user_agent: asked.and_then(|(_, asked)| asked.user_agent.clone()),
            since_request: asked.map(|(record, _)| Duration::from_millis(self.shared.now.saturating_sub(record.began))),
            traffic: record.map(|record| record.traffic),
            heads: held.heads,
            partial: held.partial,
            sending: held.sending,
            queued: held.queued,
            published: held.shared,
            deflate: held.deflate,
            requests: held.requests,
            kept: kept.weight(),
        }
    }
}

const fn state(phase: &Phase) -> &'static str {
    match phase {
        Phase::Open => "open",
        phase if phase.carries() => "carrier",
        Phase::Raw(_) => "raw",
        Phase::Overrun | Phase::CloseQueued | Phase::CloseSent | Phase::Linger(_) | Phase::Gone { .. } => "closing",
        Phase::Proxy(_) | Phase::ProxyHeader | Phase::Tls | Phase::Offloaded(_) | Phase::Answer(_) => "handshake",
        Phase::Request(_) | Phase::Waiting(_) | Phase::Streaming(_) => "http",
    }
}
