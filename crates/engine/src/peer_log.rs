//! Log lines that peers cause, bounded per source and second.

use crate::accept::waiting::{Network, network};
use crate::turn::timer::Tick;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use tautline_io::Address;

/// Milliseconds for which lines are counted.
const WINDOW: Tick = 1_000;

/// Most lines about one network (IPv4 /24, IPv6 /56) in that time.
const MAX_OF_NETWORK: u32 = 20;

/// Most lines about all networks in that time.
const MAX: u32 = 100;

/// Limiter of a loop's log lines about peers. Lines beyond a limit are counted and reported together.
#[derive(Default)]
pub(crate) struct PeerLog {
    end: Tick,
    logged: u32,
    left_out: u64,
    /// Lines of each network that was logged, which are at most [`MAX`] networks.
    networks: HashMap<Network, Lines>,
}

struct Lines {
    example: Address,
    logged: u32,
    left_out: u64,
}

impl PeerLog {
    /// Logs a line that begins with the peer's address, unless there were too many.
    #[cold]
    pub(crate) fn log(&mut self, level: log::Level, now: Tick, peer: &Address, line: fmt::Arguments<'_>) {
        if !log::log_enabled!(level) {
            return;
        }
        if self.end <= now {
            self.report();
            self.end = now + WINDOW;
        }
        if self.admits(peer) {
            log::log!(level, "{}", Escaped(format_args!("{peer}: {line}")));
        }
    }

    fn admits(&mut self, peer: &Address) -> bool {
        let is_full = self.logged >= MAX;
        let network = network(peer);
        if is_full && !self.networks.contains_key(&network) {
            self.left_out += 1;
            return false;
        }
        let new = || Lines { example: peer.clone(), logged: 0, left_out: 0 };
        let lines = self.networks.entry(network).or_insert_with(new);
        let admitted = !is_full && lines.logged < MAX_OF_NETWORK;
        if admitted {
            self.logged += 1;
            lines.logged += 1;
        } else {
            self.left_out += 1;
            lines.left_out += 1;
        }
        admitted
    }

    /// When a report of lines that were left out is due, if any were.
    pub(crate) fn due(&self) -> Option<Tick> {
        (self.left_out > 0).then_some(self.end)
    }

    /// Reports the lines that were left out, and counts anew.
    #[cold]
    pub(crate) fn report(&mut self) {
        if let Some(report) = self.summary() {
            log::warn!("{report}");
        }
        *self = Self::default();
    }

    fn summary(&self) -> Option<String> {
        if self.left_out == 0 {
            return None;
        }
        let most = self.networks.values().max_by_key(|lines| lines.left_out).filter(|lines| lines.left_out > 0);
        let most = most.map(|lines| {
            let example = format!("{}", Escaped(format_args!("{}", lines.example)));
            format!(", {} of them about the network of {example}", lines.left_out)
        });
        Some(format!("{} log lines about peers were left out in one second{}", self.left_out, most.unwrap_or_default()))
    }
}

/// A text in one line, without control characters: text of a peer could forge lines of a log, or command a terminal.
struct Escaped<'a>(fmt::Arguments<'a>);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaper(f).write_fmt(self.0)
    }
}

struct Escaper<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            match part.char_indices().next_back().filter(|(_, last)| last.is_control()) {
                Some((at, last)) => write!(self.0, "{}{}", &part[..at], last.escape_default())?,
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Escaped, MAX, MAX_OF_NETWORK, PeerLog};
    use tautline_io::Address;

    fn at(network: u32, host: u32) -> Address {
        Address::Tcp(format!("10.0.{network}.{host}:1").parse().unwrap())
    }

    #[test]
    fn text_of_a_peer_stays_in_its_line() {
        let escaped = |text: &str| Escaped(format_args!("{text}: {text}")).to_string();
        assert_eq!(escaped("w\u{f6}rld"), "w\u{f6}rld: w\u{f6}rld");
        assert_eq!(escaped("a\nb\x1b[2J\r"), "a\\nb\\u{1b}[2J\\r: a\\nb\\u{1b}[2J\\r");
        assert_eq!(escaped("\u{9b}"), "\\u{9b}: \\u{9b}");
    }

    #[test]
    fn a_flood_of_one_source_leaves_room_for_others() {
        let mut log = PeerLog::default();
        let admitted = (0..1_000).filter(|n| log.admits(&at(0, n % 200))).count();
        assert_eq!(admitted, MAX_OF_NETWORK as usize);
        assert!(log.admits(&at(1, 1)));
        let left_out = 1_000 - MAX_OF_NETWORK;
        let summary = log.summary().unwrap();
        assert!(summary.starts_with(&format!("{left_out} log lines about peers were left out")), "{summary}");
        assert!(summary.ends_with(&format!("{left_out} of them about the network of 10.0.0.0:1")), "{summary}");
        assert_eq!(log.due(), Some(0));
    }

    #[test]
    fn a_flood_of_many_sources_is_bounded_too() {
        let mut log = PeerLog::default();
        let admitted = (0..60_000).filter(|n| log.admits(&at(n % 250, n % 200))).count();
        assert_eq!(admitted, MAX as usize);
        assert!(log.networks.len() <= MAX as usize);
        assert_eq!(log.left_out, 60_000 - u64::from(MAX));
        log.report();
        assert_eq!((log.due(), log.summary()), (None, None));
    }
}
