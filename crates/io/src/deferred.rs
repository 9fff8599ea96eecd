use crate::{Address, Token};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Work that a driver does later by itself: accept again, repeat connects and sends, reset orphans.
#[derive(Default)]
pub(crate) struct Deferred {
    /// When to accept again after a failure.
    accept: Option<Instant>,
    /// The user wants no connections for now.
    paused: bool,
    /// Accepting failed, the sink was told, and nothing was accepted since.
    failing: bool,
    /// When to repeat `retries` and `sends`.
    retry: Option<Instant>,
    /// Connections to Unix listeners whose queue was full. The kernel does not report when there is room again.
    retries: Vec<(Token, Address)>,
    /// Connections with a send for which the kernel had no memory. It does not report either when it has some again.
    sends: Vec<Token>,
    /// Closed connections that still send, with the time at which they are reset; the earliest first.
    orphans: VecDeque<(Instant, Token)>,
}

impl Deferred {
    /// Pause of accepting after it failed for want of descriptors or memory.
    const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

    /// Longest linger time: longer than anybody waits, and short enough to be added to an `Instant`.
    const FOR_EVER: Duration = Duration::from_hours(24 * 365);

    /// Pause before a connect to a full Unix listener, or a send that found no memory, is repeated.
    const RETRY: Duration = Duration::from_millis(2);

    /// When the earliest work is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let orphan = self.orphans.front().map(|&(at, _)| at);
        [self.accept, self.retry, orphan].into_iter().flatten().min()
    }

    /// `timeout`, but at most the time until the earliest work is due.
    #[inline(always)]
    pub(crate) fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(chore) = self.next() else { return timeout };
        let chore = chore.saturating_duration_since(Instant::now());
        Some(timeout.map_or(chore, |timeout| timeout.min(chore)))
    }

    /// Whether nothing is to be accepted for now.
    pub(crate) const fn accept_rests(&self) -> bool {
        self.paused || self.accept.is_some()
    }

    /// Pauses or resumes accepting for the user. Returns whether that changes anything.
    pub(crate) const fn pause_accept(&mut self, pause: bool) -> bool {
        std::mem::replace(&mut self.paused, pause) != pause
    }

    pub(crate) const fn accepted(&mut self) {
        self.failing = false;
    }

    /// Pauses accepting after descriptors or memory ran out. The connection stays in the backlog, so that retrying at
    /// once would spin. Returns whether the sink is to hear of it: only of the first of several failures in a row.
    pub(crate) fn accept_failed(&mut self) -> bool {
        self.accept = Some(Instant::now() + Self::ACCEPT_PAUSE);
        !std::mem::replace(&mut self.failing, true)
    }

    /// Whether the pause after a failure is over. Returns `true` once for each pause.
    pub(crate) fn due_accept(&mut self, now: Instant) -> bool {
        self.accept.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn retry_later(&mut self, token: Token, address: Address) {
        self.retries.push((token, address));
        self.retry.get_or_insert_with(|| Instant::now() + Self::RETRY);
    }

    pub(crate) fn send_later(&mut self, token: Token) {
        self.sends.push(token);
        self.retry.get_or_insert_with(|| Instant::now() + Self::RETRY);
    }

    /// Connections whose connect is due to be repeated, and connections whose send is.
    pub(crate) fn due_retries(&mut self, now: Instant) -> (Vec<(Token, Address)>, Vec<Token>) {
        if self.retry.take_if(|at| *at <= now).is_none() {
            return Default::default();
        }
        (std::mem::take(&mut self.retries), std::mem::take(&mut self.sends))
    }

    /// Lets a closed connection send for `linger`, which is the same for all: that keeps the queue in order.
    pub(crate) fn adopt(&mut self, orphan: Token, linger: Duration) {
        self.orphans.push_back((Instant::now() + linger.min(Self::FOR_EVER), orphan));
    }

    pub(crate) fn due_orphan(&mut self, now: Instant) -> Option<Token> {
        if self.orphans.front()?.0 > now {
            return None;
        }
        self.orphans.pop_front().map(|(_, token)| token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_may_linger_for_ever() {
        let mut deferred = Deferred::default();
        let orphan = Token { index: 7, generation: 0 };
        deferred.adopt(orphan, Duration::MAX);
        assert_eq!(deferred.due_orphan(Instant::now()), None);
        assert!(deferred.clip(None).is_some_and(|wait| wait > Duration::from_hours(24)));
        assert_eq!(deferred.due_orphan(Instant::now() + Deferred::FOR_EVER), Some(orphan));
    }
}
