use super::tally;
use hdrhistogram::Histogram;

/// A part of the way of a message that was [sent to be timed](crate::Conn::send_timed). [`Write`](Self::Write) and
/// [`Kernel`](Self::Kernel) add up to [`Sent`](Self::Sent).
///
/// ```
/// # mod tautline { pub use tautline_engine::probe::SendStage; }
/// use tautline::SendStage;
///
/// assert_eq!(SendStage::ALL.map(SendStage::name), ["write", "kernel", "sent", "trade"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendStage {
    /// From the decision to the system call: encoding, sealing, and other work of the turn.
    Write,
    /// From the system call until the kernel gave the last byte to the network card.
    Kernel,
    /// From the decision until then.
    Sent,
    /// From the arrival of the deciding message until then.
    TickToTrade,
}

impl SendStage {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Write, Self::Kernel, Self::Sent, Self::TickToTrade];

    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Kernel => "kernel",
            Self::Sent => "sent",
            Self::TickToTrade => "trade",
        }
    }
}

/// The distributions of timed sends.
#[derive(Clone)]
pub(crate) struct SendResults {
    /// In ticks, in the order of [`SendStage::ALL`].
    histograms: [Histogram<u64>; 4],
    /// Sends that were timed.
    pub(super) timed: u64,
    /// Those of them for which no stamp came.
    pub(super) unstamped: u64,
    /// Sends beyond those that are timed at once.
    pub(super) untimed: u64,
}

impl SendResults {
    pub(super) fn new() -> Self {
        Self { histograms: std::array::from_fn(|_| tally::empty()), timed: 0, unstamped: 0, untimed: 0 }
    }

    pub(super) fn add(&mut self, stage: SendStage, ticks: u64) {
        self.histograms[stage as usize].saturating_record(ticks);
    }

    pub(super) const fn of(&self, stage: SendStage) -> &Histogram<u64> {
        &self.histograms[stage as usize]
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, other) in self.histograms.iter_mut().zip(&other.histograms) {
            // Cannot fail, since all histograms have the same bounds.
            let _ = mine.add(other);
        }
        self.timed += other.timed;
        self.unstamped += other.unstamped;
        self.untimed += other.untimed;
    }

    pub(super) fn since(&mut self, earlier: &Self) {
        for (mine, earlier) in self.histograms.iter_mut().zip(&earlier.histograms) {
            if mine.subtract(earlier).is_err() {
                mine.reset();
            }
        }
        self.timed = self.timed.saturating_sub(earlier.timed);
        self.unstamped = self.unstamped.saturating_sub(earlier.unstamped);
        self.untimed = self.untimed.saturating_sub(earlier.untimed);
    }
}
