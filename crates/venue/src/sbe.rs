//! Binary messages in Simple Binary Encoding, by the schema `market` of the tests of `tautline-feed`, which has the shape of
//! venues' streams. The venues' own schemas are theirs.

use crate::book::{Change, Quote};
use crate::wire::Trade;
use std::time::Duration;

/// Schema and version.
const SCHEMA: (u16, u16) = (41, 2);

/// Decimals of prices and quantities.
const EXPONENTS: [i8; 2] = [-2, -4];

/// Bytes of a message that grows.
struct Bytes(Vec<u8>);

impl Bytes {
    /// A message's header and its first fields, which are the times.
    fn begin(block_length: u16, template: u16, times: &[Duration]) -> Self {
        let mut bytes = Self(Vec::new());
        for value in [block_length, template, SCHEMA.0, SCHEMA.1] {
            bytes.0.extend(value.to_le_bytes());
        }
        times.iter().for_each(|time| bytes.i64(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)));
        bytes
    }

    fn i64(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    /// A number that fits: one of updates and trades.
    fn number(&mut self, value: u64) {
        self.i64(i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn exponents(&mut self) {
        EXPONENTS.iter().for_each(|exponent| self.0.extend(exponent.to_le_bytes()));
    }

    fn group(&mut self, block_length: u16, count: usize) {
        self.0.extend(block_length.to_le_bytes());
        self.0.extend(u32::try_from(count).unwrap_or(0).to_le_bytes());
    }

    fn symbol(mut self, symbol: &str) -> Vec<u8> {
        let symbol = &symbol.as_bytes()[..symbol.len().min(255)];
        self.0.push(u8::try_from(symbol.len()).unwrap_or(0));
        self.0.extend(symbol);
        self.0
    }
}

pub(crate) fn trade(trade: &Trade<'_>) -> Vec<u8> {
    let mut bytes = Bytes::begin(18, 1, &[trade.time, trade.time]);
    bytes.exponents();
    bytes.group(25, 1);
    bytes.number(trade.number);
    bytes.i64(trade.price);
    bytes.i64(trade.quantity);
    bytes.0.push(u8::from(!trade.is_buy));
    bytes.symbol(trade.symbol)
}

pub(crate) fn change(symbol: &str, change: &Change, time: Duration) -> Vec<u8> {
    let mut bytes = Bytes::begin(26, 3, &[time]);
    bytes.number(change.first);
    bytes.number(change.last);
    bytes.exponents();
    let mut side = |quotes: &[Quote]| {
        bytes.group(16, quotes.len());
        for (price, quantity) in quotes {
            bytes.i64(*price);
            bytes.i64(*quantity);
        }
    };
    side(&change.bids);
    side(&change.asks);
    bytes.symbol(symbol)
}
