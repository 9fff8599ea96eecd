//! The venues' messages as text, written from their documents.

use crate::book::{Change, Quote, State};
use std::time::Duration;

/// A trade of a symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trade<'a> {
    pub(crate) symbol: &'a str,
    pub(crate) number: u64,
    pub(crate) price: i64,
    pub(crate) quantity: i64,
    /// The one who took the price has bought.
    pub(crate) is_buy: bool,
    /// Since 1970.
    pub(crate) time: Duration,
}

/// A number with a fixed count of decimals.
pub(crate) fn decimal(number: i64, decimals: usize) -> String {
    let unit = 10_i64.pow(u32::try_from(decimals).unwrap_or(0));
    format!("{}.{:0width$}", number / unit, number % unit, width = decimals)
}

/// A time as RFC 3339 writes it, in UTC.
pub(crate) fn rfc3339(time: Duration) -> String {
    let seconds = time.as_secs();
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day (Hinnant, "chrono-compatible low-level date algorithms").
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:06}Z", second % 60, time.subsec_micros())
}

fn pairs(quotes: &[Quote]) -> String {
    let quoted = quotes
        .iter()
        .map(|(price, quantity)| format!("[\"{}000000\",\"{}0000\"]", decimal(*price, 2), decimal(*quantity, 4)));
    quoted.collect::<Vec<_>>().join(",")
}

/// A time of Binance: in milliseconds, or in microseconds if the client has asked for them.
const fn binance_time(time: Duration, is_fine: bool) -> u128 {
    if is_fine { time.as_micros() } else { time.as_millis() }
}

pub(crate) fn binance_change(symbol: &str, change: &Change, time: Duration, is_fine: bool) -> String {
    let Change { first, last, bids, asks } = change;
    let (bids, asks, time) = (pairs(bids), pairs(asks), binance_time(time, is_fine));
    format!(r#"{{"e":"depthUpdate","E":{time},"s":"{symbol}","U":{first},"u":{last},"b":[{bids}],"a":[{asks}]}}"#)
}

pub(crate) fn binance_snapshot(last: u64, state: &State, limit: usize) -> String {
    let side = |quotes: &[Quote]| pairs(&quotes[..limit.min(quotes.len())]);
    format!(r#"{{"lastUpdateId":{last},"bids":[{}],"asks":[{}]}}"#, side(&state.bids), side(&state.asks))
}

pub(crate) fn binance_trade(trade: &Trade<'_>, is_aggregated: bool, is_fine: bool) -> String {
    let Trade { symbol, number, price, quantity, is_buy, time } = trade;
    let (price, quantity, time, maker) =
        (decimal(*price, 2), decimal(*quantity, 4), binance_time(*time, is_fine), !is_buy);
    let numbers = if is_aggregated {
        format!(r#""e":"aggTrade","E":{time},"s":"{symbol}","a":{number},"f":{number},"l":{number}"#)
    } else {
        format!(r#""e":"trade","E":{time},"s":"{symbol}","t":{number}"#)
    };
    format!(r#"{{{numbers},"p":"{price}000000","q":"{quantity}0000","T":{time},"m":{maker},"M":true}}"#)
}

/// A message of the streams that share a connection.
pub(crate) fn binance_combined(stream: &str, message: &str) -> String {
    format!(r#"{{"stream":"{stream}","data":{message}}}"#)
}

/// The symbols with the decimals of their numbers, for clients that ask before they subscribe.
pub(crate) fn binance_exchange(symbols: &[String], time: Duration) -> String {
    let symbol = |name: &String| {
        let (base, quote) = name.split_at(name.find("USD").unwrap_or_else(|| name.len().saturating_sub(3)));
        format!(
            r#"{{"symbol":"{name}","status":"TRADING","baseAsset":"{base}","baseAssetPrecision":8,"quoteAsset":"{quote}","quotePrecision":8,"quoteAssetPrecision":8,"orderTypes":["LIMIT","MARKET"],"isSpotTradingAllowed":true,"isMarginTradingAllowed":false,"filters":[{{"filterType":"PRICE_FILTER","minPrice":"0.01000000","maxPrice":"1000000.00000000","tickSize":"0.01000000"}},{{"filterType":"LOT_SIZE","minQty":"0.00010000","maxQty":"9000.00000000","stepSize":"0.00010000"}}],"permissions":["SPOT"]}}"#
        )
    };
    let symbols = symbols.iter().map(symbol).collect::<Vec<_>>().join(",");
    let time = time.as_millis();
    format!(r#"{{"timezone":"UTC","serverTime":{time},"rateLimits":[],"exchangeFilters":[],"symbols":[{symbols}]}}"#)
}

pub(crate) fn coinbase(channel: &str, number: u64, event: &str, time: Duration) -> String {
    let time = rfc3339(time);
    format!(
        r#"{{"channel":"{channel}","client_id":"","timestamp":"{time}","sequence_num":{number},"events":[{event}]}}"#
    )
}

/// A snapshot or changes of a book, as an event of [`coinbase`].
pub(crate) fn coinbase_book(symbol: &str, kind: &str, bids: &[Quote], asks: &[Quote], time: Duration) -> String {
    let time = rfc3339(time);
    let level = |side: &str, (price, quantity): &Quote| {
        let (price, quantity) = (decimal(*price, 2), decimal(*quantity, 4));
        format!(r#"{{"side":"{side}","event_time":"{time}","price_level":"{price}","new_quantity":"{quantity}"}}"#)
    };
    let bids = bids.iter().map(|quote| level("bid", quote));
    let levels = bids.chain(asks.iter().map(|quote| level("offer", quote))).collect::<Vec<_>>().join(",");
    format!(r#"{{"type":"{kind}","product_id":"{symbol}","updates":[{levels}]}}"#)
}

/// A trade, as an event of [`coinbase`].
pub(crate) fn coinbase_trade(trade: &Trade<'_>) -> String {
    let Trade { symbol, number, price, quantity, is_buy, time } = trade;
    let (price, quantity, time) = (decimal(*price, 2), decimal(*quantity, 4), rfc3339(*time));
    // The side of the order that was taken.
    let side = if *is_buy { "SELL" } else { "BUY" };
    format!(
        r#"{{"type":"update","trades":[{{"trade_id":"{number}","product_id":"{symbol}","price":"{price}","size":"{quantity}","side":"{side}","time":"{time}"}}]}}"#
    )
}

pub(crate) fn kraken_book(symbol: &str, kind: &str, state: (&[Quote], &[Quote]), sum: u32, time: Duration) -> String {
    let levels = |quotes: &[Quote]| {
        let level = |(price, quantity): &Quote| {
            format!(r#"{{"price":{},"qty":{}}}"#, decimal(*price, 2), decimal(*quantity, 4))
        };
        quotes.iter().map(level).collect::<Vec<_>>().join(",")
    };
    let (bids, asks, time) = (levels(state.0), levels(state.1), rfc3339(time));
    format!(
        r#"{{"channel":"book","type":"{kind}","data":[{{"symbol":"{symbol}","bids":[{bids}],"asks":[{asks}],"checksum":{sum},"timestamp":"{time}"}}]}}"#
    )
}

/// CRC32 of the digits of the ten best offers, then of the ten best bids.
pub(crate) fn kraken_checksum(state: &State) -> u32 {
    let digits = |text: String| text.replace('.', "").trim_start_matches('0').to_owned();
    let quotes = state.asks.iter().take(10).chain(state.bids.iter().take(10));
    let text: String =
        quotes.map(|(price, quantity)| digits(decimal(*price, 2)) + &digits(decimal(*quantity, 4))).collect();
    crc32fast::hash(text.as_bytes())
}

pub(crate) fn kraken_trade(trade: &Trade<'_>) -> String {
    let Trade { symbol, number, price, quantity, is_buy, time } = trade;
    let (price, quantity, time) = (decimal(*price, 2), decimal(*quantity, 4), rfc3339(*time));
    let side = if *is_buy { "buy" } else { "sell" };
    format!(
        r#"{{"channel":"trade","type":"update","data":[{{"symbol":"{symbol}","side":"{side}","price":{price},"qty":{quantity},"ord_type":"market","trade_id":{number},"timestamp":"{time}"}}]}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_764_331_200, "2025-11-28T12:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(Duration::from_micros(7)), "1970-01-01T00:00:00.000007Z");
    }
}
