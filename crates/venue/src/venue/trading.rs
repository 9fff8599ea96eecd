//! The market moves, and the venue publishes it.

use super::core::Venue;
use super::event::{End, Fault, Mark, Payload, Traded};
use crate::book::quantity;
use crate::pace::BeatKind;
use crate::request::Channel;
use crate::sbe;
use crate::setup::Kind;
use crate::wire::{self, Trade};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Bytes of a level in JSON.
const LEVEL: usize = 33;

/// A market that is slower than this one rests.
const LEAST_SPEED: f64 = 0.001;

/// Most time that a late call of [`Venue::advance`] makes up for.
const LATEST: Duration = Duration::from_millis(500);

impl Venue {
    /// Does all that is due: the market's messages, and a [`tick`](Self::tick) each second. The market rests without connections.
    pub fn advance(&mut self, now: Duration) {
        if self.open_links() == 0 || self.is_resting || self.market_at + LATEST < now {
            self.market_at = self.market_at.max(now);
        }
        while self.market_at <= now && !self.is_resting {
            let beat = self.pace.next();
            let symbol = self.random.below(self.books.len());
            if symbol < self.books.len() {
                match beat.kind {
                    BeatKind::Trade => _ = self.trade(symbol, now),
                    BeatKind::Best => self.step(symbol, 1, now, &|_| true),
                    BeatKind::Book => self.step(symbol, (beat.size / LEVEL) as u64, now, &|_| true),
                }
            }
            self.market_at += beat.after.div_f64(self.setup.speed.max(LEAST_SPEED));
        }
        if self.tick_at <= now {
            self.tick(now);
            self.tick_at = now + SECOND;
        }
    }

    /// When [`advance`](Self::advance) has something to do.
    #[must_use]
    pub fn next_due(&self) -> Duration {
        if self.links.is_empty() || self.is_resting { self.tick_at } else { self.tick_at.min(self.market_at) }
    }

    /// The book of a symbol changes. `observes` says on which connections faults may be planted.
    pub fn step(&mut self, symbol: usize, updates: u64, now: Duration, observes: &dyn Fn(u32) -> bool) {
        let (kind, time) = (self.setup.kind, self.stamp(now));
        let change = self.books[symbol].step(&mut self.random, updates);
        if change.bids.is_empty() && change.asks.is_empty() && kind == Kind::Kraken {
            return;
        }
        let followers: Vec<(u32, String)> = self.followers_of((Channel::Book, symbol));
        if followers.is_empty() {
            return;
        }
        let sum = if kind == Kind::Kraken { wire::kraken_checksum(&self.books[symbol].state()) } else { 0 };
        let (name, levels) = (self.setup.symbols[symbol].clone(), (&*change.bids, &*change.asks));
        // All connections get one text, but for Coinbase's numbers.
        let body = match kind {
            Kind::Binance => wire::binance_change(&name, &change, time, false),
            Kind::Coinbase => wire::coinbase_book(&name, "update", &change.bids, &change.asks, time),
            Kind::Kraken => wire::kraken_book(&name, "update", levels, sum, time),
        };
        let mark = Mark::Depth { symbol, last: change.last, is_snapshot: false };
        let key = (Channel::Book, symbol);
        for (link, stream) in followers {
            let draw = if self.setup.has_faults && observes(link) { self.random.below(900) } else { 900 };
            let form = self.links[&link].form;
            let payload = if form.is_binary {
                Payload::Binary(sbe::change(&name, &change, time))
            } else if kind == Kind::Coinbase {
                let number = self.number(link);
                Payload::Text(wire::coinbase("l2_data", number, &body, time))
            } else if draw == 2 && kind == Kind::Kraken {
                self.plant(Fault::Checksum, link, key, now);
                Payload::Text(wire::kraken_book(&name, "update", levels, sum ^ 1, time))
            } else {
                let body = if form.is_fine { wire::binance_change(&name, &change, time, true) } else { body.clone() };
                Payload::Text(if form.is_combined { wire::binance_combined(&stream, &body) } else { body })
            };
            let held = self.links.get_mut(&link).map(|link| &mut link.held);
            match (draw, held) {
                (0, _) => self.plant(Fault::Dropped, link, key, now),
                (1, Some(held @ None)) => {
                    *held = Some((payload, mark));
                    self.plant(Fault::Swapped, link, key, now);
                }
                _ => self.push(link, payload, mark),
            }
        }
    }

    /// A trade of a symbol, at one of its best prices.
    pub fn trade(&mut self, symbol: usize, now: Duration) -> Traded {
        let kind = self.setup.kind;
        self.trades[symbol] += 1;
        let is_buy = self.random.below(2) == 0;
        let quantity = quantity(&mut self.random);
        let (number, price) = (self.trades[symbol], self.books[symbol].best(!is_buy));
        let name = self.setup.symbols[symbol].clone();
        let trade = Trade { symbol: &name, number, price, quantity, is_buy, time: self.stamp(now) };
        for channel in [Channel::Trades, Channel::Aggregated] {
            for (link, stream) in self.followers_of((channel, symbol)) {
                // Numbered messages that are lost still count.
                let number = if kind == Kind::Coinbase { self.number(link) } else { 0 };
                if self.fails_once_in(300) {
                    continue;
                }
                let form = self.links[&link].form;
                let payload = match kind {
                    Kind::Binance if form.is_binary => Payload::Binary(sbe::trade(&trade)),
                    Kind::Binance => {
                        let text = wire::binance_trade(&trade, channel == Channel::Aggregated, form.is_fine);
                        Payload::Text(if form.is_combined { wire::binance_combined(&stream, &text) } else { text })
                    }
                    Kind::Coinbase => {
                        let event = wire::coinbase_trade(&trade);
                        Payload::Text(wire::coinbase("market_trades", number, &event, trade.time))
                    }
                    Kind::Kraken => Payload::Text(wire::kraken_trade(&trade)),
                };
                self.push(link, payload, Mark::Trade);
            }
        }
        Traded { number, price, quantity, is_buy }
    }

    fn followers_of(&self, key: (Channel, usize)) -> Vec<(u32, String)> {
        let followers = self.followers.get(&key).into_iter().flatten();
        followers.map(|(link, stream)| (*link, stream.clone())).collect()
    }

    /// Heartbeats, and the ends of connections. Once a second.
    pub fn tick(&mut self, now: Duration) {
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            match self.setup.kind {
                Kind::Binance => {}
                Kind::Coinbase => {
                    let time = self.stamp(now);
                    let counter = self.links[&link].number;
                    let event =
                        format!(r#"{{"current_time":"{}","heartbeat_counter":"{counter}"}}"#, wire::rfc3339(time));
                    let number = self.number(link);
                    let text = wire::coinbase("heartbeats", number, &event, time);
                    self.push(link, Payload::Text(text), Mark::Other);
                }
                Kind::Kraken => {
                    self.push(link, Payload::Text(r#"{"channel":"heartbeat"}"#.to_owned()), Mark::Other);
                }
            }
            let age = now.saturating_sub(self.links[&link].opened_at);
            if self.setup.life.is_some_and(|life| age > life) {
                self.end(link, End::Aged);
            } else if self.fails_once_in(100) {
                self.end(link, End::Lost);
            } else if self.fails_once_in(200)
                && let Some(link) = self.links.get_mut(&link)
            {
                link.is_dead = true;
            }
        }
    }
}
