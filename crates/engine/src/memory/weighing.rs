//! Lists of a shard's connections: what they hold, and what they asked for.

use crate::http::accessing::{Accessing, direct_of};
use crate::ids::ConnId;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::memory::account::{Held, Kept};
use crate::memory::weight::{Listing, Weight};
use crate::turn::links::Links;
use crate::turn::shared::Shared;
use std::time::Duration;
use tautline_io::{Driver, Token};
use tautline_tls::Session;

/// All that the weight of a connection is read from.
pub(crate) struct Scales<'r, S, T> {
    pub(crate) links: &'r Links<S, T>,
    pub(crate) shared: &'r Shared,
    pub(crate) access: &'r Accessing,
    pub(crate) driver: &'r dyn Driver,
}

impl<S: Session, T> Scales<'_, S, T> {
    /// The connections that are asked for.
    pub(crate) fn list(&self, listing: Listing) -> Vec<Weight> {
        match listing {
            Listing::Heaviest(most) => self.heaviest(most),
            Listing::InOrder { after, most } => {
                let first = after.map_or(0, |after| (after.token.index as usize).saturating_add(1));
                self.links.from(first).map(|link| self.weight(link)).take(most).collect()
            }
            Listing::One(conn) => {
                let link = self.links.get(conn.token).filter(|_| conn.shard == self.shared.shard);
                link.map(|link| self.weight(link)).into_iter().collect()
            }
        }
    }

    /// The heaviest connections first, and then those that hold nothing.
    fn heaviest(&self, most: usize) -> Vec<Weight> {
        let kept = |token: Token| self.links.get(token).map_or_else(Kept::default, Link::kept);
        let heaviest = self.shared.account.heaviest(most, kept).into_iter();
        let heaviest = heaviest.filter_map(|(token, held, kept)| Some((self.links.get(token)?, held, kept)));
        let mut weights: Vec<Weight> = heaviest.map(|(link, held, kept)| self.weigh(link, held, kept)).collect();
        if weights.len() < most {
            let mut listed: Vec<ConnId> = weights.iter().map(|weight| weight.conn).collect();
            listed.sort_unstable();
            let others = self.links.from(0).map(|link| self.weight(link));
            let others = others.filter(|weight| listed.binary_search(&weight.conn).is_err());
            weights.extend(others.take(most - listed.len()));
        }
        weights
    }

    fn weight(&self, link: &Link<S, T>) -> Weight {
        self.weigh(link, self.shared.account.held(link.token), link.kept())
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
