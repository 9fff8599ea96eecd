//! A hub's log in JetStream.

use crate::config::NatsConfig;
use crate::held::{self, Held, Memory};
use crate::reads::{Reads, Waiting, entry};
use crate::refusal::CONNECTION;
use crate::streams::{Streams, epoch, failed};
use async_nats::connection::State;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Event, jetstream};
use futures_util::StreamExt;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tautline_hub::backend::Refusal;
use tautline_hub::{Append, Done, Following, Kind, Log, LogError, Page, Position, Sink};
use tokio::sync::{mpsc, oneshot, watch};

/// The longest wait for an answer of JetStream.
const PATIENCE: Duration = Duration::from_secs(5);
/// The wait before a topic is followed again after an error, and before the first connection is tried again.
const AGAIN: Duration = Duration::from_millis(250);
/// The wait before streams that NATS has refused are tried again, so that the log notices a remedy by itself.
const REFUSED: Duration = Duration::from_secs(5);
/// The refusal of a user.
const GIVEN_UP: &str = "the server does not accept this user and password, or token: correct them, and start again";

/// A log in JetStream, which all hosts share. One stream has all topics with history, another all conflating topics. They are made
/// when NATS is reached first, so that a [refusal](Self::refusal) is known before the first client comes.
///
/// The [memory](Log::memory) of a followed topic, of a page that is read, and of a message on its way counts. A message that
/// would pass the log's part of the budget is refused, and its client repeats it.
///
/// Offsets are the stream's sequence numbers. A client that returns is told that it is too late once any message of the stream
/// after its offset is not kept any more.
pub struct NatsLog {
    requests: mpsc::UnboundedSender<Request>,
    /// Memory of messages on their way, the most that it may be, and the memory of all else.
    appends: Memory,
    most: AtomicUsize,
    others: Memory,
    refusal: Refusal,
}

/// A request, and its memory.
enum Request {
    Append { kind: Kind, topic: Arc<str>, append: Append, done: Done<Position>, held: Held },
    Read { kind: Kind, topic: Arc<str>, after: Option<u64>, done: Done<Page>, held: Held },
    Follow { kind: Kind, topic: Arc<str>, sink: Arc<dyn Sink>, end: oneshot::Receiver<()>, held: Held },
}

impl NatsLog {
    /// Starts the log's thread, which connects and, after an outage, connects again.
    ///
    /// # Errors
    /// If the thread or its runtime cannot start.
    pub fn start(config: NatsConfig) -> io::Result<Self> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("tautline-nats".into());
        let refusal = Refusal::new("NATS");
        let told = refusal.clone();
        thread.spawn(move || runtime.block_on(serve(config, receiver, told)))?;
        let (appends, others) = (Memory::default(), Memory::default());
        Ok(Self { requests, appends, most: AtomicUsize::new(usize::MAX), others, refusal })
    }

    /// Why NATS refuses this log, as long as it does.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }

    fn send(&self, request: Request) {
        // The thread lives as long as this.
        let _ = self.requests.send(request);
    }
}

impl Log for NatsLog {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        // NATS may take long to answer. Messages that wait for it must not fill this process.
        let most = self.most.load(Ordering::Relaxed);
        let Some(held) = self.appends.try_hold(held::append(&append), most) else {
            return done(Err(LogError::Full));
        };
        self.send(Request::Append { kind: append.kind, topic: topic.clone(), append, done, held });
    }

    fn follow(&self, topic: &Arc<str>, kind: Kind, sink: Arc<dyn Sink>) -> Following {
        let (own, end) = oneshot::channel();
        let held = self.others.hold(held::FOLLOWED);
        self.send(Request::Follow { kind, topic: topic.clone(), sink, end, held });
        Box::new(Follower(std::sync::Mutex::new(own)))
    }

    fn read(&self, topic: &Arc<str>, kind: Kind, after: Option<u64>, done: Done<Page>) {
        let held = self.others.hold(held::READ);
        self.send(Request::Read { kind, topic: topic.clone(), after, done, held });
    }

    fn memory(&self) -> usize {
        self.appends.bytes() + self.others.bytes()
    }

    fn memory_of_topic(&self) -> usize {
        held::FOLLOWED
    }

    fn bound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }
}

impl fmt::Debug for NatsLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NatsLog")
    }
}

/// Ends the following of a topic when it is dropped, since its sender is.
struct Follower(#[expect(dead_code, reason = "its end is all that it says")] std::sync::Mutex<oneshot::Sender<()>>);

/// A connection and the streams on it.
struct Service {
    client: async_nats::Client,
    streams: Streams,
    reads: Reads,
    /// The number of connections so far.
    connected: watch::Receiver<u64>,
}

async fn serve(config: NatsConfig, mut requests: mpsc::UnboundedReceiver<Request>, refusal: Refusal) {
    let (count, connected) = watch::channel(0);
    let options = config.options().retry_on_initial_connect().max_reconnects(None);
    let options = options.reconnect_delay_callback(|attempts| {
        let doubled = AGAIN * 2_u32.pow(u32::try_from(attempts.min(4)).unwrap_or(4));
        doubled.min(Duration::from_secs(2))
    });
    let told = refusal.clone();
    let options = options.event_callback(move |event| {
        match &event {
            Event::Connected => {
                told.clear(CONNECTION);
                count.send_modify(|count| *count += 1);
            }
            // The client of NATS tries again, and has no kind for this error.
            Event::ClientError(error) if error.to_string().contains("auth") => told.set(CONNECTION, GIVEN_UP),
            Event::Disconnected => log::warn!("the log of topics: the connection to NATS was lost"),
            _ => {}
        }
        async {}
    });
    let client = match options.connect(config.servers()).await {
        Ok(client) => client,
        Err(error) => {
            log::error!("the log of topics cannot use {}: {error}", config.addresses());
            refusal.set(CONNECTION, &error.to_string());
            return refuse_all(requests, &error.to_string()).await;
        }
    };
    let context =
        jetstream::context::ContextBuilder::new().timeout(PATIENCE).ack_timeout(PATIENCE).build(client.clone());
    let streams = Streams::new(context, config, refusal.clone());
    let service = Arc::new(Service { client, streams, reads: Reads::new(), connected });
    let making = service.clone();
    tokio::spawn(async move { making.make_streams(&refusal).await });
    while let Some(request) = requests.recv().await {
        match request {
            Request::Append { kind, topic, append, done, held } => {
                let done: Done<Position> = Box::new(move |result| {
                    drop(held);
                    done(result);
                });
                service.append(kind, &topic, append, done).await;
            }
            Request::Read { kind, topic, after, done, held } => {
                let service = service.clone();
                let done = Waiting { done, held };
                tokio::spawn(async move { service.reads.read(&service.streams, kind, (topic, after), done).await });
            }
            Request::Follow { kind, topic, sink, end, held } => {
                let service = service.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = service.follow(kind, &topic, &*sink) => {}
                        _ = end => {}
                    }
                    drop(held);
                });
            }
        }
    }
}

/// Answers all requests with an error of the configuration.
async fn refuse_all(mut requests: mpsc::UnboundedReceiver<Request>, reason: &str) {
    let failed = LogError::Failed(reason.into());
    while let Some(request) = requests.recv().await {
        match request {
            Request::Append { done, .. } => done(Err(failed.clone())),
            Request::Read { done, .. } => done(Err(failed.clone())),
            Request::Follow { .. } => {}
        }
    }
}

impl Service {
    /// Makes the streams once there is a connection, and tries those again that NATS has refused.
    async fn make_streams(&self, refusal: &Refusal) {
        let mut connected = self.connected.clone();
        loop {
            if self.client.connection_state() == State::Connected {
                for kind in [Kind::History, Kind::Latest] {
                    // A request that needs the stream tells its client.
                    let _ = self.streams.get(kind).await;
                }
            }
            let is_refused = refusal.reason().is_some();
            tokio::select! {
                // The client of NATS goes on after all errors but this one, and tells nobody.
                changed = connected.changed() => if changed.is_err() {
                    return refusal.set(CONNECTION, GIVEN_UP);
                },
                () = tokio::time::sleep(REFUSED), if is_refused => {}
            }
        }
    }

    /// Sends a message to its stream in the order of the calls, and waits for the answer in a task of its own.
    async fn append(self: &Arc<Self>, kind: Kind, topic: &str, append: Append, done: Done<Position>) {
        if self.client.connection_state() != State::Connected {
            return done(Err(LogError::Away));
        }
        let epoch = match self.streams.get(kind).await {
            Ok(stream) => epoch(stream.cached_info()),
            Err(error) => return done(Err(error)),
        };
        let subject = self.streams.subject(kind, topic, append.key.as_deref());
        let message = PublishMessage::build().payload(String::from(append.data).into());
        let message = match append.id {
            Some(id) => message.message_id(Streams::message_id(topic, &id)),
            None => message,
        };
        let sent = tokio::time::timeout(PATIENCE, self.streams.context.send_publish(subject, message)).await;
        let acknowledged = match sent {
            Ok(Ok(acknowledged)) => acknowledged,
            // NATS never takes this message.
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                return done(Err(LogError::Failed("the message is larger than NATS takes".into())));
            }
            Ok(Err(error)) => return done(Err(failed("a message was not sent to JetStream", &error))),
            Err(_) => return done(Err(LogError::Away)),
        };
        let service = self.clone();
        tokio::spawn(async move {
            let stored = service.streams.stored(kind, acknowledged.await);
            if stored.is_err() {
                service.streams.forget(kind).await;
            }
            done(stored.map(|acknowledged| Position { epoch, offset: acknowledged.sequence }));
        });
    }

    /// Brings a topic's messages to a sink for ever.
    async fn follow(&self, kind: Kind, topic: &str, sink: &dyn Sink) {
        let mut at = None;
        loop {
            if let Err(error) = self.follow_once(kind, topic, sink, &mut at).await {
                log::debug!("topic {topic:?} is followed again: {error}");
                self.streams.forget(kind).await;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Follows until an error, or until the connection is another.
    async fn follow_once(
        &self,
        kind: Kind,
        topic: &str,
        sink: &dyn Sink,
        at: &mut Option<Position>,
    ) -> Result<(), LogError> {
        let mut connected = self.connected.clone();
        connected.mark_unchanged();
        let extent = self.streams.extent(kind).await?;
        let goes_on = at.as_ref().is_some_and(|at| {
            at.epoch == extent.at.epoch && (kind == Kind::Latest || at.offset.saturating_add(1) >= extent.first)
        });
        if !goes_on {
            if at.is_some() {
                sink.lost();
            }
            sink.begin(extent.at.clone());
            *at = Some(extent.at);
        }
        let Some(at) = at else { return Ok(()) };
        let config = pull::OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: at.offset.saturating_add(1) },
            filter_subject: self.streams.pattern(kind, topic),
            ..pull::OrderedConfig::default()
        };
        let stream = self.streams.get(kind).await?;
        let consumer = stream.create_consumer(config).await.map_err(|error| failed("cannot follow a topic", &error))?;
        let messages = consumer.messages().await;
        let mut messages = messages.map_err(|error| failed("cannot follow a topic", &error))?;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                // Consumers may not outlive the server, and it takes long to notice that.
                _ = connected.changed() => return Ok(()),
            };
            let Some(message) = message else { return Err(LogError::Away) };
            let message = message.map_err(|error| failed("a followed topic", &error))?;
            let Some(entry) = entry(kind, &message) else { continue };
            if entry.offset > at.offset {
                at.offset = entry.offset;
                sink.entry(entry);
            }
        }
    }
}
