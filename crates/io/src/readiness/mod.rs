//! Shared code of the readiness drivers: the kernel reports which sockets are ready, and the driver receives and sends.

mod accept;
mod config;
mod conn;
mod connection;
mod driver;
mod kernel;
mod listeners;
mod poll;
#[cfg(test)]
mod tests;

pub use config::{Config, FD_SETSIZE};
pub use driver::Driver;
pub use poll::Poll;

use crate::socket::Listening;
use crate::{Address, Arrival, Direct, Held, KernelTls, ListenOptions, Listener, Sent, Sink, Token, Waker, socket};
use conn::{Conn, InKernel, Phase, Source};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::SendFlags;
use std::io;
use std::mem;
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_buf::kernel_tls::TrafficKeys;

impl<P: Poll> Driver<P> {
    fn deliver(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        // Entries that the sink's calls add to these queues wait for the next turn.
        let (failures, queued) = (self.failures.len(), self.queue.len());
        for _ in 0..failures {
            self.deliver_failure(buffer, sink);
        }
        while let Some(event) = self.undelivered.next() {
            let (data, flags) = self.poll.event(event);
            match Source::of(data) {
                Source::Connection(token) => self.connection_event(token, flags, buffer, sink),
                Source::Listener(number) => self.accept(number, sink),
                Source::Wake => {
                    if !P::EDGES {
                        self.wake.drain();
                        self.poll.rearm(self.wake.fd(), EventFlags::IN);
                    }
                    self.wake.clear();
                    sink.woken(self);
                }
            }
        }
        for _ in 0..queued {
            self.receive_again(buffer, sink);
        }
    }

    fn run_deferred(&mut self) {
        let now = Instant::now();
        if self.deferred.due_accept(now) {
            self.watch_listeners();
        }
        let (connects, sends) = self.deferred.due_retries(now);
        for (token, address) in connects {
            self.start_connecting(token, address);
        }
        for token in sends {
            self.report_room(token);
        }
        while let Some(token) = self.deferred.due_orphan(now) {
            crate::Driver::close(self, token, true);
        }
    }

    /// Sends the bytes that the kernel takes at once, and keeps the rest.
    ///
    /// It is a part of both callers: a further function costs each message time.
    #[inline(always)]
    fn send_now(&mut self, token: Token, mut buf: Buf, flags: SendFlags) -> Sent {
        if let Some(conn) = self.slots.get_mut(token)
            && conn.phase != Phase::Failed
        {
            if conn.phase == Phase::Open && conn.pending.is_empty() {
                match kernel::send(conn, token, (&mut self.sealing, &mut self.departures), (&mut buf, flags)) {
                    Ok(()) if buf.is_empty() => return Sent::Done(buf),
                    Ok(()) => {}
                    Err(error) => self.cannot_send(token, error),
                }
            }
            return self.keep(token, buf);
        }
        buf.clear();
        Sent::Done(buf)
    }
}

impl<P: Poll> crate::Driver for Driver<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let socket = self.spinner.listen(address, options)?;
        self.start_accepting(socket)
    }

    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)> {
        let socket = self.spinner.listen_on(socket)?;
        self.start_accepting(socket)
    }

    fn stop_listening(&mut self) {
        self.listeners.close(&mut self.poll);
    }

    fn pause_accept(&mut self, pause: bool) {
        self.pause_accepting(pause);
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        socket::adopt(&socket)?;
        self.arrivals.watch(&socket);
        self.insert(Conn::new(socket, Phase::Open))
    }

    fn hold_still(&mut self) -> io::Result<()> {
        // The kernel does nothing for a connection that is not asked for.
        Ok(())
    }

    fn held(&self, token: Token) -> Option<Held<'_>> {
        let conn = self.slots.get(token)?;
        let movable = conn.phase == Phase::Open && !conn.kernel.has(InKernel::TRANSMIT | InKernel::RECEIVE);
        movable.then(|| Held { socket: conn.fd.as_fd(), received: &[], unsent: conn.pending.filled() })
    }

    fn give_away(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token) {
            self.poll.give_away(conn.fd.as_fd());
        }
        self.remove(token);
    }

    fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.sockets.iter().flatten().map(|socket| socket.fd.try_clone()).collect()
    }

    fn give_listening_away(&mut self) {
        self.listeners.sockets.iter_mut().flatten().for_each(Listening::leave_file);
        self.listeners.close(&mut self.poll);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poll.fd()
    }

    fn next_work(&mut self) -> Option<Duration> {
        if self.undelivered.is_empty() { self.clip(None) } else { Some(Duration::ZERO) }
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        self.connect_from(address, &crate::Source::default())
    }

    fn connect_from(&mut self, address: &Address, source: &crate::Source) -> io::Result<Token> {
        let socket = self.spinner.stream(address, &source.or_address(self.config.source))?;
        self.arrivals.watch(&socket);
        let token = self.slots.insert(Conn::new(socket, Phase::Connecting))?;
        self.start_connecting(token, address.clone());
        Ok(token)
    }

    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        let conn = self.slots.get(token)?;
        let free = conn.phase == Phase::Open && conn.pending.is_empty();
        let free = free && !conn.kernel.has(InKernel::TRANSMIT | InKernel::STAMPED);
        free.then(|| Direct::new(conn.fd.as_fd()))
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.send_now(token, buf, SendFlags::empty())
    }

    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        // The kernel waits for more before it sends a partial segment (send(2)); the end of the direction counts as
        // more.
        self.send_now(token, buf, SendFlags::MORE)
    }

    fn send_stamped(&mut self, token: Token, mut buf: Buf) -> (Sent, Option<u32>) {
        match self.send_all_stamped(token, &mut buf) {
            None => (self.send(token, buf), None),
            number => (Sent::Done(buf), number),
        }
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        conn.paused = pause;
        if !pause && conn.readable {
            self.enqueue(token);
        }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.finishing
        {
            conn.finishing = true;
            if conn.pending.is_empty() && conn.phase == Phase::Open {
                socket::finish(&conn.fd);
            }
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if abort {
            connection::reset_on_close(&conn.fd);
        } else if !conn.pending.is_empty() && conn.phase == Phase::Open {
            conn.phase = Phase::Orphan;
            return self.orphan(token);
        }
        self.remove(token);
    }

    fn kernel_tls(&self) -> KernelTls {
        self.config.kernel_tls
    }

    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        self.take_keys(token, &keys)
    }

    fn unsent(&self, token: Token) -> usize {
        self.slots.get(token).map_or(0, |conn| conn.pending.len())
    }

    fn peer(&self, token: Token) -> Option<Address> {
        let conn = self.slots.get(token)?;
        match &self.newest {
            Some((newest, from)) if *newest == token => Some(from.clone()),
            _ => socket::peer(&conn.fd),
        }
    }

    fn local(&self, token: Token) -> Option<Address> {
        socket::local(self.slots.get(token)?.fd.as_fd()).ok()
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn stamp_next(&mut self, wanted: bool) {
        self.arrivals.want(wanted);
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        self.arrivals.ask();
        Ok(())
    }

    fn arrival(&self) -> Option<Arrival> {
        self.arrivals.last()
    }

    fn began(&self) -> Option<u64> {
        self.arrivals.began()
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        if self.undelivered.is_empty() {
            let timeout = self.clip(timeout);
            self.undelivered = 0..self.spinner.wait(timeout, |timeout| self.poll.wait(timeout))?;
        }
        sink.woke(self);
        let mut buffer = mem::take(&mut self.buffer);
        // The buffer has no memory in the first turn, and after a sink panicked.
        let len = self.config.headroom + self.config.receive_buffer;
        self.deliver(&mut buffer.reserve(len)[..len], sink);
        self.buffer = buffer;
        if self.deferred.next().is_some() {
            self.run_deferred();
        }
        Ok(())
    }
}
