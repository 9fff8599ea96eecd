//! Connections: opened, lost, and replaced by overlap.

use super::core::{Content, Core, Link, SubState};
use crate::Time;
use crate::action::Action;
use crate::fault::Fault;
use crate::ids::LinkId;
use crate::message::Channel;
use crate::notice::{Listener, Notice};
use crate::outbox::{Class, Letter, Outbox};
use crate::rate::Bucket;
use crate::venue::Venue;

/// The part of a connection's life, at most, that is taken off it at random: one eighth. All connections do not end at once.
const JITTER: u32 = 8;

impl Core {
    /// Opens connections for lanes that have none, and for those whose connection has to be replaced.
    pub(crate) fn connect(&mut self, venue: &dyn Venue, now: Time, listener: &mut dyn Listener) {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            if lane.streams == 0 || lane.successor.is_some() || lane.retry_at > now {
                continue;
            }
            let old = lane.primary;
            if let Some(old) = old {
                let ages = |link: &&Link| link.id == old && link.replace_at.is_some_and(|at| at <= now);
                // The last connections that the venue allows are for lanes that have none.
                let reserve = self.facts.connects.count / 4;
                if !self.links.iter().any(|link| ages(&link)) || self.connects.left(now) <= reserve {
                    continue;
                }
            }
            if !self.connects.take(now) {
                return;
            }
            self.last_link += 1;
            let id = LinkId(self.last_link);
            let lane = &mut self.lanes[at];
            match old {
                Some(link) => {
                    lane.successor = Some(id);
                    listener.on_notice(Notice::Replacing { link }, now);
                }
                None => lane.primary = Some(id),
            }
            self.links.push(Link {
                id,
                lane: at,
                opened: None,
                heard: now,
                replace_at: None,
                keep_alive_at: None,
                number: None,
                old: 0,
                outbox: Outbox::new(Bucket::new(self.facts.sends)),
            });
            self.actions.push_back(Action::Connect { link: id, url: venue.url() });
        }
    }

    pub(crate) fn on_opened(&mut self, id: LinkId, venue: &dyn Venue, now: Time) -> bool {
        let life = self.config.life.or(self.facts.life);
        // It is replaced well before the venue ends it: opening the next one and subscribing take their time.
        let age = life.map(|life| life - life / 16 - self.random.part(life / JITTER));
        let keep_alive = self.facts.keep_alive.map(|(every, _)| now + every);
        let Some(link) = self.link(id) else { return false };
        link.opened = Some(now);
        link.heard = now;
        link.replace_at = age.map(|age| now + age);
        link.keep_alive_at = keep_alive;
        for text in venue.greetings() {
            let letter = Letter { text: (*text).to_owned(), request: 0, timed: None };
            // A new outbox has room for the few greetings of a venue.
            let _ = link.outbox.push(Class::KeepAlive, letter);
        }
        let lane = link.lane;
        for at in 0..self.streams.len() {
            if self.streams[at].lanes.contains(&lane) {
                let sub = self.sub(at, id, now);
                self.streams[at].subs.push(sub);
            }
        }
        self.sweep_at = Time::ZERO;
        true
    }

    /// Forgets a connection that has ended. Its lane goes on with its successor, or waits for the next attempt.
    pub(crate) fn on_closed(&mut self, id: LinkId, now: Time) -> bool {
        let Some(at) = self.links.iter().position(|link| link.id == id) else { return false };
        let link = self.links.remove(at);
        let lane = &mut self.lanes[link.lane];
        if link.opened.is_some_and(|opened| now.saturating_sub(opened) >= self.config.longest_wait) {
            lane.failures = 0;
        }
        lane.failures += 1;
        lane.retry_at = now + self.config.wait(lane.failures, &mut self.random);
        if lane.successor == Some(id) {
            lane.successor = None;
        } else if lane.primary == Some(id) {
            lane.primary = lane.successor.take();
        }
        self.drop_subs(id);
        self.sweep_at = Time::ZERO;
        true
    }

    fn drop_subs(&mut self, link: LinkId) {
        for stream in &mut self.streams {
            stream.subs.retain(|sub| sub.link != link);
        }
        self.unsubscribes.retain(|(one, _)| *one != link);
    }

    /// Closes a connection without waiting for anybody.
    pub(crate) fn cut(&mut self, link: LinkId, reason: &'static str, now: Time) {
        if self.on_closed(link, now) {
            self.actions.push_back(Action::Close { link, reason });
        }
    }

    /// Has a connection replaced as soon as another one delivers its streams. One that is to replace another is cut.
    pub(crate) fn replace(&mut self, id: LinkId, now: Time) {
        let Some(link) = self.link(id) else { return };
        link.replace_at = Some(now);
        let lane = link.lane;
        if self.lanes[lane].successor == Some(id) {
            self.cut(id, "it does not deliver", now);
        }
        self.sweep_at = Time::ZERO;
    }

    /// Ends connections whose successors deliver all streams.
    pub(crate) fn finish_replacements(&mut self, now: Time, listener: &mut dyn Listener) {
        for at in 0..self.lanes.len() {
            let lane = &self.lanes[at];
            let (Some(old), Some(new)) = (lane.primary, lane.successor) else { continue };
            let overlap = self.config.overlap;
            let mut streams = self.streams.iter().filter(|stream| stream.lanes.contains(&at));
            // A stream that the old one does not have, such as one that the venue rejects, does not keep it.
            if !streams.all(|stream| stream.is_delivered_by(new, now, overlap) || !stream.is_confirmed_on(old)) {
                continue;
            }
            let lane = &mut self.lanes[at];
            (lane.primary, lane.successor, lane.failures) = (Some(new), None, 0);
            self.links.retain(|link| link.id != old);
            self.drop_subs(old);
            self.actions.push_back(Action::Close { link: old, reason: "another connection has replaced it" });
            listener.on_notice(Notice::Replaced { link: old, by: new }, now);
        }
    }

    /// Cuts connections that are silent for longer than their venue allows, and sends what keeps the others.
    pub(crate) fn look_at_links(&mut self, now: Time, listener: &mut dyn Listener) {
        let mut silent = Vec::new();
        for link in &mut self.links {
            if link.opened.is_none() {
                continue;
            }
            if self.facts.silence.is_some_and(|longest| now.saturating_sub(link.heard) > longest) {
                silent.push(link.id);
            }
            if let (Some(at), Some((every, text))) = (link.keep_alive_at, self.facts.keep_alive)
                && at <= now
            {
                link.keep_alive_at = Some(now + every);
                // If it does not fit, the budget is used up by others that keep the connection as well.
                let _ = link.outbox.push(Class::KeepAlive, Letter { text: text.to_owned(), request: 0, timed: None });
            }
        }
        for link in silent {
            listener.on_notice(Notice::Silent { link }, now);
            self.cut(link, "it is silent", now);
        }
    }

    /// Notes that books whose last connection is gone may miss updates.
    pub(crate) fn detach_books(&mut self, now: Time) {
        for stream in &mut self.streams {
            if stream.channel != Channel::Book {
                continue;
            }
            let is_carried = stream.subs.iter().any(|sub| sub.state.may_deliver());
            if let Content::Book(shown) = &mut stream.content
                && let Some(shared) = &mut shown.shared
                && !is_carried
            {
                shared.detach(now);
            }
        }
    }

    /// Streams that are confirmed, but whose connection is silent as a whole, have a new connection.
    pub(crate) fn look_at_silence(&mut self, now: Time, listener: &mut dyn Listener) {
        let mut replace = Vec::new();
        for stream in &mut self.streams {
            for sub in &mut stream.subs {
                let Some(last) = sub.last_sign() else { continue };
                let silent = now.saturating_sub(last);
                let waits = sub.replica.as_ref().is_some_and(|replica| replica.is_empty());
                let patience = if waits { self.config.confirm_within } else { sub.patience };
                if silent < patience {
                    continue;
                }
                let (symbol, channel, link) = (stream.symbol, stream.channel, sub.link);
                listener.on_notice(Notice::Stale { symbol, channel, link, silent }, now);
                sub.patience = (sub.patience * 2).min(std::time::Duration::from_secs(3600));
                let heard = self.links.iter().find(|one| one.id == link).map_or(now, |one| one.heard);
                if now.saturating_sub(heard) >= self.config.stale_after {
                    replace.push(link);
                    sub.state = SubState::Confirmed { at: now };
                } else {
                    if let Some(replica) = &mut sub.replica {
                        replica.reset();
                    }
                    sub.renew(now);
                }
            }
        }
        for link in replace {
            self.replace(link, now);
        }
    }

    /// The fault of a book that is not up to date.
    pub(crate) fn fault_of(&self, stream: usize) -> Fault {
        match &self.streams[stream].content {
            Content::Book(shown) => shown.shared.as_ref().map_or(Fault::Lost, |shared| shared.gap()),
            Content::Trades(_) => Fault::Lost,
        }
    }
}
