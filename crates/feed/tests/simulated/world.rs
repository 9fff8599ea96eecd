//! A feed and a venue in virtual time, and an oracle that compares them.

use crate::eyes::{Eyes, Report};
use crate::faults::{Arrival, Open};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tautline_feed::{
    Action, Binance, Book, Channel, Coinbase, Feed, FeedConfig, FetchId, Kraken, LinkId, Scale, Side, SymbolId, Time,
};
use tautline_measure::SplitMix;
use tautline_venue::{Access, Answer, End, Kind, Mark, Out, Payload, Quote, Setup, State, Venue};

/// Microseconds.
pub(crate) type Micros = u64;
pub(crate) const SECOND: Micros = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) time: Micros,
    pub(crate) symbols: usize,
    /// The mean time between two changes of a book.
    pub(crate) step: Micros,
    /// The age at which the venue ends connections.
    pub(crate) life: Micros,
    pub(crate) has_faults: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The connection that was requested at this URL is open, or refused.
    Opened(LinkId, String),
    Failed(LinkId),
    ToVenue(LinkId, String),
    ToClient(usize),
    Fetched(FetchId, usize, Option<u64>, String),
    Fetching(FetchId, usize, String),
    Step(usize),
    Trade(usize),
    Tick,
}

struct World {
    run: Run,
    now: Micros,
    feed: Feed,
    symbols: Vec<SymbolId>,
    venue: Venue,
    eyes: Eyes,
    queue: BinaryHeap<std::cmp::Reverse<(Micros, u64, Event)>>,
    queued: u64,
    /// Messages to the client.
    letters: Vec<Option<(u32, String, Mark)>>,
    /// The last update of each book that a connection was sent.
    sent: BTreeMap<(u32, usize), u64>,
    /// When the last message to each connection arrives: later ones do not pass it.
    busy_until: BTreeMap<u32, Micros>,
    random: SplitMix,
    /// The last update that each connection has brought for a symbol; connection 0 stands for all.
    known: BTreeMap<(u32, usize), u64>,
    open: BTreeSet<u32>,
}

/// Runs a feed against a venue, and panics if the oracle disagrees.
pub(crate) fn run(run: Run) -> Report {
    let mut random = SplitMix(run.seed);
    let copies = if random.below(3) == 0 { 2 } else { 1 };
    let mut config = FeedConfig::default();
    config.copies = copies;
    config.seed = run.seed;
    config.life = Some(Duration::from_micros(run.life * 3 / 4));
    // The venue allows few connections, and many of them fail here.
    let least = if run.kind == Kind::Kraken { run.symbols } else { 1 };
    config.streams = Some(least + random.below(2 * run.symbols));
    config.stale_after = Duration::from_secs(10).max(Duration::from_micros(run.step * 20));
    config.longest_wait = Duration::from_secs(5);
    config.fetch_within = Duration::from_secs(3);
    config.overlap = Duration::from_secs(2);
    let eyes = Eyes::new(run.kind, run.symbols, config.stale_after);
    let mut feed = match run.kind {
        Kind::Binance => Feed::new(Binance::new(), config),
        Kind::Coinbase => Feed::new(Coinbase::new(), config),
        Kind::Kraken => Feed::new(Kraken::new(), config),
    };
    let mut setup = Setup::new(run.kind, run.kind.names(run.symbols));
    (setup.seed, setup.width, setup.kept) = (random.next(), 15, 4000);
    setup.life = (run.kind == Kind::Binance).then_some(Duration::from_micros(run.life));
    let venue = Venue::new(setup);
    let scale = (run.kind == Kind::Binance).then_some(Scale::new(2, 4));
    let symbols: Vec<SymbolId> = venue.setup().symbols.iter().map(|name| feed.declare(name, scale)).collect();
    for symbol in &symbols {
        feed.subscribe(*symbol, Channel::Trades, Time::ZERO);
        feed.subscribe(*symbol, Channel::Book, Time::ZERO);
    }
    let (queue, letters, known, open) = (BinaryHeap::new(), Vec::new(), BTreeMap::new(), BTreeSet::new());
    let (sent, busy_until, queued) = (BTreeMap::new(), BTreeMap::new(), 0);
    World { run, now: 0, feed, symbols, venue, eyes, queue, queued, letters, sent, busy_until, random, known, open }
        .go()
}

impl World {
    fn time(&self) -> Time {
        Duration::from_micros(self.now)
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.queued += 1;
        self.queue.push(std::cmp::Reverse((at, self.queued, event)));
    }

    fn go(mut self) -> Report {
        for symbol in 0..self.run.symbols {
            self.at(1 + symbol as u64, Event::Step(symbol));
            self.at(2 + symbol as u64, Event::Trade(symbol));
        }
        self.at(SECOND, Event::Tick);
        loop {
            let due = u64::try_from(self.feed.next_due(self.time()).as_micros()).unwrap().max(self.now);
            let next = self.queue.peek().map_or(u64::MAX, |event| event.0.0);
            if due.min(next) > self.run.time {
                break;
            }
            // Faults end before the end, so that everything has to be right then.
            self.venue.set_faults(self.run.has_faults && self.now + 90 * SECOND < self.run.time);
            if next <= due {
                let Some(std::cmp::Reverse((at, _, event))) = self.queue.pop() else { break };
                self.now = at;
                self.happen(event);
            } else {
                self.now = due;
                let now = self.time();
                self.feed.handle_timeout(now, &mut self.eyes);
            }
            self.act();
        }
        self.judge();
        Report { faults: self.eyes.faults.counts, ..self.eyes.report }
    }

    fn happen(&mut self, event: Event) {
        let now = self.time();
        match event {
            Event::Opened(link, url) => {
                let access = Access { address: HOME, path: place(&url).0, query: "", has_key: false };
                if self.venue.admit(&access, now).is_ok() {
                    self.venue.open(link.number(), &access, now);
                    self.open.insert(link.number());
                    self.feed.opened(link, now, &mut self.eyes);
                } else {
                    self.feed.closed(link, now, &mut self.eyes);
                }
            }
            Event::Failed(link) => {
                self.open.remove(&link.number());
                self.feed.closed(link, now, &mut self.eyes);
                self.forget(link.number());
            }
            Event::ToVenue(link, text) => self.venue.receive(link.number(), text.as_bytes(), now),
            Event::ToClient(letter) => self.deliver(letter),
            Event::Fetching(fetch, symbol, url) => {
                let at = self.now + 10_000 + self.below(200_000);
                let (path, query) = place(&url);
                match self.venue.get(HOME, path, query, now).expect("the venue has snapshots") {
                    // Such a response never comes.
                    Answer { status: 504, .. } => {}
                    Answer { last, body, .. } => self.at(at, Event::Fetched(fetch, symbol, last, body)),
                }
            }
            Event::Fetched(fetch, symbol, last, body) => {
                let was_live = self.feed.book(self.symbols[symbol]).is_some();
                let result = if last.is_some() { Ok(body.as_bytes()) } else { Err(&*body) };
                self.feed.fetched(fetch, result, now, &mut self.eyes);
                if let Some(last) = last {
                    self.learn(0, symbol, last);
                    self.check(symbol);
                    self.eyes.faults.refresh(symbol, last, was_live);
                }
            }
            Event::Step(symbol) => {
                let live: BTreeSet<u32> = self.observers(symbol);
                let updates = 1 + self.below(4);
                self.venue.step(symbol, updates, now, &|link| live.contains(&link));
                let wait = self.below(self.run.step * 2);
                self.resume(wait, Event::Step(symbol));
            }
            Event::Trade(symbol) => {
                let traded = self.venue.trade(symbol, now);
                self.eyes.trades[symbol].insert(traded.number, traded);
                let wait = self.below(self.run.step * 4);
                self.resume(wait, Event::Trade(symbol));
            }
            Event::Tick => self.tick(),
        }
        for planted in self.venue.take_planted() {
            // The book as the client has it, without the change that is lost or late.
            let last = self.sent.get(&(planted.link, planted.symbol)).copied();
            let before = last.and_then(|last| self.market(planted.symbol).at(last)).cloned().unwrap_or_default();
            self.eyes.faults.plant(planted, self.letters.len(), before);
        }
    }

    /// The market rests at the end, so that everything has arrived then.
    fn resume(&mut self, wait: Micros, event: Event) {
        let at = self.now + wait;
        if at + 3 * SECOND < self.run.time {
            self.at(at, event);
        }
    }

    /// Connections on which a fault of a symbol's book has to be found.
    fn observers(&self, symbol: usize) -> BTreeSet<u32> {
        let id = self.symbols[symbol];
        let carriers: BTreeSet<u32> = self.feed.links_of(id, Channel::Book).map(LinkId::number).collect();
        // With numbers of updates, another connection covers what one has lost.
        let is_covered = self.run.kind == Kind::Binance && carriers.len() > 1;
        let is_open = self.eyes.faults.open.iter().any(|open| open.planted.symbol == symbol);
        if self.feed.book(id).is_none() || is_covered || is_open { BTreeSet::new() } else { carriers }
    }

    fn tick(&mut self) {
        let now = self.time();
        self.venue.tick(now);
        let limit = Duration::from_secs(120).max(Duration::from_micros(self.run.step * 200));
        for symbol in 0..self.run.symbols {
            for heard in self.eyes.heard[symbol] {
                if self.now + 4 * SECOND < self.run.time {
                    let silent = self.time() - heard;
                    assert!(silent < limit, "{symbol} is silent; {:?}; {:#?}", self.run, self.eyes.trail);
                }
            }
        }
        // A patience of ten seconds doubles if the venue forgets a subscription again.
        let longest = Duration::from_micros(45 * SECOND + self.run.step * 60);
        let old = self.eyes.faults.open.iter().find(|open| now - open.planted.at > longest);
        assert!(old.is_none(), "{old:?} was not found at {}; {:?}; {:#?}", self.now, self.run, self.eyes.trail);
        assert_eq!(self.venue.bans(), 0, "{:?}", self.run);
        self.at(self.now + SECOND, Event::Tick);
    }

    fn forget(&mut self, link: u32) {
        let missed = self.eyes.faults.end(link, self.time());
        self.assert_none(missed.as_ref());
        self.eyes.copies.retain(|(one, _)| *one != link);
        self.known.retain(|(one, _), _| *one != link);
    }

    fn learn(&mut self, link: u32, symbol: usize, last: u64) {
        let link = if self.run.kind == Kind::Binance { 0 } else { link };
        let known = self.known.entry((link, symbol)).or_default();
        // Kraken's changes have no order but that of their arrival, and its checksums no other one.
        *known = if self.run.kind == Kind::Kraken { last } else { (*known).max(last) };
    }

    fn deliver(&mut self, letter: usize) {
        let Some((link, text, mark)) = self.letters[letter].take() else { return };
        let is_dead = self.venue.is_dead(link);
        if !self.open.contains(&link) || is_dead {
            return;
        }
        let Some(id) = self.feed.links().find(|id| id.number() == link) else { return };
        let now = self.time();
        let mut was_live = false;
        if let Mark::Depth { symbol, last, is_snapshot } = mark {
            was_live = self.is_live(link, symbol);
            if is_snapshot {
                self.eyes.copies.insert((link, symbol));
            }
            self.learn(link, symbol, last);
        }
        self.eyes.message = Some((id, letter));
        self.feed.received(id, text.as_bytes(), now, &mut self.eyes);
        self.eyes.message = None;
        let mut is_live = false;
        if let Mark::Depth { symbol, .. } = mark {
            is_live = self.is_live(link, symbol);
            self.check(symbol);
        }
        let arrival = Arrival { link, letter, mark, text: &text, was_live, is_live };
        let missed = self.eyes.faults.weigh(&arrival, &self.venue);
        self.assert_none(missed.as_ref());
    }

    /// Whether the copy of a book that a connection changes is up to date.
    fn is_live(&self, link: u32, symbol: usize) -> bool {
        match self.run.kind {
            Kind::Binance => self.feed.book(self.symbols[symbol]).is_some(),
            Kind::Coinbase | Kind::Kraken => self.eyes.copies.contains(&(link, symbol)),
        }
    }

    fn assert_none(&self, missed: Option<&Open>) {
        assert!(missed.is_none(), "{missed:?} was missed at {}; {:?}; {:#?}", self.now, self.run, self.eyes.trail);
    }

    /// The book is that of the venue at an update that has come, or is being rebuilt.
    fn check(&mut self, symbol: usize) {
        let Some(book) = self.feed.book(self.symbols[symbol]) else {
            assert!(!self.eyes.live[symbol], "nobody was told that the book is rebuilt");
            return;
        };
        assert!(self.eyes.live[symbol]);
        let ours = state(book);
        let known = self.known.iter().filter(|((_, one), _)| *one == symbol);
        let is_right = known.clone().any(|(_, last)| self.market(symbol).at(*last) == Some(&ours));
        let known: Vec<_> = known.collect();
        assert!(is_right, "book {symbol} is wrong at {}: {known:?}, {:?}; {:#?}", self.now, self.run, self.eyes.trail);
        self.eyes.report.checks += 1;
    }

    fn act(&mut self) {
        while let Some(action) = self.feed.poll_action() {
            let later = |world: &mut Self, least: u64| world.now + least + world.below(30_000);
            match action {
                Action::Connect { link, url } => {
                    let at = later(self, 30_000);
                    self.at(at, Event::Opened(link, url));
                }
                Action::Send { link, text, .. } => {
                    // All messages of a connection take the same time, so that they stay in order.
                    let at = self.now + 10_000 + u64::from(link.number() % 20) * 1000;
                    self.at(at, Event::ToVenue(link, text));
                }
                Action::Close { link, .. } => {
                    self.open.remove(&link.number());
                    self.venue.closed(link.number());
                    self.forget(link.number());
                }
                Action::FetchSnapshot { fetch, symbol, url } => {
                    let at = later(self, 10_000);
                    self.at(at, Event::Fetching(fetch, symbol.index(), url));
                }
                _ => unreachable!(),
            }
        }
        while let Some(out) = self.venue.poll_out() {
            match out {
                Out::Message { link, payload: Payload::Text(text), mark } => {
                    let latency = 5_000 + self.below(25_000);
                    let busy = self.busy_until.entry(link).or_default();
                    *busy = (self.now + latency).max(*busy + 1);
                    let at = *busy;
                    if let Mark::Depth { symbol, last, .. } = mark {
                        let sent = self.sent.entry((link, symbol)).or_default();
                        *sent = last.max(*sent);
                    }
                    self.letters.push(Some((link, text, mark)));
                    self.at(at, Event::ToClient(self.letters.len() - 1));
                }
                Out::Close { link, end: End::Lost } => {
                    let at = self.now + 40_000;
                    let id = self.feed.links().find(|id| id.number() == link);
                    if let Some(id) = id {
                        self.at(at, Event::Failed(id));
                    }
                }
                other => panic!("{other:?} is the client's fault; {:?}", self.run),
            }
        }
    }

    fn market(&self, symbol: usize) -> &tautline_venue::Book {
        self.venue.book(symbol).expect("all symbols have books")
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn judge(&self) {
        for symbol in 0..self.run.symbols {
            let book = self.feed.book(self.symbols[symbol]);
            let ours = book.map(state);
            let theirs = self.market(symbol).state();
            assert_eq!(ours.as_ref(), Some(&theirs), "{:?}; {:#?}", self.run, self.eyes.trail);
            let (got, missing) = (&self.eyes.got[symbol], &self.eyes.missing[symbol]);
            let first = *got.first().expect("trades came");
            let all = self.eyes.trades[symbol].range(first..).map(|(number, _)| *number);
            if self.run.kind != Kind::Coinbase {
                let lost: Vec<u64> = all.filter(|number| !got.contains(number) && !missing.contains(number)).collect();
                assert!(lost.is_empty(), "{lost:?} of {symbol} are lost; {:?}", self.run);
            }
        }
        let open = &self.eyes.faults.open;
        assert!(open.is_empty(), "{open:?} were not found; {:?}", self.run);
        self.eyes.faults.counts.check(self.run.kind);
    }
}

/// The client's address.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Path and query of a URL.
fn place(url: &str) -> (&str, &str) {
    let host = url.split_once("://").expect("a URL has a scheme").1;
    let target = host.find('/').map_or("/", |at| &host[at..]);
    target.split_once('?').unwrap_or((target, ""))
}

/// A book in hundredths and ten-thousandths.
fn state(book: &Book) -> State {
    let Scale { price, quantity } = book.scale();
    let (price, quantity) = (10_i64.pow(u32::from(price) - 2), 10_i64.pow(u32::from(quantity) - 4));
    let side = |side: Side| -> Vec<Quote> {
        book.levels(side).map(|quote| (quote.price / price, quote.quantity / quantity)).collect()
    };
    State { bids: side(Side::Bid), asks: side(Side::Ask) }
}
