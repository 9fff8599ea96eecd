use super::carriers::State;
use super::front::Front;
use super::plan::Plan;
use super::sink::{self, Behind};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use tautline::Address;
use tautline::layers::buf::Buf;
use tautline::layers::io::{Driver, ListenOptions, Listener, Sent, Sink, Source, Token, Waker};

/// A driver whose outgoing connections are streams of HTTP/2, in front of another driver.
pub(super) struct Dialer {
    behind: Box<dyn Driver>,
    state: State,
}

impl Dialer {
    pub(super) fn new(behind: Box<dyn Driver>, plan: Plan) -> Self {
        Self { behind, state: State::new(plan) }
    }

    fn front(&mut self) -> Front<'_> {
        Front { behind: &mut *self.behind, state: &mut self.state }
    }
}

/// Has each call go to the driver in front.
macro_rules! in_front {
    ($(fn $name:ident(&mut self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self $(, $argument: $kind)*) $(-> $result)? {
            self.front().$name($($argument),*)
        })*
    };
}

impl Driver for Dialer {
    in_front! {
        fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)>;
        fn stop_listening(&mut self);
        fn pause_accept(&mut self, pause: bool);
        fn next_work(&mut self) -> Option<Duration>;
        fn connect(&mut self, address: &Address) -> io::Result<Token>;
        fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token>;
        fn send(&mut self, token: Token, buf: Buf) -> Sent;
        fn pause_receive(&mut self, token: Token, pause: bool);
        fn shutdown(&mut self, token: Token);
        fn close(&mut self, token: Token, abort: bool);
    }

    fn name(&self) -> &'static str {
        self.behind.name()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.behind.poll_fd()
    }

    fn unsent(&self, token: Token) -> usize {
        self.state.lanes.get(token).map_or(0, |lane| lane.unsent())
    }

    fn peer(&self, token: Token) -> Option<Address> {
        let lane = self.state.lanes.get(token)?;
        Some(self.state.carrier(lane.carrier)?.address.clone())
    }

    fn waker(&self) -> Waker {
        self.behind.waker()
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        self.state.read_clock();
        // Output of calls between two turns.
        sink::deliver(&mut self.front(), sink);
        let timeout = if self.state.has_news() { Some(Duration::ZERO) } else { timeout };
        let Self { behind, state } = self;
        behind.turn(timeout, &mut Behind { state, sink })?;
        sink::deliver(&mut self.front(), sink);
        Ok(())
    }
}
