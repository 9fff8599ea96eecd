//! Plain topics between hosts, by publish and subscribe.

use crate::config::RedisConfig;
use crate::connect::{Connected, Link, connect};
use crate::keys;
use futures_util::future::join_all;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, Value, cmd};
use std::sync::{Arc, Once};
use std::time::Duration;
use tautline::{Broker, BrokerError, BrokerLink, Inbox, Interest, Kind, Order};
use tautline_hub::backend::{Followed, random_name};
use tokio::sync::Notify;

/// The longest time without a look at orders.
const LOOK: Duration = Duration::from_secs(10);
/// Messages that are sent in one go, and their bytes.
const BATCH: (usize, usize) = (256, 1 << 20);
/// The first byte of a message of ours. No UTF-8 has it.
const OURS: u8 = 0xff;
/// Bytes of a host's name.
const NAME: usize = 16;

/// A broker for a [`Bridge`](tautline::Bridge). Messages of other programs are text if they are UTF-8.
#[derive(Debug)]
pub struct RedisBroker {
    config: RedisConfig,
    /// The name of this host in its messages, since Redis returns them.
    name: String,
}

impl RedisBroker {
    /// A broker on these servers. [`Bridge::start`](tautline::Bridge::start) connects it.
    #[must_use]
    pub fn new(config: RedisConfig) -> Self {
        Self { config, name: random_name()[..NAME].to_owned() }
    }
}

impl Broker for RedisBroker {
    fn name(&self) -> &str {
        "Redis"
    }

    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(&self.config, &self.name, link))
    }
}

/// A connection, and what is followed on it.
struct Connection<'c> {
    config: &'c RedisConfig,
    name: &'c str,
    commands: Link,
    ears: Link,
    /// Whether channels are those of a slot.
    is_sharded: bool,
    inbox: Inbox,
    followed: Followed,
}

async fn serve(config: &RedisConfig, name: &str, link: &mut BrokerLink) -> Result<(), BrokerError> {
    let connected = connect(config).await.map_err(|error| error.reason().to_owned())?;
    let Connected { commands, ears, mut heard, has_shards } = connected;
    let is_sharded = has_shards && config.sharded && matches!(commands, Link::Cluster(_));
    let (inbox, followed) = (link.inbox(), Followed::default());
    let mut connection = Connection { config, name, commands, ears, is_sharded, inbox, followed };
    let news = Arc::new(Notify::new());
    let wakes = news.clone();
    link.set_waker(tautline::Waker::new(move || wakes.notify_one()));
    link.connected();
    while !link.is_stopped() {
        loop {
            let (orders, is_last) = take(link);
            connection.obey(orders).await?;
            while let Ok(push) = heard.try_recv() {
                connection.heard(push)?;
            }
            if is_last {
                break;
            }
        }
        tokio::select! {
            () = news.notified() => {}
            push = heard.recv() => connection.heard(push.ok_or("the connection was lost")?)?,
            () = tokio::time::sleep(link.pause().min(LOOK)) => connection.look().await?,
        }
    }
    Ok(())
}

/// The next orders, and whether there are no others.
fn take(link: &mut BrokerLink) -> (Vec<Order>, bool) {
    let (mut orders, mut bytes) = (Vec::new(), 0);
    while orders.len() < BATCH.0 && bytes < BATCH.1 {
        let Some(order) = link.next_order() else { return (orders, true) };
        if let Order::Publish { message, .. } = &order {
            bytes += message.payload().len();
        }
        orders.push(order);
    }
    (orders, false)
}

impl Connection<'_> {
    async fn obey(&mut self, orders: Vec<Order>) -> Result<(), BrokerError> {
        let mut messages = Vec::new();
        for order in orders {
            match order {
                Order::Publish { topic, message } => {
                    messages.push(self.message(&topic, message.kind(), message.payload()));
                }
                Order::Follow(interest) => {
                    self.publish(std::mem::take(&mut messages)).await?;
                    self.followed.set(&interest, true);
                    self.subscribe(&interest, true).await?;
                }
                Order::Unfollow(interest) => {
                    self.publish(std::mem::take(&mut messages)).await?;
                    self.followed.set(&interest, false);
                    self.subscribe(&interest, false).await?;
                }
                _ => {}
            }
        }
        self.publish(messages).await
    }

    /// The command that sends a message: a byte that marks it as ours, the host's name, and the kind, before its payload.
    fn message(&self, topic: &str, kind: Kind, payload: &[u8]) -> Cmd {
        let mut text = Vec::with_capacity(payload.len() + NAME + 2);
        text.push(OURS);
        text.extend_from_slice(self.name.as_bytes());
        text.push(if kind == Kind::Text { b't' } else { b'b' });
        text.extend_from_slice(payload);
        let mut command = cmd(if self.is_sharded { "SPUBLISH" } else { "PUBLISH" });
        command.arg(keys::plain(&self.config.prefix, topic)).arg(text);
        command
    }

    async fn publish(&mut self, messages: Vec<Cmd>) -> Result<(), BrokerError> {
        if messages.is_empty() {
            return Ok(());
        }
        if self.is_sharded {
            // They go to several nodes.
            let links = messages.iter().map(|message| (self.commands.clone(), message));
            let sent = join_all(links.map(|(mut link, message)| async move { link.ask::<Value>(message).await })).await;
            return sent.into_iter().try_for_each(|sent| check(sent.map(drop)));
        }
        let mut pipeline = Pipeline::with_capacity(messages.len());
        messages.into_iter().for_each(|message| _ = pipeline.add_command(message));
        check(pipeline.exec_async(&mut self.commands).await)
    }

    async fn subscribe(&mut self, interest: &Interest, on: bool) -> Result<(), BrokerError> {
        let prefix = &self.config.prefix;
        let (name, channel) = match interest {
            Interest::Topic(topic) => {
                let names = if self.is_sharded { ["SSUBSCRIBE", "SUNSUBSCRIBE"] } else { ["SUBSCRIBE", "UNSUBSCRIBE"] };
                (names[usize::from(!on)], keys::plain(prefix, topic))
            }
            Interest::Prefix(topics) => {
                if self.is_sharded {
                    static WARNING: Once = Once::new();
                    WARNING.call_once(|| {
                        log::warn!("sharded channels have no prefixes: set RedisConfig::sharded to false on all hosts");
                    });
                }
                (["PSUBSCRIBE", "PUNSUBSCRIBE"][usize::from(!on)], keys::pattern(prefix, topics))
            }
            _ => return Ok(()),
        };
        // Without it the host would miss messages, so the bridge tries again.
        self.ears.ask::<Value>(cmd(name).arg(channel)).await?;
        Ok(())
    }

    /// Whether the connections live.
    async fn look(&mut self) -> Result<(), BrokerError> {
        for link in [&mut self.commands, &mut self.ears] {
            link.ask::<Value>(&cmd("PING")).await?;
        }
        Ok(())
    }

    /// Takes a push.
    fn heard(&self, push: PushInfo) -> Result<(), BrokerError> {
        let (interest, channel, payload) = match (push.kind, &push.data[..]) {
            (PushKind::Disconnection, _) => return Err("the connection was lost".into()),
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), Value::BulkString(payload)]) => {
                (None, channel, payload)
            }
            (
                PushKind::PMessage,
                [Value::BulkString(pattern), Value::BulkString(channel), Value::BulkString(payload)],
            ) => (Some(pattern), channel, payload),
            // The client of Redis takes it for an answer, so the connection is of no use.
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) if self.has_moved(channel) => {
                return Err("a topic has moved to another node of the cluster".into());
            }
            _ => return Ok(()),
        };
        let Some(topic) =
            std::str::from_utf8(channel).ok().and_then(|name| keys::topic_of_plain(&self.config.prefix, name))
        else {
            return Ok(());
        };
        if interest.is_none_or(|pattern| self.brings(pattern, topic)) {
            self.deliver(topic, payload);
        }
        Ok(())
    }

    /// Whether a topic is followed that a node does not have any more.
    fn has_moved(&self, channel: &[u8]) -> bool {
        let name = std::str::from_utf8(channel).ok().and_then(|name| keys::topic_of_plain(&self.config.prefix, name));
        name.is_some_and(|topic| self.followed.has_topic(topic))
    }

    /// Whether a message that came by a pattern is to be delivered.
    fn brings(&self, pattern: &[u8], topic: &str) -> bool {
        let is_it = |prefix: &&str| keys::pattern(&self.config.prefix, prefix).as_bytes() == pattern;
        let prefix = self.followed.prefixes().find(is_it);
        prefix.is_some_and(|prefix| self.followed.delivers(&Interest::Prefix(prefix.into()), topic))
    }

    fn deliver(&self, topic: &str, payload: &[u8]) {
        let is_text = |payload| std::str::from_utf8(payload).is_ok();
        let ours = payload.strip_prefix(&[OURS]).filter(|rest| rest.len() > NAME);
        let Some((name, rest)) = ours.map(|rest| rest.split_at(NAME)) else {
            let kind = if is_text(payload) { Kind::Text } else { Kind::Binary };
            return self.inbox.deliver(topic, kind, payload);
        };
        if name != self.name.as_bytes() {
            let kind = if rest[0] == b't' { Kind::Text } else { Kind::Binary };
            self.inbox.deliver(topic, kind, &rest[1..]);
        }
    }
}

/// Redis does not take some messages: then it is the operator who has to do something. Other errors end the connection.
fn check(sent: Result<(), RedisError>) -> Result<(), BrokerError> {
    let Err(error) = sent else { return Ok(()) };
    if error.is_unrecoverable_error() || error.is_timeout() || error.is_io_error() {
        return Err(error.into());
    }
    // Clients can cause any number of them.
    static WARNING: Once = Once::new();
    WARNING.call_once(|| log::warn!("Redis did not take a message to a topic: {error}"));
    log::debug!("Redis did not take a message to a topic: {error}");
    Ok(())
}
