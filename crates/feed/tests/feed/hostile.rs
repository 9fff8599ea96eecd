//! Messages of venues that mean harm, or err.

use tautline_feed::{
    Action, Binance, Channel, Coinbase, Feed, FeedConfig, Kraken, LinkId, Listener, Notice, Time, Venue,
};

#[derive(Default)]
struct Log(Vec<String>);

impl Listener for Log {
    fn on_notice(&mut self, notice: Notice<'_>, _: Time) {
        match notice {
            Notice::Undecodable { error, .. } => self.0.push(error.to_string()),
            Notice::Rejected { reason, .. } => self.0.push(reason.to_owned()),
            Notice::MissingMessages { expected, got, .. } => self.0.push(format!("{expected} not {got}")),
            _ => {}
        }
    }
}

/// The notices of a feed about the messages of a connection.
fn notices(venue: impl Venue + 'static, symbol: &str, messages: &[&str]) -> Vec<String> {
    let (mut feed, mut log) = (Feed::new(venue, FeedConfig::default()), Log::default());
    let symbol = feed.declare(symbol, None);
    for channel in [Channel::Trades, Channel::Book] {
        feed.subscribe(symbol, channel, Time::ZERO);
    }
    let now = Time::from_secs(1);
    feed.handle_timeout(now, &mut log);
    let link: LinkId = match feed.poll_action() {
        Some(Action::Connect { link, .. }) => link,
        other => panic!("{other:?}"),
    };
    feed.opened(link, now, &mut log);
    for message in messages {
        feed.received(link, message.as_bytes(), now, &mut log);
    }
    log.0
}

const LAST: &str = "the venue's message has the number 18446744073709551615, which none can follow";

#[test]
fn the_last_number_of_all_is_a_bad_message() {
    let trade = r#"{"e":"trade","E":1,"s":"BTCUSDT","t":18446744073709551615,"p":"1","q":"1","T":1,"m":true}"#;
    let first = r#"{"e":"depthUpdate","E":1,"s":"BTCUSDT","U":18446744073709551615,"u":7,"b":[],"a":[]}"#;
    let last = r#"{"e":"depthUpdate","E":1,"s":"BTCUSDT","U":1,"u":18446744073709551615,"b":[],"a":[]}"#;
    let good = r#"{"e":"depthUpdate","E":1,"s":"BTCUSDT","U":1,"u":2,"b":[],"a":[]}"#;
    assert_eq!(notices(Binance::new(), "BTCUSDT", &[trade, first, last, good]), [LAST; 3]);

    let numbered = |number: u64| {
        format!(r#"{{"channel":"heartbeats","timestamp":"2026-01-01T00:00:00Z","sequence_num":{number},"events":[]}}"#)
    };
    let messages = [numbered(5), numbered(u64::MAX), numbered(6), numbered(u64::MAX - 1), numbered(8)];
    let said = notices(Coinbase::new(), "BTC-USD", &messages.each_ref().map(|text| &**text));
    assert_eq!(said[0], LAST);
    assert_eq!(said[1], format!("7 not {}", u64::MAX - 1));
    assert_eq!(said[2..], [format!("{} not 8", u64::MAX)]);

    let trade = r#"{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":1,"qty":1,"ord_type":"market","trade_id":18446744073709551615,"timestamp":"2026-01-01T00:00:00Z"}]}"#;
    assert_eq!(notices(Kraken::new(), "BTC/USD", &[trade]), [LAST]);
}

#[test]
fn a_reason_may_have_escapes_and_is_cut() {
    let reason = r#"no \"BTC\" \u00fc"#;
    let long = "ü".repeat(1000);
    let of = |text: &str| {
        let binance = format!(r#"{{"error":{{"code":2,"msg":"{text}"}},"id":1}}"#);
        let coinbase = format!(r#"{{"type":"error","message":"{text}"}}"#);
        let kraken = format!(r#"{{"error":"{text}","method":"subscribe","req_id":1,"success":false}}"#);
        [
            notices(Binance::new(), "BTCUSDT", &[&binance]),
            notices(Coinbase::new(), "BTC-USD", &[&coinbase]),
            notices(Kraken::new(), "BTC/USD", &[&kraken]),
        ]
        .concat()
    };
    assert_eq!(of(reason), ["no \"BTC\" ü"; 3]);
    assert_eq!(of(&long), [&long[..400]; 3]);
}

/// A message of Coinbase.
fn numbered(number: u64, channel: &str, events: &str) -> String {
    format!(
        r#"{{"channel":"{channel}","timestamp":"2026-01-01T00:00:00Z","sequence_num":{number},"events":[{events}]}}"#
    )
}

#[test]
fn one_number_far_ahead_costs_new_snapshots_and_no_more() {
    let (mut feed, mut log) = (Feed::new(Coinbase::new(), FeedConfig::default()), Log::default());
    let symbol = feed.declare("BTC-USD", None);
    feed.subscribe(symbol, Channel::Book, Time::ZERO);
    let (mut link, mut number, mut snapshots) = (None, 0, 0);
    for step in 0..240 {
        let now = Time::from_millis(1000 + step * 250);
        feed.handle_timeout(now, &mut log);
        let mut said = vec![("heartbeats", String::new())];
        while let Some(action) = feed.poll_action() {
            match action {
                Action::Connect { link: new, .. } => {
                    assert_eq!(link.replace(new), None, "it has stayed with its connection");
                    feed.opened(new, now, &mut log);
                }
                Action::Send { text, .. } if text.contains(r#""subscribe","channel":"level2""#) => {
                    said.push(("subscriptions", r#"{"subscriptions":{"level2":["BTC-USD"]}}"#.to_owned()));
                    let levels = r#"{"side":"bid","price_level":"1","new_quantity":"2"}"#;
                    let book = r#""type":"snapshot","product_id":"BTC-USD","updates":"#;
                    said.push(("l2_data", format!("{{{book}[{levels}]}}")));
                    snapshots += 1;
                }
                _ => {}
            }
        }
        for (channel, events) in said {
            feed.received(link.unwrap(), numbered(number, channel, &events).as_bytes(), now, &mut log);
            number += 1;
        }
        if step == 40 {
            assert!(feed.book(symbol).is_some());
            feed.received(link.unwrap(), numbered(1 << 50, "heartbeats", "").as_bytes(), now, &mut log);
            assert!(feed.book(symbol).is_none());
        }
    }
    assert!(feed.book(symbol).is_some() && snapshots <= 4, "{snapshots} snapshots: {:?}", log.0);
    assert!(log.0.len() <= 5, "{:?}", log.0);
}
