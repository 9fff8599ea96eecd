//! A feed whose other side is the test.

use crate::toy::Toy;
use std::time::Duration;
use tautline_feed::{
    Action, Book, Channel, Class, Feed, FeedConfig, FetchId, LinkId, Listener, Notice, Scale, Side, SymbolId, Time,
    Trade,
};

/// The events that the application has seen, a line for each event.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Vec<String>);

impl Listener for Log {
    fn on_trade(&mut self, symbol: SymbolId, trade: &Trade<'_>, _: Time) {
        self.0.push(format!("trade {} {}", symbol.index(), trade.number));
    }
    fn on_book(&mut self, symbol: SymbolId, book: &Book, _: Time) {
        let bid = book.best(Side::Bid).map_or(0, |quote| quote.quantity);
        self.0.push(format!("book {} {bid}", symbol.index()));
    }
    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        let line = match notice {
            Notice::Connected { link } => format!("connected {}", link.number()),
            Notice::Disconnected { link } => format!("disconnected {}", link.number()),
            Notice::Silent { link } => format!("silent {}", link.number()),
            Notice::Replacing { link } => format!("replacing {}", link.number()),
            Notice::Replaced { link, by } => format!("replaced {} by {}", link.number(), by.number()),
            Notice::Unconfirmed { symbol, .. } => format!("unconfirmed {}", symbol.index()),
            Notice::Stale { symbol, .. } => format!("stale {}", symbol.index()),
            Notice::Rejected { symbol, reason, .. } => {
                format!("rejected {} {reason}", symbol.map_or(99, |symbol| symbol.index()))
            }
            Notice::Second { first, second, behind, .. } => {
                format!("second {} {} {behind:?}", first.number(), second.number())
            }
            Notice::MissingTrades { numbers, .. } => format!("missing {numbers:?}"),
            Notice::Rebuilding { symbol, fault } => format!("rebuilding {}: {fault}", symbol.index()),
            Notice::Live { symbol } => format!("live {}", symbol.index()),
            Notice::SnapshotFailed { symbol, reason } => format!("failed {} {reason}", symbol.index()),
            Notice::Undecodable { error, .. } => format!("undecodable: {error}"),
            other => panic!("{other:?}"),
        };
        self.0.push(line);
    }
}

pub(crate) struct Play {
    pub(crate) feed: Feed,
    pub(crate) now: Time,
    pub(crate) log: Log,
    pub(crate) symbols: Vec<SymbolId>,
    pub(crate) links: Vec<LinkId>,
    pub(crate) fetches: Vec<FetchId>,
    /// The feed's actions, a line for each.
    done: Vec<String>,
}

impl Play {
    /// A feed of these streams of one channel, with its connections opened.
    pub(crate) fn new(config: FeedConfig, channel: Channel, symbols: usize) -> Self {
        let mut feed = Feed::new(Toy::new(), config);
        let symbols: Vec<_> = (0..symbols).map(|at| feed.declare(&format!("S{at}"), Some(Scale::new(0, 0)))).collect();
        symbols.iter().for_each(|symbol| feed.subscribe(*symbol, channel, Time::ZERO));
        let (now, log) = (Duration::from_secs(100), Log::default());
        Self { feed, now, log, symbols, links: Vec::new(), fetches: Vec::new(), done: Vec::new() }
    }

    /// Lets time pass in steps of ten milliseconds, and opens the connections that the feed wants.
    pub(crate) fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.act();
            self.now += Duration::from_millis(10);
            if self.feed.next_due(self.now) <= self.now {
                self.feed.handle_timeout(self.now, &mut self.log);
            }
        }
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.feed.poll_action() {
            match action {
                Action::Connect { link, .. } => {
                    self.links.push(link);
                    self.feed.opened(link, self.now, &mut self.log);
                }
                Action::Send { link, text, class, .. } => {
                    assert_eq!(class == Class::Subscription, text.contains("sub"), "{text}");
                    self.done.push(format!("{} {text}", link.number()));
                }
                Action::Close { link, .. } => self.done.push(format!("close {}", link.number())),
                Action::FetchSnapshot { fetch, symbol, .. } => {
                    self.fetches.push(fetch);
                    self.done.push(format!("fetch {}", symbol.index()));
                }
                _ => unreachable!(),
            }
        }
    }

    /// A message of the venue on the connection with this number.
    pub(crate) fn say(&mut self, link: u32, text: &str) {
        let link = *self.links.iter().find(|one| one.number() == link).unwrap();
        self.feed.received(link, text.as_bytes(), self.now, &mut self.log);
        self.act();
    }

    /// Confirms all requests that were sent since the last look, and returns what was done.
    pub(crate) fn confirm(&mut self) -> Vec<String> {
        self.pass(100);
        let done = self.done();
        for line in &done {
            let words: Vec<_> = line.split(' ').collect();
            if words.get(1) == Some(&"sub") {
                self.say(words[0].parse().unwrap(), &format!("ok {}", words[3]));
            }
        }
        done
    }

    /// The actions since the last look, but for those that keep connections.
    pub(crate) fn done(&mut self) -> Vec<String> {
        let mut done = std::mem::take(&mut self.done);
        done.retain(|line| !line.ends_with(" alive"));
        done
    }

    /// The events since the last look.
    pub(crate) fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log.0)
    }
}
