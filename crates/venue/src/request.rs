//! Clients' requests, read from the venues' documents. Nothing is expected of a client: it gets an error.

use crate::setup::Kind;
use serde_json::Value;

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    Trades,
    /// Trades of one order in one message (Binance). Here each order has one.
    Aggregated,
    Book,
}

/// A stream of one symbol, as its client has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) channel: Channel,
    pub(crate) symbol: String,
    /// The client's name of the stream (Binance).
    pub(crate) name: String,
}

/// A request for streams. All are of one channel, but for Binance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) subscribes: bool,
    /// Its number, as JSON.
    pub(crate) id: String,
    pub(crate) streams: Vec<Stream>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Streams(Asked),
    /// A ping, with its number as JSON.
    Ping(String),
    /// Heartbeats, which all connections get.
    Heartbeats,
}

/// Most streams of a request.
const MOST: usize = 1024;

/// Reads a request.
pub(crate) fn read(kind: Kind, text: &[u8]) -> Result<Request, &'static str> {
    let json: Value = serde_json::from_slice(text).map_err(|_| "not JSON")?;
    match kind {
        Kind::Binance => binance(&json),
        Kind::Coinbase => coinbase(&json),
        Kind::Kraken => kraken(&json),
    }
}

/// Binance's name of a stream: `btcusdt@trade`.
pub(crate) fn binance_stream(name: &str) -> Result<Stream, &'static str> {
    let (symbol, channel) = name.split_once('@').ok_or("no such stream")?;
    if symbol != symbol.to_lowercase() {
        return Err("symbols of streams are in lower case");
    }
    let channel = match channel {
        "depth" | "depth@100ms" => Channel::Book,
        "trade" => Channel::Trades,
        "aggTrade" => Channel::Aggregated,
        _ => return Err("no such stream"),
    };
    Ok(Stream { channel, symbol: symbol.to_uppercase(), name: name.to_owned() })
}

fn strings<'a>(list: &'a Value, what: &'static str) -> Result<Vec<&'a str>, &'static str> {
    let list = list.as_array().filter(|list| !list.is_empty() && list.len() <= MOST).ok_or(what)?;
    list.iter().map(|name| name.as_str().ok_or(what)).collect()
}

fn binance(json: &Value) -> Result<Request, &'static str> {
    let id = json["id"].to_string();
    let subscribes = match json["method"].as_str() {
        Some("SUBSCRIBE") => true,
        Some("UNSUBSCRIBE") => false,
        _ => return Err("unknown method"),
    };
    let names = strings(&json["params"], "params must be names of streams")?;
    let streams = names.into_iter().map(binance_stream).collect::<Result<_, _>>()?;
    Ok(Request::Streams(Asked { subscribes, id, streams }))
}

fn coinbase(json: &Value) -> Result<Request, &'static str> {
    let subscribes = match json["type"].as_str() {
        Some("subscribe") => true,
        Some("unsubscribe") => false,
        _ => return Err("unknown type"),
    };
    let channel = match json["channel"].as_str() {
        Some("heartbeats") => return Ok(Request::Heartbeats),
        Some("level2") => Channel::Book,
        Some("market_trades") => Channel::Trades,
        _ => return Err("unknown channel"),
    };
    let names = strings(&json["product_ids"], "product_ids must be names of products")?;
    Ok(Request::Streams(Asked { subscribes, id: String::new(), streams: plain(channel, names) }))
}

fn kraken(json: &Value) -> Result<Request, &'static str> {
    let (id, params) = (json["req_id"].to_string(), &json["params"]);
    let subscribes = match json["method"].as_str() {
        Some("ping") => return Ok(Request::Ping(id)),
        Some("subscribe") => true,
        Some("unsubscribe") => false,
        _ => return Err("Method not found"),
    };
    let channel = match params["channel"].as_str() {
        Some("heartbeat") => return Ok(Request::Heartbeats),
        Some("book") if matches!(params["depth"].as_u64(), None | Some(10)) => Channel::Book,
        Some("book") => return Err("Unsupported depth: this venue has ten levels"),
        Some("trade") => Channel::Trades,
        _ => return Err("Unknown channel"),
    };
    let names = strings(&params["symbol"], "symbol must be names of pairs")?;
    Ok(Request::Streams(Asked { subscribes, id, streams: plain(channel, names) }))
}

fn plain(channel: Channel, names: Vec<&str>) -> Vec<Stream> {
    let stream = |symbol: &str| Stream { channel, symbol: symbol.to_owned(), name: String::new() };
    names.into_iter().map(stream).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_no_venue_takes_are_refused() {
        let wrong = [
            "",
            "7",
            "{",
            "[]",
            r#"{"method":"SUBSCRIBE"}"#,
            r#"{"method":"SUBSCRIBE","params":[]}"#,
            r#"{"method":"SUBSCRIBE","params":[7],"id":1}"#,
            r#"{"method":"SUBSCRIBE","params":["BTCUSDT@trade"],"id":1}"#,
            r#"{"type":"subscribe","channel":"level2"}"#,
            r#"{"method":"subscribe","params":{"channel":"book","depth":7,"symbol":["A/B"]}}"#,
        ];
        for kind in [Kind::Binance, Kind::Coinbase, Kind::Kraken] {
            for text in wrong {
                assert!(read(kind, text.as_bytes()).is_err(), "{kind:?} {text}");
            }
        }
    }
}
