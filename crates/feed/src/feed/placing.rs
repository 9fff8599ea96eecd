//! Which streams are wanted, and on which connections they are.

use super::core::{Content, Core, Lane, Shown, Stream, Symbol};
use crate::Time;
use crate::action::Action;
use crate::book::Scale;
use crate::ids::SymbolId;
use crate::message::Channel;
use crate::replica::Sequence;
use crate::tape::Tape;

impl Core {
    /// The number of a symbol, which is declared if it is new.
    pub(crate) fn declare(&mut self, name: &str, scale: Option<Scale>) -> SymbolId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = SymbolId(u32::try_from(self.symbols.len()).unwrap_or(u32::MAX));
        self.names.insert(name.into(), id);
        self.symbols.push(Symbol { name: name.into(), scale, streams: [None; 2] });
        id
    }

    pub(crate) fn subscribe(&mut self, symbol: SymbolId, channel: Channel, now: Time) {
        let at = match self.stream(symbol, channel) {
            Some(at) => at,
            None => self.add(symbol, channel),
        };
        if !self.streams[at].lanes.is_empty() {
            return;
        }
        for plane in 0..self.config.copies.max(1) {
            let lane = self.lane_with_room(plane);
            self.place(at, lane, now);
        }
        self.sweep_at = Time::ZERO;
    }

    fn add(&mut self, symbol: SymbolId, channel: Channel) -> usize {
        let at = self.streams.len();
        let content = match channel {
            Channel::Trades => Content::Trades(Box::new(Tape::new())),
            Channel::Book => {
                let shared = self.facts.sequence == Sequence::Updates;
                Content::Book(Box::new(Shown::new(shared.then(|| self.replica(symbol)))))
            }
        };
        self.streams.push(Stream { symbol, channel, lanes: Vec::new(), leaves: None, subs: Vec::new(), content });
        self.symbols[symbol.index()].streams[channel as usize] = Some(at);
        at
    }

    /// A lane of this copy that has room, or a new one.
    fn lane_with_room(&mut self, plane: usize) -> usize {
        let most = self.config.streams.unwrap_or(usize::MAX).clamp(1, self.facts.streams.max(1));
        let fits = |lane: &Lane| lane.plane == plane && lane.streams < most && !lane.is_private;
        self.lanes.iter().position(fits).unwrap_or_else(|| self.add_lane(plane, false))
    }

    fn add_lane(&mut self, plane: usize, is_private: bool) -> usize {
        // A lane without streams and connections is free for another use.
        let free = |lane: &Lane| lane.streams == 0 && lane.primary.is_none() && lane.successor.is_none();
        let lane =
            Lane { plane, streams: 0, is_private, primary: None, successor: None, retry_at: Time::ZERO, failures: 0 };
        match self.lanes.iter().position(free) {
            Some(at) => {
                self.lanes[at] = lane;
                at
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        }
    }

    fn place(&mut self, stream: usize, lane: usize, now: Time) {
        self.lanes[lane].streams += 1;
        self.streams[stream].lanes.push(lane);
        let open: Vec<_> =
            self.links.iter().filter(|link| link.lane == lane && link.opened.is_some()).map(|link| link.id).collect();
        for link in open {
            let sub = self.sub(stream, link, now);
            self.streams[stream].subs.push(sub);
        }
    }

    /// Moves a stream to a connection of its own. It leaves the old one when the new one delivers it.
    pub(crate) fn isolate(&mut self, stream: usize, now: Time) {
        let Stream { leaves: None, lanes, .. } = &self.streams[stream] else { return };
        let Some(old) = lanes.last().copied().filter(|lane| self.lanes[*lane].streams > 1) else { return };
        let new = self.add_lane(self.lanes[old].plane, true);
        self.streams[stream].leaves = Some(old);
        self.place(stream, new, now);
        self.sweep_at = Time::ZERO;
    }

    /// Lets streams leave their old lane whose new lane delivers them.
    pub(crate) fn finish_moves(&mut self, now: Time) {
        for at in 0..self.streams.len() {
            let stream = &self.streams[at];
            let Some(old) = stream.leaves else { continue };
            let Some(new) = stream.lanes.last().and_then(|lane| self.lanes[*lane].primary) else { continue };
            if stream.is_delivered_by(new, now, self.config.overlap) {
                self.leave(at, old);
                self.streams[at].leaves = None;
            }
        }
    }

    pub(crate) fn unsubscribe(&mut self, stream: usize) {
        while let Some(lane) = self.streams[stream].lanes.last().copied() {
            self.leave(stream, lane);
        }
        self.streams[stream].leaves = None;
        if let Content::Book(shown) = &mut self.streams[stream].content {
            shown.is_live = false;
            shown.fetch = None;
            if let Some(shared) = &mut shown.shared {
                shared.reset();
            }
        }
        self.sweep_at = Time::ZERO;
    }

    /// Takes a stream off a lane: its connections unsubscribe.
    fn leave(&mut self, at: usize, lane: usize) {
        let stream = &mut self.streams[at];
        let Some(place) = stream.lanes.iter().position(|one| *one == lane) else { return };
        stream.lanes.remove(place);
        self.lanes[lane].streams -= 1;
        let links: Vec<_> = self.links.iter().filter(|link| link.lane == lane).map(|link| link.id).collect();
        let stream = &mut self.streams[at];
        let mut ended = Vec::new();
        stream.subs.retain(|sub| {
            let stays = !links.contains(&sub.link);
            if !stays && sub.state.may_deliver() {
                ended.push(sub.link);
            }
            stays
        });
        self.unsubscribes.extend(ended.into_iter().map(|link| (link, at)));
    }

    /// Closes connections that have no streams.
    pub(crate) fn close_unused(&mut self) {
        let lanes = &mut self.lanes;
        let actions = &mut self.actions;
        self.links.retain(|link| {
            let lane = &mut lanes[link.lane];
            if lane.streams > 0 {
                return true;
            }
            (lane.primary, lane.successor) = (None, None);
            actions.push_back(Action::Close { link: link.id, reason: "it has no streams" });
            false
        });
    }
}
