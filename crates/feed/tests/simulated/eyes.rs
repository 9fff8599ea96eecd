//! The application of a run, and what the oracle knows of it.

use crate::faults::{Counts, Faults};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tautline_feed::{Book, Channel, Fault as Sign, LinkId, Listener, Notice, Side, SymbolId, Time, Trade};
use tautline_venue::{Fault, Kind, Traded};

/// The application, and what the oracle knows of it.
pub(crate) struct Eyes {
    pub(crate) kind: Kind,
    pub(crate) faults: Faults,
    /// The message that the feed is receiving: its connection, and its place among those to all clients.
    pub(crate) message: Option<(LinkId, usize)>,
    /// The copies of books, by connection and symbol, that are up to date. Binance's have one for all connections.
    pub(crate) copies: BTreeSet<(u32, usize)>,
    pub(crate) heard: Vec<[Time; 2]>,
    pub(crate) trades: Vec<BTreeMap<u64, Traded>>,
    pub(crate) got: Vec<BTreeSet<u64>>,
    pub(crate) missing: Vec<BTreeSet<u64>>,
    pub(crate) live: Vec<bool>,
    pub(crate) report: Report,
    pub(crate) trail: Vec<String>,
}

impl Eyes {
    pub(crate) fn new(kind: Kind, symbols: usize, patience: Duration) -> Self {
        Self {
            kind,
            faults: Faults::new(kind, patience),
            message: None,
            copies: BTreeSet::new(),
            heard: vec![[Time::ZERO; 2]; symbols],
            trades: vec![BTreeMap::new(); symbols],
            got: vec![BTreeSet::new(); symbols],
            missing: vec![BTreeSet::new(); symbols],
            live: vec![false; symbols],
            report: Report::default(),
            trail: Vec::new(),
        }
    }

    /// A book was given up for this reason.
    fn on_broken(&mut self, symbol: SymbolId, sign: Sign) {
        let message = self.message;
        self.faults.find(|open| {
            let is_of_book = open.planted.symbol == symbol.index() && open.planted.fault != Fault::Forgotten;
            is_of_book
                && match sign {
                    Sign::Gap { expected, got } if self.kind == Kind::Binance => {
                        (expected..got).contains(&open.planted.last)
                    }
                    Sign::Checksum { .. } | Sign::Crossed { .. } => message.is_some_and(|one| open.is_shown_by(one)),
                    _ => false,
                }
        });
    }
}

impl Listener for Eyes {
    fn on_trade(&mut self, symbol: SymbolId, trade: &Trade<'_>, now: Time) {
        let symbol = symbol.index();
        let traded = &self.trades[symbol][&trade.number];
        let taker = if traded.is_buy { Side::Bid } else { Side::Ask };
        assert_eq!((trade.price.at(2), trade.quantity.at(4)), (Some(traded.price), Some(traded.quantity)));
        assert_eq!(trade.taker, taker, "trade {}", trade.number);
        assert!(self.got[symbol].insert(trade.number), "trade {} came twice", trade.number);
        self.heard[symbol][0] = now;
        self.report.trades += 1;
    }

    fn on_book(&mut self, symbol: SymbolId, _: &Book, now: Time) {
        assert!(self.live[symbol.index()], "a book that is rebuilt is shown");
        self.heard[symbol.index()][1] = now;
    }

    fn on_notice(&mut self, notice: Notice<'_>, now: Time) {
        if self.trail.len() > 60 {
            self.trail.remove(0);
        }
        if !matches!(notice, Notice::Second { .. }) {
            self.trail.push(format!("{now:?} {notice:?}"));
        }
        match notice {
            Notice::Rebuilding { symbol, fault } => {
                assert!(std::mem::replace(&mut self.live[symbol.index()], false));
                self.on_broken(symbol, fault);
                self.copies.retain(|(_, one)| *one != symbol.index());
                self.report.rebuilt += 1;
            }
            Notice::CopyRebuilding { symbol, link, fault } => {
                self.on_broken(symbol, fault);
                self.copies.remove(&(link.number(), symbol.index()));
            }
            Notice::Live { symbol } => {
                assert!(!std::mem::replace(&mut self.live[symbol.index()], true));
            }
            Notice::MissingMessages { link, .. } => {
                let message = self.message.expect("a message is received");
                assert_eq!(message.0, link);
                self.faults.find(|open| open.is_change() && open.is_shown_by(message));
            }
            Notice::Unconfirmed { symbol, channel, link } | Notice::Stale { symbol, channel, link, .. } => {
                let stream = (link.number(), symbol.index(), channel == Channel::Book);
                self.faults.find(|open| {
                    let planted = &open.planted;
                    planted.fault == Fault::Forgotten && (planted.link, planted.symbol, planted.is_book) == stream
                });
                if matches!(notice, Notice::Stale { .. }) {
                    self.faults.was_stale(stream);
                }
                if stream.2 {
                    self.copies.remove(&(stream.0, stream.1));
                }
            }
            Notice::MissingTrades { symbol, numbers } => {
                assert_ne!(self.kind, Kind::Coinbase);
                self.report.missing += numbers.end() - numbers.start() + 1;
                self.missing[symbol.index()].extend(numbers);
            }
            Notice::Second { behind, first, second, .. } => {
                assert!(first != second && behind < Duration::from_millis(500));
                self.report.second += 1;
            }
            Notice::Replaced { .. } => self.report.replaced += 1,
            Notice::Undecodable { error, message, .. } => {
                panic!("{error}: {}", String::from_utf8_lossy(message));
            }
            _ => {}
        }
    }
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) checks: u64,
    pub(crate) faults: Counts,
    pub(crate) replaced: u64,
    pub(crate) rebuilt: u64,
    pub(crate) second: u64,
    pub(crate) missing: u64,
    pub(crate) trades: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.checks += other.checks;
        self.replaced += other.replaced;
        self.rebuilt += other.rebuilt;
        self.second += other.second;
        self.missing += other.missing;
        self.trades += other.trades;
        self.faults.add(&other.faults);
    }
}
