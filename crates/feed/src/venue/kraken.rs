use super::time::rfc3339;
use super::{DecodeError, Facts, Request, Venue};
use crate::book::Book;
use crate::json::Scanner;
use crate::message::{Channel, Depth, Level, Message, Side, Trade};
use crate::rate::Rate;
use crate::replica::Sequence;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// Levels of each side that the checksum covers.
const CHECKED: usize = 10;

/// Kraken's WebSocket API v2: trades, and the best levels of the book. Symbols are written `BTC/USD`.
///
/// Changes of a book are not numbered. Each has a checksum of the ten best levels of each side, so a lost change beyond those
/// ten is noticed only when its level is among them. With ten levels, the default, every lost change is noticed by the next.
#[derive(Clone, Debug)]
pub struct Kraken {
    facts: Facts,
    url: String,
}

impl Default for Kraken {
    fn default() -> Self {
        Self::new()
    }
}

impl Kraken {
    /// The venue, with ten levels of each side.
    #[must_use]
    pub fn new() -> Self {
        let facts = Facts {
            name: "Kraken",
            documents: "docs.kraken.com: WebSocket v2 book, trade, heartbeat and ping, book checksum v2; support.kraken.com: \
                        WebSocket API FAQ; read 2026-11-28",
            // The documents name no limit.
            streams: 200,
            batch: 50,
            // The documents name no limit, but that there is one.
            sends: Rate::new(5, Duration::from_secs(1)),
            sends_of_address: None,
            // About 150 in ten minutes.
            connects: Rate::new(150, Duration::from_secs(660)),
            snapshots: Rate::new(1, Duration::from_secs(1)),
            life: None,
            // A heartbeat comes about every second without other messages.
            silence: Some(Duration::from_secs(10)),
            keep_alive: Some((Duration::from_secs(30), r#"{"method":"ping"}"#)),
            sequence: Sequence::Checksums,
            contiguous_trades: true,
            // Each pair has its own decimals, and all numbers are written with all of them.
            scale: None,
            depth: CHECKED,
        };
        Self { facts, url: "wss://ws.kraken.com/v2".to_owned() }
    }

    /// More levels of each side: 10, 25, 100, 500 or 1000. Others are rounded up.
    #[must_use]
    pub fn levels(mut self, levels: usize) -> Self {
        self.facts.depth = [10, 25, 100, 500, 1000].into_iter().find(|depth| *depth >= levels).unwrap_or(1000);
        self
    }

    /// Another place for connections.
    #[must_use]
    pub fn at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }
}

impl Venue for Kraken {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn write_request(&self, request: &Request<'_>, out: &mut String) {
        let method = if request.subscribes { "subscribe" } else { "unsubscribe" };
        let _ = write!(out, r#"{{"method":"{method}","params":{{"#);
        let _ = match request.channel {
            Channel::Trades if request.subscribes => write!(out, r#""channel":"trade","snapshot":false"#),
            Channel::Trades => write!(out, r#""channel":"trade""#),
            Channel::Book => write!(out, r#""channel":"book","depth":{}"#, self.facts.depth),
        };
        let _ = write!(out, r#","symbol":[{}]}},"req_id":{}}}"#, request.list(str::to_owned), request.id);
    }

    fn decode(
        &self,
        message: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let mut head = Head::default();
        // Data that come before the fields that they need.
        let mut early = None;
        let mut json = Scanner::new(message);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"channel" => head.channel = json.string()?.raw(),
                b"type" => head.kind = json.string()?.raw(),
                b"data" if !head.channel.is_empty() && !head.kind.is_empty() => {
                    read_data(&mut json, &head, levels, sink)?;
                }
                b"data" => early = Some(json.raw()?),
                b"method" => head.method = json.string()?.raw(),
                b"success" => head.success = Some(json.bool()?),
                b"error" => head.reason = json.string()?.unescape()?,
                b"symbol" => head.symbol = Some(json.string()?.as_str()?),
                b"req_id" => head.request = Some(json.u64()?),
                b"result" => read_result(&mut json, &mut head)?,
                _ => json.skip()?,
            }
        }
        json.end()?;
        if let Some(data) = early {
            read_data(&mut Scanner::new(data), &head, levels, sink)?;
        }
        match (head.method, head.success, head.confirmed) {
            (b"subscribe", Some(true), (Some(channel), symbol)) => sink(Message::ConfirmedStream { channel, symbol }),
            (b"subscribe", Some(false), _) => {
                sink(Message::Rejected { request: head.request, symbol: head.symbol, reason: &head.reason });
            }
            _ => {}
        }
        Ok(())
    }

    fn checksum(&self) -> Option<fn(&Book) -> u32> {
        Some(checksum)
    }
}

/// The fields of a message beside its data.
#[derive(Default)]
struct Head<'a> {
    channel: &'a [u8],
    kind: &'a [u8],
    method: &'a [u8],
    success: Option<bool>,
    reason: Cow<'a, str>,
    symbol: Option<&'a str>,
    request: Option<u64>,
    confirmed: (Option<Channel>, &'a str),
}

/// `{"channel":"book","symbol":"BTC/USD",…}`: what a request has led to, for one symbol. `null` with an error.
fn read_result<'a>(json: &mut Scanner<'a>, head: &mut Head<'a>) -> Result<(), DecodeError> {
    if json.null()? {
        return Ok(());
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"channel" => {
                head.confirmed.0 = match json.string()?.raw() {
                    b"book" => Some(Channel::Book),
                    b"trade" => Some(Channel::Trades),
                    _ => None,
                }
            }
            b"symbol" => head.confirmed.1 = json.string()?.as_str()?,
            _ => json.skip()?,
        }
    }
    Ok(())
}

fn read_data(
    json: &mut Scanner<'_>,
    head: &Head<'_>,
    levels: &mut Vec<Level>,
    sink: &mut dyn FnMut(Message<'_>),
) -> Result<(), DecodeError> {
    if !matches!(head.channel, b"book" | b"trade") {
        return Ok(json.skip()?);
    }
    json.begin_array()?;
    while json.next_element()? {
        match head.channel {
            b"book" => read_book(json, head.kind == b"snapshot", levels, sink)?,
            _ => sink(Message::Trade(read_trade(json)?)),
        }
    }
    Ok(())
}

/// `{"symbol":"BTC/USD","bids":[{"price":1.5,"qty":2}],"asks":[],"checksum":7,"timestamp":"…"}`.
fn read_book(
    json: &mut Scanner<'_>,
    is_snapshot: bool,
    levels: &mut Vec<Level>,
    sink: &mut dyn FnMut(Message<'_>),
) -> Result<(), DecodeError> {
    levels.clear();
    let (mut symbol, mut checksum, mut time) = ("", None, 0);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"symbol" => symbol = json.string()?.as_str()?,
            b"bids" => read_levels(json, Side::Bid, levels)?,
            b"asks" => read_levels(json, Side::Ask, levels)?,
            b"checksum" => checksum = u32::try_from(json.u64()?).ok(),
            b"timestamp" => time = rfc3339(json.string()?.raw()),
            _ => json.skip()?,
        }
    }
    // A change without it could not be verified.
    let checksum = Some(checksum.ok_or(DecodeError::Field("checksum"))?);
    sink(Message::Depth(Depth { symbol, is_snapshot, first: 0, last: 0, checksum, time, levels }));
    Ok(())
}

fn read_levels(json: &mut Scanner<'_>, side: Side, levels: &mut Vec<Level>) -> Result<(), DecodeError> {
    json.begin_array()?;
    while json.next_element()? {
        let (mut price, mut quantity) = (None, None);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key {
                b"price" => price = Some(json.fixed()?),
                b"qty" => quantity = Some(json.fixed()?),
                _ => json.skip()?,
            }
        }
        let price = price.ok_or(DecodeError::Field("price"))?;
        let quantity = quantity.ok_or(DecodeError::Field("qty"))?;
        levels.push(Level { side, price, quantity });
    }
    Ok(())
}

fn read_trade<'a>(json: &mut Scanner<'a>) -> Result<Trade<'a>, DecodeError> {
    let (mut number, mut price, mut quantity, mut taker) = (None, None, None, None);
    let (mut symbol, mut time) = ("", 0);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"symbol" => symbol = json.string()?.as_str()?,
            b"trade_id" => number = Some(json.u64()?),
            b"price" => price = Some(json.fixed()?),
            b"qty" => quantity = Some(json.fixed()?),
            b"side" => {
                taker = match json.string()?.raw() {
                    b"buy" => Some(Side::Bid),
                    b"sell" => Some(Side::Ask),
                    _ => None,
                }
            }
            b"timestamp" => time = rfc3339(json.string()?.raw()),
            _ => json.skip()?,
        }
    }
    Ok(Trade {
        symbol,
        number: number.ok_or(DecodeError::Field("trade_id"))?,
        price: price.ok_or(DecodeError::Field("price"))?,
        quantity: quantity.ok_or(DecodeError::Field("qty"))?,
        taker: taker.ok_or(DecodeError::Field("side"))?,
        time,
    })
}

/// CRC32 of the ten best offers, then the ten best bids: the digits of each price and quantity without point and leading zeros,
/// which are those of the ticks and lots.
fn checksum(book: &Book) -> u32 {
    let mut text = [0; CHECKED * 2 * 2 * 19];
    let mut end = 0;
    let quotes = book.levels(Side::Ask).take(CHECKED).chain(book.levels(Side::Bid).take(CHECKED));
    for number in quotes.flat_map(|quote| [quote.price, quote.quantity]) {
        end += write_digits(number.unsigned_abs(), &mut text[end..]);
    }
    crc32fast::hash(&text[..end])
}

/// Writes the digits of a number that has at most 19, and returns their count.
fn write_digits(mut number: u64, out: &mut [u8]) -> usize {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number > 0 && at > 0 {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    let digits = &digits[at..];
    let count = digits.len().min(out.len());
    out[..count].copy_from_slice(&digits[..count]);
    count
}

#[cfg(test)]
mod tests {
    use super::{checksum, write_digits};
    use crate::book::{Book, Scale};
    use crate::message::{Level, Side};
    use crate::number::Fixed;

    /// The example of the venue's page on checksums.
    #[test]
    fn the_checksum_is_that_of_the_documents() {
        let asks = "45285.2 0.00100000 45286.4 1.54571953 45286.6 1.54571109 45289.6 1.54560911 45290.2 0.15890660 \
                    45291.8 1.54553491 45294.7 0.04454749 45296.1 0.35380000 45297.5 0.09945542 45299.5 0.18772827";
        let bids = "45283.5 0.10000000 45283.4 1.54582015 45282.1 0.10000000 45281.0 0.10000000 45280.3 1.54592586 \
                    45279.0 0.07990000 45277.6 0.03310103 45277.5 0.30000000 45277.3 1.54602737 45276.6 0.15445238";
        let mut book = Book::new(Scale::new(1, 8), 10);
        for (side, text) in [(Side::Ask, asks), (Side::Bid, bids)] {
            let numbers: Vec<Fixed> = text.split(' ').map(|text| Fixed::parse(text.as_bytes()).unwrap()).collect();
            for pair in numbers.chunks(2) {
                book.apply(&[Level { side, price: pair[0], quantity: pair[1] }]).unwrap();
            }
        }
        assert_eq!(checksum(&book), 3_310_070_434);
    }

    #[test]
    fn digits_have_no_leading_zeros() {
        let mut out = [0; 19];
        for number in [0, 7, 10, 452_852, i64::MAX.unsigned_abs()] {
            let count = write_digits(number, &mut out);
            let text = if number == 0 { String::new() } else { number.to_string() };
            assert_eq!(std::str::from_utf8(&out[..count]), Ok(&*text));
        }
    }
}
