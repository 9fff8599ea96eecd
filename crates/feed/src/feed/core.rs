//! The state of a feed.

use crate::Time;
use crate::action::Action;
use crate::book::{Book, Scale};
use crate::config::{FeedConfig, Random};
use crate::ids::{FetchId, LinkId, SymbolId};
use crate::message::Channel;
use crate::names::Names;
use crate::outbox::Outbox;
use crate::race::Race;
use crate::rate::Bucket;
use crate::replica::{Replica, Sequence};
use crate::tape::Tape;
use crate::venue::Facts;
use std::collections::VecDeque;
use std::time::Duration;

/// The time without a fault after which the next one counts as the first.
const CALM: Duration = Duration::from_secs(60);

/// Everything of a feed but its venue.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: FeedConfig,
    pub(crate) facts: Facts,
    pub(crate) checksum: Option<fn(&Book) -> u32>,
    pub(crate) random: Random,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) names: Names,
    pub(crate) streams: Vec<Stream>,
    pub(crate) lanes: Vec<Lane>,
    /// The connections that exist or are being opened, the oldest first.
    pub(crate) links: Vec<Link>,
    pub(crate) connects: Bucket,
    pub(crate) address: Option<Bucket>,
    pub(crate) snapshots: Bucket,
    /// Streams that connections are to unsubscribe.
    pub(crate) unsubscribes: Vec<(LinkId, usize)>,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) last_link: u32,
    pub(crate) last_request: u64,
    pub(crate) last_fetch: u64,
    /// When all deadlines are looked at next.
    pub(crate) sweep_at: Time,
}

#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: Box<str>,
    pub(crate) scale: Option<Scale>,
    /// The places of its streams, by channel.
    pub(crate) streams: [Option<usize>; 2],
}

/// A channel of a symbol.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) symbol: SymbolId,
    pub(crate) channel: Channel,
    /// Its lanes, one for each copy.
    pub(crate) lanes: Vec<usize>,
    /// The lane that it leaves as soon as the last of `lanes` delivers it.
    pub(crate) leaves: Option<usize>,
    pub(crate) subs: Vec<Sub>,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Trades(Box<Tape>),
    Book(Box<Shown>),
}

/// The book of a stream, as the application sees it.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The one copy for all connections, with [`Sequence::Updates`]. Otherwise each subscription has one.
    pub(crate) shared: Option<Replica>,
    /// The connection whose copy is shown, if there is no shared one.
    pub(crate) active: Option<LinkId>,
    /// Whether the application was told that the book is up to date.
    pub(crate) is_live: bool,
    /// The request for a snapshot that runs, and its deadline.
    pub(crate) fetch: Option<(FetchId, Time)>,
    /// No snapshot is requested before.
    pub(crate) fetch_at: Time,
    pub(crate) fetch_failures: u32,
    /// Faults that followed each other soon, and when the last one was.
    pub(crate) faults: u32,
    pub(crate) last_fault: Time,
    /// The connections that brought the last updates of the shared copy.
    pub(crate) race: Race,
}

/// A stream on a connection.
#[derive(Debug)]
pub(crate) struct Sub {
    pub(crate) link: LinkId,
    pub(crate) state: SubState,
    /// When its last message came.
    pub(crate) heard: Option<Time>,
    /// Requests in a row that were not confirmed.
    pub(crate) tries: u32,
    /// The silence after which it is stale.
    pub(crate) patience: Duration,
    pub(crate) replica: Option<Replica>,
}

/// ```text
///   Wanted ──request queued──► Asked ──confirmed──► Confirmed
///     ▲                          │ late, rejected       │ stale, broken
///     └──────────────────────────┴──────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubState {
    /// To be requested, but not before a time. If it `renews`, it is unsubscribed first.
    Wanted {
        at: Time,
        renews: bool,
    },
    /// Requested; the time of sending is known once the budget has let the request pass.
    Asked {
        request: u64,
        sent: Option<Time>,
    },
    Confirmed {
        at: Time,
    },
}

/// A place for a connection, which outlives it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Which of the copies its streams are.
    pub(crate) plane: usize,
    /// Streams that are on it.
    pub(crate) streams: usize,
    /// No other streams are placed on it.
    pub(crate) is_private: bool,
    pub(crate) primary: Option<LinkId>,
    /// The connection that will replace the primary one.
    pub(crate) successor: Option<LinkId>,
    pub(crate) retry_at: Time,
    pub(crate) failures: u32,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) lane: usize,
    pub(crate) opened: Option<Time>,
    /// When its last message came, or it opened.
    pub(crate) heard: Time,
    pub(crate) replace_at: Option<Time>,
    pub(crate) keep_alive_at: Option<Time>,
    /// The number of the next message.
    pub(crate) number: Option<u64>,
    /// Numbers below it, in a row.
    pub(crate) old: u32,
    pub(crate) outbox: Outbox,
}

impl Core {
    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == id)
    }

    /// The place of a stream.
    pub(crate) fn stream(&self, symbol: SymbolId, channel: Channel) -> Option<usize> {
        self.symbols.get(symbol.index())?.streams[channel as usize]
    }

    /// The place of a stream by the venue's name of its symbol.
    pub(crate) fn stream_named(&self, name: &str, channel: Channel) -> Option<usize> {
        self.stream(*self.names.get(name)?, channel)
    }

    /// A new copy of a stream's book.
    pub(crate) fn replica(&self, symbol: SymbolId) -> Replica {
        let declared = self.symbols.get(symbol.index()).and_then(|symbol| symbol.scale).or(self.facts.scale);
        let book = Book::new(declared.unwrap_or(Scale::new(0, 0)), self.facts.depth);
        Replica::new(book, self.facts.sequence, declared.is_none(), self.checksum)
    }

    /// A new subscription of a stream.
    pub(crate) fn sub(&self, stream: usize, link: LinkId, now: Time) -> Sub {
        let Stream { symbol, channel, .. } = self.streams[stream];
        let own = channel == Channel::Book && self.facts.sequence != Sequence::Updates;
        Sub {
            link,
            state: SubState::Wanted { at: now, renews: false },
            heard: None,
            tries: 0,
            patience: self.config.stale_after,
            replica: own.then(|| self.replica(symbol)),
        }
    }
}

impl Stream {
    pub(crate) fn sub(&mut self, link: LinkId) -> Option<&mut Sub> {
        self.subs.iter_mut().find(|sub| sub.link == link)
    }

    /// The copy of the book that is shown, if it is up to date.
    pub(crate) fn book(&self) -> Option<&Book> {
        let Content::Book(shown) = &self.content else { return None };
        if let Some(shared) = &shown.shared {
            return shared.book();
        }
        let active = self.subs.iter().find(|sub| Some(sub.link) == shown.active)?;
        active.replica.as_ref()?.book()
    }

    pub(crate) fn is_confirmed_on(&self, link: LinkId) -> bool {
        self.subs.iter().any(|sub| sub.link == link && matches!(sub.state, SubState::Confirmed { .. }))
    }

    /// Whether a connection delivers the stream, or has nothing to deliver of it.
    pub(crate) fn is_delivered_by(&self, link: LinkId, now: Time, overlap: Duration) -> bool {
        let Some(sub) = self.subs.iter().find(|sub| sub.link == link) else { return false };
        let SubState::Confirmed { at } = sub.state else { return false };
        if let Some(replica) = &sub.replica {
            return replica.is_live();
        }
        let is_behind = matches!(&self.content, Content::Book(shown)
            if shown.shared.as_ref().is_some_and(|shared| !shared.is_live()));
        !is_behind && sub.heard.is_some() || now.saturating_sub(at) >= overlap
    }
}

impl Shown {
    pub(crate) fn new(shared: Option<Replica>) -> Self {
        Self {
            shared,
            active: None,
            is_live: false,
            fetch: None,
            fetch_at: Time::ZERO,
            fetch_failures: 0,
            faults: 0,
            last_fault: Time::ZERO,
            race: Race::new(),
        }
    }

    /// The wait before the remedy of a fault: none at first. A venue whose books stay wrong is not asked without end.
    pub(crate) fn wait_after_fault(&mut self, now: Time, config: &FeedConfig, random: &mut Random) -> Duration {
        if now.saturating_sub(self.last_fault) > CALM {
            self.faults = 0;
        }
        self.last_fault = now;
        self.faults += 1;
        if self.faults == 1 { Duration::ZERO } else { config.wait(self.faults - 1, random) }
    }

    /// A snapshot has failed: the next one is requested after a wait.
    pub(crate) fn fail(&mut self, now: Time, config: &FeedConfig, random: &mut Random) {
        self.fetch_failures += 1;
        self.fetch_at = now + config.wait(self.fetch_failures, random);
    }
}

impl SubState {
    /// Whether the venue may send the stream.
    pub(crate) const fn may_deliver(self) -> bool {
        !matches!(self, Self::Wanted { renews: false, .. })
    }
}

impl Sub {
    /// Has it unsubscribed and subscribed again after a wait.
    pub(crate) fn renew(&mut self, at: Time) {
        self.state = SubState::Wanted { at, renews: true };
    }

    /// The last sign of it.
    pub(crate) fn last_sign(&self) -> Option<Time> {
        match self.state {
            SubState::Confirmed { at } => Some(self.heard.map_or(at, |heard| heard.max(at))),
            _ => None,
        }
    }
}
