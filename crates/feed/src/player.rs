//! A recording of a connector, run through a feed.

use crate::Time;
use crate::action::Action;
use crate::feed::Feed;
use crate::ids::{FetchId, LinkId};
use crate::journal::{BEGUN, FAILED, TIMEOUT};
use crate::notice::{Listener, Notice};
use crate::record::{Direction, Event, Kind};
use std::collections::VecDeque;

/// Runs the events of a recording of [`Connector::with_recorder`](crate::Connector::with_recorder) through a feed: the code that
/// ran live, at the times of then.
///
/// Give it a feed with the venue, settings and streams of then. With others, connections that it does not ask for are passed.
///
/// ```no_run
/// use tautline_feed::record::Replay;
/// use tautline_feed::{Binance, Channel, Feed, FeedConfig, Listener, Player, Time};
///
/// struct Strategy;
/// impl Listener for Strategy {}
///
/// let mut feed = Feed::new(Binance::new(), FeedConfig::default());
/// let symbol = feed.declare("BTCUSDT", None);
/// feed.subscribe(symbol, Channel::Book, Time::ZERO);
/// let (mut player, mut replay) = (Player::new(feed, Strategy), Replay::open("btcusdt.rec")?);
/// while let Some(event) = replay.next()? {
///     player.play(&event);
/// }
/// println!("{:?}", player.feed().book(symbol));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Player<L> {
    feed: Feed,
    listener: L,
    begun: u64,
    /// Connections and fetches that the feed has asked for.
    links: Vec<LinkId>,
    fetches: VecDeque<FetchId>,
    passed: u64,
}

impl<L: Listener> Player<L> {
    /// A player at the beginning of a recording.
    #[must_use]
    pub const fn new(feed: Feed, listener: L) -> Self {
        Self { feed, listener, begun: 0, links: Vec::new(), fetches: VecDeque::new(), passed: 0 }
    }

    /// Plays an event.
    pub fn play(&mut self, event: &Event<'_>) {
        if event.kind == BEGUN {
            self.begun = event.at;
            return;
        }
        let now = Time::from_nanos(event.at.saturating_sub(self.begun));
        if event.direction == Direction::In && !self.take(event, now) {
            self.passed += 1;
        }
        while let Some(action) = self.feed.poll_action() {
            match action {
                Action::Connect { link, .. } => self.links.push(link),
                Action::FetchSnapshot { fetch, .. } => self.fetches.push_back(fetch),
                Action::Close { link, .. } => self.links.retain(|one| *one != link),
                Action::Send { .. } => {}
            }
        }
    }

    /// False if the feed has not asked for the connection or the fetch of the event.
    fn take(&mut self, event: &Event<'_>, now: Time) -> bool {
        let Self { feed, listener, .. } = self;
        match event.kind {
            TIMEOUT => {
                feed.handle_timeout(now, listener);
                return true;
            }
            Kind::Http | FAILED => {
                let Some(place) = self.fetches.iter().position(|fetch| fetch.number() == event.connection) else {
                    return false;
                };
                let reason = String::from_utf8_lossy(event.payload);
                let result = if event.kind == FAILED { Err(&*reason) } else { Ok(event.payload) };
                if let Some(fetch) = self.fetches.remove(place) {
                    feed.fetched(fetch, result, now, listener);
                }
                return true;
            }
            Kind::Lost => {
                let events = event.lost().unwrap_or_default();
                listener.on_notice(Notice::Unrecorded { events, error: None }, now);
                return true;
            }
            _ => {}
        }
        let link = self.links.iter().find(|link| link.number() == event.connection).copied();
        let Some(link) = link else { return false };
        match event.kind {
            Kind::Opened => feed.opened(link, now, listener),
            Kind::Text | Kind::Binary => {
                feed.received(link, event.payload, now, listener);
                listener.on_handled(None);
            }
            Kind::Closed => {
                self.links.retain(|one| *one != link);
                feed.closed(link, now, listener);
            }
            _ => {}
        }
        true
    }

    /// The feed.
    #[must_use]
    pub const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The application's part.
    pub const fn listener(&mut self) -> &mut L {
        &mut self.listener
    }

    /// Whether the beginning of a connector's recording was played.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun != 0
    }

    /// Events of connections and fetches that the feed has not asked for.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }
}
