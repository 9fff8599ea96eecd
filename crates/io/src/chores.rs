use crate::{Address, Token};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the driver itself has to do at some time.
#[derive(Default)]
pub(crate) struct Chores {
    /// When to accept again after a failure.
    pub(crate) accept: Option<Instant>,
    /// When to repeat `retries`.
    retry: Option<Instant>,
    /// Connections to Unix listeners whose queue was full: the kernel tells nobody when there is room again.
    retries: Vec<(Token, Address)>,
    /// Closed connections that still send, with the time when their peer has had its chance; the earliest first.
    orphans: VecDeque<(Instant, Token)>,
}

impl Chores {
    /// How long a Unix listener with a full queue is left alone.
    const RETRY: Duration = Duration::from_millis(2);

    /// The earliest thing to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let orphan = self.orphans.front().map(|&(at, _)| at);
        [self.accept, self.retry, orphan].into_iter().flatten().min()
    }

    pub(crate) fn retry_later(&mut self, token: Token, address: Address) {
        self.retries.push((token, address));
        self.retry.get_or_insert_with(|| Instant::now() + Self::RETRY);
    }

    pub(crate) fn due_retries(&mut self, now: Instant) -> Vec<(Token, Address)> {
        if self.retry.take_if(|at| *at <= now).is_some() { std::mem::take(&mut self.retries) } else { Vec::new() }
    }

    /// `linger` is the same for all, which keeps the queue in order.
    pub(crate) fn adopt(&mut self, orphan: Token, linger: Duration) {
        self.orphans.push_back((Instant::now() + linger, orphan));
    }

    pub(crate) fn due_orphan(&mut self, now: Instant) -> Option<Token> {
        if self.orphans.front()?.0 > now {
            return None;
        }
        self.orphans.pop_front().map(|(_, token)| token)
    }
}
