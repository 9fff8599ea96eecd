use crate::close::restart::Restart;
use crate::counts::counters::{Counters, LiveCounters};
use crate::counts::outcomes::{LiveOutcomes, Outcomes};
use crate::dial::dials::Dials;
use crate::ids::{ConnId, DialId};
use crate::memory::application::ApplicationMemory;
use crate::memory::budget::Member;
use crate::memory::weight::{Listing, Weight};
use crate::probe::Stages;
use crate::threads::command::Command;
use crate::threads::command_queue::{CAPACITY, CommandReceiver, CommandSender, Rejected, command_queue};
use crate::topics::publications::Publication;
use crate::topics::receipt::Receipt;
use crate::topics::recipients::Recipients;
use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tautline_conn::message::{Encoded, Outgoing, Published};
use tautline_io::{Address, Waker};
use tautline_ws::CloseCode;

thread_local! {
    /// The shard whose turn runs on this thread, by the address of its state; 0 if none does.
    static IN_TURN: Cell<usize> = const { Cell::new(0) };
}

/// A turn of a shard on this thread, until it is dropped.
pub(crate) struct InTurn(());

impl InTurn {
    pub(crate) fn begin(shard: &ShardHandle) -> Self {
        IN_TURN.set(shard.address());
        Self(())
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        IN_TURN.set(0);
    }
}

/// A handle to a shard, for other threads. Cheap to clone.
///
/// ```
/// # mod tautline {
/// #     pub use tautline_engine::{Config, Conn, Handler, Shard};
/// #     pub use tautline_io::DriverConfig;
/// #     pub use tautline_ws::{CloseCode, Message};
/// #     pub mod layers { pub use tautline_tls as tls; }
/// # }
/// use std::{sync::Arc, time::Duration};
/// use tautline::layers::tls::plain;
/// use tautline::{CloseCode, Config, Conn, DriverConfig, Handler, Message, Shard};
///
/// struct Nothing;
///
/// impl Handler for Nothing {
///     type State = ();
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
/// }
///
/// let driver = DriverConfig::default().open()?;
/// let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, driver, Nothing)?;
/// let handle = shard.handle();
/// std::thread::spawn(move || handle.drain(CloseCode::GOING_AWAY, "maintenance", Duration::from_secs(1)));
/// shard.run()?; // until it is drained
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ShardHandle(Arc<Inner>);

/// A shard's state that other threads reach. One allocation, so that a clone of the handle is cheap.
struct Inner {
    number: u32,
    /// The type of its handler.
    handler: TypeId,
    commands: CommandSender<Command>,
    published: Published,
    application: ApplicationMemory,
    dials: Dials,
    /// Whether the shard's thread has a table of descriptors of its own.
    own_descriptors: AtomicBool,
    waker: Waker,
    counters: Arc<LiveCounters>,
    outcomes: LiveOutcomes,
    /// Whether a drain has begun.
    draining: AtomicBool,
}

/// The shard's end of the queue of commands.
pub(crate) type Commands = CommandReceiver<Command>;

/// The reason why a shard did not take a command.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Outgoing, ShardHandle, ShardHandleError}; }
/// use tautline::{Outgoing, ShardHandle, ShardHandleError};
///
/// /// Publishes unless the shard is too busy. False if the shard has stopped.
/// fn publish(shard: &ShardHandle, price: &str) -> bool {
///     match shard.publish("prices", Outgoing::text(price)) {
///         Ok(()) | Err(ShardHandleError::Full | ShardHandleError::TooManyBytes) => true,
///         Err(_) => false,
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardHandleError {
    /// Too many commands wait already: the shard does not keep up.
    Full,
    /// Commands with too many bytes of messages wait already (64 MiB): the shard does not keep up.
    TooManyBytes,
    /// The shard has stopped.
    Stopped,
    /// The connection, or the target that was connected to, has ended.
    Ended,
    /// The shard has a handler of another type.
    OtherHandler,
    /// The shard's thread has a table of descriptors of its own, so it cannot take those of others.
    OwnDescriptors,
    /// The loops took the message, but other hosts miss it: the broker is away, or does not keep up.
    Withheld,
    /// The question needs a shard's answer, and a handler must not wait for one: it could wait for itself.
    InHandler,
    /// The shard did not answer in time: a handler blocks it, or it has too much to do.
    TimedOut,
}

impl fmt::Display for ShardHandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the shard does not keep up: too many commands wait for it",
            Self::TooManyBytes => "the shard does not keep up: too many bytes of messages wait for it",
            Self::Stopped => "the shard has stopped",
            Self::Ended => "the connection has ended",
            Self::OtherHandler => "the shard has a handler of another type",
            Self::OwnDescriptors => "the shard has a table of descriptors of its own, and takes none of others",
            Self::Withheld => "other hosts miss the message: the broker is away or does not keep up",
            Self::InHandler => "a handler must not wait for a shard's answer",
            Self::TimedOut => "the shard did not answer in time: a handler blocks it, or it has too much to do",
        })
    }
}

impl fmt::Debug for ShardHandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ShardHandleError {}

impl ShardHandle {
    pub(crate) fn new<H: 'static>(number: u32, waker: Waker, counters: Arc<LiveCounters>) -> (Self, Commands) {
        let handler = TypeId::of::<H>();
        let (commands, receiver) = command_queue(CAPACITY);
        let (published, dials, own_descriptors) = (Published::default(), Dials::default(), AtomicBool::new(false));
        let inner = Inner {
            number,
            handler,
            commands,
            published,
            application: ApplicationMemory::default(),
            dials,
            own_descriptors,
            waker,
            counters,
            outcomes: LiveOutcomes::default(),
            draining: AtomicBool::new(false),
        };
        (Self(Arc::new(inner)), receiver)
    }

    /// Whether the shard's handler has this type.
    pub(crate) fn is_for(&self, handler: TypeId) -> bool {
        self.0.handler == handler
    }

    /// The shard's number among the shards of its server, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Sends `message` to this shard's subscribers of `topic`, and to no other shard or host.
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        self.publish_encoded(Publication::to_topic(topic, message, self.published()))
    }

    /// Sends `message` to one connection of this shard. It is discarded if the connection has ended.
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn send(&self, to: ConnId, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        self.command(Command::Send { to, message: Encoded::new(message, self.published()) })
    }

    /// Sends `message` to those of these connections that are of this shard. It is framed once.
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn send_to(&self, conns: &[ConnId], message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let own = Publication::new(Recipients::Conns(conns), message, self.published()).on(self.0.number);
        own.map_or(Ok(()), |own| self.publish_encoded(own))
    }

    /// Sends `message` to those receivers that are on these shards, and calls `done` with the counts once all of them have
    /// delivered it. It is framed once.
    ///
    /// The last shard makes the call, on its own thread, or the caller's thread does if it is slower. A shard that does not
    /// take the command counts as one that [missed](Receipt::missed) the message, so `done` is called after an error, too.
    ///
    /// ```
    /// # mod tautline { pub use tautline_engine::{Outgoing, Recipients, ShardHandle, ShardHandleError}; }
    /// use tautline::{Outgoing, Recipients, ShardHandle, ShardHandleError};
    ///
    /// /// Announces a restart, and reports how many heard of it at once.
    /// fn announce(shards: &[ShardHandle]) -> Result<(), ShardHandleError> {
    ///     ShardHandle::publish_counted(shards, Recipients::All, Outgoing::text("restart"), |receipt| {
    ///         println!("{} told, {} lag, {} loops are too busy", receipt.sent, receipt.queued, receipt.missed);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of the first shard that did not take the command. All others were tried too.
    pub fn publish_counted<'r>(
        shards: &[Self],
        to: impl Into<Recipients<'r>>,
        message: Outgoing<'_>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) -> Result<(), ShardHandleError> {
        let Some(first) = shards.first() else {
            done(Receipt::default());
            return Ok(());
        };
        let publication = Publication::new(to.into(), message, first.published()).counted(done);
        let give = |shard: &Self| match publication.on(shard.number()) {
            Some(part) => shard.publish_encoded(part).inspect_err(|_| publication.miss()),
            None => Ok(()),
        };
        shards.iter().map(give).fold(Ok(()), Result::and)
    }

    /// The subscriptions on this shard that match `topic`. Waits for the shard's answer.
    ///
    /// # Errors
    /// If the shard does not take the command, or stops before it answers. If a handler asks, since it would wait for itself.
    pub fn subscribers(&self, topic: &str) -> Result<usize, ShardHandleError> {
        self.ask(|reply| Command::Subscribers { topic: topic.to_owned(), reply })
    }

    /// Sends `message` to every open connection of this shard, like [`Conn::broadcast`](crate::Conn::broadcast).
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn broadcast(&self, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        self.publish_encoded(Publication::new(Recipients::All, message, self.published()))
    }

    /// Closes one connection of this shard.
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn close(&self, conn: ConnId, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        self.command(Command::Close { conn, code, reason: reason.to_owned() })
    }

    /// Has the shard serve a connected socket that something else has accepted, like [`Shard::adopt`](crate::Shard::adopt).
    ///
    /// A socket that the shard cannot take is closed, and logged.
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn adopt(&self, socket: OwnedFd, peer: Option<Address>) -> Result<(), ShardHandleError> {
        if self.0.own_descriptors.load(Ordering::Acquire) {
            return Err(ShardHandleError::OwnDescriptors);
        }
        self.command(Command::Adopt { socket, peer })
    }

    /// Whether the shard's thread has a table of descriptors of its own.
    #[must_use]
    pub fn has_own_descriptors(&self) -> bool {
        self.0.own_descriptors.load(Ordering::Acquire)
    }

    /// Marks the shard's thread as one with a table of descriptors of its own.
    pub fn set_own_descriptors(&self) {
        self.0.own_descriptors.store(true, Ordering::Release);
    }

    /// Stops accepting, closes every connection with `code` (1001 going away, 1012 service restart), and then ends the shard.
    ///
    /// The shard ends when all connections have ended, at the latest after `deadline`. A full queue takes this command too.
    ///
    /// # Errors
    /// If the shard has stopped.
    pub fn drain(&self, code: CloseCode, reason: &str, deadline: Duration) -> Result<(), ShardHandleError> {
        self.force(Command::Drain { code, reason: reason.to_owned(), deadline })?;
        self.begin_drain();
        Ok(())
    }

    /// Drains like [`drain`](Self::drain) with 1012, and tells each client after which time of its own to come back.
    ///
    /// # Errors
    /// If the shard has stopped.
    pub fn drain_for_restart(&self, restart: &Restart, deadline: Duration) -> Result<(), ShardHandleError> {
        self.force(Command::DrainForRestart { restart: Box::new(restart.clone()), deadline })?;
        self.begin_drain();
        Ok(())
    }

    /// Whether a drain was asked for, or has ended already. The shard accepts no connections then.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Notes that a drain has begun.
    pub(crate) fn begin_drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// The shard's counters as of now, from any thread, also a handler's. Nothing waits for it.
    ///
    /// Each value is exact, but they are not all of one instant. A shard that has stopped keeps its last values.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.0.counters.snapshot();
        (counters.memory_commands, counters.memory_published) = self.memory_of_others();
        counters.memory_application += self.0.application.bytes() as u64;
        counters
    }

    /// How the shard's handshakes and connections went, from any thread, also a handler's. Nothing waits for it.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        self.0.outcomes.snapshot()
    }

    /// The outcomes, for the shard to write.
    pub(crate) fn live_outcomes(&self) -> &LiveOutcomes {
        &self.0.outcomes
    }

    /// The memory of commands that wait, and of messages that were published here and are not gone. Any thread changes them.
    fn memory_of_others(&self) -> (u64, u64) {
        (self.0.commands.memory() as u64, self.0.published.bytes())
    }

    /// The account of messages that are published here.
    pub(crate) fn published(&self) -> &Published {
        &self.0.published
    }

    /// The application's memory that counts for this shard.
    pub(crate) fn application(&self) -> &ApplicationMemory {
        &self.0.application
    }

    /// The outgoing connections that have not ended.
    pub(crate) fn dials(&self) -> &Dials {
        &self.0.dials
    }

    /// Whether the shard takes commands. It does not once it was drained, or has failed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.commands.is_open()
    }

    /// The results of the shard's probe; `None` if it has no probe. Waits for the shard's answer.
    ///
    /// # Errors
    /// If the shard does not take the command, or stops before it answers. If a handler asks, since it would wait for itself.
    pub fn stages(&self) -> Result<Option<Box<Stages>>, ShardHandleError> {
        self.ask(|reply| Command::Stages(None, reply))
    }

    /// The probe's results for one outgoing connection, across its reconnections. Waits for the shard's answer.
    ///
    /// `None` without a probe, before its first message, and after its [end](crate::Handler::on_dial_end). The first 64 outgoing
    /// connections of a shard are counted apart.
    ///
    /// # Errors
    /// Like those of [`stages`](Self::stages).
    pub fn stages_of(&self, dial: DialId) -> Result<Option<Box<Stages>>, ShardHandleError> {
        self.ask(|reply| Command::Stages(Some(dial), reply))
    }

    /// The results of the shard's probe like [`stages`](Self::stages), if the shard answers `within` this time.
    ///
    /// # Errors
    /// If the shard does not take the command or answer in time. If one of its own handlers asks.
    pub fn stages_within(&self, within: Duration) -> Result<Option<Box<Stages>>, ShardHandleError> {
        self.ask_within(within, |reply| Command::Stages(None, reply))
    }

    /// Waits until the shard has done its present turn, as a sign of life, at most for the time `within`.
    ///
    /// # Errors
    /// If the shard does not take the command or answer in time. If one of its own handlers asks.
    pub fn wait_for_turn(&self, within: Duration) -> Result<(), ShardHandleError> {
        self.ask_within(within, Command::Beat)
    }

    /// Lists connections of the shard.
    ///
    /// The shard looks through all of its connections meanwhile, and serves none.
    ///
    /// # Errors
    /// If the shard does not take the command or answer in time. If one of its own handlers asks.
    pub fn connections(&self, listing: Listing, within: Duration) -> Result<Vec<Weight>, ShardHandleError> {
        self.ask_within(within, |reply| Command::List(listing, reply))
    }

    /// Sends a command, and waits for its answer at most for the time `within`. Handlers of other shards may ask too.
    fn ask_within<R>(
        &self,
        within: Duration,
        command: impl FnOnce(SyncSender<R>) -> Command,
    ) -> Result<R, ShardHandleError> {
        if IN_TURN.get() == self.address() {
            return Err(ShardHandleError::InHandler);
        }
        let (reply, answer) = sync_channel(1);
        self.command(command(reply))?;
        answer.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => ShardHandleError::TimedOut,
            RecvTimeoutError::Disconnected => ShardHandleError::Stopped,
        })
    }

    /// The address of the shard's state, which no other shard has meanwhile.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Sends a command, and waits for its answer.
    fn ask<R>(&self, command: impl FnOnce(SyncSender<R>) -> Command) -> Result<R, ShardHandleError> {
        if IN_TURN.get() != 0 {
            return Err(ShardHandleError::InHandler);
        }
        let (reply, answer) = sync_channel(1);
        self.command(command(reply))?;
        answer.recv().map_err(|_| ShardHandleError::Stopped)
    }

    /// Ends the shard's wait for events, so that its thread can do something else.
    pub fn wake(&self) {
        self.0.waker.wake();
    }

    /// Has the shard look at the limits that it shares.
    pub(crate) fn check_limits(&self) {
        self.0.waker.wake();
    }

    pub(crate) fn publish_encoded(&self, publication: Publication) -> Result<(), ShardHandleError> {
        self.command(Command::Publish(publication))
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), ShardHandleError> {
        self.woken(self.0.commands.send(command))
    }

    /// Sends a command, also if too many wait.
    pub(crate) fn force(&self, command: Command) -> Result<(), ShardHandleError> {
        self.woken(self.0.commands.force(command))
    }

    fn woken(&self, sent: Result<bool, Rejected>) -> Result<(), ShardHandleError> {
        let wakes = sent.map_err(|rejected| match rejected {
            Rejected::Full => ShardHandleError::Full,
            Rejected::TooManyBytes => ShardHandleError::TooManyBytes,
            Rejected::Stopped => ShardHandleError::Stopped,
        })?;
        if wakes {
            self.0.waker.wake();
        }
        Ok(())
    }
}

impl Member for ShardHandle {
    fn counters(&self) -> Counters {
        self.counters()
    }

    fn check_limits(&self) {
        self.check_limits();
    }
}

impl fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardHandle")
    }
}

#[cfg(test)]
mod tests {
    use super::{ShardHandle, ShardHandleError};
    use crate::Outgoing;
    use crate::threads::command_queue::CAPACITY;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tautline_io::Waker;
    use tautline_ws::CloseCode;

    #[test]
    fn a_stopped_shard_is_never_reported_as_full() {
        let (shard, commands) = ShardHandle::new::<()>(0, Waker::new(|| {}), Arc::default());
        let publish = || shard.publish("topic", Outgoing::text("news"));
        for _ in 0..CAPACITY.commands {
            assert_eq!(publish(), Ok(()));
        }
        assert_eq!(publish(), Err(ShardHandleError::Full));
        let drain = || shard.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        assert_eq!(drain(), Ok(()), "a busy shard can be drained");
        drop(commands);
        assert_eq!(drain(), Err(ShardHandleError::Stopped));
        for _ in 0..=CAPACITY.commands {
            assert_eq!(publish(), Err(ShardHandleError::Stopped));
        }
    }

    #[test]
    fn many_commands_wake_a_shard_once_until_it_is_awake() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let count = wakes.clone();
        let waker = Waker::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let (shard, commands) = ShardHandle::new::<()>(0, waker, Arc::default());
        for round in 1..=3 {
            for _ in 0..100 {
                assert_eq!(shard.publish("topic", Outgoing::text("news")), Ok(()));
            }
            assert_eq!(wakes.load(Ordering::Relaxed), round);
            commands.woken();
            while commands.next().is_some() {}
        }
    }

    #[test]
    fn commands_are_bounded_by_the_bytes_of_their_messages() {
        let (shard, commands) = ShardHandle::new::<()>(0, Waker::new(|| {}), Arc::default());
        let message = vec![0; 1 << 20];
        let publish = |bytes: &[u8]| shard.publish("topic", Outgoing::binary(bytes));
        for _ in 0..CAPACITY.bytes / message.len() {
            assert_eq!(publish(&message), Ok(()));
        }
        assert_eq!(publish(&[0]), Err(ShardHandleError::TooManyBytes));
        // Commands without bytes are taken.
        assert_eq!(shard.drain(CloseCode::GOING_AWAY, "", Duration::ZERO), Ok(()));
        assert!(commands.next().is_some());
        assert_eq!(publish(&message), Ok(()));
        assert_eq!(publish(&[0]), Err(ShardHandleError::TooManyBytes));
        while commands.next().is_some() {}
        // A message of any size may wait alone, and nothing behind it.
        assert_eq!(publish(&vec![0; CAPACITY.bytes + 1]), Ok(()));
        assert_eq!(publish(&[0]), Err(ShardHandleError::TooManyBytes));
    }
}
