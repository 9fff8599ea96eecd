//! Messages of venues as their documents show them, in any order of fields, and cut at every byte.

use tautline_feed::{Binance, Channel, Coinbase, DecodeError, Kraken, Level, Message, Request, Side, Venue};

/// The parts of a message, a line for each.
fn decode(venue: &dyn Venue, text: &str) -> Result<Vec<String>, DecodeError> {
    let (mut lines, mut levels) = (Vec::new(), Vec::new());
    venue.decode(text.as_bytes(), &mut levels, &mut |message| lines.push(line(&message)))?;
    Ok(lines)
}

fn line(message: &Message<'_>) -> String {
    match message {
        Message::Trade(trade) => format!(
            "trade {} {} {:?} {:?} {:?} {}",
            trade.symbol,
            trade.number,
            trade.price.at(8).unwrap(),
            trade.quantity.at(8).unwrap(),
            trade.taker,
            trade.time
        ),
        Message::Depth(depth) => {
            let level = |level: &Level| {
                let side = if level.side == Side::Bid { "b" } else { "a" };
                format!("{side}{}x{}", level.price.at(8).unwrap(), level.quantity.at(8).unwrap())
            };
            let levels: Vec<_> = depth.levels.iter().map(level).collect();
            let kind = if depth.is_snapshot { "snapshot" } else { "change" };
            let (first, last, sum) = (depth.first, depth.last, depth.checksum);
            format!("{kind} {} {first}..{last} {sum:?} {} {}", depth.symbol, depth.time, levels.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// No cut of a message is one, and none leads to a panic.
fn cut(venue: &dyn Venue, text: &str) {
    for end in 0..text.len() {
        assert!(decode(venue, &text[..end]).is_err(), "{}", &text[..end]);
    }
}

#[test]
fn binance_is_read_as_documented() {
    let venue = Binance::new();
    let trade = r#"{"e":"trade","E":1672515782136,"s":"BNBBTC","t":12345,"p":"0.001","q":"100","b":88,"a":50,"T":1672515782136,"m":true,"M":true}"#;
    let read = "trade BNBBTC 12345 100000 10000000000 Ask 1672515782136000000";
    assert_eq!(decode(&venue, trade).unwrap(), [read]);
    cut(&venue, trade);
    let fine = trade.replace("1672515782136", "1672515782136789");
    assert_eq!(decode(&venue, &fine).unwrap(), [read.replace("136000000", "136789000")]);
    let change = r#"{"e":"depthUpdate","E":1672515782136,"s":"BNBBTC","U":157,"u":160,"b":[["0.0024","10"]],"a":[["0.0026","100"]]}"#;
    let read = "change BNBBTC 157..160 None 1672515782136000000 b240000x1000000000 a260000x10000000000";
    assert_eq!(decode(&venue, change).unwrap(), [read]);
    cut(&venue, change);
    assert_eq!(decode(&venue, r#"{"result":null,"id":1}"#).unwrap(), ["ConfirmedRequest(1)"]);
    assert_eq!(decode(&venue, r#"{"result":["btcusdt@trade"],"id":3}"#).unwrap(), ["Alive"]);
    for text in [r#"{"code":2,"msg":"Invalid","id":5}"#, r#"{"error":{"code":2,"msg":"Invalid"},"id":5}"#] {
        let rejected = r#"Rejected { request: Some(5), symbol: None, reason: "Invalid" }"#;
        assert_eq!(decode(&venue, text).unwrap(), [rejected]);
    }
    assert_eq!(decode(&venue, r#"{"e":"serverShutdown","E":1770123456789}"#).unwrap(), ["Ending"]);
    for (text, missing) in [
        (r#"{"e":"trade","s":"A","p":"1","q":"1"}"#, "t"),
        (r#"{"e":"trade","s":"A","t":1,"q":"1"}"#, "p"),
        (r#"{"e":"depthUpdate","s":"A","u":1,"b":[],"a":[]}"#, "U"),
        (r#"{"e":"depthUpdate","s":"A","U":1,"u":1,"b":[["1"]],"a":[]}"#, "level"),
    ] {
        assert_eq!(decode(&venue, text), Err(DecodeError::Field(missing)), "{text}");
    }
    let wrong = decode(&venue, r#"{"e":"trade","s":"A","t":1,"p":"1x","q":"1"}"#).unwrap_err();
    assert!(wrong.to_string().contains("byte 33"), "{wrong}");
    let body =
        r#"{"lastUpdateId":1027024,"bids":[["4.00000000","431.00000000"]],"asks":[["4.00000200","12.00000000"]]}"#;
    let (mut lines, mut levels) = (Vec::new(), Vec::new());
    venue.decode_snapshot("BNBBTC", body.as_bytes(), &mut levels, &mut |message| lines.push(line(&message))).unwrap();
    assert_eq!(lines, ["snapshot BNBBTC 0..1027024 None 0 b400000000x43100000000 a400000200x1200000000"]);
    let url = "https://api.binance.com/api/v3/depth?symbol=BNBBTC&limit=1000";
    assert_eq!(venue.snapshot_url("BNBBTC").as_deref(), Some(url));
}

#[test]
fn coinbase_is_read_as_documented() {
    let venue = Coinbase::new();
    let events = r#"[{"type":"snapshot","product_id":"BTC-USD","updates":[{"side":"bid","event_time":"1970-01-01T00:00:00Z","price_level":"21921.73","new_quantity":"0.06317902"},{"side":"offer","event_time":"1970-01-01T00:00:00Z","price_level":"21921.74","new_quantity":"0"}]}]"#;
    let read = ["Number(7)", "snapshot BTC-USD 0..0 None 1675974770714964855 b2192173000000x6317902 a2192174000000x0"];
    let head = r#""channel":"l2_data","client_id":"","timestamp":"2023-02-09T20:32:50.714964855Z","sequence_num":7"#;
    let book = format!(r#"{{{head},"events":{events}}}"#);
    assert_eq!(decode(&venue, &book).unwrap(), read);
    cut(&venue, &book);
    // Events before the fields that they need.
    assert_eq!(decode(&venue, &format!(r#"{{"events":{events},{head}}}"#)).unwrap(), read);
    let trades = r#"{"channel":"market_trades","client_id":"","timestamp":"2023-02-09T20:19:35.39625135Z","sequence_num":0,"events":[{"type":"snapshot","trades":[{"trade_id":"12","product_id":"ETH-USD","price":"1260.01","size":"0.3","side":"BUY","time":"2019-08-14T20:42:27.265Z"},{"trade_id":"11","product_id":"ETH-USD","price":"1","size":"1","side":"SELL","time":"2019-08-14T20:42:27.265Z"}]}]}"#;
    let read = [
        "Number(0)",
        "trade ETH-USD 12 126001000000 30000000 Ask 1565815347265000000",
        "trade ETH-USD 11 100000000 100000000 Bid 1565815347265000000",
    ];
    assert_eq!(decode(&venue, trades).unwrap(), read);
    cut(&venue, trades);
    let confirmed = r#"{"channel":"subscriptions","client_id":"","timestamp":"2023-02-09T20:33:57.609931463Z","sequence_num":1,"events":[{"subscriptions":{"level2":["ETH-USD"],"heartbeats":["heartbeats"],"market_trades":["BTC-USD"]}}]}"#;
    let read = [
        "Number(1)",
        r#"ConfirmedStream { channel: Book, symbol: "ETH-USD" }"#,
        r#"ConfirmedStream { channel: Trades, symbol: "BTC-USD" }"#,
    ];
    assert_eq!(decode(&venue, confirmed).unwrap(), read);
    let rejected = r#"Rejected { request: None, symbol: None, reason: "rate limit" }"#;
    assert_eq!(decode(&venue, r#"{"type":"error","message":"rate limit"}"#).unwrap(), [rejected]);
    let wrong = book.replace("offer", "middle");
    assert_eq!(decode(&venue, &wrong), Err(DecodeError::Field("side")));
    assert_eq!(decode(&venue, &book.replace("snapshot", "other")), Err(DecodeError::Field("type")));
}

#[test]
fn kraken_is_read_as_documented() {
    let venue = Kraken::new();
    let book = r#"{"channel":"book","type":"update","data":[{"symbol":"MATIC/USD","bids":[{"price":0.5657,"qty":1098.3947558}],"asks":[],"checksum":2114181697,"timestamp":"2023-10-06T17:35:55.440295Z"}]}"#;
    let read = "change MATIC/USD 0..0 Some(2114181697) 1696613755440295000 b56570000x109839475580";
    assert_eq!(decode(&venue, book).unwrap(), [read]);
    cut(&venue, book);
    let early = r#"{"data":[{"symbol":"A/B","bids":[],"asks":[{"price":1,"qty":2}],"checksum":7}],"channel":"book","type":"snapshot"}"#;
    assert_eq!(decode(&venue, early).unwrap(), ["snapshot A/B 0..0 Some(7) 0 a100000000x200000000"]);
    let trade = r#"{"channel":"trade","type":"update","data":[{"symbol":"MATIC/USD","side":"sell","price":0.5117,"qty":40.0,"ord_type":"market","trade_id":4665906,"timestamp":"2023-09-25T07:49:37.708706Z"}]}"#;
    assert_eq!(decode(&venue, trade).unwrap(), ["trade MATIC/USD 4665906 51170000 4000000000 Ask 1695628177708706000"]);
    cut(&venue, trade);
    let confirmed = r#"{"method":"subscribe","result":{"channel":"book","depth":10,"snapshot":true,"symbol":"BTC/USD"},"success":true,"time_in":"2023-10-06T17:35:55.219022Z","time_out":"2023-10-06T17:35:55.219067Z","req_id":7}"#;
    assert_eq!(decode(&venue, confirmed).unwrap(), [r#"ConfirmedStream { channel: Book, symbol: "BTC/USD" }"#]);
    assert_eq!(decode(&venue, &confirmed.replace("subscribe", "unsubscribe")).unwrap(), [""; 0]);
    let rejected = r#"{"error":"Currency pair not supported FOO/USD","method":"subscribe","req_id":7,"success":false,"symbol":"FOO/USD"}"#;
    let read =
        r#"Rejected { request: Some(7), symbol: Some("FOO/USD"), reason: "Currency pair not supported FOO/USD" }"#;
    assert_eq!(decode(&venue, rejected).unwrap(), [read]);
    for text in [
        r#"{"channel":"heartbeat"}"#,
        r#"{"method":"pong","req_id":1}"#,
        r#"{"channel":"status","type":"update","data":[{"x":1}]}"#,
    ] {
        assert_eq!(decode(&venue, text).unwrap(), [""; 0]);
    }
    let without = early.replace(r#","checksum":7"#, "");
    assert_eq!(decode(&venue, &without), Err(DecodeError::Field("checksum")));
}

#[test]
fn requests_are_written_as_documented() {
    let written = |venue: &dyn Venue, subscribes, channel| {
        let mut text = String::new();
        let request = Request::new(subscribes, 3, channel, &["BTC/USD", "ETH/USD"]);
        venue.write_request(&request, &mut text);
        let _: serde_json::Value = serde_json::from_str(&text).unwrap();
        text
    };
    assert_eq!(
        written(&Binance::new(), true, Channel::Book),
        r#"{"method":"SUBSCRIBE","params":["btc/usd@depth@100ms","eth/usd@depth@100ms"],"id":3}"#
    );
    assert_eq!(
        written(&Coinbase::new(), true, Channel::Book),
        r#"{"type":"subscribe","channel":"level2","product_ids":["BTC/USD","ETH/USD"]}"#
    );
    assert_eq!(
        written(&Kraken::new().levels(25), true, Channel::Book),
        r#"{"method":"subscribe","params":{"channel":"book","depth":25,"symbol":["BTC/USD","ETH/USD"]},"req_id":3}"#
    );
    assert_eq!(
        written(&Kraken::new(), true, Channel::Trades),
        r#"{"method":"subscribe","params":{"channel":"trade","snapshot":false,"symbol":["BTC/USD","ETH/USD"]},"req_id":3}"#
    );
    for venue in [&Binance::new() as &dyn Venue, &Coinbase::new(), &Kraken::new()] {
        assert!(written(venue, false, Channel::Trades).to_lowercase().contains("unsubscribe"));
    }
}
