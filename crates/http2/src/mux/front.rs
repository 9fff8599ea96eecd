use super::carrier::{self, Carrier, Connections, News};
use super::table::Entry;
use crate::code::Code;
use crate::limits::Limits;
use core::time::Duration;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_io::{
    Address, Arrival, Direct, Driver, Held, KernelTls, ListenOptions, Listener, Sent, Sink, Source, Token, Waker,
};

/// Time between two looks for carriers that have been without streams for too long.
const SWEEP: Duration = Duration::from_secs(10);

/// The state beside the driver behind.
#[derive(Debug)]
pub(super) struct State {
    limits: Limits,
    pub(super) table: Connections,
    pub(super) news: VecDeque<News>,
    /// Carriers with output.
    pub(super) dirty: Vec<Token>,
    /// Carriers whose streams wait for the next turn.
    pub(super) resting: Vec<Token>,
    /// The number of the turn.
    pub(super) turn: u64,
    /// Carriers that exist.
    carriers: HashSet<Token>,
    begun: Instant,
    pub(super) now: Duration,
    swept: Duration,
}

/// The driver that a loop uses in a call of its sink.
pub(super) struct Front<'a> {
    pub(super) behind: &'a mut dyn Driver,
    pub(super) state: &'a mut State,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            table: Connections::new(),
            news: VecDeque::new(),
            dirty: Vec::new(),
            resting: Vec::new(),
            turn: 0,
            carriers: HashSet::new(),
            begun: Instant::now(),
            now: Duration::ZERO,
            swept: Duration::ZERO,
        }
    }

    pub(super) fn read_clock(&mut self) {
        self.now = self.begun.elapsed();
    }

    pub(super) fn mark_dirty(&mut self, carrier: Token) {
        if let Some(state) = self.table.carrier(carrier)
            && !state.is_dirty
            && (!state.out.is_empty() || state.end().is_some())
        {
            state.is_dirty = true;
            self.dirty.push(carrier);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.dirty.is_empty()
    }

    /// Whether something is to be done before the next event.
    pub(super) fn has_work(&self) -> bool {
        self.has_news() || !self.resting.is_empty()
    }

    /// Ends carriers that have had no stream for long.
    pub(super) fn sweep(&mut self) {
        if self.carriers.is_empty() || self.now < self.swept + SWEEP {
            return;
        }
        self.swept = self.now;
        let Self { carriers, table, now, .. } = self;
        let is_idle = |token: &Token| {
            let carrier = table.carrier(*token);
            carrier.is_some_and(|carrier| carrier.streams.is_empty() && *now >= carrier.idle_since + carrier::IDLE)
        };
        for token in carriers.iter().copied().filter(is_idle).collect::<Vec<_>>() {
            self.end_carrier(token);
        }
    }

    /// Has a carrier take no new streams. It ends behind its last one.
    fn end_carrier(&mut self, token: Token) {
        if let Some(carrier) = self.table.carrier(token) {
            carrier.conn.go_away(Code::NO_ERROR, "", &mut carrier.out);
            self.mark_dirty(token);
        }
    }

    /// The time until the next look.
    pub(super) fn next_sweep(&self) -> Option<Duration> {
        (!self.carriers.is_empty()).then_some(SWEEP)
    }
}

/// The calls that change nothing. They are the same for this driver and for the one that a loop owns: both have the driver
/// behind, and the state beside it.
macro_rules! views {
    () => {
        fn name(&self) -> &'static str {
            self.behind.name()
        }

        /// Carriers and streams cannot be given away: the state of HTTP/2 stays here.
        fn held(&self, token: Token) -> Option<Held<'_>> {
            match self.state.table.get(token)? {
                Entry::Socket(inner) => self.behind.held(*inner),
                _ => None,
            }
        }

        fn listening(&self) -> io::Result<Vec<OwnedFd>> {
            self.behind.listening()
        }

        fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
            self.behind.poll_fd()
        }

        fn direct(&self, token: Token) -> Option<Direct<'_>> {
            self.behind.direct(self.state.table.inner(token)?)
        }

        fn unsent(&self, token: Token) -> usize {
            match self.state.table.get(token) {
                Some(Entry::Stream(stream)) => stream.unsent(),
                Some(Entry::Socket(inner) | Entry::Carrier(inner, _)) => self.behind.unsent(*inner),
                _ => 0,
            }
        }

        fn kernel_tls(&self) -> KernelTls {
            self.behind.kernel_tls()
        }

        fn peer(&self, token: Token) -> Option<Address> {
            match self.state.table.get(token)? {
                Entry::Stream(stream) => self.peer(stream.carrier),
                _ => self.behind.peer(self.state.table.inner(token)?),
            }
        }

        fn local(&self, token: Token) -> Option<Address> {
            match self.state.table.get(token)? {
                Entry::Stream(stream) => self.local(stream.carrier),
                _ => self.behind.local(self.state.table.inner(token)?),
            }
        }

        fn held_for_carrier(&self, token: Token) -> usize {
            match self.state.table.get(token) {
                Some(Entry::Carrier(_, carrier)) => carrier.held(),
                _ => 0,
            }
        }

        fn waker(&self) -> Waker {
            self.behind.waker()
        }

        fn arrival(&self) -> Option<Arrival> {
            self.behind.arrival()
        }

        fn began(&self) -> Option<u64> {
            self.behind.began()
        }

        fn carrier(&self, token: Token) -> Option<Token> {
            match self.state.table.get(token)? {
                Entry::Stream(stream) => Some(stream.carrier),
                _ => None,
            }
        }

        fn carried_by(&self, token: Token) -> Vec<Token> {
            match self.state.table.get(token) {
                Some(Entry::Carrier(_, carrier)) => carrier.streams.iter().map(|(_, stream)| *stream).collect(),
                _ => Vec::new(),
            }
        }
    };
}

pub(super) use views;

impl Driver for Front<'_> {
    views!();

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        self.behind.listen(address, options)
    }

    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)> {
        self.behind.listen_on(socket)
    }

    fn stop_listening(&mut self) {
        self.behind.stop_listening();
    }

    fn pause_accept(&mut self, pause: bool) {
        self.behind.pause_accept(pause);
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        let inner = self.behind.adopt(socket)?;
        Ok(self.state.table.add(Entry::Socket(inner)))
    }

    fn hold_still(&mut self) -> io::Result<()> {
        self.behind.hold_still()
    }

    fn give_away(&mut self, token: Token) {
        if let Entry::Socket(inner) | Entry::Carrier(inner, _) = self.state.table.remove(token) {
            self.behind.give_away(inner);
        }
    }

    fn give_listening_away(&mut self) {
        self.behind.give_listening_away();
    }

    fn next_work(&mut self) -> Option<Duration> {
        if self.state.has_work() { Some(Duration::ZERO) } else { self.behind.next_work() }
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let inner = self.behind.connect(address)?;
        Ok(self.state.table.add(Entry::Socket(inner)))
    }

    fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token> {
        let inner = self.behind.connect_from(address, source)?;
        Ok(self.state.table.add(Entry::Socket(inner)))
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.send_by(token, buf, |driver, inner, buf| driver.send(inner, buf))
    }

    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        self.send_by(token, buf, |driver, inner, buf| driver.send_last(inner, buf))
    }

    fn send_stamped(&mut self, token: Token, buf: Buf) -> (Sent, Option<u32>) {
        let mut number = None;
        let sent = self.send_by(token, buf, |driver, inner, buf| {
            let (sent, stamped) = driver.send_stamped(inner, buf);
            number = stamped;
            sent
        });
        (sent, number)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        match self.state.table.get_mut(token) {
            Some(Entry::Stream(stream)) => {
                stream.is_paused = pause;
                if !pause {
                    self.state.news.push_back(News::Input(token));
                }
            }
            Some(Entry::Carrier(inner, carrier)) => {
                carrier.loop_pauses = pause;
                let (inner, pause) = (*inner, pause || carrier.is_paused);
                self.behind.pause_receive(inner, pause);
            }
            Some(Entry::Socket(inner)) => {
                let inner = *inner;
                self.behind.pause_receive(inner, pause);
            }
            _ => {}
        }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(inner) = self.state.table.inner(token) {
            return self.behind.shutdown(inner);
        }
        let Some(of) = self.state.table.stream(token).map(|stream| stream.carrier) else { return };
        carrier::shut(&mut self.state.table, token, &mut self.state.news);
        self.state.mark_dirty(of);
    }

    fn close(&mut self, token: Token, abort: bool) {
        match self.state.table.remove(token) {
            Entry::Free => {}
            Entry::Socket(inner) => self.behind.close(inner, abort),
            Entry::Carrier(inner, carrier) => {
                self.state.carriers.remove(&token);
                self.state.news.extend(carrier.streams.iter().map(|(_, stream)| News::Failed(*stream, None)));
                self.behind.close(inner, abort);
            }
            Entry::Stream(stream) => {
                let now = self.state.now;
                if let Some(carrier) = self.state.table.carrier(stream.carrier) {
                    carrier.conn.reset(stream.id, stream.code(abort), &mut carrier.out);
                    if carrier.forget(stream.id, now) {
                        self.state.news.push_back(News::Carries(stream.carrier, false));
                    }
                }
                self.state.mark_dirty(stream.carrier);
            }
        }
    }

    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        match self.state.table.inner(token) {
            Some(inner) => self.behind.give_keys(inner, keys),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        self.behind.stamp_arrivals()
    }

    fn stamp_next(&mut self, wanted: bool) {
        self.behind.stamp_next(wanted);
    }

    fn opened(&mut self, token: Token, plain: &mut [u8]) {
        let Front { behind, state } = self;
        let State { limits, table, carriers, now, news, .. } = &mut **state;
        if let Some(entry @ Entry::Socket(_)) = table.get_mut(token)
            && let Entry::Socket(inner) = *entry
        {
            // Bytes of the handshake may still be on their way.
            let is_blocked = behind.unsent(inner) > 0;
            *entry = Entry::Carrier(inner, Box::new(Carrier::new(*limits, *now, is_blocked)));
            carriers.insert(token);
        }
        carrier::read(table, token, plain, *now, news);
        state.mark_dirty(token);
    }

    fn go_away(&mut self, token: Token) {
        self.state.end_carrier(token);
    }

    /// The loop turns the driver that owns this one.
    fn turn(&mut self, _: Option<Duration>, _: &mut dyn Sink) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Front<'_> {
    /// Reads nothing more of a carrier's peer until output has left.
    pub(super) fn pause_carrier(&mut self, token: Token) {
        if let Some(inner) = self.state.table.inner(token) {
            self.behind.pause_receive(inner, true);
        }
    }

    fn send_by(&mut self, token: Token, buf: Buf, send: impl FnOnce(&mut dyn Driver, Token, Buf) -> Sent) -> Sent {
        match self.state.table.get_mut(token) {
            Some(Entry::Socket(inner)) => send(&mut *self.behind, *inner, buf),
            Some(Entry::Carrier(inner, carrier)) => {
                let sent = send(&mut *self.behind, *inner, buf);
                carrier.is_blocked = matches!(sent, Sent::Pending);
                sent
            }
            Some(Entry::Stream(stream)) => {
                let of = stream.carrier;
                let back = carrier::send(&mut self.state.table, token, buf, &mut self.state.news);
                self.state.mark_dirty(of);
                back.map_or(Sent::Pending, Sent::Done)
            }
            Some(Entry::Free) | None => {
                let mut buf = buf;
                buf.clear();
                Sent::Done(buf)
            }
        }
    }
}
