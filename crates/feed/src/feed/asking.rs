//! Requests: in batches, within the budget, until they are confirmed.

use super::core::{Content, Core, SubState};
use crate::Time;
use crate::action::Action;
use crate::ids::{FetchId, LinkId};
use crate::message::Channel;
use crate::notice::{Listener, Notice};
use crate::outbox::{Class, Letter};
use crate::venue::{Request, Venue};

/// Requests in a row without a confirmation after which the connection is replaced.
const MOST_TRIES: u32 = 3;

/// A request that is being written.
struct Draft {
    link: LinkId,
    channel: Channel,
    subscribes: bool,
    streams: Vec<usize>,
}

impl Core {
    /// Queues requests for all subscriptions that are due.
    pub(crate) fn request(&mut self, venue: &dyn Venue, now: Time) {
        let ended = std::mem::take(&mut self.unsubscribes);
        for link in self.links.iter().map(|link| link.id).collect::<Vec<_>>() {
            if self.link(link).is_none_or(|link| link.opened.is_none()) {
                continue;
            }
            for channel in [Channel::Trades, Channel::Book] {
                let of = |stream: &usize| self.streams[*stream].channel == channel;
                let streams: Vec<usize> =
                    ended.iter().filter(|(one, _)| *one == link).map(|(_, stream)| *stream).filter(of).collect();
                self.write(venue, Draft { link, channel, subscribes: false, streams }, now);
                let (renewed, wanted) = self.due(link, channel, now);
                self.write(venue, Draft { link, channel, subscribes: false, streams: renewed }, now);
                self.write(venue, Draft { link, channel, subscribes: true, streams: wanted }, now);
            }
        }
    }

    /// The streams of a connection to unsubscribe first, and those to subscribe.
    fn due(&self, link: LinkId, channel: Channel, now: Time) -> (Vec<usize>, Vec<usize>) {
        let (mut renewed, mut wanted) = (Vec::new(), Vec::new());
        for (at, stream) in self.streams.iter().enumerate().filter(|(_, stream)| stream.channel == channel) {
            let Some(sub) = stream.subs.iter().find(|sub| sub.link == link) else { continue };
            let SubState::Wanted { at: due, renews } = sub.state else { continue };
            if due <= now {
                wanted.push(at);
                if renews {
                    renewed.push(at);
                }
            }
        }
        (renewed, wanted)
    }

    /// Queues a request, in the venue's batches.
    fn write(&mut self, venue: &dyn Venue, draft: Draft, now: Time) {
        let Draft { link, channel, subscribes, streams } = draft;
        let mut rest = &streams[..];
        while let Some(first) = rest.first() {
            // A symbol that the venue does not know may have all of its request rejected: batches become smaller.
            let tries = self.tries(*first, link);
            let most = self.facts.batch.checked_shr(tries * 2).unwrap_or(0).max(1).min(rest.len());
            let count = rest[..most].iter().take_while(|at| self.tries(**at, link) == tries).count();
            let (batch, others) = rest.split_at(count);
            rest = others;
            self.last_request += 1;
            let id = self.last_request;
            let symbols: Vec<&str> =
                batch.iter().map(|at| &*self.symbols[self.streams[*at].symbol.index()].name).collect();
            let mut text = String::new();
            venue.write_request(&Request { subscribes, id, channel, symbols: &symbols }, &mut text);
            let request = if subscribes { id } else { 0 };
            let Some(open) = self.links.iter_mut().find(|one| one.id == link) else { return };
            let is_queued = open.outbox.push(Class::Subscription, Letter { text, request, timed: None }).is_ok();
            if !subscribes {
                continue;
            }
            for at in batch {
                if let Some(sub) = self.streams[*at].sub(link) {
                    sub.state = if is_queued {
                        SubState::Asked { request: id, sent: None }
                    } else {
                        SubState::Wanted { at: now + self.config.longest_wait, renews: true }
                    };
                }
            }
        }
    }

    fn tries(&self, stream: usize, link: LinkId) -> u32 {
        self.streams[stream].subs.iter().find(|sub| sub.link == link).map_or(0, |sub| sub.tries)
    }

    /// Sends what the budgets allow.
    pub(crate) fn flush(&mut self, now: Time) {
        // An early class of one connection goes before a late one of another: the address has one budget for both.
        for class in Class::ALL {
            for at in 0..self.links.len() {
                if self.links[at].opened.is_none() {
                    continue;
                }
                let link = self.links[at].id;
                while let Some(Letter { text, request, timed }) =
                    self.links[at].outbox.pop(class, now, self.address.as_mut())
                {
                    if request != 0 {
                        self.note_sent(link, request, now);
                    }
                    self.actions.push_back(Action::Send { link, text, class, timed });
                }
            }
        }
    }

    fn note_sent(&mut self, link: LinkId, request: u64, now: Time) {
        for sub in self.streams.iter_mut().filter_map(|stream| stream.sub(link)) {
            if let SubState::Asked { request: of, sent } = &mut sub.state
                && *of == request
            {
                *sent = Some(now);
            }
        }
    }

    /// The venue has confirmed a request.
    pub(crate) fn on_confirmed(&mut self, link: LinkId, request: u64, now: Time) {
        for sub in self.streams.iter_mut().filter_map(|stream| stream.sub(link)) {
            if matches!(sub.state, SubState::Asked { request: of, .. } if of == request) {
                (sub.state, sub.tries) = (SubState::Confirmed { at: now }, 0);
            }
        }
    }

    /// The venue has confirmed a stream.
    pub(crate) fn on_stream_confirmed(&mut self, link: LinkId, stream: usize, now: Time) {
        if let Some(sub) = self.streams[stream].sub(link)
            // One that was not sent yet cannot be what is confirmed.
            && matches!(sub.state, SubState::Asked { sent: Some(_), .. })
        {
            (sub.state, sub.tries) = (SubState::Confirmed { at: now }, 0);
        }
    }

    /// The venue has rejected a request, or one symbol of it.
    pub(crate) fn on_rejected(&mut self, link: LinkId, request: Option<u64>, name: Option<&str>, now: Time) {
        let symbol = name.and_then(|name| self.names.get(name).copied());
        for stream in &mut self.streams {
            let is_meant = symbol.is_none_or(|symbol| symbol == stream.symbol);
            let Some(sub) = stream.sub(link).filter(|_| is_meant) else { continue };
            if let SubState::Asked { request: of, sent: Some(_) } = sub.state
                && request.is_none_or(|request| request == of)
            {
                sub.tries += 1;
                let wait = self.config.wait(sub.tries + 2, &mut self.random);
                sub.renew(now + wait);
            }
        }
    }

    /// Has subscriptions requested again that were not confirmed in time.
    pub(crate) fn look_at_requests(&mut self, now: Time, listener: &mut dyn Listener) {
        let mut replace = Vec::new();
        for stream in &mut self.streams {
            for sub in &mut stream.subs {
                let SubState::Asked { sent: Some(sent), .. } = sub.state else { continue };
                if now.saturating_sub(sent) < self.config.confirm_within {
                    continue;
                }
                let (symbol, channel, link) = (stream.symbol, stream.channel, sub.link);
                listener.on_notice(Notice::Unconfirmed { symbol, channel, link }, now);
                sub.tries += 1;
                if sub.tries >= MOST_TRIES {
                    sub.tries = 0;
                    replace.push(link);
                }
                let wait = self.config.wait(sub.tries.max(1), &mut self.random);
                sub.renew(now + wait);
                if let Some(replica) = &mut sub.replica {
                    replica.reset();
                }
            }
        }
        for link in replace {
            self.replace(link, now);
        }
    }

    /// Requests the snapshots that books need.
    pub(crate) fn fetch(&mut self, venue: &dyn Venue, now: Time, listener: &mut dyn Listener) {
        for stream in &mut self.streams {
            let Content::Book(shown) = &mut stream.content else { continue };
            if let Some((_, deadline)) = shown.fetch
                && deadline <= now
            {
                shown.fetch = None;
                shown.fail(now, &self.config, &mut self.random);
                let reason = "no answer came in time";
                listener.on_notice(Notice::SnapshotFailed { symbol: stream.symbol, reason }, now);
            }
            let Some(shared) = &shown.shared else { continue };
            let is_due = shared.is_empty()
                || shared.behind_since().is_some_and(|since| now.saturating_sub(since) >= self.config.gap_after);
            // Without a connection that delivers changes, a snapshot is of no use.
            let is_carried = stream.subs.iter().any(|sub| matches!(sub.state, SubState::Confirmed { .. }));
            if !is_due || !is_carried || shown.fetch.is_some() || shown.fetch_at > now {
                continue;
            }
            let Some(url) = venue.snapshot_url(&self.symbols[stream.symbol.index()].name) else { continue };
            if !self.snapshots.take(now) {
                return;
            }
            self.last_fetch += 1;
            let fetch = FetchId(self.last_fetch);
            shown.fetch = Some((fetch, now + self.config.fetch_within));
            self.actions.push_back(Action::FetchSnapshot { fetch, symbol: stream.symbol, url });
        }
    }
}
