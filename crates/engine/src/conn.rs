use crate::ids::{ConnId, DialId};
use crate::link::info::{Cold, Info};
use crate::link::outlet::DriverOutlet;
use crate::link::phase::Transport;
use crate::probe::MessageTimes;
use crate::raw::slots::Slots;
use tautline_conn::front::Via;
use tautline_conn::message::{Delivery, Outgoing};
use tautline_conn::outbound::Outbound;
use tautline_io::Address;
use tautline_ws::{CloseCode, Kind};

/// A connection, lent to the handler for one call.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler}, tautline_ws::{CloseCode, Message}}; }
/// use tautline::{CloseCode, Conn, Handler, Message};
///
/// struct Quiz;
///
/// impl Handler for Quiz {
///     /// Wrong answers so far.
///     type State = u32;
///     fn on_message(&mut self, conn: &mut Conn<'_, u32>, message: Message<'_>) {
///         if message.text() == Some("42") {
///             conn.text("right");
///             return conn.close(CloseCode::NORMAL, "well done");
///         }
///         *conn.state() += 1;
///         let tries = *conn.state();
///         conn.text(&format!("wrong, {tries} times"));
///     }
/// }
/// ```
pub struct Conn<'a, T> {
    pub(crate) out: &'a mut Outbound,
    pub(crate) transport: Transport<'a>,
    /// Built once for all messages of a call.
    pub(crate) outlet: DriverOutlet<'a>,
    pub(crate) cold: &'a mut Option<Box<Cold>>,
    pub(crate) info: &'a Info,
    pub(crate) state: &'a mut T,
    pub(crate) paused: &'a mut bool,
    /// The loop's other connections.
    pub(crate) slots: &'a mut dyn Slots<T>,
}

impl<T> Conn<'_, T> {
    /// The connection's identifier.
    #[must_use]
    pub const fn id(&self) -> ConnId {
        ConnId { shard: self.outlet.shared.shard, token: self.outlet.token }
    }

    /// The peer's address. Behind proxies that [`Config::front`](crate::Config) names, that of the client.
    #[must_use]
    pub const fn peer(&self) -> &Address {
        &self.info.peer
    }

    /// The address of the socket's peer: the client, or the proxy next to this server.
    #[must_use]
    pub fn direct_peer(&self) -> &Address {
        self.via().map_or(&self.info.peer, |via| &via.direct)
    }

    /// The client's way through the proxies before this server, with the facts in a header of the PROXY protocol. `None` if the
    /// client is the socket's peer.
    #[must_use]
    pub fn via(&self) -> Option<&Via> {
        self.cold.as_ref()?.via()
    }

    /// The subprotocol that both sides speak.
    #[must_use]
    pub fn subprotocol(&self) -> Option<&str> {
        self.cold.as_ref()?.subprotocol.as_deref()
    }

    /// Whether messages are pieces of an HTTP response: [`Reply::Push`](crate::Reply::Push).
    #[must_use]
    pub fn is_push(&self) -> bool {
        self.out.is_push()
    }

    /// The outgoing connection that this one belongs to; `None` on a server.
    #[must_use]
    pub const fn dial(&self) -> Option<DialId> {
        self.info.dial
    }

    /// The negotiated TLS values. Built anew at each call, so that idle connections do not keep them.
    #[must_use]
    pub fn tls(&self) -> tautline_tls::TlsInfo {
        self.transport.session.tls_info()
    }

    /// The application's state for this connection.
    pub const fn state(&mut self) -> &mut T {
        self.state
    }

    /// The times of the message that the handler is called with, if they are measured.
    ///
    /// They are with a [`Probe`](crate::probe::Probe) that measures them, within `on_message` and the last call of `on_chunk`.
    #[must_use]
    pub const fn times(&self) -> Option<&MessageTimes> {
        self.outlet.shared.times.as_ref()
    }

    /// Sends a text message.
    pub fn text(&mut self, text: &str) -> Delivery {
        self.send(Outgoing::text(text))
    }

    /// Sends a binary message.
    pub fn binary(&mut self, payload: &[u8]) -> Delivery {
        self.send(Outgoing::binary(payload))
    }

    /// Sends a message. If the peer is slow, [`SlowConsumer`](crate::SlowConsumer) decides about the message.
    pub fn send(&mut self, message: Outgoing<'_>) -> Delivery {
        self.out.send(message, &mut self.transport, &mut self.outlet)
    }

    /// Sends a message like [`send`](Self::send), and times its way to the network card. [`Handler::on_sent`](crate::Handler::on_sent)
    /// follows, with this `id`, and the shard's [`Stages`](crate::probe::Stages) count it.
    ///
    /// The time begins with this call. Call it within `on_message`, and [`SendTimes::tick_to_trade`](crate::probe::SendTimes)
    /// begins with the arrival of that message. Without a [`Probe`](crate::probe::Probe) that measures times it is a plain `send`,
    /// and `on_sent` does not follow. At most 1,024 messages of a shard are timed at once.
    ///
    /// Only the epoll driver and io_uring have the kernel stamp what leaves, over TCP and from Linux 6.2 on. With others, and if
    /// the kernel seals TLS records, only the time until the system call is known.
    ///
    /// ```
    /// # mod tautline {
    /// #     pub use tautline_engine::{Conn, Handler, Outgoing, ShardContext};
    /// #     pub use tautline_engine::probe::SendTimes;
    /// #     pub use tautline_ws::Message;
    /// # }
    /// use tautline::{Conn, Handler, Message, Outgoing, SendTimes, ShardContext};
    ///
    /// struct Strategy;
    ///
    /// impl Handler for Strategy {
    ///     type State = ();
    ///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, price: Message<'_>) {
    ///         if price.text() == Some("42") {
    ///             conn.send_timed(Outgoing::text("buy"), 1);
    ///         }
    ///     }
    ///     fn on_sent(&mut self, _: &mut ShardContext<'_>, times: &SendTimes) {
    ///         println!("order {}: tick to trade {:?}", times.id, times.tick_to_trade);
    ///     }
    /// }
    /// ```
    pub fn send_timed(&mut self, message: Outgoing<'_>, id: u64) -> Delivery {
        let conn = self.id();
        let mark = self.outlet.shared.decide(conn, id);
        let delivery = self.send(message);
        self.outlet.shared.taken(mark, delivery);
        delivery
    }

    /// Whether it is open, and neither side has begun to close it.
    #[must_use]
    pub fn takes_messages(&self) -> bool {
        self.transport.phase.takes_messages()
    }

    /// Has texts that are published one right after the other leave as one text: a JSON array of them, of about 64 KiB at most.
    /// All of them have to be JSON.
    ///
    /// That holds for messages to one topic or list of connections, in one turn. A reader has fewer frames, and so less work.
    /// Others, and those that are [counted](Self::publish_counted), leave as they are. After a move to another process
    /// it is to be said again.
    pub fn join_texts(&mut self, joins: bool) {
        self.cold.get_or_insert_default().more().joins = joins;
    }

    /// Sends a piece of a streamed message; `last` ends the message.
    ///
    /// Until then other messages to this connection, published ones too, are [`Delivery::Dropped`]. A piece is dropped as a
    /// whole if too many bytes wait for the peer. It can be sent again after [`on_drain`](crate::Handler::on_drain). A piece
    /// whose kind differs from the first piece's is dropped too.
    pub fn fragment(&mut self, kind: Kind, payload: &[u8], last: bool) -> Delivery {
        self.out.fragment((kind, payload, last), &mut self.transport, &mut self.outlet)
    }

    /// Sends a ping of at most 125 bytes.
    ///
    /// # Errors
    /// If `payload` is longer.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), tautline_ws::Error> {
        if !self.transport.phase.takes_messages() {
            return Ok(());
        }
        self.out.ping(payload, self.transport.wire, self.outlet.shared.means())
    }

    /// Sends a close frame behind everything sent so far. Later messages of the peer are not delivered.
    ///
    /// A code that must not be on the wire (for example 1005, 1006 or 1015) sends a close frame without a code.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.out.close(self.transport.phase, code, reason);
    }

    /// Closes a client's connection with 1001 and connects again, after the wait of [`Target::reconnect`](crate::Target).
    ///
    /// It does not wait for the peer, which may be dead. Without `Target::reconnect`, and on a server, it only closes.
    pub fn reconnect(&mut self) {
        if self.transport.phase.takes_messages() && self.info.dial.is_some() {
            self.cold.get_or_insert_default().more().reconnects = true;
        }
        self.close(CloseCode::GOING_AWAY, "");
    }

    /// Bytes that wait to be sent: queued, encoded, and sealed but not taken by the kernel.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.out.buffered(self.transport.wire)
    }

    /// Has [`on_drain`](crate::Handler::on_drain) called once nothing waits for the peer, also if no message was queued.
    ///
    /// A message that the kernel takes in part is [`Delivery::Sent`], and its rest waits like a queue.
    pub const fn notify_drain(&mut self) {
        self.out.owe_drain();
    }

    /// Tells the account of memory what the application has for this connection: `own` bytes that go with it, and `part` bytes
    /// of what counts elsewhere, for example in [`ApplicationMemory`](crate::ApplicationMemory).
    ///
    /// Both replace what was told before, and end with [`on_close`](crate::Handler::on_close). When memory is short, the
    /// connections with the largest sum of both and of what they hold beside are closed. It costs a few comparisons.
    pub fn set_memory(&mut self, own: usize, part: usize) {
        let is_told = self.cold.as_ref().and_then(|cold| cold.more.as_ref()).map_or((0, 0), |more| more.application);
        if is_told != (own, part) && self.transport.phase.is_open() {
            self.keep(|cold| cold.more().application = (own, part));
        }
    }

    /// Stops (`true`) or resumes (`false`) reading from the peer. TCP then slows the peer down.
    ///
    /// Messages in the same TLS record as the current one are still delivered. Pings go on while a connection is paused, and
    /// its idle deadline is suspended.
    pub const fn pause(&mut self, pause: bool) {
        *self.paused = pause;
    }
}

impl<T> Conn<'_, T> {
    /// [`Link::holds_back`](crate::link::state::Link::holds_back) of a connection that is lent.
    pub(crate) fn holds_back(&self, answered: u64) -> bool {
        let pause_above = self.outlet.shared.config.limits.pause_receive_above;
        self.transport.phase.takes_messages()
            && (*self.paused || self.info.dial.is_none() && self.out.lags(self.transport.wire, answered, pause_above))
    }
}
