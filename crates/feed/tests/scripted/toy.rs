//! A fourth venue, made up: one file over the trait, with words in place of JSON.

use std::fmt::Write;
use std::time::Duration;
use tautline_feed::number::Fixed;
use tautline_feed::{Binance, Channel, DecodeError, Depth, Facts, Level, Message, Rate, Request, Side, Trade, Venue};

/// Lines such as `trade EURUSD 7`, `book EURUSD 5 6 bid 100 3`, `ok 2`, `no 2 EURUSD`, `ping 9` and `bye`.
#[derive(Debug)]
pub(crate) struct Toy(pub(crate) Facts);

impl Toy {
    /// Few of everything: two streams of a request, four messages a second, of which all connections together send six.
    pub(crate) fn new() -> Self {
        let mut facts = Binance::new().facts().clone();
        facts.name = "Toy";
        facts.batch = 2;
        facts.streams = 4;
        facts.sends = Rate::new(4, Duration::from_secs(1));
        facts.sends_of_address = Some(Rate::new(6, Duration::from_secs(1)));
        facts.silence = Some(Duration::from_secs(20));
        facts.keep_alive = Some((Duration::from_secs(8), "alive"));
        facts.life = None;
        Self(facts)
    }
}

impl Venue for Toy {
    fn facts(&self) -> &Facts {
        &self.0
    }

    fn url(&self) -> String {
        "ws://toy.example/".to_owned()
    }

    fn greetings(&self) -> &[&str] {
        &["hello"]
    }

    fn write_request(&self, request: &Request<'_>, out: &mut String) {
        let verb = if request.subscribes { "sub" } else { "unsub" };
        let channel = if request.channel == Channel::Book { "book" } else { "trade" };
        let _ = write!(out, "{verb} {channel} {} {}", request.id, request.symbols.join(" "));
    }

    fn decode(
        &self,
        message: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let text = std::str::from_utf8(message).map_err(|_| DecodeError::Field("text"))?;
        let mut words = text.split(' ');
        let kind = words.next().unwrap_or_default();
        let mut word = |name| words.next().ok_or(DecodeError::Field(name));
        let number = |word: &str| word.parse().map_err(|_| DecodeError::Field("number"));
        let fixed = |mantissa| Fixed { mantissa, exponent: 0 };
        match kind {
            "trade" => {
                let (symbol, number) = (word("symbol")?, number(word("number")?)?);
                let (price, quantity, taker) = (fixed(1), fixed(1), Side::Bid);
                sink(Message::Trade(Trade { symbol, number, price, quantity, taker, time: 0 }));
            }
            "book" | "snapshot" => {
                let (symbol, first, last) = (word("symbol")?, number(word("first")?)?, number(word("last")?)?);
                let side = if word("side")? == "bid" { Side::Bid } else { Side::Ask };
                let mut decimal = |name| -> Result<Fixed, DecodeError> {
                    Ok(fixed(word(name)?.parse().map_err(|_| DecodeError::Field(name))?))
                };
                let (price, quantity) = (decimal("price")?, decimal("quantity")?);
                levels.clear();
                levels.push(Level { side, price, quantity });
                let is_snapshot = kind == "snapshot";
                let checksum = None;
                sink(Message::Depth(Depth { symbol, is_snapshot, first, last, checksum, time: 0, levels }));
            }
            "ok" => sink(Message::ConfirmedRequest(number(word("request")?)?)),
            "no" => {
                let request = Some(number(word("request")?)?);
                sink(Message::Rejected { request, symbol: word("symbol").ok(), reason: "not today" });
            }
            "ping" => sink(Message::Ping { answer: word("answer")? }),
            "bye" => sink(Message::Ending),
            "" => return Err(DecodeError::Field("kind")),
            _ => sink(Message::Alive),
        }
        Ok(())
    }

    fn snapshot_url(&self, symbol: &str) -> Option<String> {
        Some(format!("http://toy.example/{symbol}"))
    }

    fn decode_snapshot(
        &self,
        _: &str,
        body: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        self.decode(body, levels, sink)
    }
}
