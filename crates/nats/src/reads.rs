//! Pages of a topic's messages. Requests for the same page are answered by one reading.

use crate::held::{Held, READING, WAITING};
use crate::streams::{Streams, failed};
use crate::subject::decode;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use tautline_hub::{Done, Entry, Kind, LogError, Page, Position};
use tokio::sync::Semaphore;

/// Most messages of a page.
const PAGE: usize = 256;
/// Most bytes of a page, beside one message of the largest size that the server takes.
const PAGE_BYTES: usize = 256 << 10;
/// Readings at a time.
const MOST: usize = 16;
/// The longest wait for a page.
const PATIENCE: Duration = Duration::from_secs(10);

type Asked = (Arc<str>, Option<u64>);

/// One who waits for a page, and the memory of that.
pub(crate) struct Waiting {
    pub(crate) done: Done<Page>,
    pub(crate) held: Held,
}

pub(crate) struct Reads {
    waiting: Mutex<HashMap<Asked, Vec<Waiting>>>,
    slots: Semaphore,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), slots: Semaphore::new(MOST) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Asked, Vec<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn read(
        &self,
        streams: &Streams,
        kind: Kind,
        (topic, after): (Arc<str>, Option<u64>),
        mut own: Waiting,
    ) {
        let asked = (topic, after);
        // The task's memory is free again when this returns.
        let mut task = own.held.split(WAITING);
        match self.lock().entry(asked.clone()) {
            hash_map::Entry::Occupied(mut others) => return others.get_mut().push(own),
            hash_map::Entry::Vacant(entry) => _ = entry.insert(vec![own]),
        }
        let slot = self.slots.acquire().await;
        task.add(READING);
        let page = tokio::time::timeout(PATIENCE, page(streams, kind, (&asked.0, after), &mut task)).await;
        drop(slot);
        let page = page.unwrap_or(Err(LogError::Away));
        let waiting = self.lock().remove(&asked).unwrap_or_default();
        for Waiting { done, held } in waiting {
            drop(held);
            done(page.clone());
        }
    }
}

/// Reads a page, whose memory is added to `held`.
async fn page(
    streams: &Streams,
    kind: Kind,
    (topic, after): (&str, Option<u64>),
    held: &mut Held,
) -> Result<Page, LogError> {
    let extent = streams.extent(kind).await?;
    // In a conflating topic only messages are missing that later ones have replaced.
    if kind != Kind::Latest && after.is_some_and(|after| after.saturating_add(1) < extent.first) {
        return Err(LogError::TooLate);
    }
    let stream = streams.get(kind).await?;
    let config = pull::Config {
        deliver_policy: after.map_or(DeliverPolicy::All, |after| DeliverPolicy::ByStartSequence {
            start_sequence: after.saturating_add(1),
        }),
        ack_policy: AckPolicy::None,
        filter_subject: streams.pattern(kind, topic),
        inactive_threshold: Duration::from_secs(30),
        memory_storage: true,
        num_replicas: 1,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(|error| failed("cannot read a topic", &error))?;
    let fetched = consumer.fetch().max_messages(PAGE).max_bytes(PAGE_BYTES + streams.largest()).messages().await;
    let mut messages = fetched.map_err(|error| failed("cannot read a topic", &error))?;
    let mut entries = Vec::new();
    let (mut last, mut left) = (None, consumer.cached_info().num_pending);
    while let Some(message) = messages.next().await {
        let message = match message {
            Ok(message) => message,
            // The next message does not fit into this page.
            Err(_) if last.is_some() => break,
            Err(error) => return Err(failed("cannot read a message", &error)),
        };
        let info = message.info().map_err(|error| failed("cannot read a message", &error))?;
        // Also of messages that are left out.
        (last, left) = (Some(info.stream_sequence), info.pending);
        if let Some(entry) = entry(kind, &message) {
            held.add(size_of::<Entry>() + entry.data.len() + entry.key.as_ref().map_or(0, |key| key.len()));
            entries.push(entry);
        }
    }
    let name = &consumer.cached_info().name;
    // One that is not deleted ends by itself.
    let _ = stream.delete_consumer(name).await;
    match last {
        Some(offset) if left > 0 => Ok(Page { entries, upto: Position { offset, ..extent.at } }),
        None if left > 0 => Err(LogError::Away),
        last => {
            let offset = last.unwrap_or_default().max(extent.at.offset);
            Ok(Page { entries, upto: Position { offset, ..extent.at } })
        }
    }
}

/// The entry of a message; `None` if it is none of a hub. Programs beside the hub may write to the stream, too.
pub(crate) fn entry(kind: Kind, message: &Message) -> Option<Entry> {
    let offset = message.info().ok()?.stream_sequence;
    // Anything else would become a part of the hub's own JSON object.
    let Ok(data) = serde_json::from_slice::<&RawValue>(&message.payload) else {
        // Each reader of the topic meets it again.
        static WARNING: Once = Once::new();
        WARNING.call_once(|| log::warn!("messages that are no JSON are left out; the first is in {}", message.subject));
        return None;
    };
    let key = message.subject.rsplit_once('.').filter(|_| kind == Kind::Latest).and_then(|(_, key)| decode(key));
    Some(Entry { offset, key: key.map(Into::into), data: data.get().into() })
}
