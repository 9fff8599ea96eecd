//! Measures every provider for every suite, direction and class of sizes.

use super::class::{Class, Direction};
use super::context::Context;
use super::provider::{PROVIDERS, Provider, TAG};
use crate::schedule::{IV, Suite};
use std::time::{Duration, Instant};
use tautline_tls::record::HEADER;

/// Most time for the measurement. Slow processors get fewer rounds.
const BUDGET: Duration = Duration::from_millis(2);

/// Rounds over everything that is measured. The first one meets cold caches.
const MOST_ROUNDS: usize = 12;
const LEAST_ROUNDS: usize = 3;

/// The favourite is kept unless another provider takes less than this share of its time.
///
/// It keeps the choice the same in every process. The margin is wide because two contexts for a key cost cache misses,
/// which a measurement on hot memory does not see.
const MARGIN: f64 = 0.75;

/// Bytes of content and number of records for each class. Small records are too short for a clock.
const fn load(class: Class) -> (usize, usize) {
    match class {
        Class::Small => (72, 8),
        Class::Medium => (1024, 2),
        Class::Large => (LARGE, 1),
    }
}

/// Bytes of content of a large record.
const LARGE: usize = 8192;

/// Times of all providers, in ns per record.
#[derive(Clone, Debug)]
pub struct Table {
    cells: Vec<Cell>,
}

/// One suite, class and direction.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The suite.
    pub suite: Suite,
    /// The class of sizes.
    pub class: Class,
    /// Whether records are sealed or opened.
    pub direction: Direction,
    /// The shortest time of each provider, in the order of [`Provider::ALL`]; infinite if it failed.
    ns: [f64; PROVIDERS],
}

impl Table {
    /// All cells: suites first, then classes, then directions.
    #[must_use]
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The provider to take: the favourite, unless another one is faster by more than a quarter.
    ///
    /// The favourite of large records is AWS-LC, and that of smaller ones is the provider of the next larger class.
    #[must_use]
    pub fn fastest(&self, suite: Suite, class: Class, direction: Direction) -> Provider {
        let mut favourite = Provider::AwsLc;
        for larger in Class::ALL.into_iter().rev().filter(|larger| *larger as u8 >= class as u8) {
            let is_it = |cell: &&Cell| (cell.suite, cell.class, cell.direction) == (suite, larger, direction);
            favourite = self.cells.iter().find(is_it).map_or(favourite, |cell| cell.faster_than(favourite));
        }
        favourite
    }
}

impl Cell {
    /// The shortest time of a provider, in ns; `None` if it failed.
    #[must_use]
    pub fn ns(&self, provider: Provider) -> Option<f64> {
        Some(self.ns[provider as usize]).filter(|ns| ns.is_finite())
    }

    /// The fastest provider that is faster than `favourite` by the margin, or else `favourite`.
    fn faster_than(&self, favourite: Provider) -> Provider {
        let mut best = (self.ns[favourite as usize] * MARGIN, favourite);
        for (&ns, provider) in self.ns.iter().zip(Provider::ALL) {
            if ns < best.0 {
                best = (ns, provider);
            }
        }
        best.1
    }
}

/// Measures for at most [`BUDGET`].
pub(super) fn run() -> Table {
    let start = Instant::now();
    let mut table = Table { cells: Vec::new() };
    for suite in Suite::ALL {
        for class in Class::ALL {
            let ns = [f64::INFINITY; PROVIDERS];
            table.cells.extend(Direction::ALL.map(|direction| Cell { suite, class, direction, ns }));
        }
    }
    let contexts = Suite::ALL
        .map(|suite| Provider::ALL.map(|provider| Context::new(provider, suite, &[7; 32][..suite.key_len()]).ok()));
    let (plain, mut memory) = ([0x5a; LARGE], [0; LARGE + 1 + TAG]);
    for round in 0..MOST_ROUNDS {
        for (number, cells) in table.cells.chunks_mut(Direction::ALL.len()).enumerate() {
            if round >= LEAST_ROUNDS && start.elapsed() >= BUDGET {
                return table;
            }
            for (provider, context) in contexts[number / Class::ALL.len()].iter().enumerate() {
                let times = context.as_ref().and_then(|context| time(context, cells[0].class, &plain, &mut memory));
                for (cell, ns) in cells.iter_mut().zip(times.into_iter().flatten()) {
                    cell.ns[provider] = cell.ns[provider].min(ns);
                }
            }
        }
    }
    table
}

/// Seals and opens the records of a class; returns the time of one in ns, in the order of [`Direction::ALL`].
///
/// As on the record path, content is sealed from elsewhere, and behind a header. It is opened in place.
fn time(context: &Context, class: Class, plain: &[u8], memory: &mut [u8]) -> Option<[f64; 2]> {
    let (len, records) = load(class);
    let bodies = || (0..records).map(|number| number * (len + 1 + TAG)..(number + 1) * (len + 1 + TAG));
    // Any nonce, since all bytes are known.
    let nonce = [7; IV];
    let start = Instant::now();
    for body in bodies() {
        context.seal(nonce, [0; HEADER], (plain.get(..len)?, 23), memory.get_mut(body)?)?;
    }
    let sealed = Instant::now();
    for body in bodies() {
        context.open(nonce, [0; HEADER], memory.get_mut(body)?)?;
    }
    let took = [sealed - start, sealed.elapsed()];
    Some(took.map(|took| took.as_secs_f64() * 1e9 / records as f64))
}

#[cfg(test)]
mod tests;
