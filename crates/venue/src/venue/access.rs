//! Addresses of clients and their limits.

use crate::request::{Stream, binance_stream};
use crate::setup::Kind;
use crate::window::Window;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The request that opens a connection.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The client's address, by which limits count.
    pub address: IpAddr,
    /// The path, for example `/ws`.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: &'a str,
    /// Whether it has an API key. Only binary streams need one, and any will do.
    pub has_key: bool,
}

/// The reason for which a venue takes no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address has exceeded a limit.
    Banned,
    /// The path is none of the venue's.
    NotFound,
    /// Binary streams need an API key.
    NoKey,
    /// By a planted fault.
    Busy,
}

impl Refusal {
    /// The status of HTTP.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Banned => 418,
            Self::NotFound => 404,
            Self::NoKey => 401,
            Self::Busy => 503,
        }
    }
}

/// The form of a connection's messages, by its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Each message is wrapped with the name of its stream.
    pub(super) is_combined: bool,
    pub(super) is_binary: bool,
    /// Times are in microseconds, not milliseconds.
    pub(super) is_fine: bool,
}

impl Access<'_> {
    /// The form of messages, and the streams that the path names.
    pub(super) fn form(&self, kind: Kind) -> Result<(Form, Vec<Stream>), Refusal> {
        if kind != Kind::Binance {
            let is_known = matches!((kind, self.path), (_, "/") | (Kind::Kraken, "/v2"));
            return if is_known { Ok((Form::default(), Vec::new())) } else { Err(Refusal::NotFound) };
        }
        let (is_binary, path) = self.path.strip_prefix("/sbe").map_or((false, self.path), |path| (true, path));
        if is_binary && !self.has_key {
            return Err(Refusal::NoKey);
        }
        let (is_combined, names) = if path == "/stream" {
            (true, self.query.split('&').find_map(|part| part.strip_prefix("streams=")).unwrap_or_default())
        } else {
            let rest = path.strip_prefix("/ws").filter(|rest| rest.is_empty() || rest.starts_with('/'));
            (false, rest.ok_or(Refusal::NotFound)?)
        };
        let streams = names.split('/').filter_map(|name| binance_stream(&name.replace("%40", "@")).ok()).collect();
        let is_fine = self.query.split('&').any(|part| part.eq_ignore_ascii_case("timeUnit=MICROSECOND"));
        Ok((Form { is_combined: is_combined && !is_binary, is_binary, is_fine }, streams))
    }
}

/// The uses of an address.
#[derive(Debug)]
pub(super) struct Client {
    connects: Window,
    /// Messages of all its connections (Coinbase).
    sends: Window,
    /// Weights of requests by HTTP (Binance).
    weights: Window,
    banned_until: Duration,
    seen: Duration,
}

/// A use with a limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Connect,
    Send,
    Weight(u32),
}

/// The addresses that have been seen. It is bounded: the one that was silent for longest is forgotten.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<IpAddr, Client>);

const MOST: usize = 4096;

impl Clients {
    fn of(&mut self, kind: Kind, address: IpAddr, now: Duration) -> &mut Client {
        if self.0.len() >= MOST && !self.0.contains_key(&address) {
            let oldest = self.0.iter().min_by_key(|(_, client)| client.seen).map(|(address, _)| *address);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        let new = || {
            let (connects, within) = kind.connects();
            let second = Duration::from_secs(1);
            let sends = if kind == Kind::Coinbase { kind.sends() } else { u32::MAX };
            Client {
                connects: Window::new(connects, within),
                sends: Window::new(sends, second),
                weights: Window::new(6000, second * 60),
                banned_until: Duration::ZERO,
                seen: now,
            }
        };
        let client = self.0.entry(address).or_insert_with(new);
        client.seen = now;
        client
    }

    /// Notes a use. False if it exceeds a limit, or the address is banned.
    pub(super) fn take(&mut self, kind: Kind, address: IpAddr, used: Use, now: Duration) -> bool {
        let client = self.of(kind, address, now);
        let has_room = match used {
            Use::Connect => client.connects.take(1, now),
            // Without a limit there is nothing to remember.
            Use::Send => kind != Kind::Coinbase || client.sends.take(1, now),
            Use::Weight(weight) => client.weights.take(weight, now),
        };
        has_room && client.banned_until <= now
    }

    pub(super) fn is_banned(&self, address: IpAddr, now: Duration) -> bool {
        self.0.get(&address).is_some_and(|client| client.banned_until > now)
    }

    pub(super) fn ban(&mut self, kind: Kind, address: IpAddr, until: Duration, now: Duration) {
        self.of(kind, address, now).banned_until = until;
    }
}
