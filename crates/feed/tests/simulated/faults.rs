//! Planted faults: each one is found, or excused for a reason that is shown to hold.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tautline_feed::{Kraken, LinkId, Message, Side, Time, Venue as _};
use tautline_venue::{Fault, Kind, Mark, Planted, State, Venue};

/// Levels of each side of Kraken's books.
const LEVELS: usize = 10;

/// A reason for which a fault needs no finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// Its connection has ended before a message came that could show it, or before the feed's patience was over.
    Ended,
    /// The book was being rebuilt when such a message came.
    Rebuilt,
    /// Another connection or a snapshot has brought the change first.
    Covered,
    /// The change has changed its place with a message that is none of its book.
    Apart,
    /// The changes behind it have led to the venue's book, as if nothing had been lost.
    Undone,
}

/// A fault that is neither found nor excused.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) planted: Planted,
    /// The place of the first message, among those to all clients, that the venue has sent behind it.
    from: usize,
    /// Kraken's book as this fault leaves it with the client.
    copy: State,
    /// Whether a message of the book has come behind it, without a sign of it.
    has_come: bool,
    /// The swapped change is still to come.
    is_under_way: bool,
    /// The last update that the client was sent, or has lost.
    newest: u64,
}

/// A message that the feed has received.
pub(crate) struct Arrival<'a> {
    pub(crate) link: u32,
    /// Its place among the messages to all clients.
    pub(crate) letter: usize,
    pub(crate) mark: Mark,
    pub(crate) text: &'a str,
    /// Whether the copy of the book that it belongs to was up to date before, and is so now.
    pub(crate) was_live: bool,
    pub(crate) is_live: bool,
}

enum Verdict {
    Open,
    Excused(Excuse),
    Missed,
}

/// The faults of a run.
pub(crate) struct Faults {
    kind: Kind,
    pub(crate) open: Vec<Open>,
    pub(crate) counts: Counts,
    /// The last message that has come on a connection, and of a book on it.
    arrived: BTreeMap<(u32, Option<usize>), usize>,
    /// The silence that the feed bears at first, and, of a stream that was stale, at most.
    patience: Duration,
    patiences: BTreeMap<(u32, usize, bool), Duration>,
}

impl Faults {
    pub(crate) fn new(kind: Kind, patience: Duration) -> Self {
        let (open, counts, arrived, patiences) = (Vec::new(), Counts::default(), BTreeMap::new(), BTreeMap::new());
        Self { kind, open, counts, arrived, patience, patiences }
    }

    /// The venue has planted a fault. All messages from the place `from` on follow it.
    pub(crate) fn plant(&mut self, planted: Planted, from: usize, copy: State) {
        self.counts.planted[planted.fault as usize] += 1;
        let (is_under_way, newest) = (planted.fault == Fault::Swapped, planted.last);
        self.open.push(Open { planted, from, copy, has_come: false, is_under_way, newest });
    }

    /// The feed has told of faults.
    pub(crate) fn find(&mut self, is_it: impl Fn(&Open) -> bool) {
        let found = &mut self.counts.found;
        self.open.retain(|open| {
            let is = is_it(open);
            found[open.planted.fault as usize] += u64::from(is);
            !is
        });
    }

    /// The feed has found a stream stale: it waits for twice the time for the next message.
    pub(crate) fn was_stale(&mut self, stream: (u32, usize, bool)) {
        let patience = self.patiences.entry(stream).or_insert(self.patience);
        *patience *= 2;
    }

    /// The feed has received a message, and has told of the faults that it has found by it. Returns one that it has missed.
    pub(crate) fn weigh(&mut self, arrival: &Arrival<'_>, venue: &Venue) -> Option<Open> {
        self.arrived.insert((arrival.link, None), arrival.letter);
        let mut before = None;
        if let Mark::Depth { symbol, .. } = arrival.mark {
            before = self.arrived.insert((arrival.link, Some(symbol)), arrival.letter);
        }
        let kind = self.kind;
        self.settle(|open| match (open.planted.fault, kind) {
            (Fault::Forgotten, _) => Verdict::Open,
            (_, Kind::Binance) => open.weigh_update(arrival, before),
            (_, Kind::Coinbase) => open.weigh_number(arrival),
            (_, Kind::Kraken) => open.weigh_checksum(arrival, venue),
        })
    }

    /// A snapshot has been fetched that contains all up to an update.
    pub(crate) fn refresh(&mut self, symbol: usize, last: u64, was_live: bool) {
        let excuse = if was_live { Excuse::Covered } else { Excuse::Rebuilt };
        self.settle(|Open { planted, .. }| {
            let is_in = planted.fault != Fault::Forgotten && planted.symbol == symbol && planted.last <= last;
            if is_in { Verdict::Excused(excuse) } else { Verdict::Open }
        });
    }

    /// A connection has ended. Returns a fault that had to be found before.
    pub(crate) fn end(&mut self, link: u32, now: Time) -> Option<Open> {
        let (kind, patience) = (self.kind, self.patience);
        let (arrived, patiences) = (std::mem::take(&mut self.arrived), std::mem::take(&mut self.patiences));
        let missed = self.settle(|open| {
            let Planted { fault, symbol, is_book, at, .. } = open.planted;
            if open.planted.link != link {
                return Verdict::Open;
            }
            let could_be_found = if fault == Fault::Forgotten {
                let patience = patiences.get(&(link, symbol, is_book)).copied().unwrap_or(patience);
                // Two seconds for the request and its answer.
                now - at > patience + Duration::from_secs(2)
            } else {
                let symbol = (kind != Kind::Coinbase).then_some(symbol);
                let last = arrived.get(&(link, symbol)).copied();
                last.is_some_and(|letter| letter >= open.from) && !open.has_come
            };
            if could_be_found { Verdict::Missed } else { Verdict::Excused(Excuse::Ended) }
        });
        (self.arrived, self.patiences) = (arrived, patiences);
        missed
    }

    fn settle(&mut self, mut weigh: impl FnMut(&mut Open) -> Verdict) -> Option<Open> {
        let mut missed = None;
        for mut open in std::mem::take(&mut self.open) {
            match weigh(&mut open) {
                Verdict::Open => self.open.push(open),
                Verdict::Excused(excuse) => self.counts.excused[open.planted.fault as usize][excuse as usize] += 1,
                Verdict::Missed => missed = Some(open),
            }
        }
        missed
    }
}

impl Open {
    /// Whether a message that has come on a connection may show it.
    pub(crate) fn is_shown_by(&self, (link, letter): (LinkId, usize)) -> bool {
        self.planted.link == link.number() && self.from <= letter
    }

    pub(crate) fn is_change(&self) -> bool {
        matches!(self.planted.fault, Fault::Dropped | Fault::Swapped)
    }

    /// Binance numbers updates: the next change of the book shows it, whatever connection brings it. `before` is the last change
    /// that the connection has brought earlier. If that is older than the fault, no change has passed the one that was held.
    fn weigh_update(&self, arrival: &Arrival<'_>, before: Option<usize>) -> Verdict {
        let Mark::Depth { symbol, last, .. } = arrival.mark else { return Verdict::Open };
        if symbol != self.planted.symbol || last < self.planted.last {
            return Verdict::Open;
        }
        match (last == self.planted.last, arrival.link == self.planted.link) {
            (true, false) => Verdict::Excused(Excuse::Covered),
            (true, true) if arrival.was_live && before.is_none_or(|before| before < self.from) => {
                Verdict::Excused(Excuse::Apart)
            }
            _ if !arrival.was_live => Verdict::Excused(Excuse::Rebuilt),
            _ => Verdict::Missed,
        }
    }

    /// Coinbase numbers messages: the next one of the connection shows it.
    fn weigh_number(&self, arrival: &Arrival<'_>) -> Verdict {
        let is_next = arrival.link == self.planted.link && arrival.letter >= self.from;
        if is_next { Verdict::Missed } else { Verdict::Open }
    }

    /// Kraken's checksums show it as soon as the book differs from that of the venue.
    fn weigh_checksum(&mut self, arrival: &Arrival<'_>, venue: &Venue) -> Verdict {
        let Mark::Depth { symbol, last, is_snapshot } = arrival.mark else { return Verdict::Open };
        let is_of_copy = arrival.link == self.planted.link && symbol == self.planted.symbol;
        if !is_of_copy || arrival.letter < self.from {
            return Verdict::Open;
        }
        if !arrival.was_live {
            return Verdict::Excused(Excuse::Rebuilt);
        }
        let book = venue.book(symbol).expect("all symbols have books");
        let theirs = book.at(last).expect("the state is kept");
        if is_snapshot {
            self.copy.clone_from(theirs);
        } else {
            apply(&mut self.copy, arrival.text);
        }
        if self.planted.fault == Fault::Checksum || self.copy != *theirs || !arrival.is_live {
            return Verdict::Missed;
        }
        let is_first = !std::mem::replace(&mut self.has_come, true);
        self.newest = self.newest.max(last);
        let is_itself = last == self.planted.last;
        self.is_under_way &= !is_itself;
        if self.is_under_way || book.at(self.newest) != Some(&self.copy) {
            return Verdict::Open;
        }
        Verdict::Excused(match (is_itself && is_first, is_snapshot) {
            (true, _) => Excuse::Apart,
            (false, true) => Excuse::Covered,
            (false, false) => Excuse::Undone,
        })
    }
}

/// Applies a message of Kraken to a book in hundredths and ten-thousandths.
fn apply(state: &mut State, text: &str) {
    let mut take = |message: Message<'_>| {
        let Message::Depth(depth) = message else { return };
        for level in depth.levels {
            let side = if level.side == Side::Bid { &mut state.bids } else { &mut state.asks };
            let quote = (level.price.at(2).expect("hundredths"), level.quantity.at(4).expect("ten-thousandths"));
            side.retain(|(price, _)| *price != quote.0);
            side.extend((quote.1 > 0).then_some(quote));
        }
    };
    Kraken::new().decode(text.as_bytes(), &mut Vec::new(), &mut take).expect("the venue writes what it documents");
    state.bids.sort_unstable_by_key(|(price, _)| -price);
    state.asks.sort_unstable();
    state.bids.truncate(LEVELS);
    state.asks.truncate(LEVELS);
}

/// Counts of faults, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) planted: [u64; 4],
    pub(crate) found: [u64; 4],
    /// By kind, then by [`Excuse`].
    pub(crate) excused: [[u64; 5]; 4],
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        for kind in 0..4 {
            self.planted[kind] += other.planted[kind];
            self.found[kind] += other.found[kind];
            for (sum, count) in self.excused[kind].iter_mut().zip(other.excused[kind]) {
                *sum += count;
            }
        }
    }

    /// Each fault is found or excused, and only as its kind can be.
    pub(crate) fn check(&self, kind: Kind) {
        for (fault, excused) in self.excused.iter().enumerate() {
            let settled = self.found[fault] + excused.iter().sum::<u64>();
            assert_eq!(self.planted[fault], settled, "not all faults are found or excused:\n{self}");
        }
        let never = |fault: Fault, excuses: &[Excuse]| {
            let count: u64 = excuses.iter().map(|excuse| self.excused[fault as usize][*excuse as usize]).sum();
            assert_eq!(count, 0, "{fault:?} cannot be excused by {excuses:?}:\n{self}");
        };
        let mute = [Excuse::Covered, Excuse::Apart, Excuse::Undone];
        never(Fault::Dropped, &[Excuse::Apart]);
        never(Fault::Checksum, &mute);
        never(Fault::Forgotten, &[Excuse::Rebuilt, Excuse::Covered, Excuse::Apart, Excuse::Undone]);
        for fault in [Fault::Dropped, Fault::Swapped] {
            match kind {
                Kind::Binance => never(fault, &[Excuse::Undone]),
                Kind::Coinbase => never(fault, &[Excuse::Rebuilt, Excuse::Covered, Excuse::Apart, Excuse::Undone]),
                Kind::Kraken => {}
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["planted", "found", "ended", "rebuilt", "covered", "apart", "undone"];
        write!(f, "{:<10}", "fault")?;
        names.iter().try_for_each(|name| write!(f, "{name:>9}"))?;
        for fault in [Fault::Dropped, Fault::Swapped, Fault::Checksum, Fault::Forgotten] {
            let at = fault as usize;
            write!(f, "\n{:<10}{:>9}{:>9}", format!("{fault:?}"), self.planted[at], self.found[at])?;
            self.excused[at].iter().try_for_each(|count| write!(f, "{count:>9}"))?;
        }
        Ok(())
    }
}
