use crate::{Address, Token};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the driver itself has to do at some time.
#[derive(Default)]
pub(crate) struct Chores {
    /// When to accept again after a failure.
    accept: Option<Instant>,
    /// The user wants no connections for now.
    paused: bool,
    /// Accepting failed, the sink was told, and nothing was accepted since.
    failing: bool,
    /// When to repeat `retries` and `sends`.
    retry: Option<Instant>,
    /// Connections to Unix listeners whose queue was full: the kernel tells nobody when there is room again.
    retries: Vec<(Token, Address)>,
    /// Connections to send on for which the kernel had no memory, which it tells nobody either.
    sends: Vec<Token>,
    /// Closed connections that still send, with the time when their peer has had its chance; the earliest first.
    orphans: VecDeque<(Instant, Token)>,
}

impl Chores {
    /// How long accepting rests after it failed for want of descriptors or memory.
    const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

    /// Longer than anybody waits, and an `Instant` reaches.
    const FOR_EVER: Duration = Duration::from_hours(24 * 365);

    /// How long a Unix listener with a full queue, and a kernel without memory, are left alone.
    const RETRY: Duration = Duration::from_millis(2);

    /// The earliest thing to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let orphan = self.orphans.front().map(|&(at, _)| at);
        [self.accept, self.retry, orphan].into_iter().flatten().min()
    }

    /// How much of `timeout` may pass before there is something to do.
    pub(crate) fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(chore) = self.next() else { return timeout };
        let chore = chore.saturating_duration_since(Instant::now());
        Some(timeout.map_or(chore, |timeout| timeout.min(chore)))
    }

    /// Whether nothing is to be accepted for now.
    pub(crate) const fn accept_rests(&self) -> bool {
        self.paused || self.accept.is_some()
    }

    /// The user wants no connections for now, or wants them again. Returns whether that is new.
    pub(crate) const fn pause_accept(&mut self, pause: bool) -> bool {
        std::mem::replace(&mut self.paused, pause) != pause
    }

    pub(crate) const fn accepted(&mut self) {
        self.failing = false;
    }

    /// Descriptors or memory ran out: retrying at once would spin, as the connection stays in the backlog. Returns
    /// whether the sink is to be told, which it is once for each time that accepting begins to fail.
    pub(crate) fn accept_failed(&mut self) -> bool {
        self.accept = Some(Instant::now() + Self::ACCEPT_PAUSE);
        !std::mem::replace(&mut self.failing, true)
    }

    /// Whether the pause after a failure is over. Says so once.
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

    /// Connections to try again, and those to send on again.
    pub(crate) fn due_retries(&mut self, now: Instant) -> (Vec<(Token, Address)>, Vec<Token>) {
        if self.retry.take_if(|at| *at <= now).is_none() {
            return Default::default();
        }
        (std::mem::take(&mut self.retries), std::mem::take(&mut self.sends))
    }

    /// `linger` is the same for all, which keeps the queue in order.
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
        let mut chores = Chores::default();
        let orphan = Token { index: 7, generation: 0 };
        chores.adopt(orphan, Duration::MAX);
        assert_eq!(chores.due_orphan(Instant::now()), None);
        assert!(chores.clip(None).is_some_and(|wait| wait > Duration::from_hours(24)));
        assert_eq!(chores.due_orphan(Instant::now() + Chores::FOR_EVER), Some(orphan));
    }
}
