//! A recording of a feed, replayed through the feed's own code, shows the application what it saw live.

use std::collections::VecDeque;
use std::time::Duration;
use tautline_feed::json::Scanner;
use tautline_feed::record::{Chunk, Direction, Event, Kind, PREAMBLE, Pace, Replay, Sealer};
use tautline_feed::{
    Action, Binance, Book, Channel, Feed, FeedConfig, FetchId, LinkId, Listener, Notice, Player, Scale, Side, SymbolId,
    Time, Trade,
};

/// All that the application sees, with its times.
#[derive(Default)]
struct Log(Vec<String>);

impl Listener for Log {
    fn on_trade(&mut self, _: SymbolId, trade: &Trade<'_>, now: Time) {
        self.0.push(format!("{now:?} trade {} at {}", trade.number, trade.price));
    }
    fn on_book(&mut self, _: SymbolId, book: &Book, now: Time) {
        self.0.push(format!("{now:?} book {:?} {:?}", book.best(Side::Bid), book.best(Side::Ask)));
    }
    fn on_notice(&mut self, notice: Notice<'_>, now: Time) {
        self.0.push(format!("{now:?} {notice:?}"));
    }
}

/// A feed that events drive, whether they happen now or have been recorded.
struct Driver {
    feed: Feed,
    log: Log,
    links: Vec<LinkId>,
    fetches: VecDeque<FetchId>,
    /// Messages that the feed has sent, with their connections.
    sent: VecDeque<(u32, String)>,
}

impl Driver {
    fn new() -> Self {
        let mut feed = Feed::new(Binance::new(), FeedConfig::default());
        let symbol = feed.declare("BTCUSDT", Some(Scale::new(2, 5)));
        feed.subscribe(symbol, Channel::Trades, Time::ZERO);
        feed.subscribe(symbol, Channel::Book, Time::ZERO);
        Self { feed, log: Log::default(), links: Vec::new(), fetches: VecDeque::new(), sent: VecDeque::new() }
    }

    /// Lets the feed do what is due until a moment.
    fn pass(&mut self, until: Time) {
        let mut now = Time::ZERO;
        while self.feed.next_due(now) <= until {
            now = self.feed.next_due(now).max(now);
            self.feed.handle_timeout(now, &mut self.log);
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.feed.poll_action() {
            match action {
                Action::Connect { link, .. } => self.links.push(link),
                Action::Send { link, text, .. } => self.sent.push_back((link.number(), text)),
                Action::FetchSnapshot { fetch, .. } => self.fetches.push_back(fetch),
                other => panic!("{other:?}"),
            }
        }
    }

    fn handle(&mut self, event: &Event<'_>) {
        let now = Duration::from_nanos(event.at);
        self.pass(now);
        let link = *self.links.iter().find(|link| link.number() == event.connection).unwrap();
        match (event.direction, event.kind) {
            (_, Kind::Opened) => self.feed.opened(link, now, &mut self.log),
            (Direction::In, Kind::Http) => {
                let fetch = self.fetches.pop_front().unwrap();
                self.feed.fetched(fetch, Ok(event.payload), now, &mut self.log);
            }
            (Direction::In, _) => self.feed.received(link, event.payload, now, &mut self.log),
            (Direction::Out, _) => {
                let sent = self.sent.pop_front().unwrap();
                assert_eq!((sent.0, sent.1.as_bytes()), (event.connection, event.payload), "it sends what it sent");
            }
        }
        self.act();
    }
}

/// A driver of a feed, and the recording of its events.
struct Live {
    driver: Driver,
    now: Time,
    chunk: Chunk,
}

impl Live {
    fn event(&mut self, direction: Direction, kind: Kind, payload: &[u8]) {
        self.now += Duration::from_millis(3);
        let at = u64::try_from(self.now.as_nanos()).unwrap();
        let event = Event { at, connection: self.driver.links[0].number(), direction, kind, payload };
        self.chunk.push(&event).unwrap();
        self.driver.handle(&event);
    }

    fn receive(&mut self, text: &str) {
        self.event(Direction::In, Kind::Text, text.as_bytes());
        self.answer();
    }

    /// Confirms requests, and answers fetches with a snapshot up to this number.
    fn answer(&mut self) {
        while let Some((_, text)) = self.driver.sent.front().cloned() {
            self.event(Direction::Out, Kind::Text, text.as_bytes());
            let id = format!("{{\"result\":null,\"id\":{}}}", id(&text));
            self.event(Direction::In, Kind::Text, id.as_bytes());
        }
    }

    fn snapshot(&mut self, last: u64) {
        let bids = r#"[["10.00","1.00000"],["9.99","2.00000"]]"#;
        let text = format!(r#"{{"lastUpdateId":{last},"bids":{bids},"asks":[["10.02","1.00000"]]}}"#);
        self.event(Direction::In, Kind::Http, text.as_bytes());
    }

    fn depth(&mut self, first: u64, bid: &str) {
        let last = first + 1;
        self.receive(&format!(
            r#"{{"e":"depthUpdate","E":1,"s":"BTCUSDT","U":{first},"u":{last},"b":[["{bid}","3.00000"]],"a":[]}}"#
        ));
    }
}

fn id(text: &str) -> u64 {
    let mut json = Scanner::new(text.as_bytes());
    json.begin_object().unwrap();
    while let Some(key) = json.next_key().unwrap() {
        if key == b"id" {
            return json.u64().unwrap();
        }
        json.skip().unwrap();
    }
    panic!("no number in {text}")
}

/// A feed with trades, a book from a snapshot, a gap and its remedy.
fn live() -> (Vec<String>, Vec<u8>) {
    let mut live = Live { driver: Driver::new(), now: Duration::from_secs(1), chunk: Chunk::default() };
    live.driver.pass(live.now);
    live.event(Direction::In, Kind::Opened, b"");
    live.now += Duration::from_secs(1);
    live.driver.pass(live.now);
    live.answer();
    live.receive(r#"{"e":"trade","E":1,"s":"BTCUSDT","t":7,"p":"10.01","q":"1.00000","T":1,"m":true,"M":true}"#);
    live.depth(101, "9.98");
    live.now += Duration::from_secs(1);
    live.driver.pass(live.now);
    live.snapshot(101);
    live.depth(103, "10.01");
    live.depth(107, "9.00");
    live.now += Duration::from_secs(1);
    live.driver.pass(live.now);
    live.snapshot(108);
    live.depth(109, "9.97");
    let mut bytes = PREAMBLE.to_vec();
    Sealer::new(1).unwrap().seal(&live.chunk, &mut bytes).unwrap();
    (live.driver.log.0, bytes)
}

#[test]
fn a_replay_shows_what_was_seen_live() {
    let (seen, recording) = live();
    let count = |word: &str| seen.iter().filter(|line| line.contains(word)).count();
    assert!(count("trade 7 at 10.01") == 1 && count("Rebuilding") >= 1 && count("Live") == 2, "{seen:#?}");
    let (mut driver, mut replay, mut pace) = (Driver::new(), Replay::new(&recording[..]).unwrap(), Pace::times(1000.0));
    driver.pass(Duration::from_secs(1));
    let mut due = Duration::ZERO;
    while let Some(event) = replay.next().unwrap() {
        due = pace.due(event.at);
        driver.handle(&event);
    }
    assert_eq!(driver.log.0, seen);
    assert!(driver.sent.is_empty());
    // Three seconds and some milliseconds, a thousand times as fast.
    assert!((3..4).contains(&due.as_millis()), "{due:?}");
}

#[test]
fn a_replay_says_where_records_are_missing() {
    let mut player = Player::new(Feed::new(Binance::new(), FeedConfig::default()), Log::default());
    let payload = &7_u64.to_le_bytes();
    player.play(&Event { at: 1, connection: 0, direction: Direction::In, kind: Kind::Lost, payload });
    assert_eq!(player.listener().0, ["1ns Unrecorded { events: 7, error: None }"]);
    assert!(player.passed() == 0 && !player.has_begun());
}
