//! The thread of a log: requests of the hub, answers of Redis, and news of followed topics.
//!
//! ```text
//!            subscribed         page, the last           message after another
//!   Waiting ───────────► Reading ──────────────► Live ────────────────────────► Live
//!      ▲                   ▲  │ page, not the last, or news came meanwhile       │ a message is missing
//!      │ error             └──┴◄──────────────────────────────────────────────────┘
//!      └── all states, also if the connection is lost
//! ```
//! News come by a channel, at most once. Each names the message before it, so one that is missing is noticed, and read. Topics
//! that are silent are looked at each half minute.

use crate::config::RedisConfig;
use crate::connect::{Connected, Link, NotConnected, connect};
use crate::keys;
use crate::refusal::{self, CONNECTION, MESSAGES};
use crate::script::{Found, News, Scripts, entry};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{PushInfo, PushKind, RedisError, Value, cmd};
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tautline_hub::backend::{Held, Refusal};
use tautline_hub::{Append, Done, Entry, Kind, LogError, Page, Position, Sink};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// The wait before an error is followed by another attempt, and its bound for connections: it doubles with each that fails.
const AGAIN: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(2);
/// The time between two looks at the connection, and at messages that were refused.
const LOOK: Duration = Duration::from_secs(5);
/// Looks within which each silent topic is looked at.
const ROUND: usize = 6;
/// Pages that are read at a time for clients, and for followed topics.
const MOST_READS: usize = 16;
const MOST_FOLLOWS: usize = 64;
/// The topic of messages that are stored to find out whether they are taken. Names of clients do not begin so.
const PROBE: &str = "$probe";

/// A request, and its memory.
pub(crate) enum Request {
    Append { topic: Arc<str>, append: Append, done: Done<Position>, held: Held },
    Read { topic: Arc<str>, after: Option<u64>, done: Done<Page>, held: Held },
    Follow { topic: Arc<str>, number: u64, sink: Arc<dyn Sink>, held: Held },
    Unfollow { topic: Arc<str>, number: u64 },
}

type Asked = (Arc<str>, Option<u64>);

/// Something that was waited for.
enum Event {
    Connected(Box<Result<Connected, NotConnected>>),
    Stored(Result<(), RedisError>),
    Page(Asked, Result<Found, RedisError>),
    /// A followed topic, on this connection.
    Followed(Arc<str>, u64, Result<Found, RedisError>),
    Unsubscribed(Arc<str>),
    /// A topic is to be followed again.
    Again(Arc<str>, u64),
    Alive(u64, Result<(), RedisError>),
}

/// A followed topic.
struct Topic {
    sinks: Vec<(u64, Arc<dyn Sink>, Held)>,
    at: Option<Position>,
    stage: Stage,
    /// Whether there was news since the last look.
    is_fresh: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not subscribed.
    Waiting,
    /// Its messages are read. If `news`, further ones have come meanwhile.
    Reading { news: bool },
    /// All messages so far were passed on.
    Live,
}

/// The present connection.
struct Life {
    scripts: Scripts,
    commands: Link,
    ears: Link,
    heard: mpsc::UnboundedReceiver<PushInfo>,
    has_shards: bool,
}

struct Service {
    config: Arc<RedisConfig>,
    refusal: Refusal,
    life: Option<Life>,
    /// The number of the connection.
    number: u64,
    wait: Duration,
    /// Whether the outage was logged.
    is_told: bool,
    topics: HashMap<Arc<str>, Topic>,
    /// Topics whose subscription is to begin, those whose reading is under way, and those whose subscription is about to end.
    to_follow: VecDeque<Arc<str>>,
    following: usize,
    leaving: HashSet<Arc<str>>,
    /// Topics that are left to be looked at in this round.
    to_look: Vec<Arc<str>>,
    reads: HashMap<Asked, Vec<(Done<Page>, Held)>>,
    to_read: VecDeque<Asked>,
    reading: usize,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
}

pub(crate) async fn serve(config: RedisConfig, mut requests: mpsc::UnboundedReceiver<Request>, refusal: Refusal) {
    let mut service = Service {
        config: Arc::new(config),
        refusal,
        life: None,
        number: 0,
        wait: AGAIN,
        is_told: false,
        topics: HashMap::new(),
        to_follow: VecDeque::new(),
        following: 0,
        leaving: HashSet::new(),
        to_look: Vec::new(),
        reads: HashMap::new(),
        to_read: VecDeque::new(),
        reading: 0,
        events: FuturesUnordered::new(),
    };
    service.connect(Duration::ZERO);
    let mut look = Instant::now() + LOOK;
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => service.request(request),
                None => return,
            },
            heard = hear(&mut service.life) => service.heard(heard),
            Some(event) = service.events.next() => service.event(event),
            () = tokio::time::sleep_until(look) => {
                look = Instant::now() + LOOK;
                service.look();
            }
        }
        service.begin_reads();
        service.begin_follows();
    }
}

/// The next push of the connection. It never ends, since its other end has a sender, too.
async fn hear(life: &mut Option<Life>) -> Option<PushInfo> {
    match life {
        Some(life) => life.heard.recv().await,
        None => std::future::pending().await,
    }
}

impl Service {
    fn connect(&self, wait: Duration) {
        let config = self.config.clone();
        self.spawn(async move {
            sleep(wait).await;
            Event::Connected(Box::new(connect(&config).await))
        });
    }

    fn spawn(&self, event: impl Future<Output = Event> + Send + 'static) {
        self.events.push(Box::pin(event));
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::Append { topic, append, done, held } => {
                let Some(life) = &self.life else { return done(Err(LogError::Away)) };
                let scripts = life.scripts.clone();
                self.spawn(async move {
                    let stored = scripts.append(&topic, &append).await;
                    drop((append, held));
                    let (result, event) = match stored {
                        Ok(at) => (Ok(at), Ok(())),
                        // Redis never takes this message.
                        Err(error) if error.code() == Some("WRONGTYPE") => (
                            Err(LogError::Failed("a key of the topic is not of the hub: delete it".into())),
                            Err(error),
                        ),
                        Err(error) => (Err(LogError::Away), Err(error)),
                    };
                    done(result);
                    Event::Stored(event)
                });
            }
            Request::Read { topic, after, done, held } => match self.reads.entry((topic, after)) {
                Slot::Occupied(mut others) => others.get_mut().push((done, held)),
                Slot::Vacant(entry) => {
                    self.to_read.push_back(entry.key().clone());
                    entry.insert(vec![(done, held)]);
                }
            },
            Request::Follow { topic, number, sink, held } => match self.topics.entry(topic) {
                Slot::Occupied(mut topic) => {
                    let topic = topic.get_mut();
                    topic.at.iter().for_each(|at| sink.begin(at.clone()));
                    topic.sinks.push((number, sink, held));
                }
                Slot::Vacant(entry) => {
                    self.to_follow.push_back(entry.key().clone());
                    let sinks = vec![(number, sink, held)];
                    entry.insert(Topic { sinks, at: None, stage: Stage::Waiting, is_fresh: true });
                }
            },
            Request::Unfollow { topic, number } => {
                let Some(followed) = self.topics.get_mut(&topic) else { return };
                followed.sinks.retain(|(other, ..)| *other != number);
                if followed.sinks.is_empty() {
                    self.topics.remove(&topic);
                    self.unsubscribe(topic);
                }
            }
        }
    }

    fn unsubscribe(&mut self, topic: Arc<str>) {
        let Some(life) = &self.life else { return };
        if !self.leaving.insert(topic.clone()) {
            return;
        }
        let mut ears = life.ears.clone();
        let channel = keys::news(&self.config.prefix, &topic);
        let name = if life.has_shards { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.spawn(async move {
            // A subscription that is left brings news of no topic.
            let _: Result<Value, _> = ears.ask(cmd(name).arg(channel)).await;
            Event::Unsubscribed(topic)
        });
    }

    /// Reads pages for clients.
    fn begin_reads(&mut self) {
        while self.reading < MOST_READS
            && let Some(asked) = self.to_read.pop_front()
        {
            let Some(life) = &self.life else {
                self.answer(&asked, &Err(LogError::Away));
                continue;
            };
            self.reading += 1;
            let scripts = life.scripts.clone();
            self.spawn(async move {
                let found = scripts.read(&asked.0, asked.1, None).await;
                Event::Page(asked, found)
            });
        }
    }

    fn answer(&mut self, asked: &Asked, page: &Result<Page, LogError>) {
        for (done, held) in self.reads.remove(asked).unwrap_or_default() {
            drop(held);
            done(page.clone());
        }
    }

    /// Subscribes topics, and reads what they have missed.
    fn begin_follows(&mut self) {
        while self.following < MOST_FOLLOWS
            && let Some(life) = &self.life
            && let Some(name) = self.to_follow.pop_front()
        {
            let is_waiting = |topic: &&mut Topic| topic.stage == Stage::Waiting;
            let Some(topic) = self.topics.get_mut(&name).filter(is_waiting) else { continue };
            if self.leaving.contains(&name) {
                // Its turn comes when that is done.
                continue;
            }
            topic.stage = Stage::Reading { news: false };
            let mut ears = life.ears.clone();
            let channel = keys::news(&self.config.prefix, &name);
            let subscribe = if life.has_shards { "SSUBSCRIBE" } else { "SUBSCRIBE" };
            let reading = self.reading_of(&name);
            let number = self.number;
            self.following += 1;
            self.spawn(async move {
                match ears.ask::<Value>(cmd(subscribe).arg(channel)).await {
                    Ok(_) => reading.await,
                    Err(error) => Event::Followed(name, number, Err(error)),
                }
            });
        }
    }

    /// Reads what a followed topic has not passed on yet.
    fn reading_of(&self, name: &Arc<str>) -> BoxFuture<'static, Event> {
        let at = self.topics.get(name).and_then(|topic| topic.at.clone());
        let (name, number) = (name.clone(), self.number);
        let Some(life) = &self.life else { return Box::pin(async move { Event::Again(name, number) }) };
        let scripts = life.scripts.clone();
        Box::pin(async move {
            let found = match at {
                Some(at) => scripts.read(&name, Some(at.offset), Some(&at.epoch)).await,
                None => scripts.end(&name).await.map(|at| Found { at, page: None }),
            };
            Event::Followed(name, number, found)
        })
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(result) => self.connected(*result),
            Event::Stored(Ok(())) => self.refusal.clear(MESSAGES),
            Event::Stored(Err(error)) => self.failed("a message was not stored", &error),
            Event::Page(asked, found) => {
                self.reading -= 1;
                let page = match found {
                    Ok(Found { page: Some(page), .. }) => Ok(page),
                    Ok(Found { page: None, .. }) => Err(LogError::TooLate),
                    Err(error) => {
                        self.failed("a page was not read", &error);
                        Err(LogError::Away)
                    }
                };
                self.answer(&asked, &page);
            }
            Event::Followed(name, number, found) => {
                self.following -= 1;
                match found {
                    _ if number != self.number => {}
                    Ok(found) => self.followed(&name, found),
                    Err(error) => {
                        if let Some(topic) = self.topics.get_mut(&name) {
                            topic.stage = Stage::Waiting;
                            self.spawn(async move {
                                sleep(AGAIN).await;
                                Event::Again(name, number)
                            });
                        }
                        self.failed("a topic is followed again", &error);
                    }
                }
            }
            Event::Unsubscribed(name) => {
                self.leaving.remove(&name);
                self.to_follow.push_back(name);
            }
            Event::Again(name, number) => {
                if number == self.number {
                    self.to_follow.push_back(name);
                }
            }
            Event::Alive(number, result) => {
                if let Err(error) = result
                    && number == self.number
                {
                    self.failed("the connection does not answer", &error);
                }
            }
        }
    }

    fn connected(&mut self, result: Result<Connected, NotConnected>) {
        match result {
            Ok(Connected { commands, ears, heard, has_shards }) => {
                self.refusal.clear(CONNECTION);
                if std::mem::take(&mut self.is_told) {
                    log::info!("the log of topics: Redis is reached again");
                }
                self.wait = AGAIN;
                self.number += 1;
                let scripts = Scripts::new(commands.clone(), self.config.clone());
                self.life = Some(Life { scripts, commands, ears, heard, has_shards });
                self.leaving.clear();
                self.to_follow = self.topics.keys().cloned().collect();
                self.probe();
            }
            Err(error) => {
                match &error {
                    NotConnected::Refused(reason) => self.refusal.set(CONNECTION, reason),
                    NotConnected::Away(reason) => {
                        self.refusal.clear(CONNECTION);
                        if !std::mem::replace(&mut self.is_told, true) {
                            log::warn!("the log of topics cannot reach Redis at {}: {reason}", self.config.addresses());
                        }
                    }
                }
                self.connect(self.wait);
                self.wait = (self.wait * 2).min(LONGEST);
            }
        }
    }

    /// Stores a message, so that a refusal is known before the first client comes, and a remedy without one.
    fn probe(&self) {
        let Some(life) = &self.life else { return };
        let scripts = life.scripts.clone();
        self.spawn(async move {
            let append = Append { kind: Kind::History, key: None, data: "0".into(), id: None };
            Event::Stored(scripts.append(PROBE, &append).await.map(drop))
        });
    }

    /// Notes an error of a command.
    fn failed(&mut self, what: &str, error: &RedisError) {
        log::debug!("the log of topics: {what}: {error}");
        if let Some(reason) = refusal::of_error(error) {
            self.refusal.set(MESSAGES, &reason);
        }
        let is_replica = error.code() == Some("READONLY");
        if error.is_unrecoverable_error() || error.is_timeout() || error.is_io_error() || is_replica {
            self.lost();
        }
    }

    /// The connection is not used any more.
    fn lost(&mut self) {
        if self.life.take().is_none() {
            return;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            log::warn!("the log of topics: the connection to Redis was lost");
        }
        self.number += 1;
        self.topics.values_mut().for_each(|topic| topic.stage = Stage::Waiting);
        self.to_follow.clear();
        self.connect(AGAIN);
    }

    /// Looks at the connection, at messages that were refused, and at some of the silent topics.
    fn look(&mut self) {
        let Some(life) = &self.life else { return };
        let (mut commands, mut ears, number) = (life.commands.clone(), life.ears.clone(), self.number);
        self.spawn(async move {
            let both = async {
                commands.ask::<Value>(&cmd("PING")).await?;
                ears.ask::<Value>(&cmd("PING")).await
            };
            Event::Alive(number, both.await.map(drop))
        });
        if self.refusal.reason().is_some() {
            self.probe();
        }
        if self.to_look.is_empty() {
            self.to_look = self.topics.keys().cloned().collect();
        }
        let left = self.to_look.len() - self.to_look.len().min(self.topics.len().div_ceil(ROUND));
        for name in self.to_look.split_off(left) {
            let Some(topic) = self.topics.get_mut(&name).filter(|topic| topic.stage == Stage::Live) else { continue };
            if !std::mem::take(&mut topic.is_fresh) {
                self.read_again(&name);
            }
        }
    }

    fn read_again(&mut self, name: &Arc<str>) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.stage = Stage::Reading { news: false };
            self.following += 1;
            self.spawn(self.reading_of(name));
        }
    }

    /// Passes on what was read of a followed topic.
    fn followed(&mut self, name: &Arc<str>, found: Found) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let Stage::Reading { news } = topic.stage else { return };
        let is_more = match (&mut topic.at, found.page) {
            (Some(at), Some(page)) if at.epoch == found.at.epoch => {
                for entry in page.entries {
                    topic.sinks.iter().for_each(|(_, sink, _)| sink.entry(entry.clone()));
                }
                at.offset = at.offset.max(page.upto.offset);
                page.upto.offset < found.at.offset
            }
            (at, _) => {
                let was_known = at.replace(found.at.clone()).is_some();
                for (_, sink, _) in &topic.sinks {
                    if was_known {
                        sink.lost();
                    }
                    sink.begin(found.at.clone());
                }
                false
            }
        };
        if is_more || news {
            self.read_again(name);
        } else {
            topic.stage = Stage::Live;
        }
    }

    /// Takes a push.
    fn heard(&mut self, push: Option<PushInfo>) {
        let Some(push) = push else { return self.lost() };
        match push.kind {
            PushKind::Disconnection => self.lost(),
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(channel), Value::BulkString(payload)] = &push.data[..]
                    && let Some(channel) = std::str::from_utf8(channel).ok()
                    && let Some(name) = keys::topic_of_news(&self.config.prefix, channel)
                {
                    self.news(&name, payload);
                }
            }
            // A cluster has moved the topic. The client of Redis takes this for an answer, so the connection is of no use.
            PushKind::SUnsubscribe => {
                if let Some(Value::BulkString(channel)) = push.data.first()
                    && let Some(channel) = std::str::from_utf8(channel).ok()
                    && let Some(name) = keys::topic_of_news(&self.config.prefix, channel)
                    && !self.leaving.contains(&*name)
                {
                    log::debug!("the log of topics: topic {name:?} has moved to another node");
                    self.lost();
                }
            }
            _ => {}
        }
    }

    fn news(&mut self, name: &str, payload: &[u8]) {
        let Some((name, topic)) = self.topics.get_key_value(name).map(|(name, _)| name.clone()).and_then(|name| {
            let topic = self.topics.get_mut(&name)?;
            Some((name, topic))
        }) else {
            return;
        };
        topic.is_fresh = true;
        match (&mut topic.stage, &mut topic.at) {
            (Stage::Reading { news }, _) => *news = true,
            (Stage::Live, Some(at)) => {
                let Some(news) = News::parse(payload) else { return self.read_again(&name) };
                if *news.epoch != *at.epoch || news.before > at.offset {
                    return self.read_again(&name);
                }
                if news.offset <= at.offset {
                    return;
                }
                at.offset = news.offset;
                let entry: Option<Entry> = entry(&name, news.offset, news.key, news.data);
                for (_, sink, _) in &topic.sinks {
                    entry.iter().for_each(|entry| sink.entry(entry.clone()));
                }
            }
            _ => {}
        }
    }
}
