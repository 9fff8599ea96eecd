//! Answers to requests.

use super::core::Venue;
use super::event::{Fault, Mark, Payload};
use crate::book::State;
use crate::request::{Asked, Channel, Request, Stream};
use crate::setup::Kind;
use crate::wire;
use serde_json::json;
use std::time::Duration;

/// The fault in the answer to a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draw {
    /// The first stream is confirmed, and forgotten.
    ForgetsOne,
    /// Nothing is done and said.
    ForgetsAll,
    /// The first stream is rejected.
    Rejects,
    Obeys,
}

impl Venue {
    pub(super) fn answer(&mut self, link: u32, request: &Request, now: Duration) {
        match request {
            Request::Streams(asked) => self.answer_streams(link, asked, now),
            Request::Ping(id) => {
                let time = wire::rfc3339(self.stamp(now));
                let id = numbered(id);
                let text = format!(r#"{{"method":"pong",{id}"time_in":"{time}","time_out":"{time}"}}"#);
                self.push(link, Payload::Text(text), Mark::Other);
            }
            Request::Heartbeats if self.setup.kind == Kind::Coinbase => self.list_coinbase(link, None, now),
            Request::Heartbeats => {}
        }
    }

    /// Tells a client that its request is none.
    pub(super) fn complain(&mut self, link: u32, message: &[u8], reason: &str, now: Duration) {
        let asked: serde_json::Value = serde_json::from_slice(message).unwrap_or_default();
        let text = match self.setup.kind {
            Kind::Binance => json!({"error": {"code": 2, "msg": reason}, "id": asked["id"]}),
            Kind::Coinbase => json!({"type": "error", "message": reason}),
            Kind::Kraken => {
                let time = wire::rfc3339(self.stamp(now));
                let mut error = json!({"error": reason, "success": false, "time_in": time, "time_out": time});
                for name in ["method", "req_id"].into_iter().filter(|name| !asked[name].is_null()) {
                    error[name] = asked[name].clone();
                }
                error
            }
        };
        self.push(link, Payload::Text(text.to_string()), Mark::Other);
    }

    fn answer_streams(&mut self, link: u32, asked: &Asked, now: Duration) {
        let kind = self.setup.kind;
        let (known, unknown): (Vec<Stream>, Vec<Stream>) =
            asked.streams.iter().cloned().partition(|stream| self.places.contains_key(&stream.symbol));
        for stream in &unknown {
            self.reject(link, asked, stream, "Currency pair not supported");
        }
        let Some(first) = known.first().cloned() else {
            // Binance confirms symbols that it does not have.
            if kind == Kind::Binance {
                self.confirm_binance(link, asked);
            }
            return;
        };
        let draw = if asked.subscribes { self.draw() } else { Draw::Obeys };
        match draw {
            Draw::ForgetsAll => return self.forget(link, &known, now),
            Draw::ForgetsOne => self.forget(link, &known[..1], now),
            Draw::Rejects => self.reject(link, asked, &first, "Busy"),
            Draw::Obeys => {}
        }
        if draw == Draw::Rejects && kind == Kind::Binance {
            return;
        }
        let obeyed = if draw == Draw::Obeys { &known[..] } else { &known[1..] };
        if asked.subscribes {
            self.follow(link, obeyed);
        } else {
            self.unfollow(link, &known);
        }
        match kind {
            Kind::Binance => self.confirm_binance(link, asked),
            Kind::Coinbase => {
                let lost = (draw == Draw::ForgetsOne).then_some(&first);
                self.list_coinbase(link, lost, now);
            }
            Kind::Kraken => {
                let confirmed = if draw == Draw::Rejects { obeyed } else { &known[..] };
                self.confirm_kraken(link, asked, confirmed, draw == Draw::ForgetsOne, now);
                return;
            }
        }
        if kind == Kind::Coinbase && asked.subscribes {
            self.send_coinbase_books(link, obeyed, now);
        }
    }

    fn draw(&mut self) -> Draw {
        if !self.setup.has_faults {
            return Draw::Obeys;
        }
        match self.random.below(40) {
            0 => Draw::ForgetsOne,
            1 => Draw::ForgetsAll,
            // Coinbase's messages do not say which request was rejected.
            2 if self.setup.kind != Kind::Coinbase => Draw::Rejects,
            _ => Draw::Obeys,
        }
    }

    fn forget(&mut self, link: u32, streams: &[Stream], now: Duration) {
        for stream in streams {
            if let Some(symbol) = self.places.get(&stream.symbol).copied() {
                self.plant(Fault::Forgotten, link, (stream.channel, symbol), now);
            }
        }
    }

    /// Rejects one stream.
    fn reject(&mut self, link: u32, asked: &Asked, stream: &Stream, reason: &str) {
        let (id, name) = (&asked.id, serde_json::Value::from(&*stream.symbol));
        let text = match self.setup.kind {
            // Symbols that it does not have are confirmed.
            Kind::Binance if reason != "Busy" => return,
            Kind::Binance => format!(r#"{{"error":{{"code":2,"msg":"{reason}"}},"id":{id}}}"#),
            Kind::Coinbase => json!({"type": "error", "message": format!("{reason}: {name}")}).to_string(),
            Kind::Kraken => {
                let method = if asked.subscribes { "subscribe" } else { "unsubscribe" };
                let id = numbered(id);
                format!(r#"{{"error":"{reason}","method":"{method}",{id}"success":false,"symbol":{name}}}"#)
            }
        };
        self.push(link, Payload::Text(text), Mark::Other);
    }

    fn confirm_binance(&mut self, link: u32, asked: &Asked) {
        self.push(link, Payload::Text(format!(r#"{{"result":null,"id":{}}}"#, asked.id)), Mark::Other);
    }

    /// Coinbase confirms by a list of all subscriptions. One that is forgotten is in it like the others.
    fn list_coinbase(&mut self, link: u32, lost: Option<&Stream>, now: Duration) {
        let list = |channel: Channel| {
            let subs = self.links.get(&link).into_iter().flat_map(|link| link.subs.iter());
            let told = subs.filter(|(one, _)| *one == channel).map(|(_, symbol)| &self.setup.symbols[*symbol]);
            let lost = lost.filter(|lost| lost.channel == channel).map(|lost| &lost.symbol);
            told.chain(lost).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",")
        };
        let event = format!(
            r#"{{"subscriptions":{{"level2":[{}],"market_trades":[{}],"heartbeats":["heartbeats"]}}}}"#,
            list(Channel::Book),
            list(Channel::Trades)
        );
        let number = self.number(link);
        let text = wire::coinbase("subscriptions", number, &event, self.stamp(now));
        self.push(link, Payload::Text(text), Mark::Other);
    }

    fn send_coinbase_books(&mut self, link: u32, streams: &[Stream], now: Duration) {
        for stream in streams.iter().filter(|stream| stream.channel == Channel::Book) {
            let Some(symbol) = self.places.get(&stream.symbol).copied() else { continue };
            let (last, State { bids, asks }) = (self.books[symbol].last(), self.books[symbol].state());
            let time = self.stamp(now);
            let event = wire::coinbase_book(&stream.symbol, "snapshot", &bids, &asks, time);
            let number = self.number(link);
            let text = wire::coinbase("l2_data", number, &event, time);
            self.push(link, Payload::Text(text), Mark::Depth { symbol, last, is_snapshot: true });
        }
    }

    fn confirm_kraken(&mut self, link: u32, asked: &Asked, streams: &[Stream], loses_first: bool, now: Duration) {
        let method = if asked.subscribes { "subscribe" } else { "unsubscribe" };
        let time = self.stamp(now);
        for (at, stream) in streams.iter().enumerate() {
            let (name, is_book) = (&stream.symbol, stream.channel == Channel::Book);
            let (channel, depth) = if is_book { ("book", r#""depth":10,"#) } else { ("trade", "") };
            let (id, time_in) = (numbered(&asked.id), wire::rfc3339(time));
            let text = format!(
                r#"{{"method":"{method}",{id}"result":{{"channel":"{channel}",{depth}"snapshot":true,"symbol":"{name}"}},"success":true,"time_in":"{time_in}","time_out":"{time_in}"}}"#
            );
            self.push(link, Payload::Text(text), Mark::Other);
            let Some(symbol) = self.places.get(name).copied() else { continue };
            if asked.subscribes && is_book && !(loses_first && at == 0) {
                let (last, state) = (self.books[symbol].last(), self.books[symbol].state());
                let sum = wire::kraken_checksum(&state);
                let text = wire::kraken_book(name, "snapshot", (&state.bids, &state.asks), sum, time);
                self.push(link, Payload::Text(text), Mark::Depth { symbol, last, is_snapshot: true });
            }
        }
    }
}

/// The number of a request to Kraken as a member of its response, if it has one.
fn numbered(id: &str) -> String {
    if id == "null" { String::new() } else { format!(r#""req_id":{id},"#) }
}
