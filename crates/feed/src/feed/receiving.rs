//! Messages of venues, and their effects.

use super::core::{Content, Core, Stream};
use crate::Time;
use crate::fault::Fault;
use crate::ids::{FetchId, LinkId};
use crate::message::{Channel, Depth, Message, Trade};
use crate::notice::{Listener, Notice};
use crate::outbox::{Class, Letter};
use crate::replica::Outcome;
use crate::tape::Offered;

/// Bytes of the longest answer to a venue's ping.
const MOST_ANSWER: usize = 1024;

/// Old numbers in a row of a connection after which an earlier one was far too high, or the numbers begin anew.
const MOST_OLD: u32 = 4;

/// Characters of the longest reason of a venue that is told.
const MOST_REASON: usize = 200;

impl Core {
    /// A part of a message has come on a connection.
    #[inline]
    pub(crate) fn on_message(&mut self, link: LinkId, message: &Message<'_>, now: Time, listener: &mut dyn Listener) {
        match message {
            Message::Trade(trade) => self.on_trade(link, trade, now, listener),
            Message::Depth(depth) => {
                let stream = self.stream_named(depth.symbol, Channel::Book);
                if let Some(stream) = stream {
                    self.on_depth(link, stream, depth, now, listener);
                }
            }
            Message::Number(number) => self.on_number(link, *number, now, listener),
            _ => self.on_rare(link, message, now, listener),
        }
    }

    #[cold]
    fn on_rare(&mut self, id: LinkId, message: &Message<'_>, now: Time, listener: &mut dyn Listener) {
        match *message {
            Message::ConfirmedRequest(request) => self.on_confirmed(id, request, now),
            Message::ConfirmedStream { channel, symbol } => {
                if let Some(stream) = self.stream_named(symbol, channel) {
                    self.on_stream_confirmed(id, stream, now);
                }
            }
            Message::Rejected { request, symbol, reason } => {
                self.on_rejected(id, request, symbol, now);
                let symbol = symbol.and_then(|name| self.names.get(name).copied());
                let end = reason.char_indices().nth(MOST_REASON).map_or(reason.len(), |(end, _)| end);
                listener.on_notice(Notice::Rejected { symbol, link: id, reason: &reason[..end] }, now);
            }
            Message::Ping { answer } => {
                if let Some(link) = self.link(id).filter(|_| answer.len() <= MOST_ANSWER) {
                    // If it does not fit, as many answers wait already.
                    let _ =
                        link.outbox.push(Class::KeepAlive, Letter { text: answer.to_owned(), request: 0, timed: None });
                    self.flush(now);
                }
            }
            Message::Ending => self.replace(id, now),
            _ => {}
        }
    }

    #[inline]
    fn on_trade(&mut self, link: LinkId, trade: &Trade<'_>, now: Time, listener: &mut dyn Listener) {
        let Some(at) = self.stream_named(trade.symbol, Channel::Trades) else { return };
        let contiguous = self.facts.contiguous_trades;
        let patience = self.config.stale_after;
        let stream = &mut self.streams[at];
        let Some(sub) = stream.subs.iter_mut().find(|sub| sub.link == link) else { return };
        (sub.heard, sub.patience) = (Some(now), patience);
        let Content::Trades(tape) = &mut stream.content else { return };
        match tape.offer(trade.number, link, contiguous, now) {
            Offered::First => listener.on_trade(stream.symbol, trade, now),
            Offered::Second { first, behind } => {
                let (symbol, channel, second) = (stream.symbol, Channel::Trades, link);
                listener.on_notice(Notice::Second { symbol, channel, first, second, behind }, now);
            }
            Offered::Ignored => {}
        }
    }

    #[inline]
    fn on_depth(&mut self, link: LinkId, at: usize, depth: &Depth<'_>, now: Time, listener: &mut dyn Listener) {
        let patience = self.config.stale_after;
        let Stream { subs, content, symbol, .. } = &mut self.streams[at];
        let Some(sub) = subs.iter_mut().find(|sub| sub.link == link) else { return };
        let Content::Book(shown) = content else { return };
        (sub.heard, sub.patience) = (Some(now), patience);
        let is_shared = shown.shared.is_some();
        let Some(replica) = sub.replica.as_mut().or(shown.shared.as_mut()) else { return };
        let outcome = replica.on_depth(depth, now);
        if is_shared && outcome != Outcome::Ignored {
            shown.race.first(depth.last, link, now);
        }
        match outcome {
            Outcome::Applied if shown.is_live && (is_shared || shown.active == Some(link)) => {
                if let Some(book) = replica.book() {
                    listener.on_book(*symbol, book, now);
                }
            }
            Outcome::Ignored => {
                if let Some((first, behind)) = shown.race.second(depth.last, link, now).filter(|_| is_shared) {
                    let (symbol, channel, second) = (*symbol, Channel::Book, link);
                    listener.on_notice(Notice::Second { symbol, channel, first, second, behind }, now);
                }
            }
            Outcome::Applied => self.show(at, None, now, listener),
            Outcome::Held | Outcome::TooOld => self.show(at, None, now, listener),
            Outcome::Broken(fault) => self.on_broken(link, at, fault, now, listener),
        }
    }

    /// A copy of a book cannot be trusted: its remedy is a snapshot, for this symbol alone.
    #[cold]
    pub(crate) fn on_broken(&mut self, link: LinkId, at: usize, fault: Fault, now: Time, listener: &mut dyn Listener) {
        let stream = &mut self.streams[at];
        let symbol = stream.symbol;
        if let Content::Book(shown) = &mut stream.content {
            let at = now + shown.wait_after_fault(now, &self.config, &mut self.random);
            shown.fetch_at = shown.fetch_at.max(at);
            if let Some(sub) = stream.sub(link)
                && sub.replica.is_some()
            {
                sub.renew(at);
            }
        }
        self.sweep_at = Time::ZERO;
        let was_live = self.is_shown(at);
        self.show(at, Some(fault), now, listener);
        if was_live && self.is_shown(at) {
            listener.on_notice(Notice::CopyRebuilding { symbol, link, fault }, now);
        }
    }

    fn is_shown(&self, at: usize) -> bool {
        matches!(&self.streams[at].content, Content::Book(shown) if shown.is_live)
    }

    /// Shows the copy of a book that is up to date, if one is, and says whether the book is.
    pub(crate) fn show(&mut self, at: usize, fault: Option<Fault>, now: Time, listener: &mut dyn Listener) {
        let fault = fault.unwrap_or_else(|| self.fault_of(at));
        let stream = &mut self.streams[at];
        let symbol = stream.symbol;
        let is_up_to_date = |link: &LinkId| {
            let sub = stream.subs.iter().find(|sub| sub.link == *link);
            sub.and_then(|sub| sub.replica.as_ref()).is_some_and(|replica| replica.is_live())
        };
        let Content::Book(shown) = &mut stream.content else { return };
        if shown.shared.is_none() && !shown.active.as_ref().is_some_and(is_up_to_date) {
            shown.active = stream.subs.iter().map(|sub| sub.link).find(is_up_to_date);
            // Another copy than before is shown: the application has to see it.
            if shown.is_live && shown.active.is_some() {
                if let Some(book) = stream.book() {
                    listener.on_book(symbol, book, now);
                }
                return;
            }
        }
        let is_live = stream.book().is_some();
        let Content::Book(shown) = &mut stream.content else { return };
        if is_live == shown.is_live {
            if let (true, Some(book)) = (is_live, stream.book()) {
                listener.on_book(symbol, book, now);
            }
            return;
        }
        shown.is_live = is_live;
        if !is_live {
            listener.on_notice(Notice::Rebuilding { symbol, fault }, now);
            self.sweep_at = self.sweep_at.min(now + self.config.gap_after);
            return;
        }
        listener.on_notice(Notice::Live { symbol }, now);
        if let Some(book) = stream.book() {
            listener.on_book(symbol, book, now);
        }
    }

    /// Says so if a book is no longer up to date, or shows another copy, without a message.
    pub(crate) fn show_if_changed(&mut self, at: usize, now: Time, listener: &mut dyn Listener) {
        let stream = &self.streams[at];
        let Content::Book(shown) = &stream.content else { return };
        if stream.lanes.is_empty() || shown.is_live == stream.book().is_some() {
            return;
        }
        self.show(at, None, now, listener);
    }

    /// The number of a message: if others are missing, no book of the connection can be trusted.
    #[inline]
    fn on_number(&mut self, id: LinkId, number: u64, now: Time, listener: &mut dyn Listener) {
        let Some(link) = self.link(id) else { return };
        let expected = link.number.replace(number.saturating_add(1)).unwrap_or(number);
        if expected == number {
            link.old = 0;
        } else {
            self.on_missing(id, expected, number, now, listener);
        }
    }

    #[cold]
    fn on_missing(&mut self, link: LinkId, expected: u64, got: u64, now: Time, listener: &mut dyn Listener) {
        // A number again comes from a venue that has changed their order: what follows is numbered from the highest. After several
        // in a row that highest number is not believed, and what has come last is followed.
        if let Some(one) = self.link(link) {
            one.old = if got < expected { one.old + 1 } else { 0 };
            if one.old < MOST_OLD {
                one.number = Some(expected.max(got.saturating_add(1)));
            } else {
                (one.number, one.old) = (Some(got.saturating_add(1)), 0);
            }
        }
        listener.on_notice(Notice::MissingMessages { link, expected, got }, now);
        for at in 0..self.streams.len() {
            let replica = self.streams[at].sub(link).and_then(|sub| sub.replica.as_mut());
            if let Some(replica) = replica.filter(|replica| replica.is_live()) {
                replica.reset();
                self.on_broken(link, at, Fault::Gap { expected, got }, now, listener);
            }
        }
    }

    /// The place of the stream that a fetch is for, which has ended now.
    pub(crate) fn end_fetch(&mut self, id: FetchId) -> Option<usize> {
        self.streams.iter_mut().position(|stream| match &mut stream.content {
            Content::Book(shown) => shown.fetch.take_if(|(fetch, _)| *fetch == id).is_some(),
            Content::Trades(_) => false,
        })
    }

    /// A snapshot has been fetched and decoded.
    pub(crate) fn on_snapshot(&mut self, at: usize, depth: &Depth<'_>, now: Time, listener: &mut dyn Listener) {
        let Content::Book(shown) = &mut self.streams[at].content else { return };
        let Some(shared) = &mut shown.shared else { return };
        match shared.on_depth(depth, now) {
            Outcome::TooOld => {
                shown.fail(now, &self.config, &mut self.random);
                let (symbol, reason) = (self.streams[at].symbol, "it is older than the changes that have come");
                listener.on_notice(Notice::SnapshotFailed { symbol, reason }, now);
            }
            Outcome::Broken(_) => shown.fail(now, &self.config, &mut self.random),
            Outcome::Held => {
                // More updates are missing behind the snapshot.
                shown.fail(now, &self.config, &mut self.random);
            }
            Outcome::Applied | Outcome::Ignored => shown.fetch_failures = 0,
        }
        self.show(at, None, now, listener);
    }

    /// A snapshot could not be had.
    pub(crate) fn on_snapshot_failed(&mut self, at: usize, reason: &str, now: Time, listener: &mut dyn Listener) {
        let symbol = self.streams[at].symbol;
        if let Content::Book(shown) = &mut self.streams[at].content {
            shown.fail(now, &self.config, &mut self.random);
        }
        listener.on_notice(Notice::SnapshotFailed { symbol, reason }, now);
    }

    /// Declares numbers of trades missing.
    pub(crate) fn look_at_tapes(&mut self, now: Time, listener: &mut dyn Listener) {
        for stream in &mut self.streams {
            let Content::Trades(tape) = &mut stream.content else { continue };
            while let Some(numbers) = tape.missing(now, self.config.gap_after) {
                listener.on_notice(Notice::MissingTrades { symbol: stream.symbol, numbers }, now);
            }
        }
    }
}
