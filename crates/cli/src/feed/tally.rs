//! The counts of a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tautline_feed::{LinkId, SymbolId};
use tautline_lab::table::Table;
use tautline_lab::{ByReport, Latencies};

/// Counts of symbols and connections, and the times of decisions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) symbols: Vec<Symbol>,
    pub(super) links: BTreeMap<LinkId, Link>,
    /// Events that a recording lacks.
    pub(super) unrecorded: u64,
    pub(super) by_report: ByReport,
    /// From the card to the decision.
    pub(super) to_decision: Latencies,
    /// From the call of the handler to the decision.
    pub(super) decision: Latencies,
}

#[derive(Debug, Default)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) trades: u64,
    pub(super) books: u64,
    /// Numbers of trades that never came.
    pub(super) missing: u64,
    /// Times that the book was rebuilt, after it was up to date.
    pub(super) rebuilt: u64,
    pub(super) stale: u64,
}

#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) connects: u64,
    pub(super) ends: u64,
    /// Copies with which it was first, and second.
    pub(super) first: u64,
    pub(super) second: u64,
    /// The sum of times by which it was second.
    pub(super) behind: Duration,
}

/// Connections in the table, at most: others have ended long ago.
const SHOWN: usize = 20;

impl Tally {
    pub(super) fn new(names: Vec<String>) -> Self {
        let symbols = names.into_iter().map(|name| Symbol { name, ..Symbol::default() }).collect();
        Self { symbols, ..Self::default() }
    }

    pub(super) fn symbol(&mut self, symbol: SymbolId) -> Option<&mut Symbol> {
        self.symbols.get_mut(symbol.index())
    }

    pub(super) fn link(&mut self, link: LinkId) -> &mut Link {
        if self.links.len() > 10 * SHOWN {
            self.links.pop_first();
        }
        self.links.entry(link).or_default()
    }

    /// Tables of all counts. `name` is that of the composition.
    pub(super) fn text(&self, name: &str) -> String {
        let mut symbols = Table::new(&["<symbol", "trades", "missing", "books", "rebuilt", "stale"]);
        for one in &self.symbols {
            let counts = [one.trades, one.missing, one.books, one.rebuilt, one.stale];
            symbols.row([one.name.clone()].into_iter().chain(counts.map(|count| count.to_string())));
        }
        let mut links = Table::new(&["<connection", "connects", "ends", "first", "second", "us behind"]);
        for (link, one) in self.links.iter().rev().take(SHOWN).rev() {
            let counts = [one.connects, one.ends, one.first, one.second].map(|count| count.to_string());
            let behind = one.behind.as_secs_f64() * 1e6 / one.second.max(1) as f64;
            links.row([link.number().to_string()].into_iter().chain(counts).chain([format!("{behind:.0}")]));
        }
        let mut text = format!("{symbols}\n{links}");
        let mut decisions = Table::new(&["<us", "messages", "p50", "p99", "p99.9"]);
        for (name, times) in [("decision", &self.decision), ("card to decision", &self.to_decision)] {
            if times.count() > 0 {
                let quantiles = [0.5, 0.99, 0.999].map(|share| format!("{:.3}", times.quantile_us(share)));
                decisions.row([name.to_owned(), times.count().to_string()].into_iter().chain(quantiles));
            }
        }
        if !decisions.is_empty() {
            let _ = write!(text, "\n{decisions}");
        }
        if let Some(table) = self.by_report.table(name) {
            let _ = write!(text, "\n{table}");
        }
        text
    }
}
