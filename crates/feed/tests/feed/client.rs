//! A feed over real connections: a server that speaks like a venue, and closes now and then.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tautline::{Client, CloseCode, Conn, Handler, Message, SendStage, SendTimes, Server};
use tautline_feed::record::{Recorder, Recording, Storage};
use tautline_feed::{
    Binance, Book, Channel, Connector, Feed, FeedConfig, Listener, Notice, Quote, Scale, Side, SymbolId, Time, Trade,
};

/// Confirms, and sends trades and changes of a book until its connection is closed by it.
#[derive(Default)]
struct Venue {
    update: u64,
}

const EVERY: Duration = Duration::from_millis(5);

impl Handler for Venue {
    /// Messages of the connection, and whether it has each channel.
    type State = (u32, bool, bool);

    fn on_message(&mut self, conn: &mut Conn<'_, Self::State>, message: Message<'_>) {
        let json: serde_json::Value = serde_json::from_slice(message.data()).unwrap();
        if json["method"] == "ORDER" {
            return;
        }
        assert_eq!(json["method"], "SUBSCRIBE");
        match json["params"][0].as_str().unwrap() {
            "btcusdt@trade" => conn.state().1 = true,
            "btcusdt@depth@100ms" => conn.state().2 = true,
            other => panic!("{other} was subscribed"),
        }
        conn.text(&format!(r#"{{"result":null,"id":{}}}"#, json["id"]));
        conn.set_timer(EVERY, 0);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, Self::State>, _: u64) {
        // The first update comes when somebody follows them all.
        let both = conn.state().1 && conn.state().2;
        if !both {
            return conn.set_timer(EVERY, 0);
        }
        self.update += 1;
        let update = self.update;
        conn.text(&format!(r#"{{"e":"trade","E":1,"s":"BTCUSDT","t":{update},"p":"1.5","q":"2","T":1,"m":false}}"#));
        conn.text(&format!(
            r#"{{"e":"depthUpdate","E":1,"s":"BTCUSDT","U":{update},"u":{update},"b":[["1.00","{update}"]],"a":[]}}"#
        ));
        conn.state().0 += 1;
        if conn.state().0 == 25 {
            return conn.close(CloseCode::GOING_AWAY, "");
        }
        conn.set_timer(EVERY, 0);
    }
}

#[derive(Debug)]
enum Seen {
    Trade(u64),
    Bid(Option<Quote>),
    Rebuilding,
    Connected,
    Sent(SendTimes),
}

struct Tell(Sender<Seen>);

impl Listener for Tell {
    fn on_trade(&mut self, _: SymbolId, trade: &Trade<'_>, _: Time) {
        let _ = self.0.send(Seen::Trade(trade.number));
    }
    fn on_book(&mut self, _: SymbolId, book: &Book, _: Time) {
        let _ = self.0.send(Seen::Bid(book.best(Side::Bid)));
    }
    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        let seen = match notice {
            Notice::Rebuilding { .. } => Seen::Rebuilding,
            Notice::Connected { .. } => Seen::Connected,
            Notice::Undecodable { error, .. } => panic!("{error}"),
            _ => return,
        };
        let _ = self.0.send(seen);
    }
}

/// Sends an order after each message, as far as the venue's budget lets it pass.
struct Trader {
    tell: Sender<Seen>,
    timed: u64,
}

impl Trader {
    fn act(&mut self, feed: &mut Feed, now: Time) {
        let Some(link) = feed.links().next().filter(|link| feed.waiting(*link) == [0; 3]) else { return };
        let leaves = feed.send_timed(link, r#"{"method":"ORDER"}"#.to_owned(), self.timed, now).unwrap();
        self.timed += u64::from(leaves);
    }
}

impl Listener for Trader {
    fn on_sent(&mut self, times: &SendTimes) {
        let _ = self.tell.send(Seen::Sent(*times));
    }
}

#[test]
fn an_order_is_timed_from_its_message_to_the_network_card() {
    let server = Server::plain().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(|_| Venue::default()).unwrap();
    let url = format!("ws://{}/ws", server.addresses()[0]);
    let mut config = FeedConfig::default();
    config.first_wait = Duration::from_millis(10);
    let mut feed = Feed::new(Binance::new().at(&url, "http://venue.example"), config);
    let symbol = feed.declare("BTCUSDT", Some(Scale::new(2, 0)));
    for channel in [Channel::Trades, Channel::Book] {
        feed.subscribe(symbol, channel, Time::ZERO);
    }
    let (tell, seen) = channel();
    let client = Client::plain().stay();
    let client = client
        .start_with_stages(move |_| Connector::new(feed, Trader { tell, timed: 0 }).with_act(Trader::act))
        .unwrap();
    let (mut whole, end) = (0, Instant::now() + Duration::from_secs(60));
    // The kernel begins to stamp what arrives a moment after it was asked to.
    for id in 0.. {
        if (id >= 6 && whole > 0) || Instant::now() > end {
            break;
        }
        let Seen::Sent(times) = seen.recv_timeout(Duration::from_secs(60)).unwrap() else {
            panic!("nothing else is told")
        };
        assert_eq!(times.id, id, "orders that waited for the budget are not timed");
        whole += u64::from(times.tick_to_trade.is_some_and(|all| Some(all) >= times.sent));
    }
    let stages = client.stages().unwrap();
    assert!(whole > 0 && stages.send_spread(SendStage::TickToTrade).count >= whole, "{stages}");
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    client.join().unwrap();
    server.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    server.join().unwrap();
}

#[test]
fn a_feed_follows_a_venue_across_its_connections() {
    let server = Server::plain().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(|_| Venue::default()).unwrap();
    let url = format!("ws://{}/ws", server.addresses()[0]);
    let mut config = FeedConfig::default();
    config.first_wait = Duration::from_millis(10);
    let mut feed = Feed::new(Binance::new().at(&url, "http://venue.example"), config);
    let symbol = feed.declare("BTCUSDT", Some(Scale::new(2, 0)));
    for channel in [Channel::Trades, Channel::Book] {
        feed.subscribe(symbol, channel, Time::ZERO);
    }
    let (tell, seen) = channel();
    // Update 0 comes before all others, so the first snapshot joins whatever comes.
    let mut fetches = 0;
    let get = move |url: &str| {
        assert_eq!(url, "http://venue.example/api/v3/depth?symbol=BTCUSDT&limit=1000");
        fetches += 1;
        let body = r#"{"lastUpdateId":0,"bids":[["0.50","7"]],"asks":[["2.00","1"]]}"#;
        if fetches == 1 { Err("503".to_owned()) } else { Ok(body.as_bytes().to_vec()) }
    };
    let client = Client::plain().stay().start(move |_| Connector::new(feed, Tell(tell)).with_fetch(get)).unwrap();
    let (mut trades, mut bids, mut connections, mut rebuilt) = (0, 0, 0, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while (connections < 3 || trades < 50 || bids < 50) && Instant::now() < end {
        match seen.recv_timeout(Duration::from_secs(30)).unwrap() {
            Seen::Trade(number) => {
                assert!(number > trades);
                trades = number;
            }
            Seen::Bid(Some(Quote { price, quantity })) => {
                assert!((price == 100 && quantity > bids) || (price == 50 && quantity == 7), "{price} {quantity}");
                bids = bids.max(if price == 100 { quantity } else { 0 });
            }
            Seen::Bid(None) => panic!("the book has a bid"),
            Seen::Connected => connections += 1,
            Seen::Rebuilding => rebuilt += 1,
            Seen::Sent(_) => panic!("no order was sent"),
        }
    }
    assert!(connections >= 3 && rebuilt >= 2 && trades >= 50 && bids >= 50, "{connections} {rebuilt} {trades} {bids}");
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    client.join().unwrap();
    server.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    server.join().unwrap();
}

/// A disk that is full behind the beginning.
struct Full(bool);

impl Storage for Full {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.0, true) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tells what a recording lacks.
struct Losses(Sender<(u64, Option<io::ErrorKind>)>);

impl Listener for Losses {
    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        if let Notice::Unrecorded { events, error } = notice {
            let _ = self.0.send((events, error));
        }
    }
}

#[test]
fn a_full_disk_is_told_when_it_begins_and_at_the_end() {
    let server = Server::plain().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(|_| Venue::default()).unwrap();
    let url = format!("ws://{}/ws", server.addresses()[0]);
    let mut feed = Feed::new(Binance::new().at(&url, "http://venue.example"), FeedConfig::default());
    let symbol = feed.declare("BTCUSDT", Some(Scale::new(2, 0)));
    for channel in [Channel::Trades, Channel::Book] {
        feed.subscribe(symbol, channel, Time::ZERO);
    }
    let (tell, losses) = channel();
    let mut recording = Recording::default();
    recording.interval = Duration::from_millis(1);
    let recorder = Recorder::with(Box::new(Full(false)), &recording).unwrap();
    let client = Client::plain().stay();
    let client = client.start(move |_| Connector::new(feed, Losses(tell)).with_recorder(recorder)).unwrap();
    let (begin, error) = losses.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(begin > 0 && error == Some(io::ErrorKind::StorageFull));
    client.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    client.join().unwrap();
    let (whole, error) = losses.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(whole >= begin && error == Some(io::ErrorKind::StorageFull), "{whole} after {begin}");
    server.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
    server.join().unwrap();
}
