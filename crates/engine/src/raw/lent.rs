use crate::conn::Conn;
use crate::context::ShardContext;
use crate::ids::ConnId;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::Transport;
use crate::link::phase::{Finish, Phase, Wish};
use crate::raw::slots::{Parts, Slots};
use crate::raw::terms::Terms;
use crate::turn::shared::Shared;
use http::StatusCode;
use std::fmt;
use std::ops::{Deref, DerefMut};
use tautline_conn::message::{Delivery, Outgoing};
use tautline_conn::notes::Notes;
use tautline_io::{Address, Driver};
use tautline_tls::record::MAX_PLAIN;
use tautline_ws::CloseCode;

/// A raw connection, lent to the handler for one call: its bytes are the application's.
///
/// It is a [`Conn`] whose messages are not sent, but bytes. Whatever is written to connections in a turn leaves each of them in
/// one send at the end of the turn.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Raw, Request}, tautline_ws::Message}; }
/// use tautline::{Conn, Handler, Message, Raw, Request};
///
/// /// Sends back the bytes that follow a request's head. `Config::raw` must be set.
/// struct Mirror;
///
/// impl Handler for Mirror {
///     type State = ();
///     fn on_raw_request(&mut self, raw: &mut Raw<'_, ()>, _: &Request<'_>) -> bool {
///         raw.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
///         true
///     }
///     fn on_bytes(&mut self, raw: &mut Raw<'_, ()>, bytes: &mut [u8]) -> usize {
///         raw.write(bytes);
///         bytes.len()
///     }
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
/// }
/// ```
pub struct Raw<'a, T> {
    pub(crate) conn: Conn<'a, T>,
}

/// Bytes for another connection that leave before the turn's other output, once the input that they came with is processed. Their
/// memory is in the CPU's cache then, and serves the next connection.
const MANY: usize = 4 << 10;
/// Bytes for another connection that leave at once: a larger send costs no less for each.
const MOST: usize = 64 << 10;

impl<'a, T> Deref for Raw<'a, T> {
    type Target = Conn<'a, T>;

    fn deref(&self) -> &Conn<'a, T> {
        &self.conn
    }
}

impl<T> DerefMut for Raw<'_, T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.conn
    }
}

impl<T> Raw<'_, T> {
    /// Writes bytes. Returns how many wait in all, or `None` if our direction has ended.
    ///
    /// Nothing bounds them: a caller with more pauses their source, and goes on after [`RawEvent::Drained`](crate::RawEvent).
    pub fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let Conn { out, transport, outlet, .. } = &mut self.conn;
        if !is_writable(transport.phase) {
            return None;
        }
        out.write(bytes, transport, outlet);
        Some(out.buffered(transport.wire))
    }

    /// The address of this end. `None` if the driver does not know it, and within calls that send nothing at once, such as for
    /// [`RawEvent::Opened`](crate::RawEvent).
    #[must_use]
    pub fn local(&self) -> Option<Address> {
        let DriverOutlet { driver, token, .. } = &self.conn.outlet;
        driver.as_ref()?.local(*token)
    }

    /// Ends our direction behind what was written. The peer's stays open. The connection is over once both have ended.
    pub const fn finish(&mut self) {
        finish(self.conn.transport.phase);
    }

    /// Ends the connection behind what was written. Nothing more of the peer is delivered.
    pub const fn end(&mut self) {
        wish(self.conn.transport.phase, Wish::End);
    }

    /// Resets the connection.
    pub const fn reset(&mut self) {
        wish(self.conn.transport.phase, Wish::Reset);
    }

    /// Gives a client's connection back: its next bytes are a request. It ends instead if one of its directions has.
    pub const fn resume_http(&mut self) {
        wish(self.conn.transport.phase, Wish::Http);
    }

    /// Sets the status of the response, for the access log.
    pub const fn note_status(&mut self, status: StatusCode) {
        note_status(self.conn.transport.phase, status);
    }

    /// Makes a WebSocket of the connection behind this call: bytes that the call does not use are frames.
    ///
    /// Its events are those of other WebSockets, but [`on_open`](crate::Handler::on_open) is not called. If one of its directions
    /// has ended, the connection ends instead.
    pub fn open(&mut self, terms: Terms) {
        wish(self.conn.transport.phase, Wish::Open);
        self.conn.outlet.shared.joining.terms = Some(Box::new(terms));
    }

    /// Changes what the access log says of the present request of a client. Nothing is called without a log.
    pub fn note(&mut self, change: impl FnOnce(&mut Notes)) {
        note(self.conn.transport.phase, self.conn.outlet.shared, change);
    }

    /// Milliseconds from the begin of the loop to this turn, for which the clock was read.
    #[must_use]
    pub const fn turn_millis(&self) -> u64 {
        self.conn.outlet.shared.now
    }
}

impl<T> Conn<'_, T> {
    /// The other connections of this loop that are raw, or open WebSockets.
    pub fn others(&mut self) -> Others<'_, T> {
        let DriverOutlet { driver, shared, .. } = &mut self.outlet;
        let driver = driver.as_mut().map(|driver| &mut **driver as &mut dyn Driver);
        Others { slots: &mut *self.slots, driver, shared }
    }
}

impl<T> fmt::Debug for Raw<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({})", self.conn.id())
    }
}

/// The raw connections and open WebSockets of a loop, lent to the handler for one call, without the one that the call is about.
///
/// All methods do nothing for a connection that has ended, is neither or is another loop's.
pub struct Others<'a, T> {
    pub(crate) slots: &'a mut dyn Slots<T>,
    pub(crate) driver: Option<&'a mut dyn Driver>,
    pub(crate) shared: &'a mut Shared,
}

impl<T> Others<'_, T> {
    /// Milliseconds from the begin of the loop to this turn, as [`Raw::turn_millis`] has them.
    #[must_use]
    pub const fn turn_millis(&self) -> u64 {
        self.shared.now
    }

    /// Writes bytes, as [`Raw::write`] does. Many leave at once, before further ones of the same input arrive.
    pub fn write(&mut self, to: ConnId, bytes: &[u8]) -> Option<usize> {
        let (parts, driver, shared) = self.parts(to)?;
        let Parts { phase, wire, session, out, in_kernel, .. } = parts;
        if !is_writable(phase) {
            return None;
        }
        let mut transport = Transport { phase, wire, session, in_kernel };
        let mut outlet = DriverOutlet { driver, token: to.token, shared };
        if bytes.len() >= MANY && transport.wire.is_flushed() {
            // Further records of the same input need no larger buffer then.
            let input = outlet.shared.passing.input.min(MOST + MAX_PLAIN);
            outlet.shared.pool.reserve(transport.wire.sealed_mut(), input);
        }
        out.write(bytes, &mut transport, &mut outlet);
        if outlet.driver.is_some() {
            match out.encoded(transport.wire) {
                MOST.. => {
                    let before = outlet.shared.counters.bytes_out.get();
                    out.flush(&mut transport, &mut outlet);
                    outlet.shared.note_crossed(to.token, 0, before);
                }
                MANY.. => outlet.shared.passing.filled = Some(to.token),
                _ => {}
            }
        }
        Some(out.buffered(transport.wire))
    }

    /// Sends a message to an open WebSocket, as [`Conn::send`] does.
    ///
    /// ```
    /// # mod tautline { pub use {tautline_engine::{Conn, ConnId, Handler, Outgoing}, tautline_ws::Message}; }
    /// use tautline::{Conn, ConnId, Handler, Message, Outgoing};
    ///
    /// /// Passes the messages of each connection on to another one.
    /// struct Relay;
    ///
    /// impl Handler for Relay {
    ///     type State = Option<ConnId>;
    ///     fn on_message(&mut self, conn: &mut Conn<'_, Option<ConnId>>, message: Message<'_>) {
    ///         if let Some(other) = *conn.state() {
    ///             conn.others().send(other, Outgoing::from(&message));
    ///         }
    ///     }
    /// }
    /// ```
    pub fn send(&mut self, to: ConnId, message: Outgoing<'_>) -> Delivery {
        let Some((parts, driver, shared)) = self.parts(to) else { return Delivery::Closed };
        let Parts { phase, wire, session, out, in_kernel, .. } = parts;
        if !phase.takes_messages() {
            return Delivery::Closed;
        }
        let mut transport = Transport { phase, wire, session, in_kernel };
        let before = shared.counters.bytes_out.get();
        let mut outlet = DriverOutlet { driver, token: to.token, shared };
        let delivery = out.send(message, &mut transport, &mut outlet);
        outlet.shared.note_crossed(to.token, 1, before);
        delivery
    }

    /// Closes an open WebSocket behind everything sent so far, as [`Conn::close`] does.
    pub fn close(&mut self, to: ConnId, code: CloseCode, reason: &str) {
        self.with(to, |parts| parts.out.close(parts.phase, code, reason));
    }

    /// Makes a WebSocket of a raw connection, as [`Raw::open`] does, and at once: messages can be sent to it. False if one of
    /// its directions has ended.
    pub fn open(&mut self, to: ConnId, terms: &Terms) -> bool {
        let Some((parts, _, shared)) = self.parts(to) else { return false };
        let is_whole = matches!(parts.phase, Phase::Raw(raw) if !raw.ends.peer_finished && raw.late.is_none());
        if !is_writable(parts.phase) || !is_whole {
            return false;
        }
        parts.become_open(terms, shared);
        true
    }

    /// Ends our direction, as [`Raw::finish`] does.
    pub fn finish(&mut self, to: ConnId) {
        self.with(to, |parts| finish(parts.phase));
    }

    /// Ends the connection, as [`Raw::end`] does.
    pub fn end(&mut self, to: ConnId) {
        self.wish(to, Wish::End);
    }

    /// Resets the connection.
    pub fn reset(&mut self, to: ConnId) {
        self.wish(to, Wish::Reset);
    }

    /// Gives a client's connection back, as [`Raw::resume_http`] does.
    pub fn resume_http(&mut self, to: ConnId) {
        self.wish(to, Wish::Http);
    }

    /// Sets the status of the response, as [`Raw::note_status`] does.
    pub fn note_status(&mut self, to: ConnId, status: StatusCode) {
        self.with(to, |parts| {
            note_status(parts.phase, status);
            *parts.held = true;
        });
    }

    /// Changes what the access log says of a request, as [`Raw::note`] does.
    pub fn note(&mut self, to: ConnId, change: impl FnOnce(&mut Notes)) {
        if let Some((parts, _, shared)) = self.parts(to) {
            note(parts.phase, shared, change);
        }
    }

    /// Stops or resumes reading, as [`Conn::pause`] does.
    pub fn pause(&mut self, to: ConnId, pause: bool) {
        self.with(to, |parts| *parts.paused = pause);
    }

    /// Has [`RawEvent::Drained`](crate::RawEvent) follow once nothing waits, as [`Conn::notify_drain`] does.
    pub fn notify_drain(&mut self, to: ConnId) {
        self.with(to, |parts| parts.out.owe_drain());
    }

    /// Bytes that wait to be sent.
    pub fn buffered(&mut self, to: ConnId) -> Option<usize> {
        let Parts { out, wire, .. } = self.parts(to)?.0;
        Some(out.buffered(wire))
    }

    /// The application's state for a connection.
    pub fn state(&mut self, to: ConnId) -> Option<&mut T> {
        Some(self.parts(to)?.0.state)
    }

    /// The loop: its handle and timers.
    pub const fn shard(&mut self) -> ShardContext<'_> {
        ShardContext { shared: self.shared }
    }

    fn wish(&mut self, to: ConnId, wanted: Wish) {
        self.with(to, |parts| {
            wish(parts.phase, wanted);
            *parts.held = true;
        });
    }

    fn with(&mut self, to: ConnId, act: impl FnOnce(&mut Parts<'_, T>)) {
        if let Some((mut parts, ..)) = self.parts(to) {
            act(&mut parts);
        }
    }

    /// The parts of a connection, which is flushed at the end of the turn.
    fn parts(&mut self, to: ConnId) -> Option<(Parts<'_, T>, Option<&mut dyn Driver>, &mut Shared)> {
        if to.shard != self.shared.shard {
            return None;
        }
        let parts = self.slots.parts(to.token)?;
        if !*parts.dirty {
            *parts.dirty = true;
            self.shared.dirty.push(to.token);
        }
        let driver = self.driver.as_mut().map(|driver| &mut **driver as &mut dyn Driver);
        Some((parts, driver, self.shared))
    }
}

impl<T> fmt::Debug for Others<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Others({})", self.shared.shard)
    }
}

const fn is_writable(phase: &Phase) -> bool {
    matches!(phase, Phase::Raw(raw) if matches!(raw.ends.ours, Finish::AfterPeer) && matches!(raw.wish, Wish::Stay))
}

const fn finish(phase: &mut Phase) {
    if let Phase::Raw(raw) = phase
        && matches!(raw.ends.ours, Finish::AfterPeer)
    {
        raw.ends.ours = Finish::Wanted;
    }
}

/// A reset is not taken back.
const fn wish(phase: &mut Phase, wish: Wish) {
    if let Phase::Raw(raw) = phase
        && !matches!(raw.wish, Wish::Reset)
    {
        raw.wish = wish;
    }
}

const fn note_status(phase: &mut Phase, status: StatusCode) {
    if let Phase::Raw(raw) = phase {
        raw.status = Some(status);
    }
}

fn note(phase: &mut Phase, shared: &Shared, change: impl FnOnce(&mut Notes)) {
    if let Phase::Raw(raw) = phase
        && let Some(head) = &mut raw.head
        && shared.config.access_log.is_some()
    {
        change(&mut head.notes);
    }
}
