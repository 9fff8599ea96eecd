use std::ops::RangeInclusive;

/// Bits of a word of the window.
const WORD: u64 = u64::BITS as u64;

/// Chooses the first copy of each numbered message that several feeds send, and tells gaps.
///
/// It remembers which of the last numbers have come, in one bit for each. Numbers below them count as [`Copy::Old`].
///
/// ```
/// use tautline_feed::{Arbiter, Copy};
///
/// let mut arbiter = Arbiter::new(1024);
/// assert_eq!(arbiter.offer(10), Copy::Next); // from feed A
/// assert_eq!(arbiter.offer(10), Copy::Duplicate); // from feed B
/// assert_eq!(arbiter.offer(13), Copy::Ahead { missing: 11..=12 });
/// assert_eq!(arbiter.offer(11), Copy::Late); // the other feed has what this one lost
/// assert_eq!((arbiter.copies().first, arbiter.copies().duplicates, arbiter.missing()), (3, 1, 1));
/// ```
#[derive(Clone, Debug)]
pub struct Arbiter {
    /// Which of the last numbers up to `highest` have come, by the number's remainder.
    seen: Box<[u64]>,
    highest: Option<u64>,
    /// The lowest number that is not too old.
    lowest: u64,
    missing: u64,
    copies: Copies,
}

/// The part that a message plays among its copies.
///
/// ```
/// use tautline_feed::Copy;
///
/// assert!(Copy::Ahead { missing: 5..=6 }.is_first() && !Copy::Duplicate.is_first());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Copy {
    /// The first copy of the next number.
    Next,
    /// The first copy of a number ahead of the next one. No copy of those between has come yet.
    Ahead {
        /// The numbers between.
        missing: RangeInclusive<u64>,
    },
    /// The first copy of a number that was missing.
    Late,
    /// Another copy has come before.
    Duplicate,
    /// The number is so old that nobody knows whether a copy has come before.
    Old,
}

impl Copy {
    /// Whether the application should use the message.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        matches!(self, Self::Next | Self::Ahead { .. } | Self::Late)
    }
}

/// Numbers of messages by the part that they played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copies {
    /// First copies, late ones included.
    pub first: u64,
    /// First copies of numbers that were missing.
    pub late: u64,
    /// Further copies.
    pub duplicates: u64,
    /// Messages that were too old to tell.
    pub old: u64,
    /// Numbers that no feed has sent until they were too old.
    pub lost: u64,
}

impl Arbiter {
    /// An arbiter that remembers the last `window` numbers, rounded up to a multiple of 64.
    ///
    /// The window should hold all messages of the time by which feeds differ.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let words = window.div_ceil(64).max(1);
        let (copies, missing) = (Copies::default(), 0);
        Self { seen: vec![0; words].into_boxed_slice(), highest: None, lowest: 0, missing, copies }
    }

    /// Decides about a message with this number, from any of the feeds.
    ///
    /// A feed that sends a number far ahead makes all lower ones old. If an application does not trust a feed that far, it
    /// compares the number with [`highest`](Self::highest) first.
    pub fn offer(&mut self, number: u64) -> Copy {
        let Some(highest) = self.highest else {
            self.reset(number);
            self.advance(number);
            self.copies.first += 1;
            return Copy::Next;
        };
        if number > highest {
            self.skip(highest + 1, number);
            self.advance(number);
            self.copies.first += 1;
            let missing = highest + 1..=number - 1;
            return if missing.is_empty() { Copy::Next } else { Copy::Ahead { missing } };
        }
        if number < self.lowest {
            self.copies.old += 1;
            return Copy::Old;
        }
        let (word, bit) = self.place(number);
        if self.seen[word] & bit != 0 {
            self.copies.duplicates += 1;
            return Copy::Duplicate;
        }
        self.seen[word] |= bit;
        self.missing -= 1;
        self.copies.first += 1;
        self.copies.late += 1;
        Copy::Late
    }

    /// The highest number so far; `None` before the first message.
    #[must_use]
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// The numbers that are missing at present, and that a feed may still send.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Whether a copy of this number has come. False for numbers that are not in the window any more.
    #[must_use]
    pub fn has_seen(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        self.highest.is_some_and(|highest| (self.lowest..=highest).contains(&number)) && self.seen[word] & bit != 0
    }

    /// The counts so far.
    #[must_use]
    pub const fn copies(&self) -> Copies {
        self.copies
    }

    /// Begins anew with the next message, which is then the first: the feeds have restarted their numbers. Counts stay.
    pub fn restart(&mut self) {
        self.highest = None;
    }

    fn reset(&mut self, number: u64) {
        self.seen.fill(0);
        self.lose(self.missing);
        self.missing = 0;
        self.lowest = number;
    }

    /// A sender whose numbers jump far, and begin anew, could have more than all numbers be lost.
    const fn lose(&mut self, numbers: u64) {
        self.copies.lost = self.copies.lost.saturating_add(numbers);
    }

    /// Puts the numbers from `next` to before `number` into the window as missing.
    fn skip(&mut self, next: u64, number: u64) {
        let window = self.window();
        // Numbers that leave the window are lost if they are missing. In a far jump all of it leaves.
        let jump = number - next;
        if jump >= window {
            self.lose(self.missing);
            self.lose(jump - (window - 1));
            self.seen.fill(0);
            self.missing = window - 1;
            self.lowest = number - (window - 1);
            return;
        }
        for skipped in next..number {
            self.leave(skipped);
            let (word, bit) = self.place(skipped);
            self.seen[word] &= !bit;
            self.missing += 1;
        }
    }

    /// Puts `number` into the window as seen.
    fn advance(&mut self, number: u64) {
        self.leave(number);
        let (word, bit) = self.place(number);
        self.seen[word] |= bit;
        self.highest = Some(number);
    }

    /// Takes the number out of the window whose place `number` gets.
    fn leave(&mut self, number: u64) {
        let window = self.window();
        if number - self.lowest < window {
            return;
        }
        let (word, bit) = self.place(number);
        if self.seen[word] & bit == 0 {
            self.missing -= 1;
            self.lose(1);
        }
        self.lowest = number - window + 1;
    }

    const fn window(&self) -> u64 {
        self.seen.len() as u64 * WORD
    }

    /// The word and the bit of a number.
    const fn place(&self, number: u64) -> (usize, u64) {
        ((number / WORD % self.seen.len() as u64) as usize, 1 << (number % WORD))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arbiter, Copies, Copy};
    use std::collections::BTreeSet;

    /// An arbiter that remembers everything, and the window's lower end.
    #[derive(Default)]
    struct Oracle {
        seen: BTreeSet<u64>,
        first: Option<u64>,
        counts: Copies,
    }

    impl Oracle {
        fn lowest(&self, window: u64) -> u64 {
            let top = self.seen.last().copied().unwrap_or_default();
            self.first.unwrap_or_default().max((top + 1).saturating_sub(window))
        }

        fn offer(&mut self, number: u64, window: u64) -> Copy {
            let Some(&top) = self.seen.last() else {
                self.first = Some(number);
                self.seen.insert(number);
                self.counts.first += 1;
                return Copy::Next;
            };
            if number < self.lowest(window) {
                self.counts.old += 1;
                return Copy::Old;
            }
            if !self.seen.insert(number) {
                self.counts.duplicates += 1;
                return Copy::Duplicate;
            }
            self.counts.first += 1;
            if number == top + 1 {
                Copy::Next
            } else if number > top {
                Copy::Ahead { missing: top + 1..=number - 1 }
            } else {
                self.counts.late += 1;
                Copy::Late
            }
        }

        fn missing(&self, window: u64) -> u64 {
            let Some(&top) = self.seen.last() else { return 0 };
            (self.lowest(window)..top).filter(|number| !self.seen.contains(number)).count() as u64
        }
    }

    #[test]
    fn agrees_with_an_oracle_that_remembers_everything() {
        for window in [64, 128, 192] {
            for seed in 1..40_u64 {
                let (mut arbiter, mut oracle) = (Arbiter::new(window), Oracle::default());
                let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut below = |n: u64| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random % n
                };
                let mut at = 1_000 + below(1_000);
                for _ in 0..600 {
                    match below(20) {
                        0 => at += below(window as u64 * 3),
                        1..=5 => at += below(6),
                        _ => at += 1,
                    }
                    let back = if below(4) == 0 { window as u64 * 2 } else { 5 };
                    let number = at.saturating_sub(below(back));
                    let window = window as u64;
                    assert_eq!(arbiter.offer(number), oracle.offer(number, window), "{number}, seed {seed}");
                    assert_eq!(arbiter.missing(), oracle.missing(window), "{number}, seed {seed}");
                    let probe = at.saturating_sub(below(window * 2));
                    let seen = probe >= oracle.lowest(window) && oracle.seen.contains(&probe);
                    assert_eq!(arbiter.has_seen(probe), seen, "{probe}, seed {seed}");
                }
                let span = oracle.seen.last().unwrap() + 1 - oracle.first.unwrap();
                let copies = arbiter.copies();
                assert_eq!(copies.first + copies.lost + arbiter.missing(), span);
                assert_eq!(Copies { lost: 0, ..copies }, oracle.counts);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers_are_no_trap() {
        let mut arbiter = Arbiter::new(64);
        assert_eq!(arbiter.offer(0), Copy::Next);
        assert_eq!(arbiter.offer(u64::MAX), Copy::Ahead { missing: 1..=u64::MAX - 1 });
        assert_eq!(arbiter.offer(0), Copy::Old);
        assert_eq!((arbiter.offer(u64::MAX - 1), arbiter.offer(u64::MAX)), (Copy::Late, Copy::Duplicate));
        assert_eq!(arbiter.missing(), 62);
        arbiter.restart();
        assert_eq!((arbiter.offer(3), arbiter.offer(3), arbiter.offer(2)), (Copy::Next, Copy::Duplicate, Copy::Old));
        assert_eq!(arbiter.missing(), 0);
    }

    #[test]
    fn numbers_that_jump_to_their_end_again_and_again_are_counted_to_the_end() {
        let mut arbiter = Arbiter::new(64);
        for _ in 0..3 {
            assert_eq!(arbiter.offer(1), Copy::Next);
            assert_eq!(arbiter.offer(u64::MAX), Copy::Ahead { missing: 2..=u64::MAX - 1 });
            arbiter.restart();
        }
        assert_eq!(arbiter.copies().lost, u64::MAX);
    }
}
