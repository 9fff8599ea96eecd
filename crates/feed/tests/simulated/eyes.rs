//! The application of a run, and what the oracle knows of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tautline_feed::{Book, Channel, Listener, Notice, Side, SymbolId, Time, Trade};
use tautline_venue::{Fault, Kind, Planted, Traded};

/// The application, and what the oracle knows of it.
pub(crate) struct Eyes {
    pub(crate) kind: Kind,
    pub(crate) planted: Vec<Planted>,
    pub(crate) heard: Vec<[Time; 2]>,
    pub(crate) trades: Vec<BTreeMap<u64, Traded>>,
    pub(crate) got: Vec<BTreeSet<u64>>,
    pub(crate) missing: Vec<BTreeSet<u64>>,
    pub(crate) live: Vec<bool>,
    pub(crate) report: Report,
    pub(crate) trail: Vec<String>,
}

impl Eyes {
    pub(crate) fn new(kind: Kind, symbols: usize) -> Self {
        Self {
            kind,
            planted: Vec::new(),
            heard: vec![[Time::ZERO; 2]; symbols],
            trades: vec![BTreeMap::new(); symbols],
            got: vec![BTreeSet::new(); symbols],
            missing: vec![BTreeSet::new(); symbols],
            live: vec![false; symbols],
            report: Report::default(),
            trail: Vec::new(),
        }
    }

    /// A sign of faults that a symbol, or a connection, has had.
    fn find(&mut self, found: impl Fn(&Planted) -> bool) {
        let count = &mut self.report.found;
        self.planted.retain(|planted| {
            let is = found(planted);
            count[planted.fault as usize] += u64::from(is);
            !is
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
        let of_book = |planted: &Planted| planted.fault != Fault::Forgotten;
        match notice {
            Notice::Rebuilding { symbol, .. } => {
                assert!(std::mem::replace(&mut self.live[symbol.index()], false));
                self.find(|planted| planted.symbol == symbol.index() && of_book(planted));
                self.report.rebuilt += 1;
            }
            Notice::CopyRebuilding { symbol, link, .. } => {
                let is = |planted: &Planted| planted.symbol == symbol.index() && planted.link == link.number();
                self.find(|planted| is(planted) && of_book(planted));
            }
            Notice::Live { symbol } => {
                assert!(!std::mem::replace(&mut self.live[symbol.index()], true));
            }
            Notice::MissingMessages { link, .. } => {
                self.find(|planted| planted.link == link.number() && of_book(planted));
            }
            Notice::Unconfirmed { symbol, channel, link } | Notice::Stale { symbol, channel, link, .. } => {
                let is = |planted: &Planted| planted.symbol == symbol.index() && planted.link == link.number();
                let is_book = channel == Channel::Book;
                self.find(|planted| is(planted) && planted.fault == Fault::Forgotten && planted.is_book == is_book);
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
    /// Faults by kind that the feed could find, and those that it has found. The others ended with their connection, or had no
    /// effect.
    pub(crate) planted: [u64; 4],
    pub(crate) found: [u64; 4],
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
        for kind in 0..4 {
            self.planted[kind] += other.planted[kind];
            self.found[kind] += other.found[kind];
        }
    }
}
