//! The feed: a state machine without I/O.

mod asking;
mod core;
mod linking;
mod placing;
mod receiving;

use crate::Time;
use crate::action::Action;
use crate::arbiter::Copies;
use crate::book::{Book, Scale};
use crate::config::{FeedConfig, Random};
use crate::ids::{FetchId, LinkId, SymbolId};
use crate::message::{Channel, Level, Message};
use crate::names::Names;
use crate::notice::{Listener, Notice};
use crate::outbox::{Class, Full, Letter};
use crate::rate::Bucket;
use crate::venue::{DecodeError, Venue};
use core::{Content, Core};
use std::collections::VecDeque;
use std::time::Duration;

/// The time between two looks at all deadlines, at most.
const TICK: Duration = Duration::from_millis(50);

/// Follows the streams of one venue: without a thread, a clock or a socket.
///
/// Events go in with their time, [actions](Self::poll_action) come out, and a [`Listener`] gets what the application wants. After
/// each event, take all actions, and call [`handle_timeout`](Self::handle_timeout) at [`next_due`](Self::next_due).
/// [`Connector`](crate::Connector) does that on the loop of a `tautline::Client`.
///
/// All feeds of a venue that share an address share its budgets there, which the venue counts by address. Follow a venue with one
/// feed.
#[derive(Debug)]
pub struct Feed {
    venue: Box<dyn Venue>,
    levels: Vec<Level>,
    core: Core,
}

impl Feed {
    /// A feed of a venue, without streams.
    #[must_use]
    pub fn new(venue: impl Venue + 'static, config: FeedConfig) -> Self {
        let facts = venue.facts().clone();
        let core = Core {
            random: Random(config.seed),
            checksum: venue.checksum(),
            symbols: Vec::new(),
            names: Names::default(),
            streams: Vec::new(),
            lanes: Vec::new(),
            links: Vec::new(),
            connects: Bucket::new(facts.connects),
            address: facts.sends_of_address.map(Bucket::new),
            snapshots: Bucket::new(facts.snapshots),
            unsubscribes: Vec::new(),
            actions: VecDeque::new(),
            last_link: 0,
            last_request: 0,
            last_fetch: 0,
            sweep_at: Time::ZERO,
            config,
            facts,
        };
        Self { venue: Box::new(venue), levels: Vec::new(), core }
    }

    /// Declares a symbol by the venue's name, with the decimals of its prices and quantities.
    ///
    /// Without them, they are the venue's, or learned from its snapshots. The first declaration of a name holds.
    pub fn declare(&mut self, name: &str, scale: Option<Scale>) -> SymbolId {
        self.core.declare(name, scale)
    }

    /// Wants a stream from now on. It is subscribed on each connection that carries it, also after reconnections.
    pub fn subscribe(&mut self, symbol: SymbolId, channel: Channel, now: Time) {
        if symbol.index() < self.core.symbols.len() {
            self.core.subscribe(symbol, channel, now);
        }
    }

    /// Wants a stream no longer.
    pub fn unsubscribe(&mut self, symbol: SymbolId, channel: Channel) {
        if let Some(stream) = self.core.stream(symbol, channel) {
            self.core.unsubscribe(stream);
        }
    }

    /// Moves a stream to a connection of its own, and no other stream. It leaves the old one once the new one delivers it.
    pub fn isolate(&mut self, symbol: SymbolId, channel: Channel, now: Time) {
        if let Some(stream) = self.core.stream(symbol, channel) {
            self.core.isolate(stream, now);
        }
    }

    /// Replaces a connection: the new one delivers before the old one ends.
    pub fn replace(&mut self, link: LinkId, now: Time) {
        self.core.replace(link, now);
    }

    /// A connection is open.
    pub fn opened(&mut self, link: LinkId, now: Time, listener: &mut dyn Listener) {
        if self.core.on_opened(link, &*self.venue, now) {
            listener.on_notice(Notice::Connected { link }, now);
            self.handle_timeout(now, listener);
        }
    }

    /// A connection has ended, or could not be opened.
    pub fn closed(&mut self, link: LinkId, now: Time, listener: &mut dyn Listener) {
        if self.core.on_closed(link, now) {
            listener.on_notice(Notice::Disconnected { link }, now);
            self.handle_timeout(now, listener);
        }
    }

    /// A message has come.
    pub fn received(&mut self, link: LinkId, message: &[u8], now: Time, listener: &mut dyn Listener) {
        let Self { venue, levels, core } = self;
        let Some(open) = core.link(link) else { return };
        open.heard = now;
        let mut is_at_end = false;
        let mut sink = |part: Message<'_>| {
            // Numbers behind a bad one are not believed either.
            is_at_end |= part.is_at_end();
            if !is_at_end {
                core.on_message(link, &part, now, listener);
            }
        };
        let decoded = venue.decode(message, levels, &mut sink);
        let decoded = decoded.and(if is_at_end { Err(DecodeError::LastNumber) } else { Ok(()) });
        if let Err(error) = decoded {
            listener.on_notice(Notice::Undecodable { link, error, message }, now);
        }
    }

    /// A fetch has ended: with the body of the response, or a reason.
    pub fn fetched(&mut self, fetch: FetchId, result: Result<&[u8], &str>, now: Time, listener: &mut dyn Listener) {
        let Self { venue, levels, core } = self;
        let Some(at) = core.end_fetch(fetch) else { return };
        core.sweep_at = Time::ZERO;
        let body = match result {
            Ok(body) => body,
            Err(reason) => return core.on_snapshot_failed(at, reason, now, listener),
        };
        let symbol = core.symbols[core.streams[at].symbol.index()].name.clone();
        let mut is_at_end = false;
        let mut sink = |part: Message<'_>| {
            is_at_end |= part.is_at_end();
            if let (Message::Depth(depth), false) = (part, is_at_end) {
                core.on_snapshot(at, &depth, now, listener);
            }
        };
        let decoded = venue.decode_snapshot(&symbol, body, levels, &mut sink);
        let decoded = decoded.and(if is_at_end { Err(DecodeError::LastNumber) } else { Ok(()) });
        if let Err(error) = decoded {
            core.on_snapshot_failed(at, &error.to_string(), now, listener);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, listener: &mut dyn Listener) {
        let Self { venue, core, .. } = self;
        if core.sweep_at <= now {
            core.look_at_links(now, listener);
            core.look_at_requests(now, listener);
            core.look_at_silence(now, listener);
            core.look_at_tapes(now, listener);
            core.finish_moves(now);
            core.finish_replacements(now, listener);
            core.close_unused();
            core.detach_books(now);
            for at in 0..core.streams.len() {
                core.show_if_changed(at, now, listener);
            }
            core.connect(&**venue, now, listener);
            core.request(&**venue, now);
            core.fetch(&**venue, now, listener);
            core.sweep_at = now + TICK;
        }
        core.flush(now);
    }

    /// The time of the next [`handle_timeout`](Self::handle_timeout); it may have passed.
    #[must_use]
    pub fn next_due(&self, now: Time) -> Time {
        let core = &self.core;
        let open = core.links.iter().filter(|link| link.opened.is_some());
        let sends = open.filter_map(|link| link.outbox.due(now, core.address.as_ref()));
        sends.min().unwrap_or(core.sweep_at).min(core.sweep_at)
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.actions.pop_front()
    }

    /// Sends a message of the application on a connection, within the venue's budget, before waiting subscriptions.
    ///
    /// The feed neither signs nor understands it. Orders belong to connections and libraries of their own.
    ///
    /// # Errors
    /// If too many wait. A message for a connection that is not open is dropped with it.
    pub fn send(&mut self, link: LinkId, text: String, now: Time) -> Result<(), Full> {
        if let Some(open) = self.core.link(link) {
            open.outbox.push(Class::Order, Letter { text, request: 0, timed: None })?;
            self.core.flush(now);
        }
        Ok(())
    }

    /// Sends a message like [`send`](Self::send), and has it timed: [`Listener::on_sent`] follows, with this `id`.
    ///
    /// Returns whether it leaves now. A message that waits for the budget is not timed, and neither is one for a connection that is
    /// not open. Only a [`Connector`](crate::Connector) whose client measures stages times messages.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_timed(&mut self, link: LinkId, text: String, id: u64, now: Time) -> Result<bool, Full> {
        let Some(open) = self.core.link(link) else { return Ok(false) };
        open.outbox.push(Class::Order, Letter { text, request: 0, timed: Some(id) })?;
        self.core.flush(now);
        Ok(self.core.link(link).is_some_and(|open| open.opened.is_some() && !open.outbox.untime_last(Class::Order)))
    }

    /// The book of a symbol, if it is that of the venue.
    #[must_use]
    pub fn book(&self, symbol: SymbolId) -> Option<&Book> {
        self.core.streams[self.core.stream(symbol, Channel::Book)?].book()
    }

    /// The venue's name of a symbol.
    #[must_use]
    pub fn name(&self, symbol: SymbolId) -> Option<&str> {
        self.core.symbols.get(symbol.index()).map(|symbol| &*symbol.name)
    }

    /// The copies of a symbol's trades so far.
    #[must_use]
    pub fn copies(&self, symbol: SymbolId) -> Option<Copies> {
        match &self.core.streams[self.core.stream(symbol, Channel::Trades)?].content {
            Content::Trades(tape) => Some(tape.copies()),
            Content::Book(_) => None,
        }
    }

    /// The connections, open or not, the oldest first.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.core.links.iter().map(|link| link.id)
    }

    /// The connections that carry a stream.
    pub fn links_of(&self, symbol: SymbolId, channel: Channel) -> impl Iterator<Item = LinkId> + '_ {
        let stream = self.core.stream(symbol, channel).map(|at| &self.core.streams[at]);
        stream.into_iter().flat_map(|stream| stream.subs.iter().map(|sub| sub.link))
    }

    /// The messages of a connection that wait for its budget, by [`Class`].
    #[must_use]
    pub fn waiting(&self, link: LinkId) -> [usize; 3] {
        self.core.links.iter().find(|one| one.id == link).map_or([0; 3], |link| link.outbox.waiting())
    }
}
