use crate::error::Error;
use crate::message::Message;
use crate::socket::WebSocket;
use futures_core::Stream;
use futures_sink::Sink;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tautline_engine::{Closed, Outgoing};
use tautline_ws::CloseCode;
use tokio::io::{AsyncRead, AsyncWrite};

/// The half of a [`WebSocket`] that sends. It may live on another task than the [`Receiver`].
pub struct Sender<T>(Arc<Halves<T>>);

/// The half of a [`WebSocket`] that receives. It may live on another task than the [`Sender`].
///
/// Pings are answered, and deadlines kept, while a method of either half is polled.
pub struct Receiver<T>(Arc<Halves<T>>);

struct Halves<T> {
    /// Locked for one poll at a time.
    socket: Mutex<WebSocket<T>>,
    wakers: Arc<Wakers>,
}

/// The tasks of both halves. Each poll registers both, since reading and writing go on in either.
#[derive(Default)]
struct Wakers([Mutex<Option<Waker>>; 2]);

/// Which half polls: an index of [`Wakers`].
#[derive(Clone, Copy)]
enum Half {
    Sender = 0,
    Receiver = 1,
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        for slot in &self.0 {
            if let Some(waker) = lock(slot).take() {
                waker.wake();
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> WebSocket<T> {
    /// Splits the socket into halves for two tasks. The messages of the receiving half have their own memory.
    #[must_use]
    pub fn split(self) -> (Sender<T>, Receiver<T>) {
        let halves = Arc::new(Halves { socket: Mutex::new(self), wakers: Arc::default() });
        (Sender(halves.clone()), Receiver(halves))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Halves<T> {
    fn poll<R>(
        &self,
        half: Half,
        cx: &Context<'_>,
        act: impl FnOnce(&mut WebSocket<T>, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        *lock(&self.wakers.0[half as usize]) = Some(cx.waker().clone());
        let both = Waker::from(self.wakers.clone());
        let mut socket = lock(&self.socket);
        let result = act(&mut socket, &mut Context::from_waker(&both));
        if result.is_ready() && !socket.is_open() {
            // The other half does not know yet that the connection has ended.
            drop(socket);
            self.wakers.wake_by_ref();
        }
        result
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Sender<T> {
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

    /// Takes a ping of at most 125 bytes. It leaves as [`feed`](Self::feed) says. Pongs are not reported.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the ping was not taken.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), Error> {
        lock(&self.0.socket).ping(payload)
    }

    /// Takes a message. It leaves with the next flush or send, or when the other half waits for a message.
    ///
    /// # Errors
    /// [`Error::Unsent`] if the message was not taken.
    pub fn feed<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<(), Error> {
        lock(&self.0.socket).feed(message)
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

    fn poll_flush_all(&self, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll(Half::Sender, cx, WebSocket::poll_flush_all)
    }

    /// Sends a close frame behind all messages. The receiving half goes on until the peer has answered it.
    ///
    /// The close frame is taken by this call, before the future is polled. The future returns [`Error::Closed`] if the
    /// connection ended before.
    pub fn close<'s>(
        &'s mut self,
        code: CloseCode,
        reason: &str,
    ) -> impl Future<Output = Result<(), Error>> + use<'s, T> {
        let begun = lock(&self.0.socket).begin_close(code, reason);
        self.flush_behind(begun)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Receiver<T> {
    /// The next message; `None` once both ends have sent close frames.
    ///
    /// # Errors
    /// [`Error::Closed`] once, if the connection ended otherwise. Later calls return `None`.
    pub async fn recv(&mut self) -> Result<Option<Message>, Error> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&self, cx: &Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        self.0.poll(Half::Receiver, cx, |socket, cx| {
            socket.poll_message(cx).map(|found| found.map(|found| found.map(|()| socket.message())))
        })
    }

    /// How the connection ended; `None` while it is open.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        lock(&self.0.socket).closed().cloned()
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    /// Both halves, if they are not of one socket.
    pub fn reunite(self, sender: Sender<T>) -> Result<WebSocket<T>, (Sender<T>, Self)> {
        if !Arc::ptr_eq(&self.0, &sender.0) {
            return Err((sender, self));
        }
        drop(sender);
        match Arc::try_unwrap(self.0) {
            Ok(halves) => Ok(halves.socket.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Err(_) => unreachable!("a socket has two halves"),
        }
    }
}

/// The messages. The stream ends as [`recv`](Receiver::recv) does.
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for Receiver<T> {
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx).map(Result::transpose)
    }
}

/// Closing sends a close frame with code 1000 behind all messages, as [`close`](Sender::close) does.
impl<T: AsyncRead + AsyncWrite + Unpin> Sink<Message> for Sender<T> {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let is_full = lock(&self.0.socket).is_full();
        if is_full { self.poll_flush_all(cx) } else { Poll::Ready(Ok(())) }
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.feed(&message)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_flush_all(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        lock(&self.0.socket).begin_close(CloseCode::NORMAL, "")?;
        self.poll_flush_all(cx)
    }
}

/// Locks, also after a panic: a socket is in order after each call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}
