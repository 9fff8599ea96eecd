use super::time::rfc3339;
use super::{DecodeError, Facts, Request, Venue};
use crate::json::Scanner;
use crate::message::{Channel, Depth, Level, Message, Side, Trade};
use crate::rate::Rate;
use crate::replica::Sequence;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// Coinbase Advanced Trade: trades, and the whole book. Symbols are written `BTC-USD`.
///
/// Messages are numbered on each connection. If one is missing, all books of the connection are subscribed again.
#[derive(Clone, Debug)]
pub struct Coinbase {
    facts: Facts,
    url: String,
}

impl Default for Coinbase {
    fn default() -> Self {
        Self::new()
    }
}

impl Coinbase {
    /// The venue.
    #[must_use]
    pub fn new() -> Self {
        let second = Duration::from_millis(1100); // a second, and time for messages that travel at different speeds
        let facts = Facts {
            name: "Coinbase Advanced Trade",
            documents: "docs.cdp.coinbase.com, Advanced Trade: WebSocket channels, WebSocket rate limits, and the AsyncAPI pages \
                        level2, market-trades and heartbeats, read 2026-11-28",
            // The documents name no limit: a message of more streams is hard to resubscribe within the budget.
            streams: 200,
            batch: 50,
            sends: Rate::new(8, second),
            sends_of_address: Some(Rate::new(8, second)),
            connects: Rate::new(8, second),
            snapshots: Rate::new(1, second),
            life: None,
            // A heartbeat comes every second.
            silence: Some(Duration::from_secs(5)),
            keep_alive: None,
            sequence: Sequence::Messages,
            // The documents do not say that numbers of trades are contiguous.
            contiguous_trades: false,
            scale: None,
            depth: 10_000,
        };
        Self { facts, url: "wss://advanced-trade-ws.coinbase.com".to_owned() }
    }

    /// Another place for connections.
    #[must_use]
    pub fn at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }
}

impl Venue for Coinbase {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn greetings(&self) -> &[&str] {
        // Without it, channels close that have no update for a minute or more.
        &[r#"{"type":"subscribe","channel":"heartbeats"}"#]
    }

    fn write_request(&self, request: &Request<'_>, out: &mut String) {
        let kind = if request.subscribes { "subscribe" } else { "unsubscribe" };
        let channel = match request.channel {
            Channel::Trades => "market_trades",
            Channel::Book => "level2",
        };
        let symbols = request.list(str::to_owned);
        let _ = write!(out, r#"{{"type":"{kind}","channel":"{channel}","product_ids":[{symbols}]}}"#);
    }

    fn decode(
        &self,
        message: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let mut head = Head::default();
        // Events that come before the fields that they need.
        let mut early = None;
        let mut json = Scanner::new(message);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"channel" => head.channel = json.string()?.raw(),
                b"timestamp" => head.time = rfc3339(json.string()?.raw()),
                b"sequence_num" => {
                    let number = json.u64()?;
                    head.is_numbered = true;
                    sink(Message::Number(number));
                }
                b"events" if head.is_complete() => read_events(&mut json, &head, levels, sink)?,
                b"events" => early = Some(json.raw()?),
                b"type" => head.is_error = json.string()?.raw() == b"error",
                b"message" => head.reason = json.string()?.unescape()?,
                _ => json.skip()?,
            }
        }
        json.end()?;
        if let Some(events) = early {
            read_events(&mut Scanner::new(events), &head, levels, sink)?;
        }
        if head.is_error {
            sink(Message::Rejected { request: None, symbol: None, reason: &head.reason });
        }
        Ok(())
    }
}

#[derive(Default)]
struct Head<'a> {
    channel: &'a [u8],
    time: u64,
    is_numbered: bool,
    is_error: bool,
    reason: Cow<'a, str>,
}

impl Head<'_> {
    const fn is_complete(&self) -> bool {
        self.is_numbered && !self.channel.is_empty()
    }
}

fn read_events(
    json: &mut Scanner<'_>,
    head: &Head<'_>,
    levels: &mut Vec<Level>,
    sink: &mut dyn FnMut(Message<'_>),
) -> Result<(), DecodeError> {
    json.begin_array()?;
    while json.next_element()? {
        match head.channel {
            b"l2_data" => read_book(json, head.time, levels, sink)?,
            b"market_trades" => read_trades(json, sink)?,
            b"subscriptions" => read_subscriptions(json, sink)?,
            _ => json.skip()?,
        }
    }
    Ok(())
}

/// `{"type":"snapshot","product_id":"BTC-USD","updates":[{"side":"bid","price_level":"1.5","new_quantity":"2",…},…]}`.
fn read_book(
    json: &mut Scanner<'_>,
    time: u64,
    levels: &mut Vec<Level>,
    sink: &mut dyn FnMut(Message<'_>),
) -> Result<(), DecodeError> {
    levels.clear();
    let (mut kind, mut symbol): (&[u8], _) = (b"", "");
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"type" => kind = json.string()?.raw(),
            b"product_id" => symbol = json.string()?.as_str()?,
            b"updates" => {
                json.begin_array()?;
                while json.next_element()? {
                    levels.push(read_level(json)?);
                }
            }
            _ => json.skip()?,
        }
    }
    let is_snapshot = match kind {
        b"snapshot" => true,
        b"update" => false,
        _ => return Err(DecodeError::Field("type")),
    };
    sink(Message::Depth(Depth { symbol, is_snapshot, first: 0, last: 0, checksum: None, time, levels }));
    Ok(())
}

fn read_level(json: &mut Scanner<'_>) -> Result<Level, DecodeError> {
    let (mut side, mut price, mut quantity) = (None, None, None);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"side" => {
                side = match json.string()?.raw() {
                    b"bid" => Some(Side::Bid),
                    b"offer" | b"ask" => Some(Side::Ask),
                    _ => None,
                }
            }
            b"price_level" => price = Some(json.fixed()?),
            b"new_quantity" => quantity = Some(json.fixed()?),
            _ => json.skip()?,
        }
    }
    Ok(Level {
        side: side.ok_or(DecodeError::Field("side"))?,
        price: price.ok_or(DecodeError::Field("price_level"))?,
        quantity: quantity.ok_or(DecodeError::Field("new_quantity"))?,
    })
}

/// `{"type":"update","trades":[…]}`.
fn read_trades(json: &mut Scanner<'_>, sink: &mut dyn FnMut(Message<'_>)) -> Result<(), DecodeError> {
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key != b"trades" {
            json.skip()?;
            continue;
        }
        json.begin_array()?;
        while json.next_element()? {
            sink(Message::Trade(read_trade(json)?));
        }
    }
    Ok(())
}

fn read_trade<'a>(json: &mut Scanner<'a>) -> Result<Trade<'a>, DecodeError> {
    let (mut number, mut price, mut quantity, mut taker) = (None, None, None, None);
    let (mut symbol, mut time) = ("", 0);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"trade_id" => number = Some(json.u64()?),
            b"product_id" => symbol = json.string()?.as_str()?,
            b"price" => price = Some(json.fixed()?),
            b"size" => quantity = Some(json.fixed()?),
            // The side of the maker: the other one took the price.
            b"side" => {
                taker = match json.string()?.raw() {
                    b"BUY" => Some(Side::Ask),
                    b"SELL" => Some(Side::Bid),
                    _ => None,
                }
            }
            b"time" => time = rfc3339(json.string()?.raw()),
            _ => json.skip()?,
        }
    }
    Ok(Trade {
        symbol,
        number: number.ok_or(DecodeError::Field("trade_id"))?,
        price: price.ok_or(DecodeError::Field("price"))?,
        quantity: quantity.ok_or(DecodeError::Field("size"))?,
        taker: taker.ok_or(DecodeError::Field("side"))?,
        time,
    })
}

/// `{"subscriptions":{"level2":["BTC-USD"],…}}`: all that the connection has.
fn read_subscriptions(json: &mut Scanner<'_>, sink: &mut dyn FnMut(Message<'_>)) -> Result<(), DecodeError> {
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key != b"subscriptions" {
            json.skip()?;
            continue;
        }
        json.begin_object()?;
        while let Some(channel) = json.next_key()? {
            let channel = match channel {
                b"level2" => Channel::Book,
                b"market_trades" => Channel::Trades,
                _ => {
                    json.skip()?;
                    continue;
                }
            };
            json.begin_array()?;
            while json.next_element()? {
                sink(Message::ConfirmedStream { channel, symbol: json.string()?.as_str()? });
            }
        }
    }
    Ok(())
}
