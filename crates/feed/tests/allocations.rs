//! A million messages cause no allocation in a feed whose books are warm, from the bytes to the best bid and offer.
#![expect(clippy::panic, clippy::cast_possible_truncation, reason = "all of this runs inside tests")]

#[path = "../../testkit/counting/sys.rs"]
mod counting;

use counting::allocations;
use std::fmt::Write;
use std::time::Duration;
use tautline_feed::{
    Action, Binance, Book, Channel, Coinbase, Feed, FeedConfig, Kraken, Listener, Notice, Scale, Side, SymbolId, Time,
    Trade, Venue,
};

const NOW: Time = Duration::from_secs(1);

#[derive(Default)]
struct Count {
    trades: u64,
    books: u64,
    best: i64,
}

impl Listener for Count {
    fn on_trade(&mut self, _: SymbolId, _: &Trade<'_>, _: Time) {
        self.trades += 1;
    }
    fn on_book(&mut self, _: SymbolId, book: &Book, _: Time) {
        self.books += 1;
        for side in [Side::Bid, Side::Ask] {
            self.best += book.best(side).map_or(0, |quote| quote.price);
        }
    }
    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        match notice {
            Notice::Connected { .. } | Notice::Live { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Opens a feed of one symbol, has its subscriptions confirmed by `confirm` and its book snapshot by `snapshot`.
fn open(
    venue: impl Venue + 'static,
    name: &str,
    scale: Option<Scale>,
    before: &[&str],
    fetched: Option<&str>,
) -> Opened {
    let mut feed = Feed::new(venue, FeedConfig::default());
    let symbol = feed.declare(name, scale);
    feed.subscribe(symbol, Channel::Trades, NOW);
    feed.subscribe(symbol, Channel::Book, NOW);
    let mut count = Count::default();
    feed.handle_timeout(NOW, &mut count);
    let Some(Action::Connect { link, .. }) = feed.poll_action() else { panic!("no connection") };
    feed.opened(link, NOW, &mut count);
    let mut opened = Opened { feed, count, link };
    before.iter().for_each(|text| opened.receive(text));
    opened.feed.handle_timeout(NOW + Duration::from_millis(60), &mut opened.count);
    while let Some(action) = opened.feed.poll_action() {
        if let (Action::FetchSnapshot { fetch, .. }, Some(body)) = (action, fetched) {
            opened.feed.fetched(fetch, Ok(body.as_bytes()), NOW, &mut opened.count);
        }
    }
    assert!(opened.feed.book(symbol).is_some());
    opened
}

struct Opened {
    feed: Feed,
    count: Count,
    link: tautline_feed::LinkId,
}

impl Opened {
    fn receive(&mut self, text: &str) {
        self.feed.received(self.link, text.as_bytes(), NOW, &mut self.count);
    }

    /// Receives a change of the book and a trade in turn. After a tenth of the messages, none may allocate.
    ///
    /// `write` writes both messages of a number into texts that exist already.
    fn measure(&mut self, mut write: impl FnMut(u64, [&mut String; 2])) {
        let (mut book, mut trade) = (String::with_capacity(4096), String::with_capacity(4096));
        let mut start = (0, 0, 0);
        for at in 1..=MESSAGES / 2 {
            if at == MESSAGES / 20 {
                start = (allocations(), self.count.trades, self.count.books);
            }
            book.clear();
            trade.clear();
            write(at, [&mut book, &mut trade]);
            self.receive(&book);
            self.receive(&trade);
        }
        let (before, trades, books) = start;
        let made = allocations() - before;
        let each = MESSAGES / 2 - MESSAGES / 20 + 1;
        assert_eq!((self.count.trades - trades, self.count.books - books), (each, each));
        assert_eq!(made, 0, "{} messages have allocated", 2 * each);
    }
}

/// Two bids and two offers that come and go around one price, so that levels are added, changed and removed.
fn levels(at: u64) -> [(u64, u64); 4] {
    let quantity = |of: u64| if (at / 3 + of).is_multiple_of(3) { 0 } else { 1 + at % 1000 };
    let (near, far) = (at % 7, at % 90);
    [(999 - near, quantity(1)), (999 - far, quantity(2)), (1000 + near, quantity(3)), (1000 + far, quantity(4))]
}

const MESSAGES: u64 = 1_200_000;

#[test]
fn binance_does_not_allocate() {
    let confirmed = [r#"{"result":null,"id":1}"#, r#"{"result":null,"id":2}"#];
    let snapshot = r#"{"lastUpdateId":0,"bids":[["1.00","1"]],"asks":[["2000.00","1"]]}"#;
    let mut opened = open(Binance::new(), "BTCUSDT", Some(Scale::new(2, 2)), &confirmed, Some(snapshot));
    opened.measure(|at, [book, trade]| {
        let _ = write!(book, r#"{{"e":"depthUpdate","E":1672515782136,"s":"BTCUSDT","U":{at},"u":{at},"b":"#);
        for (place, (price, quantity)) in levels(at).into_iter().enumerate() {
            let before = ["[", ",", r#"],"a":["#, ","][place];
            let _ = write!(book, r#"{before}["{price}.00","{quantity}.00"]"#);
        }
        let _ = write!(book, "]}}");
        let _ = write!(
            trade,
            r#"{{"e":"trade","E":1672515782136,"s":"BTCUSDT","t":{at},"p":"999.50","q":"1","b":8,"a":5,"T":1,"m":true,"M":true}}"#
        );
    });
}

#[test]
fn coinbase_does_not_allocate() {
    let write_level = |out: &mut String, side: &str, (price, quantity): (u64, u64)| {
        let _ = write!(
            out,
            r#"{{"side":"{side}","event_time":"1970","price_level":"{price}.00","new_quantity":"{quantity}.0"}}"#
        );
    };
    let begin = |out: &mut String, channel: &str, number: u64, kind: &str| {
        let _ = write!(
            out,
            r#"{{"channel":"{channel}","client_id":"","timestamp":"2023-02-09T20:32:50.714964855Z","sequence_num":{number},"events":[{{"type":"{kind}","#
        );
    };
    let mut snapshot = String::new();
    begin(&mut snapshot, "l2_data", 0, "snapshot");
    snapshot.push_str(r#""product_id":"BTC-USD","updates":["#);
    write_level(&mut snapshot, "bid", (1, 1));
    snapshot.push_str("]}]}");
    let mut opened = open(Coinbase::new(), "BTC-USD", None, &[&snapshot], None);
    opened.measure(|at, [book, trade]| {
        begin(book, "l2_data", at * 2 - 1, "update");
        book.push_str(r#""product_id":"BTC-USD","updates":["#);
        for (place, level) in levels(at).into_iter().enumerate() {
            book.push_str(if place == 0 { "" } else { "," });
            write_level(book, if place < 2 { "bid" } else { "offer" }, level);
        }
        book.push_str("]}]}");
        begin(trade, "market_trades", at * 2, "update");
        let _ = write!(
            trade,
            r#""trades":[{{"trade_id":"{at}","product_id":"BTC-USD","price":"1260.01","size":"0.3","side":"BUY","time":"2019-08-14T20:42:27.265Z"}}]}}]}}"#
        );
    });
}

#[test]
fn kraken_does_not_allocate() {
    // A checksum is needed in each message, so the book goes to and fro between two states.
    let write_book = |out: &mut String, kind: &str, quantity: &str, checksum: u32| {
        let _ = write!(
            out,
            r#"{{"channel":"book","type":"{kind}","data":[{{"symbol":"BTC/USD","bids":[{{"price":999.5,"qty":{quantity}}}],"asks":[],"checksum":{checksum},"timestamp":"2023-10-06T17:35:55.440295Z"}}]}}"#
        );
    };
    let sum = |text: &str| crc32fast::hash(text.as_bytes());
    let states = [("1.00", sum("9995100")), ("2.50", sum("9995250"))];
    let mut snapshot = String::new();
    write_book(&mut snapshot, "snapshot", states[0].0, states[0].1);
    let mut opened = open(Kraken::new(), "BTC/USD", None, &[&snapshot], None);
    opened.measure(|at, [book, trade]| {
        let (quantity, checksum) = states[at as usize % 2];
        write_book(book, "update", quantity, checksum);
        let _ = write!(
            trade,
            r#"{{"channel":"trade","type":"update","data":[{{"symbol":"BTC/USD","side":"buy","price":999.5,"qty":2.25,"ord_type":"market","trade_id":{at},"timestamp":"2023-09-25T07:49:37.708706Z"}}]}}"#
        );
    });
}
