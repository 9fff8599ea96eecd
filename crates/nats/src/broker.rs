//! Plain topics between hosts, by NATS' core.

use crate::config::NatsConfig;
use crate::subject::{decode, encode, encode_prefix};
use async_nats::{Client, Event, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tautline::{Broker, BrokerError, BrokerLink, Inbox, Interest, Kind, Order};
use tautline_hub::backend::Followed;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The header of a binary message. Text has no header.
const KIND: &str = "Tautline-Kind";
/// The longest time without a look at orders.
const LOOK: Duration = Duration::from_secs(10);
/// The time that messages have to leave when the host stops.
const LAST: Duration = Duration::from_secs(1);

/// A broker for a [`Bridge`](tautline::Bridge). Messages of others that have no header of ours are text if they are UTF-8.
#[derive(Debug)]
pub struct NatsBroker {
    config: NatsConfig,
}

impl NatsBroker {
    /// A broker on these servers. [`Bridge::start`](tautline::Bridge::start) connects it.
    #[must_use]
    pub const fn new(config: NatsConfig) -> Self {
        Self { config }
    }
}

impl Broker for NatsBroker {
    fn name(&self) -> &str {
        "NATS"
    }

    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(&self.config, link))
    }
}

/// A connection to NATS and what is followed on it.
struct Connection {
    client: Client,
    prefix: String,
    inbox: Inbox,
    followed: Arc<Mutex<Followed>>,
    tasks: HashMap<Interest, JoinHandle<()>>,
}

async fn serve(config: &NatsConfig, link: &mut BrokerLink) -> Result<(), BrokerError> {
    let lost = Arc::new(Notify::new());
    let news = Arc::new(Notify::new());
    let tells = lost.clone();
    // Reconnections are the bridge's, so that publishers are told at once that the broker is away.
    let options = config.options().no_echo().max_reconnects(1).event_callback(move |event| {
        if matches!(event, Event::Disconnected | Event::Closed) {
            tells.notify_one();
        }
        async {}
    });
    let client = options.connect(config.servers()).await?;
    let wakes = news.clone();
    link.set_waker(tautline::Waker::new(move || wakes.notify_one()));
    let prefix = format!("{}.t", config.prefix);
    let mut connection =
        Connection { client, prefix, inbox: link.inbox(), followed: Arc::default(), tasks: HashMap::new() };
    link.connected();
    while !link.is_stopped() {
        while let Some(order) = link.next_order() {
            tokio::select! {
                done = connection.obey(order) => done?,
                () = lost.notified() => return Err("the connection was lost".into()),
            }
        }
        tokio::select! {
            () = news.notified() => {}
            () = tokio::time::sleep(link.pause().min(LOOK)) => {}
            () = lost.notified() => return Err("the connection was lost".into()),
        }
    }
    // If NATS does not take the last messages, they are lost.
    let _ = tokio::time::timeout(LAST, connection.client.flush()).await;
    Ok(())
}

impl Connection {
    async fn obey(&mut self, order: Order) -> Result<(), BrokerError> {
        match order {
            Order::Publish { topic, message } => {
                let subject = format!("{}.{}", self.prefix, encode(&topic));
                let payload = Bytes::copy_from_slice(message.payload());
                let sent = if message.kind() == Kind::Text {
                    self.client.publish(subject, payload).await
                } else {
                    let mut headers = HeaderMap::new();
                    headers.insert(KIND, "binary");
                    self.client.publish_with_headers(subject, headers, payload).await
                };
                if let Err(error) = sent {
                    // Clients can cause any number of them.
                    static WARNING: Once = Once::new();
                    WARNING.call_once(|| log::warn!("NATS did not take a message to topic {topic:?}: {error}"));
                    log::debug!("NATS did not take a message to topic {topic:?}: {error}");
                }
            }
            Order::Follow(interest) => self.follow(interest).await?,
            Order::Unfollow(interest) => {
                self.set(&interest, false);
                if let Some(task) = self.tasks.remove(&interest) {
                    // Its end unsubscribes.
                    task.abort();
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn follow(&mut self, interest: Interest) -> Result<(), BrokerError> {
        let pattern = match &interest {
            Interest::Topic(topic) => encode(topic),
            Interest::Prefix(prefix) => encode_prefix(prefix),
            _ => return Ok(()),
        };
        self.set(&interest, true);
        let mut messages = self.client.subscribe(format!("{}.{pattern}", self.prefix)).await?;
        let (inbox, followed, own) = (self.inbox.clone(), self.followed.clone(), interest.clone());
        let skip = self.prefix.len() + 1;
        let task = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let Some(topic) = message.subject.get(skip..).and_then(decode) else { continue };
                let delivers = followed.lock().unwrap_or_else(PoisonError::into_inner).delivers(&own, &topic);
                if delivers {
                    let is_binary = message.headers.as_ref().is_some_and(|headers| headers.get(KIND).is_some())
                        || std::str::from_utf8(&message.payload).is_err();
                    inbox.deliver(&topic, if is_binary { Kind::Binary } else { Kind::Text }, &message.payload);
                }
            }
        });
        self.tasks.insert(interest, task);
        Ok(())
    }

    fn set(&self, interest: &Interest, on: bool) {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).set(interest, on);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}
