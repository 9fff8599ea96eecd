//! Plain HTTP: Binance's snapshots, and what its clients ask for before them.

use super::access::Use;
use super::core::Venue;
use super::event::Answer;
use crate::setup::Kind;
use crate::wire;
use std::net::IpAddr;
use std::time::Duration;

/// Levels of each side of a snapshot, if the client does not say.
const LEVELS: usize = 100;

impl Venue {
    /// Answers `GET path?query`. `None` if the path is none of the venue's.
    pub fn get(&mut self, address: IpAddr, path: &str, query: &str, now: Duration) -> Option<Answer> {
        if self.setup.kind != Kind::Binance {
            return None;
        }
        let limit = parameter(query, "limit").and_then(|limit| limit.parse().ok()).unwrap_or(LEVELS);
        let weight = match (path, limit) {
            ("/api/v3/depth", 0..=100) => 5,
            ("/api/v3/depth", 101..=500) => 25,
            ("/api/v3/depth", 501..=1000) => 50,
            ("/api/v3/depth", _) => 250,
            ("/api/v3/exchangeInfo", _) => 20,
            ("/api/v3/ping" | "/api/v3/time", _) => 1,
            _ => return None,
        };
        if self.clients.is_banned(address, now) {
            return Some(error(418, -1003, "Way too many requests; IP banned."));
        }
        if !self.allows(address, Use::Weight(weight), now) {
            self.ban(address, "too many requests", now);
            return Some(error(429, -1003, "Too much request weight used."));
        }
        let stamp = self.stamp(now);
        let body = match path {
            "/api/v3/depth" => return Some(self.snapshot(parameter(query, "symbol").unwrap_or_default(), limit)),
            "/api/v3/exchangeInfo" => wire::binance_exchange(&self.setup.symbols, stamp),
            "/api/v3/time" => format!(r#"{{"serverTime":{}}}"#, stamp.as_millis()),
            _ => "{}".to_owned(),
        };
        Some(Answer { status: 200, body, last: None })
    }

    /// A book. With faults it is missing or old at times.
    fn snapshot(&mut self, symbol: &str, limit: usize) -> Answer {
        let Some(symbol) = self.places.get(symbol).copied() else {
            return error(400, -1121, "Invalid symbol.");
        };
        let draw = if self.setup.has_faults { self.random.below(30) } else { 99 };
        let back = self.random.below(20);
        let book = &self.books[symbol];
        let (last, state) = match draw {
            0 => return error(504, -1007, "Timeout waiting for response from backend server."),
            1..=3 => return error(503, -1001, "Internal error; unable to process your request."),
            // From a cache.
            4..=9 => book.before(back).cloned().unwrap_or_else(|| (book.last(), book.state())),
            _ => (book.last(), book.state()),
        };
        Answer { status: 200, body: wire::binance_snapshot(last, &state, limit.min(5000)), last: Some(last) }
    }
}

fn error(status: u16, code: i32, text: &str) -> Answer {
    Answer { status, body: format!(r#"{{"code":{code},"msg":"{text}"}}"#), last: None }
}

/// The value of a parameter of a query.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use crate::{Kind, Setup, Venue};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    #[test]
    fn who_fetches_too_much_is_banned_if_there_are_limits() {
        let statuses = |has_limits: bool| -> Vec<u16> {
            let mut setup = Setup::new(Kind::Binance, vec!["BTCUSDT".to_owned()]);
            setup.has_limits = has_limits;
            let mut venue = Venue::new(setup);
            let mut get = |_| {
                let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
                venue
                    .get(home, "/api/v3/depth", "symbol=BTCUSDT&limit=1000", Duration::ZERO)
                    .map_or(0, |one| one.status)
            };
            (0..122).map(&mut get).collect()
        };
        // A snapshot weighs 50 of 6,000.
        assert_eq!(statuses(true)[119..], [200, 429, 418]);
        assert_eq!(statuses(false)[119..], [200; 3]);
    }
}
