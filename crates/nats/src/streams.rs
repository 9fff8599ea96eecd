//! The two streams of a log: one for all topics with history, one for all conflating topics.

use crate::config::NatsConfig;
use crate::refusal;
use crate::subject::{encode, encode_part};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{self, Stream};
use std::sync::Arc;
use tautline_hub::backend::Refusal;
use tautline_hub::{Kind, LogError, Position};
use tokio::sync::Mutex;

/// A log's streams. They are made when they are needed.
pub(crate) struct Streams {
    pub(crate) context: Context,
    config: NatsConfig,
    /// By [`index`]; `None` before its first use, and after an error.
    known: Mutex<[Option<Stream>; 2]>,
    refusal: Refusal,
}

const fn index(kind: Kind) -> usize {
    matches!(kind, Kind::Latest) as usize
}

/// The state of a stream.
pub(crate) struct Extent {
    /// The last message, and the stream's life.
    pub(crate) at: Position,
    /// The first message that is kept.
    pub(crate) first: u64,
}

impl Streams {
    pub(crate) fn new(context: Context, config: NatsConfig, refusal: Refusal) -> Self {
        Self { context, config, known: Mutex::default(), refusal }
    }

    /// Notes that a message was stored, or why not. Returns the reason for the client.
    pub(crate) fn stored<T, E: std::error::Error + 'static>(
        &self,
        kind: Kind,
        result: Result<T, E>,
    ) -> Result<T, LogError> {
        let refused = refusal::messages(kind);
        match result {
            Ok(stored) => {
                self.refusal.clear(refused);
                Ok(stored)
            }
            Err(error) => {
                refusal::of_message(&error).into_iter().for_each(|reason| self.refusal.set(refused, &reason));
                Err(failed("JetStream has not acknowledged a message", &error))
            }
        }
    }

    /// The bytes of the largest message that the server takes.
    pub(crate) fn largest(&self) -> usize {
        self.context.client().server_info().max_payload
    }

    /// The identifier of a message in its stream, which topics share: one topic's identifiers say nothing about another's. A line
    /// break in it would panic in the client of NATS.
    pub(crate) fn message_id(topic: &str, id: &str) -> String {
        format!("{}.{}", encode_part(topic), encode_part(id))
    }

    /// The subject of a message.
    pub(crate) fn subject(&self, kind: Kind, topic: &str, key: Option<&str>) -> String {
        let prefix = &self.config.prefix;
        match kind {
            Kind::Latest => {
                format!("{prefix}.l.{}.{}", encode_part(topic), key.map_or_else(|| "-".into(), encode_part))
            }
            _ => format!("{prefix}.h.{}", encode(topic)),
        }
    }

    /// The subjects of all messages of a topic.
    pub(crate) fn pattern(&self, kind: Kind, topic: &str) -> String {
        match kind {
            Kind::Latest => format!("{}.l.{}.*", self.config.prefix, encode_part(topic)),
            _ => self.subject(kind, topic, None),
        }
    }

    /// The stream for topics of this kind.
    pub(crate) async fn get(&self, kind: Kind) -> Result<Stream, LogError> {
        let mut known = self.known.lock().await;
        let slot = &mut known[index(kind)];
        if let Some(stream) = slot {
            return Ok(stream.clone());
        }
        let config = self.stream(kind);
        let name = config.name.clone();
        match self.context.get_or_create_stream(config).await {
            Ok(stream) => {
                self.refusal.clear(refusal::stream(kind));
                *slot = Some(stream.clone());
                Ok(stream)
            }
            Err(error) => {
                if let Some(reason) = refusal::of_stream(&error) {
                    self.refusal.set(refusal::stream(kind), &format!("cannot make the stream {name}: {reason}"));
                }
                Err(failed("cannot make a stream", &error))
            }
        }
    }

    /// The stream may be gone.
    pub(crate) async fn forget(&self, kind: Kind) {
        self.known.lock().await[index(kind)] = None;
    }

    pub(crate) async fn extent(&self, kind: Kind) -> Result<Extent, LogError> {
        let stream = self.get(kind).await?;
        match stream.get_info().await {
            Ok(info) => {
                let at = Position { epoch: epoch(&info), offset: info.state.last_sequence };
                Ok(Extent { at, first: info.state.first_sequence })
            }
            Err(error) => {
                self.forget(kind).await;
                Err(failed("cannot ask for the state of a stream", &error))
            }
        }
    }

    fn stream(&self, kind: Kind) -> stream::Config {
        let NatsConfig { prefix, retention, .. } = &self.config;
        let common = stream::Config {
            storage: if retention.in_files { stream::StorageType::File } else { stream::StorageType::Memory },
            num_replicas: retention.replicas,
            max_bytes: i64::try_from(retention.bytes).unwrap_or(i64::MAX),
            duplicate_window: retention.ids,
            ..stream::Config::default()
        };
        let prefix_name = encode_part(prefix).to_uppercase();
        match kind {
            Kind::Latest => stream::Config {
                name: format!("TAUTLINE{prefix_name}_LATEST"),
                subjects: vec![format!("{prefix}.l.>")],
                max_messages_per_subject: 1,
                ..common
            },
            _ => stream::Config {
                name: format!("TAUTLINE{prefix_name}_HISTORY"),
                subjects: vec![format!("{prefix}.h.>")],
                max_age: retention.age,
                duplicate_window: retention.ids.min(retention.age),
                ..common
            },
        }
    }
}

/// The epoch of a stream: the time at which it was made.
pub(crate) fn epoch(info: &stream::Info) -> Arc<str> {
    Arc::from(format!("{:x}", info.created.unix_timestamp_nanos()))
}

/// The error of a request to JetStream. All of them may pass, since NATS may be away.
pub(crate) fn failed(what: &str, error: &dyn std::fmt::Display) -> LogError {
    log::debug!("{what}: {error}");
    LogError::Away
}
