//! Answers of NATS that no wait changes: only an operator does.

use async_nats::jetstream;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use jetstream::ErrorCode;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_hub::Kind;

/// Why NATS refuses a log, as long as it does. Clones are the same one.
///
/// An outage passes, and clients repeat what they have sent. A refusal stays until somebody changes the configuration or the
/// server: a server without room for the stream, for example. It is logged once as a warning. A server that
/// shows it in its readiness gets no clients that it could not serve:
///
/// ```no_run
/// use tautline_nats::{NatsConfig, NatsLog};
///
/// let log = NatsLog::start(NatsConfig::new("nats://nats.example:4222"))?;
/// let refusal = log.refusal();
/// println!("{:?}", refusal.reason()); // for `Admin::with_readiness`
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Refusal(Arc<Mutex<[Option<Arc<str>>; 5]>>);

/// A thing that NATS can refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Connection,
    Stream(Kind),
    Messages(Kind),
}

impl Refused {
    const fn index(self) -> usize {
        match self {
            Self::Connection => 0,
            Self::Stream(Kind::Latest) => 1,
            Self::Stream(_) => 2,
            Self::Messages(Kind::Latest) => 3,
            Self::Messages(_) => 4,
        }
    }
}

impl Refusal {
    /// The reason, with its remedy, as long as NATS refuses something.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.lock().iter().flatten().next().map(ToString::to_string)
    }

    /// NATS refuses something now.
    pub(crate) fn set(&self, refused: Refused, reason: &str) {
        let mut reasons = self.lock();
        let slot = &mut reasons[refused.index()];
        if slot.as_deref() != Some(reason) {
            log::warn!("NATS refuses the log of topics: {reason}");
            *slot = Some(reason.into());
        }
    }

    /// NATS does not refuse this any more.
    pub(crate) fn clear(&self, refused: Refused) {
        let was_refused = self.lock()[refused.index()].take().is_some();
        if was_refused && self.reason().is_none() {
            log::warn!("NATS refuses nothing of the log of topics any more");
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Arc<str>>; 5]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a stream is not made, if a wait does not help.
pub(crate) fn of_stream(error: &CreateStreamError) -> Option<String> {
    match error.kind() {
        CreateStreamErrorKind::JetStream(error) => of_answer(&error),
        CreateStreamErrorKind::JetStreamUnavailable => {
            Some("JetStream does not answer: turn it on at the NATS server (nats-server --jetstream)".to_owned())
        }
        _ => None,
    }
}

/// Why a message is not stored, if a wait does not help.
pub(crate) fn of_message(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<jetstream::Error>() {
        Some(answer) => of_answer(answer),
        None => of_message(error.source()?),
    }
}

fn of_answer(error: &jetstream::Error) -> Option<String> {
    let remedy = match error.error_code() {
        // Clusters that start or elect a leader say so, and a stream that is gone is made again.
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_ACTIVE
        | ErrorCode::CLUSTER_NOT_ASSIGNED
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::CLUSTER_INCOMPLETE
        | ErrorCode::RAFT_GENERAL
        | ErrorCode::STREAM_OFFLINE
        | ErrorCode::STREAM_MOVE_IN_PROGRESS
        | ErrorCode::STREAM_NOT_FOUND => return None,
        ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED => {
            "lower Retention::bytes (taut serve: --broker-size), or give JetStream more room; each of two streams takes that size"
        }
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED | ErrorCode::CLUSTER_NO_PEERS | ErrorCode::CLUSTER_REQUIRED => {
            "lower Retention::replicas (taut serve: --broker-replicas), or add servers to the cluster"
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            "turn JetStream on at the NATS server, for this account"
        }
        ErrorCode::STREAM_NAME_EXIST | ErrorCode::STREAM_SUBJECT_OVERLAP => {
            "another stream has its name or subjects: delete that, or take another NatsConfig::prefix"
        }
        _ => "look at the log of the NATS server",
    };
    Some(format!("{error}: {remedy}"))
}
