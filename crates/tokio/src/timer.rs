use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::time::Sleep;

/// The timer of a socket. It is moved only when it fires early or a deadline comes nearer, not for each message.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    waker: Option<Waker>,
}

/// The time, as tokio has it: tests may stop it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Timer {
    /// Waits for `deadline`.
    pub(crate) fn poll(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = deadline.map(tokio::time::Instant::from_std) else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() <= deadline
            && !sleep.is_elapsed()
            && self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            return Poll::Pending;
        }
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        self.waker = Some(cx.waker().clone());
        loop {
            match sleep.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if sleep.deadline() >= deadline || tokio::time::Instant::now() >= deadline => {
                    self.waker = None;
                    return Poll::Ready(());
                }
                // The deadline has moved since the timer was set.
                Poll::Ready(()) => sleep.as_mut().reset(deadline),
            }
        }
    }
}
