use crate::context;
use crate::counters::{Counted, Tally};
use crate::error::Error;
use crate::message::{Message, Received};
use crate::session::Session;
use crate::timer::{Timer, now};
use crate::told::Told;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tautline_engine::connection::{Connection, Context as Buffers, Event, Opened};
use tautline_engine::{Cause, Closed, Config, ConnectError, Deadline, Outgoing, Via};
use tautline_io::Address;
use tautline_tls::{Session as _, TlsInfo};
use tautline_ws::CloseCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one read. A message of 64 KiB and its records fit.
const READ: usize = 68 << 10;

/// After so many reads in a row that had bytes, deadlines are looked at, although the peer keeps sending.
const READS: u8 = 64;

/// A WebSocket connection over `T`, driven by the task that polls it.
///
/// | to | call | a message leaves |
/// |---|---|---|
/// | send one message | [`send`](Self::send), [`text`](Self::text), [`binary`](Self::binary) | before the future completes |
/// | send many together | [`feed`](Self::feed), then [`flush`](Self::flush) | with the next flush, send or wait for a message |
/// | answer what arrived | [`Received::feed`] | with all other answers, before the next wait for a message |
///
/// Messages that leave together share TLS records and system calls. The type also implements `Stream` and `Sink`.
pub struct WebSocket<T> {
    io: T,
    connection: Connection<Session>,
    config: Arc<Config>,
    timer: Timer,
    opened: Opened,
    closed: Option<Closed>,
    ending: Ending,
    /// Where to note the time after which the server wants its client back.
    told: Option<Arc<Told>>,
    /// Whether bytes were written that `io` may keep until it is flushed.
    unflushed: bool,
    /// Reads in a row that had bytes.
    reads: u8,
    tally: Tally,
}

/// How far the end of a connection has come, once its last event is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Bytes are to be written, and then our direction is to be ended.
    Write,
    /// The peer's end of stream is awaited, so that the kernel does not reset what the peer has not read yet.
    Linger(Option<Instant>),
    Done,
}

/// An event for the caller.
pub(crate) enum Happened {
    Request,
    Open,
    Message,
    End,
}

impl<T: AsyncRead + AsyncWrite + Unpin> WebSocket<T> {
    pub(crate) fn new(io: T, connection: Connection<Session>, config: Arc<Config>) -> Result<Self, Error> {
        if config.streaming {
            return Err(Error::Config("a socket receives whole messages: leave Config::streaming unset"));
        }
        Ok(Self {
            io,
            connection,
            config,
            timer: Timer::default(),
            opened: Opened::default(),
            closed: None,
            ending: Ending::Write,
            told: None,
            unflushed: false,
            reads: 0,
            tally: Tally::default(),
        })
    }

    /// Notes for the next attempt when the server wants its client back.
    pub(crate) fn set_told(&mut self, told: Arc<Told>) {
        self.told = Some(told);
    }

    fn set_closed(&mut self, closed: Closed) {
        if let Some((told, after)) = self.told.as_ref().zip(closed.retry_after()) {
            told.note(after);
        }
        self.tally.add(self.connection.messages_dropped());
        self.tally.end();
        self.closed = Some(closed);
    }

    /// The next message, where it was decrypted; `None` once both ends have sent close frames.
    ///
    /// Messages that were taken before leave first.
    ///
    /// # Errors
    /// [`Error::Closed`] once, if the connection ended otherwise. Later calls return `None`.
    pub async fn recv(&mut self) -> Result<Option<Received<'_>>, Error> {
        let message = poll_fn(|cx| self.poll_message(cx)).await?;
        Ok(message.map(|()| Received::new(self.connection.payload_and_output(), &mut self.tally)))
    }

    /// Takes a message, and returns a future that waits until it has left.
    ///
    /// The message is taken by this call. A future that is dropped, polled or not, loses and doubles nothing.
    ///
    /// The future returns [`Error::Unsent`] if the message was not taken, and [`Error::Closed`] if the connection ends.
    pub fn send<'m, M: Into<Outgoing<'m>>>(&mut self, message: M) -> impl Future<Output = Result<(), Error>> {
        let taken = self.feed(message);
        self.flush_behind(taken)
    }

    /// As [`send`](Self::send), for a text message.
    pub fn text<'s>(&'s mut self, text: &str) -> impl Future<Output = Result<(), Error>> + use<'s, T> {
        let taken = self.feed(Outgoing::text(text));
        self.flush_behind(taken)
    }

    /// As [`send`](Self::send), for a binary message.
    pub fn binary<'s>(&'s mut self, payload: &[u8]) -> impl Future<Output = Result<(), Error>> + use<'s, T> {
        let taken = self.feed(Outgoing::binary(payload));
        self.flush_behind(taken)
    }

    /// Takes a message. It leaves with the next [`flush`](Self::flush), send, or wait for a message.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the message was not taken: the connection is closing, or too many bytes wait. While the peer takes
    /// no bytes, a policy of [`Config::slow_consumer`] that drops messages does so instead.
    pub fn feed<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<(), Error> {
        let message = message.into();
        context::with(|buffers| self.connection.send(message, buffers))??;
        self.tally.sent(message.payload.len());
        Ok(())
    }

    /// Takes a ping. It leaves as [`feed`](Self::feed) says. Pongs are not reported.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the ping was not taken: its payload may have at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), Error> {
        Ok(context::with(|buffers| self.connection.ping(payload, buffers))??)
    }

    /// Waits until all messages that were taken have left.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ends before.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_flush_all(cx)).await
    }

    /// Flushes behind what the socket has taken, if it has.
    async fn flush_behind(&mut self, taken: Result<(), Error>) -> Result<(), Error> {
        taken?;
        self.flush().await
    }

    /// Sends a close frame behind all messages, and waits until the peer has answered it and ended the connection.
    ///
    /// Messages that arrive meanwhile are discarded. The close frame is taken by this call, before the future is polled.
    ///
    /// The future returns [`Error::Closed`] if the connection ended without the peer's close frame.
    pub fn close<'s>(
        &'s mut self,
        code: CloseCode,
        reason: &str,
    ) -> impl Future<Output = Result<(), Error>> + use<'s, T> {
        let begun = self.begin_close(code, reason);
        async move {
            begun?;
            while poll_fn(|cx| self.poll_message(cx)).await?.is_some() {}
            Ok(())
        }
    }

    /// How the connection ended; `None` while it is open.
    #[must_use]
    pub const fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// The result of the opening handshake: request or response, subprotocol, TLS.
    #[must_use]
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The negotiated parameters of TLS. Empty without TLS.
    #[must_use]
    pub const fn tls(&self) -> &TlsInfo {
        &self.opened.tls
    }

    /// Messages that [`Config::slow_consumer`] has dropped so far: those that [`feed`](Self::feed) refused with
    /// [`Unsent::Dropped`](crate::Unsent), and older ones that made way for later ones.
    #[must_use]
    pub const fn messages_dropped(&self) -> u64 {
        self.connection.messages_dropped()
    }

    /// The client of a connection that was accepted [from a known peer](crate::Acceptor::accept_from).
    pub fn peer(&self) -> Option<&Address> {
        self.connection.peer()
    }

    /// The client's way through proxies, with the facts in a header of the PROXY protocol. `None` if the client is the peer of
    /// the socket.
    pub fn via(&self) -> Option<&Via> {
        self.connection.via()
    }

    /// Counts this connection from now on, such as one that axum or a [`Connector`](crate::Connector) has opened. An
    /// [`Acceptor`](crate::Acceptor::with_counted) does so by itself.
    pub fn count_in(&mut self, counted: &Counted) {
        self.tally.end();
        if self.closed.is_none() {
            self.tally.begin(counted, self.connection.messages_dropped());
        }
    }

    /// The stream below. Reading from it or writing to it breaks the connection.
    pub const fn get_ref(&self) -> &T {
        &self.io
    }

    /// Fills `out` with keying material of the TLS connection (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// [`Error::Tls`] without TLS 1.3, and if the configuration does not ask for an exporter.
    pub fn export_keying_material(&mut self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        Ok(self.connection.session().export_keying_material(label, context, out)?)
    }

    pub(crate) fn begin_close(&mut self, code: CloseCode, reason: &str) -> Result<(), Error> {
        Ok(context::with(|buffers| self.connection.close(code, reason, buffers, now()))?)
    }

    pub(crate) const fn connection(&mut self) -> &mut Connection<Session> {
        &mut self.connection
    }

    pub(crate) const fn connection_ref(&self) -> &Connection<Session> {
        &self.connection
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn set_opened(&mut self, opened: Opened) {
        self.opened = opened;
    }

    /// Whether so many bytes wait that no message is taken.
    pub(crate) fn is_full(&mut self) -> bool {
        self.connection.sending().is_full()
    }

    /// The last message, with its own memory.
    pub(crate) fn message(&self) -> Message {
        self.connection.payload().into()
    }

    /// Waits for the next message, whose bytes then lie in the connection.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<()>, Error>> {
        loop {
            match ready!(self.poll_event(cx))? {
                Happened::Message => return Poll::Ready(Ok(Some(()))),
                Happened::End => return Poll::Ready(Ok(None)),
                Happened::Request | Happened::Open => {}
            }
        }
    }

    /// Waits for the next event. The caller of `Happened::Request` answers it.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Happened, Error>> {
        context::with(|buffers| self.poll_event_with(cx, buffers))?
    }

    fn poll_event_with(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<Result<Happened, Error>> {
        loop {
            if self.connection.is_over() {
                return self.poll_end(cx, buffers).map(|()| Ok(Happened::End));
            }
            match self.connection.next(buffers) {
                Some(Event::Message(_)) => {
                    self.tally.received(self.connection.payload().data().len());
                    return Poll::Ready(Ok(Happened::Message));
                }
                Some(Event::Request) => return Poll::Ready(Ok(Happened::Request)),
                Some(Event::Open(opened)) => {
                    self.opened = *opened;
                    return Poll::Ready(Ok(Happened::Open));
                }
                Some(Event::Closed(closed)) => {
                    let is_clean = matches!(closed.cause, Cause::Peer | Cause::Local);
                    self.set_closed((*closed).clone());
                    if !is_clean {
                        // The reason may still reach the peer, if the caller lets it.
                        let _ = self.poll_write(cx, buffers);
                        return Poll::Ready(Err(Error::Closed(*closed)));
                    }
                }
                Some(Event::Failed(error)) => return Poll::Ready(Err(Error::Connect(*error))),
                Some(_) => {}
                None if self.connection.is_over() => {}
                None => ready!(self.poll_io(cx, buffers)),
            }
        }
    }

    /// Waits until everything is written.
    pub(crate) fn poll_flush_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        context::with(|buffers| self.poll_flush_with(cx, buffers))?
    }

    fn poll_flush_with(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<Result<(), Error>> {
        loop {
            if let Some(closed) =
                self.closed.as_ref().filter(|closed| !matches!(closed.cause, Cause::Peer | Cause::Local))
            {
                return Poll::Ready(Err(Error::Closed(closed.clone())));
            }
            match self.poll_write(cx, buffers) {
                Poll::Ready(Ok(())) => {
                    self.tally.add(self.connection.messages_dropped());
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => self.connection.broken(error, buffers),
                Poll::Pending => ready!(self.poll_send_time(cx, buffers)),
            }
            if !self.connection.is_open() && !self.connection.has_output() {
                // The connection broke, or the peer took nothing for too long.
                match self.connection.next(buffers) {
                    Some(Event::Closed(closed)) => self.set_closed(*closed),
                    _ => return Poll::Ready(Err(Error::Unsent(tautline_engine::connection::Unsent::Closed))),
                }
            }
        }
    }

    /// Writes what waits, and reads, until there is something new for the connection.
    fn poll_io(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<()> {
        if self.connection.has_output() || self.unflushed {
            match self.poll_write(cx, buffers) {
                Poll::Ready(Ok(())) if self.connection.holds_back() => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.connection.broken(error, buffers);
                    return Poll::Ready(());
                }
                // Nothing is read meanwhile, so only the time to send counts.
                Poll::Pending if self.connection.holds_back() => return self.poll_send_time(cx, buffers),
                Poll::Pending => {}
            }
        }
        if self.reads >= READS {
            self.reads = 0;
            self.connection.on_time(now(), buffers);
            return Poll::Ready(());
        }
        match self.poll_read(cx, buffers) {
            Poll::Ready(Ok(0)) => self.connection.ended(),
            Poll::Ready(Ok(n)) => {
                self.reads += 1;
                self.connection.filled(n, now());
            }
            Poll::Ready(Err(error)) => self.connection.broken(error, buffers),
            Poll::Pending => {
                self.reads = 0;
                self.tally.add(self.connection.messages_dropped());
                self.connection.rest(buffers);
                return self.poll_time(cx, buffers);
            }
        }
        Poll::Ready(())
    }

    fn poll_time(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<()> {
        ready!(self.timer.poll(self.connection.next_deadline(), cx));
        self.connection.on_time(now(), buffers);
        Poll::Ready(())
    }

    fn poll_send_time(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<()> {
        ready!(self.timer.poll(self.connection.send_deadline(), cx));
        self.connection.miss(Deadline::Send, buffers);
        Poll::Ready(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<io::Result<usize>> {
        let mut window = ReadBuf::new(self.connection.window_of(READ, buffers));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut window))?;
        Poll::Ready(Ok(window.filled().len()))
    }

    /// Writes and flushes all output.
    fn poll_write(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<io::Result<()>> {
        loop {
            let bytes = self.connection.output(buffers);
            if bytes.is_empty() {
                break;
            }
            let Poll::Ready(written) = Pin::new(&mut self.io).poll_write(cx, bytes) else {
                self.connection.blocked(now());
                return Poll::Pending;
            };
            let written = written?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            self.connection.written(written, buffers);
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends a connection whose last event is known. Failures are of no interest any more.
    fn poll_end(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<()> {
        loop {
            match self.ending {
                Ending::Write => {
                    self.ending = if ready!(self.poll_last_write(cx, buffers)) {
                        Ending::Linger(now().checked_add(self.config.deadlines.close))
                    } else {
                        Ending::Done
                    };
                }
                Ending::Linger(until) => match self.poll_read(cx, buffers) {
                    Poll::Ready(Ok(0) | Err(_)) => self.ending = Ending::Done,
                    Poll::Ready(Ok(_)) if until.is_some_and(|until| until <= now()) => self.ending = Ending::Done,
                    Poll::Ready(Ok(n)) => {
                        self.connection.filled(n, now());
                        let _ = self.connection.next(buffers);
                    }
                    Poll::Pending => {
                        ready!(self.timer.poll(until, cx));
                        self.ending = Ending::Done;
                    }
                },
                Ending::Done => {
                    self.connection.rest(buffers);
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Writes all that is left, and ends our direction. False if that failed or took too long.
    fn poll_last_write(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<bool> {
        let written = match self.poll_write(cx, buffers) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.io).poll_shutdown(cx),
            other => other,
        };
        if written.is_pending() {
            ready!(self.timer.poll(self.connection.send_deadline(), cx));
        }
        Poll::Ready(matches!(written, Poll::Ready(Ok(()))))
    }

    /// Waits for the end of the opening handshake, or for a request. After a failure, the peer is told the reason.
    pub(crate) async fn opening(&mut self) -> Result<Happened, Error> {
        let failure = match poll_fn(|cx| self.poll_event(cx)).await {
            Ok(Happened::End) => Error::Connect(ConnectError::Ended(Cause::Finished)),
            Ok(other) => return Ok(other),
            Err(error) => error,
        };
        poll_fn(|cx| {
            context::with(|buffers| self.poll_last_write(cx, buffers)).map_or(Poll::Ready(()), |poll| poll.map(drop))
        })
        .await;
        Err(failure)
    }
}

impl<T> std::fmt::Debug for WebSocket<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocket").field("closed", &self.closed).finish_non_exhaustive()
    }
}
