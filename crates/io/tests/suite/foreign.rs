//! A driver within the loop of somebody else: the loop waits for the driver's descriptor, and each turn waits for nothing.

#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_io::{
    Address, Arrival, Direct, Driver, End, Held, KernelTls, ListenOptions, Listener, Received, Sent, Sink, Source,
    Token, Waker,
};

/// A driver whose every wait is a poll(2) of its descriptor.
pub(crate) struct Foreign<D>(pub(crate) D);

impl<D: Driver> Foreign<D> {
    /// Waits as a loop of others does: for the descriptor, and at most for the driver's next work.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let wait = [left, self.0.next_work()].into_iter().flatten().min();
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let fd = self.0.poll_fd().unwrap();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Passes events on, and the end of the wait once, before the first of them.
struct Reports<'a> {
    sink: &'a mut dyn Sink,
    happened: bool,
}

impl Reports<'_> {
    fn begin(&mut self, driver: &mut dyn Driver) -> &mut dyn Sink {
        if !std::mem::replace(&mut self.happened, true) {
            self.sink.woke(driver);
        }
        self.sink
    }
}

impl Sink for Reports<'_> {
    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, listener: Listener) {
        self.begin(driver).accepted(driver, token, listener);
    }

    fn connected(&mut self, driver: &mut dyn Driver, token: Token) {
        self.begin(driver).connected(driver, token);
    }

    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        self.begin(driver).received(driver, token, data);
    }

    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        self.begin(driver).sent(driver, token, buf);
    }

    fn departed(&mut self, driver: &mut dyn Driver, token: Token, number: u32, nanos: u64) {
        self.begin(driver).departed(driver, token, number, nanos);
    }

    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        self.begin(driver).ended(driver, token, end);
    }

    fn woken(&mut self, driver: &mut dyn Driver) {
        self.begin(driver).woken(driver);
    }

    fn accept_failed(&mut self, driver: &mut dyn Driver, error: io::Error) {
        self.begin(driver).accept_failed(driver, error);
    }
}

impl<D: Driver> Driver for Foreign<D> {
    /// Waits and turns until something happens.
    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut reports = Reports { sink, happened: false };
        loop {
            self.wait(until)?;
            self.0.turn(Some(Duration::ZERO), &mut reports)?;
            if until.is_some_and(|until| Instant::now() >= until) {
                reports.begin(&mut self.0);
            }
            if reports.happened {
                return Ok(());
            }
        }
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        self.0.listen(address, options)
    }

    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)> {
        self.0.listen_on(socket)
    }

    fn stop_listening(&mut self) {
        self.0.stop_listening();
    }

    fn pause_accept(&mut self, pause: bool) {
        self.0.pause_accept(pause);
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        self.0.adopt(socket)
    }

    fn hold_still(&mut self) -> io::Result<()> {
        self.0.hold_still()
    }

    fn held(&self, token: Token) -> Option<Held<'_>> {
        self.0.held(token)
    }

    fn give_away(&mut self, token: Token) {
        self.0.give_away(token);
    }

    fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.listening()
    }

    fn give_listening_away(&mut self) {
        self.0.give_listening_away();
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.poll_fd()
    }

    fn next_work(&mut self) -> Option<Duration> {
        self.0.next_work()
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        self.0.connect(address)
    }

    fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token> {
        self.0.connect_from(address, source)
    }

    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        self.0.direct(token)
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.0.send(token, buf)
    }

    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        self.0.send_last(token, buf)
    }

    fn send_stamped(&mut self, token: Token, buf: Buf) -> (Sent, Option<u32>) {
        self.0.send_stamped(token, buf)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        self.0.pause_receive(token, pause);
    }

    fn shutdown(&mut self, token: Token) {
        self.0.shutdown(token);
    }

    fn close(&mut self, token: Token, abort: bool) {
        self.0.close(token, abort);
    }

    fn unsent(&self, token: Token) -> usize {
        self.0.unsent(token)
    }

    fn kernel_tls(&self) -> KernelTls {
        self.0.kernel_tls()
    }

    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        self.0.give_keys(token, keys)
    }

    fn peer(&self, token: Token) -> Option<Address> {
        self.0.peer(token)
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        self.0.stamp_arrivals()
    }

    fn stamp_next(&mut self, wanted: bool) {
        self.0.stamp_next(wanted);
    }

    fn arrival(&self) -> Option<Arrival> {
        self.0.arrival()
    }

    fn began(&self) -> Option<u64> {
        self.0.began()
    }
}
