use super::{DecodeError, Facts, Request, Venue};
use crate::book::Scale;
use crate::json::{Kind, Scanner};
use crate::message::{Channel, Depth, Level, Message, Side, Trade};
use crate::number::Fixed;
use crate::rate::Rate;
use crate::replica::Sequence;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// Binance spot: trades, and the book by its changes every 100 ms. Symbols are written `BTCUSDT`.
///
/// A snapshot comes by REST, of 1,000 levels of each side. Levels beyond them appear when they change.
#[derive(Clone, Debug)]
pub struct Binance {
    facts: Facts,
    url: String,
    rest: String,
}

impl Default for Binance {
    fn default() -> Self {
        Self::new()
    }
}

impl Binance {
    /// The venue.
    #[must_use]
    pub fn new() -> Self {
        let second = Duration::from_millis(1100); // a second, and time for messages that travel at different speeds
        let facts = Facts {
            name: "Binance spot",
            documents: "github.com/binance/binance-spot-api-docs: web-socket-streams.md of 2023-12-04, rest-api.md, and the \
                        page of developers.binance.com on WebSocket streams, read 2026-11-28",
            streams: 1024,
            batch: 100,
            // Five a second. One of them is left for the answer to a ping frame, which counts.
            sends: Rate::new(4, second),
            sends_of_address: None,
            connects: Rate::new(300, Duration::from_secs(330)),
            // A snapshot of 1,000 levels weighs 50 of 6,000 a minute.
            snapshots: Rate::new(100, Duration::from_secs(60)),
            life: Some(Duration::from_secs(24 * 3600)),
            // A ping frame comes every 20 s: the connection's own deadline is for those.
            silence: None,
            keep_alive: None,
            sequence: Sequence::Updates,
            contiguous_trades: true,
            scale: Some(Scale::new(8, 8)),
            depth: 5000,
        };
        let (url, rest) = ("wss://stream.binance.com:9443/ws".to_owned(), "https://api.binance.com".to_owned());
        Self { facts, url, rest }
    }

    /// Other places: for connections, and the host of snapshots, without a path. With `?timeUnit=MICROSECOND` behind the first,
    /// the venue stamps its messages in microseconds.
    #[must_use]
    pub fn at(mut self, url: &str, rest: &str) -> Self {
        (self.url, self.rest) = (url.to_owned(), rest.to_owned());
        self
    }
}

impl Venue for Binance {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn write_request(&self, request: &Request<'_>, out: &mut String) {
        let method = if request.subscribes { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let stream = match request.channel {
            Channel::Trades => "trade",
            Channel::Book => "depth@100ms",
        };
        let streams = request.list(|symbol| format!("{}@{stream}", symbol.to_ascii_lowercase()));
        let _ = write!(out, r#"{{"method":"{method}","params":[{streams}],"id":{}}}"#, request.id);
    }

    fn decode(
        &self,
        message: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let mut fields = Fields::default();
        levels.clear();
        let mut json = Scanner::new(message);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"e" => fields.event = json.string()?.as_str()?,
                b"E" => fields.time = json.u64()?,
                b"s" => fields.symbol = json.string()?.as_str()?,
                b"t" => fields.number = Some(json.u64()?),
                b"p" => fields.price = Some(json.fixed()?),
                b"q" => fields.quantity = Some(json.fixed()?),
                b"m" => fields.buyer_is_maker = json.bool()?,
                b"U" => fields.first = Some(json.u64()?),
                b"u" => fields.last = Some(json.u64()?),
                // In trades these two are numbers of orders.
                b"b" if json.kind()? == Kind::Array => read_levels(&mut json, Side::Bid, levels)?,
                b"a" if json.kind()? == Kind::Array => read_levels(&mut json, Side::Ask, levels)?,
                b"id" if json.kind()? == Kind::Number => fields.id = Some(json.u64()?),
                b"result" => {
                    fields.is_result = json.null()?;
                    if !fields.is_result {
                        json.skip()?;
                    }
                }
                b"msg" => fields.error = Some(json.string()?.unescape()?),
                b"error" => fields.error = Some(read_error(&mut json)?),
                _ => json.skip()?,
            }
        }
        json.end()?;
        fields.report(levels, sink)
    }

    fn snapshot_url(&self, symbol: &str) -> Option<String> {
        Some(format!("{}/api/v3/depth?symbol={symbol}&limit=1000", self.rest))
    }

    fn decode_snapshot(
        &self,
        symbol: &str,
        body: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let mut last = None;
        levels.clear();
        let mut json = Scanner::new(body);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"lastUpdateId" => last = Some(json.u64()?),
                b"bids" => read_levels(&mut json, Side::Bid, levels)?,
                b"asks" => read_levels(&mut json, Side::Ask, levels)?,
                _ => json.skip()?,
            }
        }
        json.end()?;
        let last = last.ok_or(DecodeError::Field("lastUpdateId"))?;
        sink(Message::Depth(Depth { symbol, is_snapshot: true, first: 0, last, checksum: None, time: 0, levels }));
        Ok(())
    }
}

/// The fields of any message.
#[derive(Default)]
struct Fields<'a> {
    event: &'a str,
    /// Milliseconds since 1970, or microseconds if the URL asks for them.
    time: u64,
    symbol: &'a str,
    number: Option<u64>,
    price: Option<Fixed>,
    quantity: Option<Fixed>,
    buyer_is_maker: bool,
    first: Option<u64>,
    last: Option<u64>,
    id: Option<u64>,
    is_result: bool,
    error: Option<Cow<'a, str>>,
}

impl Fields<'_> {
    #[inline]
    fn report(&self, levels: &[Level], sink: &mut dyn FnMut(Message<'_>)) -> Result<(), DecodeError> {
        let (symbol, time) = (self.symbol, nanos(self.time));
        match self.event {
            "trade" => sink(Message::Trade(Trade {
                symbol,
                number: self.number.ok_or(DecodeError::Field("t"))?,
                price: self.price.ok_or(DecodeError::Field("p"))?,
                quantity: self.quantity.ok_or(DecodeError::Field("q"))?,
                taker: if self.buyer_is_maker { Side::Ask } else { Side::Bid },
                time,
            })),
            "depthUpdate" => sink(Message::Depth(Depth {
                symbol,
                is_snapshot: false,
                first: self.first.ok_or(DecodeError::Field("U"))?,
                last: self.last.ok_or(DecodeError::Field("u"))?,
                checksum: None,
                time,
                levels,
            })),
            "serverShutdown" => sink(Message::Ending),
            _ => match (self.error.as_deref(), self.id) {
                (Some(reason), request) => sink(Message::Rejected { request, symbol: None, reason }),
                (None, Some(id)) if self.is_result => sink(Message::ConfirmedRequest(id)),
                _ => sink(Message::Alive),
            },
        }
        Ok(())
    }
}

/// A time of the venue in nanoseconds. With `timeUnit=MICROSECOND` in its URL it counts microseconds. Milliseconds have as many
/// digits only from the year 5138 on.
const fn nanos(time: u64) -> u64 {
    let unit = if time < 100_000_000_000_000 { 1_000_000 } else { 1_000 };
    time.saturating_mul(unit)
}

/// `[["price","quantity"],…]`.
#[inline]
fn read_levels(json: &mut Scanner<'_>, side: Side, levels: &mut Vec<Level>) -> Result<(), DecodeError> {
    json.begin_array()?;
    while json.next_element()? {
        json.begin_array()?;
        let mut pair = [None, None];
        let mut at = 0;
        while json.next_element()? {
            match pair.get_mut(at) {
                Some(number) => *number = Some(json.fixed()?),
                None => json.skip()?,
            }
            at += 1;
        }
        let [Some(price), Some(quantity)] = pair else { return Err(DecodeError::Field("level")) };
        levels.push(Level { side, price, quantity });
    }
    Ok(())
}

/// `{"code":…,"msg":"…"}`.
fn read_error<'a>(json: &mut Scanner<'a>) -> Result<Cow<'a, str>, DecodeError> {
    let mut text = Cow::Borrowed("no reason");
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"msg" => text = json.string()?.unescape()?,
            _ => json.skip()?,
        }
    }
    Ok(text)
}
