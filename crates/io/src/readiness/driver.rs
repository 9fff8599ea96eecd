use super::config::Config;
use super::conn::{Conn, FIRST_LISTENER, InKernel, Source};
use super::listeners::Listeners;
use super::poll::Poll;
use crate::deferred::Deferred;
use crate::driver::aligned_headroom;
use crate::kernel::Transmit;
use crate::slots::Slots;
use crate::spin::Spinner;
use crate::stamp::{Arrivals, Departures};
use crate::wake::Wake;
use crate::{Address, Token};
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;
use tautline_buf::Buf;

/// A driver that waits by `P`.
pub struct Driver<P> {
    pub(super) config: Config,
    pub(super) poll: P,
    pub(super) spinner: Spinner,
    pub(super) wake: Wake,
    pub(super) slots: Slots<Conn>,
    pub(super) listeners: Listeners,
    /// Connections that probably wait when a listener is reported.
    pub(super) expected: usize,
    /// The connection that was accepted last, and the address of its other end, which the kernel told then.
    pub(super) newest: Option<(Token, Address)>,
    pub(super) deferred: Deferred,
    /// Number of connections with [`InKernel::FULL`].
    pub(super) waiting: usize,
    /// Connections whose failure the sink does not know yet.
    pub(super) failures: VecDeque<(Token, io::Error)>,
    /// Connections to receive from without another report by the kernel, see [`Conn::queued`].
    pub(super) queue: VecDeque<Token>,
    /// Numbers of the events that are not delivered yet. Only a sink that panics or takes a turn itself leaves any.
    pub(super) undelivered: Range<usize>,
    /// Headroom and receive buffer; empty while a turn lends it.
    pub(super) buffer: Buf,
    pub(super) arrivals: Arrivals,
    pub(super) departures: Departures,
    /// Sending state of the connections whose records the kernel seals, by index; empty if there are none.
    pub(super) sealing: Vec<Option<Box<Transmit>>>,
}

impl<P: Poll> Driver<P> {
    /// A driver with the default [`Config`].
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        Self::with(Config::default())
    }

    /// A driver with this `config`. Sizes and numbers of 0 count as 1, except for the headroom.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn with(mut config: Config) -> io::Result<Self> {
        for size in [&mut config.receive_buffer, &mut config.events_per_turn, &mut config.accepts_per_turn] {
            *size = (*size).max(1);
        }
        config.headroom = aligned_headroom(config.headroom);
        let mut poll = P::new(&config)?;
        let wake = Wake::new()?;
        poll.add(wake.fd(), Source::Wake.data(), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            spinner: Spinner::new(config.spin.clone()),
            config,
            poll,
            wake,
            slots: Slots::new(FIRST_LISTENER),
            listeners: Listeners::default(),
            expected: usize::MAX,
            newest: None,
            deferred: Deferred::default(),
            waiting: 0,
            failures: VecDeque::new(),
            queue: VecDeque::new(),
            undelivered: 0..0,
            buffer: Buf::new(),
            arrivals: Arrivals::default(),
            departures: Departures::default(),
            sealing: Vec::new(),
        })
    }

    /// Frees the slot and closes the socket.
    pub(super) fn remove(&mut self, token: Token) {
        if let Some(conn) = self.slots.remove(token) {
            self.waiting -= usize::from(conn.kernel.has(InKernel::FULL));
            self.poll.remove(conn.fd.as_fd());
            self.forget_keys(token, conn.kernel);
        }
    }

    /// How long the kernel may wait: not at all if something is to be done, and not past the next deferred work.
    pub(super) fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        self.deferred.clip(timeout)
    }
}
