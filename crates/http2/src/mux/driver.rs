use super::front::{Front, State, views};
use super::sink::{self, Behind};
use super::table::Entry;
use crate::limits::Limits;
use core::time::Duration;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tautline_buf::Buf;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_io::{
    Address, Arrival, Direct, Driver, Held, KernelTls, ListenOptions, Listener, Sent, Sink, Source, Token, Waker,
};

/// A driver that makes connections of the streams of HTTP/2, in front of another driver.
pub struct Multiplexer {
    behind: Box<dyn Driver>,
    state: State,
}

impl Multiplexer {
    /// A driver in front of `driver`.
    #[must_use]
    pub fn new(driver: Box<dyn Driver>, limits: Limits) -> Self {
        let state = State::new(limits);
        Self { behind: driver, state }
    }

    fn front(&mut self) -> Front<'_> {
        Front { behind: &mut *self.behind, state: &mut self.state }
    }
}

impl core::fmt::Debug for Multiplexer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Multiplexer").field("behind", &self.behind.name()).finish_non_exhaustive()
    }
}

/// Has each call go to the driver in front.
macro_rules! in_front {
    ($($(#[$attribute:meta])* fn $name:ident(&mut self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $($(#[$attribute])* fn $name(&mut self $(, $argument: $kind)*) $(-> $result)? {
            self.front().$name($($argument),*)
        })*
    };
}

impl Driver for Multiplexer {
    views!();

    in_front! {
        fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)>;
        fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)>;
        fn stop_listening(&mut self);
        fn pause_accept(&mut self, pause: bool);
        fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token>;
        fn hold_still(&mut self) -> io::Result<()>;
        fn give_away(&mut self, token: Token);
        fn give_listening_away(&mut self);
        fn next_work(&mut self) -> Option<Duration>;
        fn connect(&mut self, address: &Address) -> io::Result<Token>;
        fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token>;
        fn send(&mut self, token: Token, buf: Buf) -> Sent;
        fn send_last(&mut self, token: Token, buf: Buf) -> Sent;
        fn send_stamped(&mut self, token: Token, buf: Buf) -> (Sent, Option<u32>);
        fn pause_receive(&mut self, token: Token, pause: bool);
        fn shutdown(&mut self, token: Token);
        fn close(&mut self, token: Token, abort: bool);
        fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool>;
        fn stamp_arrivals(&mut self) -> io::Result<()>;
        fn stamp_next(&mut self, wanted: bool);
        fn opened(&mut self, token: Token, plain: &mut [u8]);
        fn go_away(&mut self, token: Token);
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        sink::begin_turn(&mut self.state);
        // Output of calls between two turns, and of carriers that rested.
        sink::deliver(&mut self.front(), sink);
        let timeout = match self.state.next_sweep() {
            _ if self.state.has_work() => Some(Duration::ZERO),
            Some(sweep) => Some(timeout.map_or(sweep, |timeout| timeout.min(sweep))),
            None => timeout,
        };
        let Self { behind, state } = self;
        behind.turn(timeout, &mut Behind { state, sink })?;
        self.state.read_clock();
        self.state.sweep();
        sink::deliver(&mut self.front(), sink);
        Ok(())
    }
}
